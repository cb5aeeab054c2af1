"""The guard at the door: whose token it is, and whether it allows what is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.auth.jwks import Fetch, KeyCache, KeysUnavailable
from twisted_gateway.auth.refusals import keys_unavailable, unauthorized
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
        """Put `auth` in force; the keys stay where they come from the same place.

        Requests that wait for keys from another place are judged anew by what is in force now.
        """
        before, self._auth = self._auth, auth
        self._scopes = {} if auth is None else auth.require_scopes
        self._rules = None if auth is None else _rules(auth)
        if auth is not None and before is not None and before.jwks_url == auth.jwks_url:
            if self._cache is not None:
                self._cache.pace(auth.jwks_cooldown_seconds, auth.jwks_refresh_seconds)
            return
        # The new one first: whoever waited for the old one goes on within `stop`.
        old, self._cache = self._cache, None if auth is None else self._started(auth)
        if old is not None:
            old.stop()

    def stop(self) -> None:
        """Fetch no more keys."""
        if self._cache is not None:
            self._cache.stop()

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
        while True:
            cache = self._cache
            try:
                principal = await self._judged(authorization, cache)
                if cache is self._cache:
                    return principal
            except BadToken as fault:
                if cache is self._cache:
                    raise unauthorized(str(fault)) from None
            except KeysUnavailable as fault:
                if cache is self._cache:
                    raise keys_unavailable(fault.retry_after_seconds) from None

    def scopes(self, service: str, resource: str) -> frozenset[str]:
        """Say which scopes a token must have for a resource of a service.

        Whoever has found the resource asks at once, before anything is awaited: a reload may call
        it otherwise.
        """
        one = self._scopes.get(f"{service}/{resource}")
        return frozenset(self._scopes.get(service, ()) if one is None else one)

    async def _judged(self, authorization: Sequence[bytes], cache: KeyCache | None) -> Principal:
        """Judge a token by the rules in force.

        Raises:
            BadToken, KeysUnavailable: see `principal`.
        """
        rules = self._rules
        if rules is None or cache is None:
            raise BadToken("this gateway accepts no tokens")
        token = parse(_bearer(authorization), rules)
        key = await cache.find(token.key_name, token.algorithm)
        if key is None:
            raise BadToken("the token is signed with a key that is not among the issuer's")
        return check(token, key, rules, self._clock.seconds())

    def _started(self, auth: Auth) -> KeyCache:
        cache = KeyCache(
            self._clock,
            self._fetch(auth.jwks_url),
            cooldown_seconds=auth.jwks_cooldown_seconds,
            refresh_seconds=auth.jwks_refresh_seconds,
        )
        cache.start()
        return cache


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
