"""The parameters of a request to a service, from its query string and body, checked as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from twisted.web.http_headers import Headers

from twisted_gateway.core import strict_json
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.headers import is_json
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services.adapter import BadParameter, Parameter
from twisted_gateway.web.service_problems import bad_parameters

MOST_MEMBERS = 100
"""How many objects and members a body may have: no operation takes a tenth of that."""

_SHOWN_CHARACTERS = 64


def read_parameters(
    query: bytes, known: Sequence[Parameter], fields: Mapping[str, Any] | None = None
) -> Mapping[str, str]:
    """Read a query string, and the members of a body.

    Args:
        query: as it came, without the `?`.
        known: what there may be.
        fields: the body's members, as `read_fields` gives them.

    Returns:
        As `check_parameters`.

    Raises:
        Problem: 400, with the name of every one that is missing, bad, unknown or there twice.
    """
    given, invalid = _pairs(query)
    names = {parameter.name for parameter in known}
    for name, value in (fields or {}).items():
        # Of what is not known the name alone is wanted, to refuse it.
        text = as_text(value) if name in names else ""
        if name in given:
            invalid[name[:_SHOWN_CHARACTERS]] = "it once, in the query string or in the body"
        elif text is None:
            invalid[name[:_SHOWN_CHARACTERS]] = "a string, a number, true or false"
        else:
            given[name] = text
    return check_parameters(given, known, invalid)


def check_parameters(
    given: Mapping[str, str], known: Sequence[Parameter], invalid: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """Check parameters.

    Args:
        given: name -> value, as somebody wrote it.
        known: what there may be.
        invalid: what is wrong already: name -> what was expected.

    Returns:
        name -> value, in the parameter's form; those that are absent or empty are left out.

    Raises:
        Problem: 400, as for `read_parameters`.
    """
    wrong = dict(invalid or {})
    forms = {parameter.name: parameter for parameter in known}
    values: dict[str, str] = {}
    for name, value in given.items():
        parameter = forms.get(name)
        if parameter is None:
            names = ", ".join(forms) or "no parameter"
            wrong[name[:_SHOWN_CHARACTERS]] = f"{names}, and no other"
        elif value:
            try:
                values[name] = parameter.form(value)
            except BadParameter as fault:
                wrong[name] = fault.expected
    missing = [one.name for one in known if one.required and one.name not in values | wrong]
    if missing or wrong:
        raise bad_parameters(missing, wrong)
    return values


def read_fields(headers: Headers, body: bytes) -> Mapping[str, Any]:
    """Read a body that holds parameters: a JSON object, or nothing at all.

    Raises:
        Problem: 400, 415.
    """
    if not body:
        return {}
    if not is_json(headers.getRawHeaders(b"Content-Type", [b""])[0]):
        raise Problem(
            "parameters_not_json",
            415,
            "The parameters in a body are a JSON object: its Content-Type is application/json.",
            outcome=Outcome.BAD_REQUEST,
        )
    try:
        tree = strict_json.loads(body, _Members())
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise Problem(
            "malformed_body",
            400,
            "The body is not a JSON object in UTF-8 with each member once, and at most "
            f"{MOST_MEMBERS} members.",
            outcome=Outcome.BAD_REQUEST,
        )
    return tree


def as_text(value: Any) -> str | None:
    """Give a value of JSON as the query string would have it; None for lists and objects."""
    if isinstance(value, str):
        # A lone surrogate is no text that anybody could be sent.
        return value if value.isascii() or _is_text(value) else None
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return None


def _is_text(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class _Members:
    """Makes the objects of one document, and gives it up before they are many.

    The members of a body are judged one by one, while the reactor does nothing else.
    """

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, members: list[tuple[str, Any]]) -> dict[str, Any]:
        self._count += 1 + len(members)
        if self._count > 1 + MOST_MEMBERS:
            raise ValueError("too many members")
        found = dict(members)
        if len(found) < len(members):
            raise ValueError("a member stands twice")
        return found


def _pairs(query: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """Take a query string apart; gives what is there, and what is wrong with the rest."""
    given: dict[str, str] = {}
    invalid: dict[str, str] = {}
    for part in filter(None, query.split(b"&")):
        raw_name, _, raw_value = part.partition(b"=")
        name = _decoded(raw_name)
        value = _decoded(raw_value)
        shown = "?" if name is None else name[:_SHOWN_CHARACTERS]
        if name is None or value is None:
            invalid[shown] = "percent-encoded UTF-8"
        elif name in given:
            invalid[shown] = "it once"
        else:
            given[name] = value
    return given, invalid


def _decoded(raw: bytes) -> str | None:
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError:
        return None
