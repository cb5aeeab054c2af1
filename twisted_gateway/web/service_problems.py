"""What a client is told whose request to a service cannot be served."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.redaction import presentable
from twisted_gateway.services.adapter import Refused
from twisted_gateway.upstream.errors import AnswerTimedOut, ConnectTimedOut, UpstreamError

MOST_NAMES = 20
"""How many bad parameters an error names: a query string has room for thousands."""

MOST_MESSAGE_CHARACTERS = 2000
"""How much of a service's own words is shown."""


_OF_THE_GATEWAY = frozenset({401, 407})


class ServiceRefusal(Problem):
    """The service's own 4xx or 5xx, with its status and words (`service_refused`).

    One that asks for credentials asks the gateway, whose own it was sent: to the client, whose
    token is good, that is a 502.

    Attributes:
        wordless: the fact alone, for the log: a service's words may quote what it was sent.
    """

    def __init__(self, service: str, refusal: Refused, hosts: Iterable[str] = ()) -> None:
        """Take what the service said.

        Args:
            service: its name.
            refusal: its status and words.
            hosts: the names of the hosts that were asked, which no client is to see.
        """
        message = presentable(refusal.message, MOST_MESSAGE_CHARACTERS, hosts=hosts)
        self.wordless = f"The service {service} answered {refusal.status}."
        super().__init__(
            "service_refused",
            502 if refusal.status in _OF_THE_GATEWAY else refusal.status,
            f"{self.wordless[:-1]}: {message or 'it gave no reason'}",
            outcome=Outcome.UPSTREAM_STATUS,
            members={
                "service": service,
                "upstream_status": refusal.status,
                "upstream_message": message,
            },
            headers=refusal.headers,
        )


def unknown_service(name: str | None, known: Iterable[str]) -> Problem:
    """X-Service names nothing that is configured, or does so twice."""
    names = sorted(known)
    asked = "X-Service stands twice" if name is None else f"{name[:64]!r} is no service here"
    return Problem(
        "unknown_service",
        404,
        f"{asked}; there are: {', '.join(names) or 'none'}.",
        outcome=Outcome.BAD_REQUEST,
        members={"valid_services": names},
        param="X-Service",
    )


def unknown_resource(service: str, name: str | None, known: Iterable[str]) -> Problem:
    """X-Resource names nothing that the service has, or nothing, or does so twice."""
    names = sorted(known)
    asked = "X-Resource names none" if name is None else f"{name[:64]!r} is none"
    return Problem(
        "unknown_resource",
        404,
        f"{asked} of the resources of {service}: {', '.join(names)}.",
        outcome=Outcome.BAD_REQUEST,
        members={"valid_resources": names},
        param="X-Resource",
    )


def every_method(methods: Iterable[str]) -> list[str]:
    """Give methods with those that are served wherever they are: HEAD for GET, and OPTIONS."""
    known = {"OPTIONS", *methods}
    return sorted(known | ({"HEAD"} if "GET" in known else set()))


def wrong_method(target: str, method: str, allowed: Iterable[str]) -> Problem:
    """The resource takes other methods."""
    methods = every_method(allowed)
    return Problem(
        "method_not_allowed",
        405,
        f"{target} takes {', '.join(methods)}, not {method}.",
        outcome=Outcome.BAD_REQUEST,
        headers={"Allow": ", ".join(methods)},
    )


def bad_parameters(missing: Iterable[str], invalid: Mapping[str, str]) -> Problem:
    """Parameters, of the query string or the body, are missing, or are not what they take.

    Args:
        missing: names.
        invalid: name -> what was expected.
    """
    names = list(missing)
    shown = dict(islice(invalid.items(), MOST_NAMES))
    clauses = [f"{name} is missing" for name in names]
    clauses += [f"{name}: expected {expected}" for name, expected in shown.items()]
    if len(shown) < len(invalid):
        clauses.append(f"{len(invalid) - len(shown)} more are not what they take")
    return Problem(
        "bad_parameters",
        400,
        f"The parameters of the request are not what is needed: {'; '.join(clauses)}.",
        outcome=Outcome.BAD_REQUEST,
        members={"missing": names, "invalid": shown},
        param=next(iter([*names, *invalid]), None),
    )


def silent(service: str, seconds: float) -> Problem:
    """The service was silent for `timeoutSeconds`."""
    return Problem(
        "upstream_timeout",
        504,
        f"The service {service} was silent for {seconds:g} s.",
        outcome=Outcome.UPSTREAM_TIMEOUT,
    )


def unfinished(service: str, seconds: float) -> Problem:
    """The service answered, and had not ended after `timeoutSeconds`, which is a bound here."""
    return Problem(
        "upstream_timeout",
        504,
        f"The service {service} had not answered whole after {seconds:g} s.",
        outcome=Outcome.UPSTREAM_TIMEOUT,
    )


def client_silent(seconds: float) -> Problem:
    """The client sent nothing for `timeoutSeconds` in the middle of its body."""
    return Problem(
        "body_timeout",
        408,
        f"Nothing more of the request body came for {seconds:g} s.",
        outcome=Outcome.BAD_REQUEST,
    )


def answered_early(service: str) -> Problem:
    """The service said that all is well before it had read all."""
    return Problem(
        "upstream_error",
        502,
        f"The service {service} answered before it had the whole request body.",
        outcome=Outcome.UPSTREAM_ERROR,
    )


def failed(what: str, fault: UpstreamError) -> Problem:
    """No answer that is one.

    Args:
        what: what was asked, as the subject of a sentence: `The service memory`.
        fault: why there is none.
    """
    if isinstance(fault, ConnectTimedOut | AnswerTimedOut):
        return Problem(
            "upstream_timeout",
            504,
            f"{what} could not be reached in time: {fault.reason}.",
            outcome=Outcome.UPSTREAM_TIMEOUT,
        )
    return Problem(
        "upstream_error",
        502,
        f"{what} gave no answer that can be passed on: {fault.reason}.",
        outcome=Outcome.UPSTREAM_ERROR,
    )
