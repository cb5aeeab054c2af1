"""How many replicas there are, or where: `replicas` of `admission`."""

from __future__ import annotations

from typing import Any

from twisted_gateway.config import forms
from twisted_gateway.config.faults import Wrong
from twisted_gateway.config.kinds import Atom, Text, Whole
from twisted_gateway.config.reading import Reading, Schema
from twisted_gateway.config.sections import ListOf
from twisted_gateway.config.source import Items, Node, Scalar
from twisted_gateway.core.policy import Replicas

MAX_REPLICAS = 64
"""The most that the exchange between all of them is meant for."""

_DNS = "dns:"
_COUNT = Whole(1, MAX_REPLICAS)
_ADDRESS = Text(forms.peer_address, "HOST:PORT", r":[1-9][0-9]{0,4}$", max_characters=512)
_ADDRESSES = ListOf(_ADDRESS, "HOST:PORT", minimum=1, maximum=MAX_REPLICAS)
_NAME = Text(forms.peer_address, "HOST:PORT", rf"^{_DNS}.+:[1-9][0-9]{{0,4}}$", max_characters=512)


class ReplicasKind(Atom):
    """A number, the `dns:HOST:PORT` of a name that stands for all, or a list of `HOST:PORT`."""

    @property
    def expected(self) -> str:
        """Name the three forms."""
        return f"{_COUNT.expected}, {_DNS}HOST:PORT or a list of HOST:PORT"

    def take(self, node: Node, path: str, reading: Reading) -> Replicas:
        """Read the form that it is; addresses in one order, so that equal sets are equal values."""
        if isinstance(node, Items):
            given = _ADDRESSES.take(node, path, reading)
            return Replicas(addresses=tuple(sorted(one.value for one in given)))
        taken: Replicas = super().take(node, path, reading)
        return taken

    def parse(self, scalar: Scalar) -> Replicas:
        """Take the number or the name."""
        if not scalar.text.startswith(_DNS):
            return Replicas(count=_COUNT.parse(scalar))
        try:
            return Replicas(dns=_NAME.judge(scalar.text.removeprefix(_DNS)))
        except Wrong as wrong:
            raise Wrong(f"{wrong}, after {_DNS}") from None

    def schema(self) -> Schema:
        """Say `anyOf`."""
        name = {**_NAME.schema(), "examples": [f"{_DNS}gateway-peers:8081"]}
        return {"anyOf": [*_COUNT.schema()["anyOf"], name, _ADDRESSES.schema()]}

    def plain(self, value: Any) -> Any:
        """Give the form that it is."""
        assert isinstance(value, Replicas)
        if value.dns is not None:
            return _DNS + forms.peer_text(value.dns)
        if value.addresses:
            return [forms.peer_text(address) for address in value.addresses]
        return value.count
