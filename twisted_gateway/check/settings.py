"""What the command line comes to: what to check, and the credentials that it leads to."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from twisted_gateway.check.catalogue import Accepted
from twisted_gateway.check.gateway import Grant
from twisted_gateway.check.probe import Tokens
from twisted_gateway.check.services import Asking
from twisted_gateway.check.suite import Plan
from twisted_gateway.config.faults import Wrong
from twisted_gateway.config.forms import credential
from twisted_gateway.console.arguments import see_writable
from twisted_gateway.core import strict_json

MAX_FILE_BYTES = 1024 * 1024
"""Of a file that is read."""
STANDARD_OUTPUT = Path("-")
"""The name of a file that stands for the standard output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line comes to.

    Attributes:
        plan: what to check.
        tokens: what requests bear.
        secrets: what is to be shown nowhere.
    """

    plan: Plan
    tokens: Tokens
    secrets: frozenset[str]


def accepted(chosen: argparse.Namespace) -> Accepted:
    """Put together which statuses are accepted."""
    of_checks: dict[str, frozenset[int]] = {}
    for name, codes in chosen.accept:
        of_checks[name] = of_checks.get(name, frozenset()) | codes
    return Accepted(of_checks.pop("", frozenset()), of_checks)


def read(chosen: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    """Read the files and variables that are named.

    Raises:
        Wrong: one is not there, or not as it must be; the text says which, and nothing of it.
    """
    given = chosen.token_file is not None or chosen.token_env is not None
    token = _secret("token", chosen.token_file, chosen.token_env, environ) if given else ""
    key = _secret("API key", None, chosen.api_key_env, environ) if chosen.api_key_env else ""
    grant = None
    if chosen.client_id is not None:
        file, name = chosen.client_secret_file, chosen.client_secret_env
        secret = _secret("client secret", file, name, environ)
        parameters = tuple(chosen.token_parameter)
        grant = Grant(client=chosen.client_id, secret=secret, parameters=parameters)
    asking = Asking(
        bucket=chosen.bucket or "",
        namespace=chosen.namespace,
        notify=chosen.notify,
        bodies={name: _json_file(path) for name, path in chosen.body},
    )
    secrets = {token, key} | ({grant.secret, grant.basic} if grant is not None else set())
    return Settings(
        plan=Plan(
            admin_named=chosen.admin is not None,
            models=chosen.models,
            services=chosen.services,
            grant=grant,
            asking=asking,
            token_to_models=chosen.token_to_models,
        ),
        tokens=Tokens(gateway=token, engine=key),
        secrets=frozenset(secrets - {""}),
    )


def _secret(what: str, file: Path | None, name: str | None, environ: Mapping[str, str]) -> str:
    where = str(file) if file is not None else str(name)
    text = _read(file).decode("utf-8", "replace") if file else environ.get(name or "", "")
    try:
        found = credential(text)
    except Wrong:
        raise Wrong(f"{where}: expected a {what} of visible ASCII characters") from None
    if not found:
        raise Wrong(f"{where}: expected a {what}, and there is none")
    return found


def _json_file(path: Path) -> bytes:
    body = _read(path)
    try:
        strict_json.loads(body)
    except (ValueError, RecursionError):
        raise Wrong(f"{path}: expected JSON") from None
    return body


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            body = file.read(MAX_FILE_BYTES + 1)
    except OSError as fault:
        raise Wrong(f"{path} cannot be read: {fault.strerror or fault}") from None
    if len(body) > MAX_FILE_BYTES:
        raise Wrong(f"{path}: expected at most {MAX_FILE_BYTES} bytes")
    return body


def see_file(path: Path | None) -> None:
    """See that the report can be written, before anything has been checked.

    Raises:
        Wrong: it cannot.
    """
    if path is not None and path != STANDARD_OUTPUT:
        see_writable(path)
