"""The guard at the door: whose token it is, and whether it allows what is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.auth.jwks import Fetch, KeyCache, KeysUnavailable
from twisted_gateway.auth.refusals import insufficient_scope, keys_unavailable, unauthorized
from twisted_gateway.auth.token import BadToken, Principal, Rules, check, parse
from twisted_gateway.config.schema import Auth

_BEARER = re.compile(rb"(?i:bearer) +([!-~]+)[ \t]*")


class Guard:
    """Judges bearer tokens by the `auth` in force.

    Args:
        clock: tells the time of day, in seconds since the epoch, as a reactor does.
        fetch: makes, of the URL of the issuer's keys, what fetches them.
    """

    def __init__(self, clock: IReactorTime, fetch: Callable[[str], Fetch]) -> None:
        """Accept nobody yet."""
        self._clock = clock
        self._fetch = fetch
        self._auth: Auth | None = None
        self._rules: Rules | None = None
        self._cache: KeyCache | None = None
        self._scopes: Mapping[str, tuple[str, ...]] = {}

    def adopt(self, auth: Auth | None) -> None:
        """Put `auth` in force; the keys stay where they come from the same place."""
        before, self._auth = self._auth, auth
        if _source(before) != _source(auth):
            self.stop()
            self._cache = None if auth is None else self._started(auth)
        self._scopes = {} if auth is None else auth.require_scopes
        self._rules = None if auth is None else _rules(auth)

    def stop(self) -> None:
        """Fetch no more keys."""
        cache, self._cache = self._cache, None
        if cache is not None:
            cache.stop()

    @property
    def accepts_tokens(self) -> bool:
        """Whether there is anybody whose tokens are accepted."""
        return self._rules is not None

    async def principal(self, authorization: Sequence[bytes]) -> Principal:
        """Judge the token that a request bears.

        Waits only where the issuer has to be asked for a key; cancelling stops the waiting.

        Args:
            authorization: the values of its Authorization fields.

        Returns:
            Whom the token speaks for.

        Raises:
            Problem: 401, there is none that is accepted; 503, none can be judged.
        """
        rules, cache = self._rules, self._cache
        try:
            if rules is None or cache is None:
                raise BadToken("this gateway accepts no tokens")
            token = parse(_bearer(authorization), rules)
            key = await cache.find(token.key_name, token.algorithm)
            if key is None:
                raise BadToken("the token is signed with a key that is not among the issuer's")
            return check(token, key, rules, self._clock.seconds())
        except BadToken as fault:
            raise unauthorized(str(fault)) from None
        except KeysUnavailable as fault:
            raise keys_unavailable(fault.retry_after_seconds) from None

    def missing_scopes(self, principal: Principal, service: str, resource: str) -> frozenset[str]:
        """Say which of the scopes that this takes a token has not."""
        return frozenset(self._needed(service, resource)) - principal.scopes

    def permit(self, principal: Principal, service: str, resource: str) -> None:
        """See to it that a token allows a resource of a service.

        Raises:
            Problem: 403, it has not all the scopes that `requireScopes` names.
        """
        if self.missing_scopes(principal, service, resource):
            raise insufficient_scope(self._needed(service, resource))

    def _needed(self, service: str, resource: str) -> tuple[str, ...]:
        one = self._scopes.get(f"{service}/{resource}")
        return self._scopes.get(service, ()) if one is None else one

    def _started(self, auth: Auth) -> KeyCache:
        cache = KeyCache(
            self._clock,
            self._fetch(auth.jwks_url),
            cooldown_seconds=auth.jwks_cooldown_seconds,
            refresh_seconds=auth.jwks_refresh_seconds,
        )
        cache.start()
        return cache


def _source(auth: Auth | None) -> tuple[str, float, float] | None:
    if auth is None:
        return None
    return auth.jwks_url, auth.jwks_cooldown_seconds, auth.jwks_refresh_seconds


def _rules(auth: Auth) -> Rules:
    return Rules(auth.issuer, auth.audience, frozenset(auth.algorithms), auth.leeway_seconds)


def _bearer(authorization: Sequence[bytes]) -> str:
    """Give the token of a request; it stands in the header alone (RFC 6750, section 2.1)."""
    if not authorization:
        raise BadToken("there is none")
    match = _BEARER.fullmatch(authorization[0])
    if match is None or len(authorization) > 1:
        raise BadToken("Authorization is not Bearer and one token")
    return match[1].decode("ascii")
