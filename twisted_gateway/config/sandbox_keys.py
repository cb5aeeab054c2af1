"""The keys of a `sessions` adapter; service_keys.py puts them to those that every adapter has."""

from __future__ import annotations

from typing import Any

from twisted_gateway.config import forms
from twisted_gateway.config.kinds import SECONDS, Number, Text, Whole
from twisted_gateway.config.reading import Schema
from twisted_gateway.config.sandbox import (
    SessionsAdapter,
    dns_label,
    dns_subdomain,
    entity_url,
    label_key,
    label_value,
    quantity,
)
from twisted_gateway.config.secret import SecretText
from twisted_gateway.config.sections import Key, MapOf, Section
from twisted_gateway.config.source import Scalar


class Quantity(Text):
    """A quantity of Kubernetes, which may be a plain number: `cpu: 1`."""

    def parse(self, scalar: Scalar) -> Any:
        """Read a number as the text that it is."""
        return self.judge(scalar.text)

    def schema(self) -> Schema:
        """Say either."""
        return {"anyOf": [super().schema(), {"type": "number"}]}


_HTTP = r"^[Hh][Tt][Tt][Pp][Ss]?://"
_URL = Text(forms.service_url, "a URL such as http://host:8080", _HTTP)
_LABEL = Text(dns_label, "a DNS label", max_characters=63)
_NAME = Text(dns_subdomain, "a DNS name", max_characters=253)
_QUANTITY = Quantity(quantity, "a quantity such as 500m, 2 or 512Mi", max_characters=32)
_QUANTITIES = MapOf(
    Text(label_key, "a resource such as cpu"), _QUANTITY, "a mapping from resources to quantities"
)
_LABELS = MapOf(
    Text(label_key, "the key of a label"),
    Text(label_value, "the value of a label"),
    "a mapping from the keys of labels to their values",
    minimum=1,
)
_PORT = Whole(1, 65535)


def _section(*keys: Key) -> Section:
    """Give a section whose keys are the adapter's own attributes."""
    return Section(target=SessionsAdapter, inline=True, keys=keys)


def _peer(what: str, prefix: str, *more: Key) -> Section:
    return _section(
        Key(
            name="namespace",
            kind=_LABEL,
            attribute=f"{prefix}_namespace",
            about=f"The namespace of {what}. Default: that of the sandboxes.",
        ),
        Key(
            name="labels",
            kind=_LABELS,
            attribute=f"{prefix}_labels",
            about=f"The labels of the pods of {what}.",
        ),
        *more,
    )


def _kubernetes() -> Section:
    return _section(
        Key(name="server", kind=_URL, about="The API's URL. Default: that of the pod's cluster."),
        Key(name="token", kind=SecretText(), about="A bearer token. Default: serviceAccount's."),
        Key(
            name="ca",
            kind=Text(forms.file_path, "the path of a file"),
            about="A file with the certificates that the API's is checked by. "
            "Default: serviceAccount's.",
        ),
        Key(
            name="serviceAccount",
            kind=Text(forms.file_path, "the path of a directory"),
            about="A directory with token and ca.crt, which are read again when they rotate.",
        ),
    )


def _storage() -> Section:
    return _section(
        Key(
            name="class",
            kind=_NAME,
            attribute="storage_class",
            about="The StorageClass of workspaces. Default: the cluster's.",
        ),
        Key(
            name="size", kind=_QUANTITY, attribute="storage_size", about="The size of a workspace."
        ),
    )


def _quantities(attribute: str, about: str) -> Key:
    def show(adapter: SessionsAdapter) -> dict[str, Any]:
        return dict(getattr(adapter, attribute))

    return Key(name=attribute, kind=_QUANTITIES, show=show, about=about)


KEYS = (
    Key(
        name="image",
        kind=Text(forms.printable, "the name of an image", max_characters=512),
        about="What a sandbox runs.",
    ),
    Key(name="namespace", kind=_LABEL, about="The namespace that the sandboxes are in."),
    Key(
        name="imagePullSecret",
        kind=_NAME,
        about="The Secret in that namespace with which the image is pulled.",
    ),
    Key(name="port", kind=_PORT, about="Where a sandbox listens."),
    Key(name="storage", kind=_storage(), about="The workspace of a session."),
    Key(
        name="resources",
        kind=_section(
            _quantities("requests", "What a sandbox asks for."),
            _quantities("limits", "What it may have at most."),
        ),
        about="What a sandbox is given of the node.",
    ),
    Key(
        name="fleet",
        kind=_URL,
        about="The fleet controller's URL: it is asked before Kubernetes, unless the session has "
        "its workspace there. Default: there is none.",
    ),
    Key(
        name="fleetSeconds",
        kind=SECONDS,
        about="How long the fleet controller may take to assign a pod.",
    ),
    Key(
        name="memoryEntity",
        kind=Text(entity_url, "a URL with {session_id} in its path", _HTTP),
        about="The memory entity of a session, into which is merged where its sandbox is. "
        "Default: none.",
    ),
    Key(name="kubernetes", kind=_kubernetes(), about="How the Kubernetes API is reached."),
    Key(
        name="gateway",
        kind=_peer(
            "the gateway",
            "gateway",
            Key(
                name="port",
                kind=_PORT,
                attribute="gateway_port",
                about="Where the gateway's pods listen.",
            ),
        ),
        about="Whom sandboxes may reach, apart from DNS.",
    ),
    Key(name="frontend", kind=_peer("the frontend", "frontend"), about="Who may reach sandboxes."),
    Key(
        name="clusterDomain",
        kind=_NAME,
        about="The last part of the DNS names of Services.",
    ),
    Key(
        name="reaperIntervalMinutes",
        kind=Number(0, 10_080),
        environment=("SANDBOX_REAPER_INTERVAL_MINUTES",),
        about="The time between two looks for sandboxes that have ended.",
    ),
)
