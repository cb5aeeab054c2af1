"""What the gateway asks the OpenID provider: its keys, and a token of the gateway's own."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from urllib.parse import quote_plus, urlencode

from twisted.internet.interfaces import IReactorTime
from twisted.web.iweb import IAgent

from twisted_gateway.auth.flight import SingleFlight
from twisted_gateway.auth.jwks import FetchFailed
from twisted_gateway.auth.keys import MAX_DOCUMENT_BYTES
from twisted_gateway.config.schema import ClientCredentials
from twisted_gateway.core import strict_json
from twisted_gateway.upstream.whole import WholeAnswer, ask

ANSWER_SECONDS = 10.0
"""How long the provider may take to answer."""
MAX_TOKEN_ANSWER_BYTES = 262_144
"""The largest answer of a token endpoint that is read."""
DEFAULT_LIFE_SECONDS = 60.0
"""How long a token lives of which the provider does not say it."""
EARLY_SECONDS = 30.0
"""How long before its end a token is used no more, at most a fifth of its life."""

_MOST_LIFE_SECONDS = 604_800.0
_TOKEN = re.compile(r"[!-~]+")
_ERROR = re.compile(r"[a-z_]{1,64}")
_USER_AGENT = (b"User-Agent", b"twisted-gateway")


class Provider:
    """Asks the OpenID provider, each time within `ANSWER_SECONDS`.

    Args:
        agent: sends.
        clock: for the bounds.
    """

    def __init__(self, agent: IAgent, clock: IReactorTime) -> None:
        """Take what the class documents."""
        self._agent = agent
        self._clock = clock

    async def keys(self, url: str) -> bytes:
        """Fetch the document with its keys. Cancelling drops the connection.

        Raises:
            FetchFailed: it answered something else.
            UpstreamError: it did not answer.
        """
        accept = (b"Accept", b"application/jwk-set+json, application/json;q=0.9")
        answer = await self._ask(b"GET", url, (accept,), None, MAX_DOCUMENT_BYTES)
        if answer.code != 200:
            raise FetchFailed(f"the answer's status is {answer.code}")
        return answer.body

    async def token(self, url: str, client: ClientCredentials) -> tuple[str, float]:
        """Get a token by the client's credentials (RFC 6749, section 4.4).

        Returns:
            The token, and how many seconds it lives. Cancelling drops the connection.

        Raises:
            FetchFailed: it refused, or gave no bearer token.
            UpstreamError: it did not answer.
        """
        form = {"grant_type": "client_credentials"}
        if client.scope is not None:
            form["scope"] = client.scope
        headers = (
            (b"Accept", b"application/json"),
            (b"Content-Type", b"application/x-www-form-urlencoded"),
            (b"Authorization", _basic(client)),
        )
        body = urlencode(form).encode("ascii")
        answer = await self._ask(b"POST", url, headers, body, MAX_TOKEN_ANSWER_BYTES)
        if answer.code != 200:
            raise FetchFailed(
                f"the token endpoint answered {answer.code}{_error_word(answer.body)}"
            )
        return _token(answer.body)

    async def _ask(
        self,
        method: bytes,
        url: str,
        headers: tuple[tuple[bytes, bytes], ...],
        body: bytes | None,
        limit_bytes: int,
    ) -> WholeAnswer:
        return await ask(
            self._agent,
            self._clock,
            method,
            url,
            (*headers, _USER_AGENT),
            body,
            limit_bytes=limit_bytes,
            seconds=ANSWER_SECONDS,
        )


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    until: float


class OwnToken:
    """The gateway's own token towards one upstream: kept until shortly before its end.

    Args:
        provider: gives it.
        url: the token endpoint.
        client: the gateway's credentials there.
        clock: tells the time.
    """

    def __init__(
        self, provider: Provider, url: str, client: ClientCredentials, clock: IReactorTime
    ) -> None:
        """Have none yet."""
        self._provider = provider
        self._url = url
        self._client = client
        self._clock = clock
        self._token: _Token | None = None
        self._flight: SingleFlight[_Token] = SingleFlight(self._fetch)

    async def get(self) -> str:
        """Give a token that is good for a while; at most one is asked for at a time.

        Cancelling stops nothing but the waiting.

        Raises:
            FetchFailed: the provider refused.
            UpstreamError: the provider did not answer.
        """
        token = self._token
        if token is None or self._clock.seconds() >= token.until:
            token = await self._flight.run()
        return token.text

    def refused(self, text: str) -> None:
        """The upstream does not accept this token: the next request gets another."""
        if self._token is not None and self._token.text == text:
            self._token = None

    async def _fetch(self) -> _Token:
        text, life_seconds = await self._provider.token(self._url, self._client)
        early_seconds = min(EARLY_SECONDS, life_seconds / 5)
        self._token = _Token(text, self._clock.seconds() + life_seconds - early_seconds)
        return self._token


def _basic(client: ClientCredentials) -> bytes:
    """The client's credentials in HTTP Basic, form-encoded first (RFC 6749, section 2.3.1)."""
    pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret.value)}"
    return b"Basic " + base64.b64encode(pair.encode("ascii"))


def _error_word(body: bytes) -> str:
    """Give the code of a token endpoint's error (RFC 6749, section 5.2), with a colon in front.

    Its sentence is about the gateway, and no client's to read.
    """
    try:
        tree = strict_json.loads(body)
    except (ValueError, RecursionError):
        return ""
    word = tree.get("error") if isinstance(tree, dict) else None
    return f": {word}" if isinstance(word, str) and _ERROR.fullmatch(word) else ""


def _token(body: bytes) -> tuple[str, float]:
    """Read the answer of a token endpoint (RFC 6749, section 5.1)."""
    try:
        tree = strict_json.loads(body)
    except (ValueError, RecursionError):
        raise FetchFailed("the token endpoint's answer is not JSON") from None
    text = tree.get("access_token") if isinstance(tree, dict) else None
    kind = tree.get("token_type") if isinstance(tree, dict) else None
    if not (isinstance(text, str) and _TOKEN.fullmatch(text)):
        raise FetchFailed("the token endpoint's answer has no access_token")
    if not (isinstance(kind, str) and kind.lower() == "bearer"):
        raise FetchFailed("the token endpoint's answer is no bearer token")
    life = tree.get("expires_in")
    if isinstance(life, bool) or not isinstance(life, int | float) or not life > 0:
        life = DEFAULT_LIFE_SECONDS
    # The lesser first: an integer of JSON may be more than any float is.
    return text, float(min(life, _MOST_LIFE_SECONDS))
