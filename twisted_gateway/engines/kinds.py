"""The registry of engine kinds: which can be observed, and how their pages are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from twisted_gateway.config.schema import EngineKind
from twisted_gateway.engines import llamacpp, sglang, tei, tgi, vllm
from twisted_gateway.engines.exposition import parse
from twisted_gateway.engines.reading import Gauges, Reading

KINDS: Final[Mapping[EngineKind, Gauges]] = MappingProxyType(
    {
        EngineKind.VLLM: vllm.GAUGES,
        EngineKind.SGLANG: sglang.GAUGES,
        EngineKind.LLAMACPP: llamacpp.GAUGES,
        EngineKind.TGI: tgi.GAUGES,
        EngineKind.TEI: tei.GAUGES,
    }
)
"""The kinds that publish gauges. The others (`ollama`, `none`) cannot be observed."""

_GZIP: Final = b"\x1f\x8b"


def read(kind: EngineKind, text: bytes, names: Collection[str]) -> Reading:
    """Read a page of `/metrics` as the gauges of one kind of engine.

    Args:
        kind: one of `KINDS`.
        text: the page's bytes, whatever they are.
        names: what the engine may call the model: `upstreamModel`, the model's name.

    Returns:
        What could be read, and in `problems` what could not. Never raises for a page's content.

    Raises:
        KeyError: the kind publishes nothing.
    """
    gauges = KINDS[kind]
    try:
        series = parse(text, gauges.wanted)
    except ValueError as fault:
        return Reading(problems=(str(fault),))
    if not series:
        return Reading(problems=(_describe(kind, text),))
    return gauges.read(series, names)


def _describe(kind: EngineKind, text: bytes) -> str:
    """Say what a page without a single wanted series is."""
    start = text[:512].lstrip()
    if not start:
        return "the page is empty"
    if start.startswith(_GZIP):
        return "the page is compressed, which was not asked for"
    if start[:1] == b"<":
        return "the page is HTML, not exposition text"
    for other, gauges in KINDS.items():
        if other is not kind and b"\n" + gauges.prefix.encode("ascii") in text:
            return f"the page has no {kind.value} gauges; it looks like one of {other.value}"
    return f"the page has no {kind.value} gauges"
