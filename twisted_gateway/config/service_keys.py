"""The keys of `adapters`, a section for each kind, and of `auth`; keys.py puts them to the rest."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from twisted_gateway.config import forms
from twisted_gateway.config.adapters import (
    IamAdapter,
    NotificationAdapter,
    RegistryAdapter,
    SqsAdapter,
    WorkflowAdapter,
)
from twisted_gateway.config.by_kind import ByKind
from twisted_gateway.config.kinds import BYTES, SECONDS, Choice, Flag, Number, Text
from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.config.sandbox_keys import KEYS as SANDBOX_KEYS
from twisted_gateway.config.schema import (
    Adapter,
    Auth,
    ClientCredentials,
    MemoryAdapter,
    S3Adapter,
)
from twisted_gateway.config.secret import SecretText
from twisted_gateway.config.sections import Key, ListOf, MapOf, Section

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""What `auth.algorithms` may name: signatures whose checking takes no secret (RFC 7518, 8037)."""

_HTTP = r"^[Hh][Tt][Tt][Pp][Ss]?://"
_UPSTREAM = Text(forms.service_url, "a URL such as http://host:8080", _HTTP)
_DOCUMENT = Text(forms.document_url, "a URL such as https://issuer.example/jwks", _HTTP)
_WORD = Text(forms.printable, max_characters=1024)

CLIENT = Section(
    target=ClientCredentials,
    extra={"required": ["id", "secret"]},
    keys=(
        Key(
            name="id",
            kind=_WORD,
            attribute="client_id",
            about="The client identifier that the provider knows the gateway by.",
        ),
        Key(
            name="secret",
            kind=SecretText(),
            attribute="client_secret",
            about="The client secret.",
        ),
        Key(name="scope", kind=_WORD, about="The scopes to ask for. Default: the provider's."),
    ),
)


def _adapter(target: type[Adapter], *keys: Key, required: tuple[str, ...]) -> Section:
    """Give the section of a kind: its own keys, and those that every adapter has."""
    common = (
        Key(
            name="kind",
            kind=Choice({target.kind: target.kind}),
            show=lambda one: None if one.kind == one.name else one.kind,
            about="What the adapter is. Default: its name.",
        ),
        Key(
            name="requireAuth",
            kind=Flag(),
            about="Whether requests need a token that `auth` accepts.",
        ),
        Key(
            name="maxBodyBytes",
            kind=BYTES,
            derived=target is not S3Adapter,
            about="The largest request body."
            + ("" if target is S3Adapter else " Default: the global one."),
        ),
        Key(
            name="timeoutSeconds",
            kind=SECONDS,
            about="How long the service may be silent, or a client in the middle of a body.",
        ),
    )
    return Section(target=target, keys=(*keys, *common), extra={"required": list(required)})


def _upstream(about: str) -> Key:
    return Key(name="upstream", kind=_UPSTREAM, about=about)


MEMORY = _adapter(
    MemoryAdapter,
    _upstream("The service's base URL."),
    Key(
        name="resources",
        attribute="paths",
        kind=MapOf(
            Text(forms.printable, f"one of {', '.join(MemoryAdapter.resources)}"),
            Text(forms.url_path, "a path", "^/"),
            "a mapping from resources to paths",
        ),
        about="Resource -> the path below upstream that it is posted to.",
    ),
    Key(
        name="client",
        kind=CLIENT,
        show=lambda one: None if one.client is None else CLIENT.plain(one.client),
        about="With what the gateway gets a token of its own for the service from auth.tokenUrl.",
    ),
    required=("upstream",),
)

_SIGNED = (
    Key(name="region", kind=_WORD, about="The region that signatures name."),
    Key(name="accessKey", kind=SecretText(), about="The gateway's access key."),
    Key(name="secretKey", kind=SecretText(), about="The secret of that key."),
)

S3 = _adapter(
    S3Adapter,
    _upstream("The store's base URL; buckets are path segments below it."),
    *_SIGNED,
    required=("upstream", "accessKey", "secretKey"),
)

SQS = _adapter(
    SqsAdapter,
    _upstream("The base URL of what speaks SQS, in its JSON protocol."),
    *_SIGNED,
    required=("upstream", "accessKey", "secretKey"),
)


def _token(about: str) -> Key:
    return Key(name="token", kind=SecretText(), about=about)


IAM = _adapter(
    IamAdapter,
    _upstream("authentik's base URL."),
    _token("The API token of the gateway's service account there."),
    required=("upstream", "token"),
)

NOTIFICATION = _adapter(
    NotificationAdapter,
    _upstream("Gotify's base URL."),
    _token("The token of the Gotify application that messages count for."),
    required=("upstream", "token"),
)

REGISTRY = _adapter(
    RegistryAdapter,
    _upstream("Forgejo's, or Gitea's, base URL."),
    _token("The gateway's access token there. Default: what is public is listed."),
    required=("upstream",),
)

WORKFLOW = _adapter(
    WorkflowAdapter,
    Key(
        name="upstream",
        kind=Text(forms.host_port, "HOST:PORT such as temporal-frontend:7233"),
        about="HOST:PORT of Temporal's frontend. It takes the extra `workflow`.",
    ),
    Key(name="tls", kind=Flag(), about="Whether it is reached over TLS."),
    required=("upstream",),
)

SESSIONS = _adapter(SessionsAdapter, *SANDBOX_KEYS, required=("image", "namespace"))

KINDS: Mapping[str, Section] = MappingProxyType(
    {
        section.target.kind: section
        for section in (MEMORY, S3, SQS, IAM, NOTIFICATION, REGISTRY, WORKFLOW, SESSIONS)
    }
)

ADAPTERS = ByKind(
    name=Text(forms.service_name, "a name for X-Service"),
    kinds=KINDS,
    what="a mapping from names to adapters",
)


def _scopes(auth: Auth) -> dict[str, Any]:
    return {name: list(scopes) for name, scopes in auth.require_scopes.items()}


AUTH = Section(
    target=Auth,
    keys=(
        Key(name="issuer", kind=_WORD, about="What a token's `iss` must be, to the letter."),
        Key(name="audience", kind=_WORD, about="What must be among its `aud`."),
        Key(name="jwksUrl", kind=_DOCUMENT, about="Where the issuer publishes its keys."),
        Key(
            name="tokenUrl",
            kind=_DOCUMENT,
            about="The issuer's token endpoint, which POST /v1/auth/token asks.",
        ),
        Key(
            name="algorithms",
            kind=ListOf(Choice({name: name for name in ALGORITHMS}), "algorithms", minimum=1),
            about="The signatures that are accepted.",
        ),
        Key(
            name="leewaySeconds",
            kind=Number(0, 3600),
            about="How far apart the issuer's clock and the gateway's may be.",
        ),
        Key(
            name="requireScopes",
            kind=MapOf(
                Text(forms.printable, "an adapter's name, or NAME/RESOURCE"),
                ListOf(Text(forms.scope, "a scope"), "scopes", minimum=1),
                "a mapping from adapters to scopes",
            ),
            show=_scopes,
            about="NAME, or NAME/RESOURCE, of an adapter -> the scopes that a token must bear "
            "there, all of them; NAME/RESOURCE counts in place of NAME.",
        ),
        Key(
            name="jwksCooldownSeconds",
            kind=SECONDS,
            about="The least time between two fetches of the keys for the sake of one that is "
            "not among them.",
        ),
        Key(
            name="jwksRefreshSeconds",
            kind=SECONDS,
            about="The time between two fetches of the keys in the background.",
        ),
    ),
)
