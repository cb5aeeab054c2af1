"""Workloads of one's own: a YAML file of streams of clients, read as the configuration is.

    seconds: 600
    streams:
      - name: chat
        tenants: [ann, bob]
        arrivals: {perMinute: 12}
        prompt: {median: 500, sigma: 0.5}
        answer: {from: 100, to: 300}

docs/load.md has every key. What is wrong is said with line and key, all of it at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

from twisted_gateway.config import forms
from twisted_gateway.config.faults import ConfigError, Fault
from twisted_gateway.config.kinds import Choice, Either, Number, Text, Whole
from twisted_gateway.config.reading import Found, Reading
from twisted_gateway.config.sections import Key, ListOf, Section
from twisted_gateway.config.source import MAX_CHARACTERS, Entries, Unreadable, parse
from twisted_gateway.load.arrivals import MAX_ARRIVALS, MAX_SECONDS, MAX_TOKENS, Arrival

_TOKENS = Whole(1, MAX_TOKENS)
_TIME = Either(Choice({"0": 0.0}), Number(0, MAX_SECONDS))
_SHARE = Either(Choice({"true": 1.0, "false": 0.0}), Number(0, 1))
_NAME = Text(forms.printable, "a name", max_characters=64)
# What may stand in a header as it is.
_TENANT = Text(forms.credential, "a name of visible ASCII characters", max_characters=64)


def _each(_: object) -> object:
    """Take no two items for the same: the same time may be there twice."""
    return object()


_LENGTH = Section(
    keys=(
        Key(name="tokens", kind=_TOKENS, about="Always as long."),
        Key(name="from", kind=_TOKENS, about="As likely as any length up to `to`."),
        Key(name="to", kind=_TOKENS, about="The longest."),
        Key(name="median", kind=_TOKENS, about="Of a log-normal distribution."),
        Key(name="sigma", kind=Number(0, 5), about="The deviation of the length's logarithm."),
        Key(name="most", kind=_TOKENS, about="A longer one is cut to this."),
    )
)
_ARRIVALS = Section(
    keys=(
        Key(
            name="at",
            kind=ListOf(_TIME, "times", minimum=1, identity=_each),
            about="When, in seconds.",
        ),
        Key(name="every", kind=Number(0, MAX_SECONDS), about="One each so many seconds."),
        Key(name="perMinute", kind=Number(0, 600_000), about="At random, so many on average."),
        Key(name="burst", kind=Whole(1, 100_000), about="So many at each of those times."),
        Key(name="within", kind=_TIME, about="The seconds over which a burst spreads."),
        Key(name="from", kind=_TIME, about="The first moment of `every` and `perMinute`."),
        Key(name="until", kind=_TIME, about="Their last moment."),
    )
)
_PREFIX = Section(
    keys=(
        Key(name="tokens", kind=_TOKENS, about="How long what prompts share is."),
        Key(
            name="group",
            kind=Choice({"stream": False, "burst": True}),
            about="Who shares it: the whole stream, or each burst by itself.",
        ),
    )
)
_STREAM = Section(
    keys=(
        Key(name="name", kind=_NAME, about="Its kind in the report."),
        Key(name="tenant", kind=_TENANT, about="Who they are."),
        Key(
            name="tenants",
            kind=ListOf(_TENANT, "tenants", minimum=1),
            about="Who they are, in turns.",
        ),
        Key(name="arrivals", kind=_ARRIVALS, about="When they come."),
        Key(name="prompt", kind=_LENGTH, about="How long their prompts are."),
        Key(name="answer", kind=_LENGTH, about="How long their answers are."),
        Key(name="maxTokens", kind=_TOKENS, about="What they say of it; the answer's length."),
        Key(name="patience", kind=Number(0, MAX_SECONDS), about="Seconds after which they leave."),
        Key(name="tries", kind=Whole(1, 1000), about="How often they ask at most."),
        Key(name="stream", kind=_SHARE, about="Whether they ask for a stream, or what share."),
        Key(name="direct", kind=_SHARE, about="Whether they go past the gateway."),
        Key(
            name="priority",
            kind=Choice({one: one for one in ("interactive", "batch", "warmup")}),
            about="Their X-Priority.",
        ),
        Key(name="prefix", kind=_PREFIX, about="What their prompts share."),
    )
)
_ROOT = Section(
    keys=(
        Key(name="seconds", kind=Number(0, MAX_SECONDS), about="Until when clients come."),
        Key(
            name="streams",
            kind=ListOf(_STREAM, "streams", minimum=1, identity=_each),
            about="Who comes.",
        ),
    )
)

Draw = Callable[[random.Random], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stream:
    """A stream that has been read; `times` draws when its clients come, with their burst."""

    name: str
    tenants: tuple[str, ...]
    times: Callable[[random.Random], Iterator[tuple[float, int]]]
    prompt: Draw
    answer: Draw
    max_tokens: int
    patience: float
    tries: int
    stream: float
    direct: float
    priority: str | None
    prefix_tokens: int
    prefix_by_burst: bool

    def arrivals(self, rng: random.Random) -> Iterator[Arrival]:
        for index, (at, burst) in enumerate(self.times(rng)):
            prompt, answer = self.prompt(rng), self.answer(rng)
            group = f"{self.name}/{burst}" if self.prefix_by_burst else self.name
            yield Arrival(
                at=at,
                tenant=self.tenants[index % len(self.tenants)],
                prompt_tokens=max(prompt, self.prefix_tokens),
                answer_tokens=answer,
                max_tokens=max(answer, self.max_tokens),
                group=group if self.prefix_tokens else None,
                prefix_tokens=self.prefix_tokens,
                stream=rng.random() < self.stream,
                direct=rng.random() < self.direct,
                tries=self.tries,
                patience_seconds=self.patience,
                priority=self.priority,
                kind=self.name,
            )


def key_names() -> frozenset[str]:
    """Name every key that a workload may have, wherever it stands."""
    sections = (_ROOT, _STREAM, _ARRIVALS, _LENGTH, _PREFIX)
    return frozenset(key.name for section in sections for key in section.keys)


def read_file(path: Path, rng: random.Random, environ: Mapping[str, str]) -> list[Arrival]:
    """Read a workload and draw it.

    Raises:
        ConfigError: the file cannot be read, or with all that is wrong in it.
    """
    name = str(path)
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except OSError as fault:
        why = fault.strerror or "it cannot be read"
        raise ConfigError([Fault(name, None, "", f"expected a readable file ({why})")]) from None
    except ValueError:
        raise ConfigError([Fault(name, None, "", "expected UTF-8 text")]) from None
    return read(text, name, rng, environ)


def read(text: str, name: str, rng: random.Random, environ: Mapping[str, str]) -> list[Arrival]:
    """Read a workload's text and draw it: the same state of `rng`, the same clients.

    Args:
        text: YAML.
        name: what faults call it.
        rng: where all randomness comes from.
        environ: for `${NAME}` in the text.

    Returns:
        The arrivals, by time.

    Raises:
        ConfigError: with all that is wrong.
    """
    reading = Reading(name=name, environ=environ, read_file=_no_file)
    try:
        root = parse(text) or Entries(line=1)
    except Unreadable as fault:
        raise ConfigError([Fault(name, fault.line, "", str(fault))]) from None
    given = _ROOT.read(root, "", reading)
    streams = [] if given is None else _streams(given.value, reading)
    if reading.faults:
        raise ConfigError(reading.faults)
    drawn: list[Arrival] = []
    for stream in streams:
        for arrival in stream.arrivals(rng):
            if len(drawn) == MAX_ARRIVALS:
                what = f"expected at most {MAX_ARRIVALS} clients in all"
                raise ConfigError([Fault(name, 1, "streams", what)])
            drawn.append(arrival)
    return sorted(drawn, key=lambda arrival: arrival.at)


def _streams(root: Found, reading: Reading) -> list[_Stream]:
    if "streams" not in root.lines:
        reading.fault(root.line, "streams", "expected a list of streams")
    seconds = root.values.get("seconds")
    until = None if seconds is None else float(seconds.value)
    given = root.values.get("streams")
    made = [_stream(one.value, until, reading) for one in (given.value if given else ())]
    return [one for one in made if one is not None]


def _stream(found: Found, until: float | None, reading: Reading) -> _Stream | None:
    """Put a stream together; None, with the faults noted, where that cannot be."""
    faults = len(reading.faults)
    _need(found, ("name", "arrivals", "prompt", "answer"), reading)
    if "tenant" in found.lines and "tenants" in found.lines:
        reading.fault(found.lines["tenants"], f"{found.path}.tenants", "expected no tenant beside")
    times = _times(_value(found, "arrivals", None), until, reading)
    prompt = _length(_value(found, "prompt", None), reading)
    answer = _length(_value(found, "answer", None), reading)
    prefix = found.section("prefix")
    if "prefix" in found.lines:
        _need(prefix, ("tokens",), reading)
    if len(reading.faults) > faults or times is None or prompt is None or answer is None:
        return None
    name = _value(found, "name", "")
    tenants = found.values.get("tenants")
    named = (_value(found, "tenant", "load"),) if tenants is None else tuple(tenants.bare)
    return _Stream(
        name=name,
        tenants=named,
        times=times,
        prompt=prompt,
        answer=answer,
        max_tokens=_value(found, "maxTokens", 1),
        patience=_value(found, "patience", 600.0),
        tries=_value(found, "tries", 1),
        stream=_value(found, "stream", 1.0),
        direct=_value(found, "direct", 0.0),
        priority=_value(found, "priority", None),
        prefix_tokens=_value(prefix, "tokens", 0),
        prefix_by_burst=_value(prefix, "group", False),
    )


def _length(found: Found | None, reading: Reading) -> Draw | None:
    """Read how lengths are drawn; None, with the fault noted, where they cannot be."""
    way = None if found is None else _way(found, _LENGTH_WAYS, reading)
    if found is None or way is None:
        return None
    given = {key: one.value for key, one in found.values.items()}
    if way == "tokens":
        return lambda rng: int(given["tokens"])
    if way == "from":
        first, last = given["from"], given["to"]
        if first > last:
            reading.fault(found.lines["to"], f"{found.path}.to", "expected no less than from")
            return None
        return lambda rng: rng.randint(first, last)
    mean, sigma, most = log(given["median"]), given["sigma"], given.get("most", MAX_TOKENS)
    return lambda rng: min(most, max(1, round(rng.lognormvariate(mean, sigma))))


def _times(
    found: Found | None, until: float | None, reading: Reading
) -> Callable[[random.Random], Iterator[tuple[float, int]]] | None:
    """Read how times are drawn; None, with the fault noted, where they cannot be."""
    way = None if found is None else _way(found, _ARRIVAL_WAYS, reading)
    if found is None or way is None:
        return None
    given = found.values[way].bare
    burst, within = _value(found, "burst", 1), _value(found, "within", 0.0)
    if way == "at":
        return lambda rng: _spread(rng, iter(given), burst, within)
    first, last = _value(found, "from", 0.0), _value(found, "until", until)
    line = found.lines.get("until", found.line)
    if last is None:
        reading.fault(line, f"{found.path}.until", "expected it, or seconds at the top")
        return None
    if last < first:
        reading.fault(line, f"{found.path}.until", "expected no less than from")
        return None
    if way == "every":
        return lambda rng: _spread(rng, _regular(first, given, last), burst, within)
    return lambda rng: _spread(rng, _random(rng, first, given / 60, last), 1, 0.0)


# By the key that says which way it is: what that needs beside it, and what it may have.
_Ways = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
_LENGTH_WAYS: _Ways = {"tokens": ((), ()), "from": (("to",), ()), "median": (("sigma",), ("most",))}
_ARRIVAL_WAYS: _Ways = {
    "at": ((), ("burst", "within")),
    "every": ((), ("burst", "within", "from", "until")),
    "perMinute": ((), ("from", "until")),
}


def _way(found: Found, ways: _Ways, reading: Reading) -> str | None:
    """Say which way a section goes; None, with the fault noted, where it goes none aright."""
    there = [way for way in ways if way in found.lines]
    if len(there) != 1:
        line = found.lines[there[1]] if there else found.line
        none_or_several = (
            f"only one of {', '.join(there)}" if there else f"one of {', '.join(ways)}"
        )
        reading.fault(line, found.path, f"expected {none_or_several}")
        return None
    way = there[0]
    needs, takes = ways[way]
    strange = [key for key in found.lines if key not in (way, *needs, *takes)]
    for key in strange:
        path = f"{found.path}.{key}"
        reading.fault(found.lines[key], path, f"expected no such key beside {way}")
    missing = [key for key in needs if key not in found.lines]
    for key in missing:
        reading.fault(found.line, f"{found.path}.{key}", f"expected it beside {way}")
    whole = set(found.values) == set(found.lines)
    return way if whole and not (strange or missing) else None


def _regular(first: float, every: float, last: float) -> Iterator[float]:
    index = 0
    while first + index * every <= last:
        yield first + index * every
        index += 1


def _random(rng: random.Random, first: float, per_second: float, last: float) -> Iterator[float]:
    at = first + rng.expovariate(per_second)
    while at <= last:
        yield at
        at += rng.expovariate(per_second)


def _spread(
    rng: random.Random, times: Iterator[float], burst: int, within: float
) -> Iterator[tuple[float, int]]:
    for index, at in enumerate(times):
        for _ in range(burst):
            yield at + rng.random() * within, index


def _need(found: Found, keys: tuple[str, ...], reading: Reading) -> None:
    for key in keys:
        if key not in found.lines:
            reading.fault(found.line, f"{found.path}.{key}", "expected it: it has no default")


def _value(found: Found, key: str, default: Any) -> Any:
    given = found.values.get(key)
    return default if given is None else given.value


def _no_file(path: str) -> str:
    raise OSError(f"a workload reads no {path}")
