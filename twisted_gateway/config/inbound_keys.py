"""The keys of `webhooks` and `routes`; keys.py puts them to the rest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from twisted_gateway.config import forms
from twisted_gateway.config.inbound import LegacyRoute, Webhook, WebhookTarget
from twisted_gateway.config.kinds import BYTES, SECONDS, Flag, Text
from twisted_gateway.config.reading import Kind
from twisted_gateway.config.secret import SecretText
from twisted_gateway.config.sections import Key, ListOf, MapOf, Section

MOST_TARGETS = 64
"""How many targets a webhook has at most."""
MOST_ROUTES = 256
"""How many legacy routes there are at most."""

_SERVICE = Text(forms.service_name, "an adapter's name")
_WORD = Text(forms.printable, max_characters=128)
_MOMENT = Text(forms.moment, "a date such as 2027-01-01", r"^\d{4}-\d{2}-\d{2}")

TARGET = Section(
    target=WebhookTarget,
    extra={"required": ["event", "service", "resource"]},
    keys=(
        Key(
            name="event",
            kind=_WORD,
            about="The event's name in X-Forgejo-Event, such as push; * is any.",
        ),
        Key(name="service", kind=_SERVICE, about="The adapter that is asked."),
        Key(name="resource", kind=_WORD, about="What is asked of it."),
        Key(
            name="parameters",
            kind=MapOf(
                Text(forms.printable, "a parameter's name", max_characters=64),
                Text(forms.template, max_characters=4096),
                "a mapping from parameters to templates",
            ),
            derived=True,
            about="Parameter -> its value, in which {repository[full_name]} stands for that member "
            "of the event, and {{ for a brace.",
        ),
    ),
)

FORGEJO = Section(
    target=Webhook,
    keys=(
        Key(
            name="secret",
            kind=SecretText(),
            about="The secret that Forgejo signs with. Without it every delivery is 503.",
        ),
        Key(
            name="targets",
            kind=ListOf(TARGET, "targets", maximum=MOST_TARGETS, identity=id),
            about="What events lead to.",
        ),
        Key(
            name="maxBodyBytes",
            kind=BYTES,
            derived=True,
            about="The largest event. Default: the global one.",
        ),
    ),
)


def _moment(attribute: str) -> Callable[[LegacyRoute], str | None]:
    def show(route: LegacyRoute) -> str | None:
        moment: datetime | None = getattr(route, attribute)
        return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    return show


def _of_upstream(kind: Kind, attribute: str) -> Callable[[LegacyRoute], Any]:
    def show(route: LegacyRoute) -> Any:
        return None if route.upstream is None else kind.plain(getattr(route, attribute))

    return show


ROUTE = Section(
    target=LegacyRoute,
    extra={
        "required": ["path"],
        "oneOf": [{"required": ["upstream"]}, {"required": ["adapter"]}],
    },
    keys=(
        Key(
            name="path",
            kind=Text(forms.plain_path, "a path such as /memory", "^/"),
            about="The prefix of the paths that are kept working: whole segments.",
        ),
        Key(
            name="upstream",
            kind=Text(forms.service_url, "a URL such as http://host:8080"),
            about="The base URL that requests go to.",
        ),
        Key(
            name="stripPrefix",
            kind=Flag(),
            show=_of_upstream(Flag(), "strip_prefix"),
            about="Whether the upstream gets paths without the prefix.",
        ),
        Key(
            name="adapter", kind=_SERVICE, about="The adapter that is asked, in place of upstream."
        ),
        Key(
            name="resource",
            kind=_WORD,
            about="What is asked of the adapter. Default: the path's segment behind the prefix.",
        ),
        Key(
            name="requireAuth",
            kind=Flag(),
            about="Whether requests need a token that `auth` accepts; it is not sent on. What an "
            "adapter requires holds as well.",
        ),
        Key(
            name="deprecation",
            kind=_MOMENT,
            show=_moment("deprecation"),
            about="Since when the route is deprecated, or from when; for the field Deprecation.",
        ),
        Key(
            name="sunset",
            kind=_MOMENT,
            show=_moment("sunset"),
            about="When the route is expected to go, not before deprecation; for the field Sunset.",
        ),
        Key(
            name="successor",
            kind=Text(forms.reference, "a URL or an absolute path"),
            about="What takes its place; for the field Link.",
        ),
        Key(
            name="maxBodyBytes",
            kind=BYTES,
            derived=True,
            show=_of_upstream(BYTES, "max_body_bytes"),
            about="The largest request body, for an upstream. Default: the global one.",
        ),
        Key(
            name="timeoutSeconds",
            kind=SECONDS,
            show=_of_upstream(SECONDS, "timeout_seconds"),
            about="How long the upstream may be silent.",
        ),
    ),
)

ROUTES = ListOf(ROUTE, "routes", maximum=MOST_ROUTES, identity=id)
