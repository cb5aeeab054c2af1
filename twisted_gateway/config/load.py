"""Read the configuration: text, environment and secrets become one frozen value, or faults.

`load` is pure but for the files of secrets; `load_file` adds the reading of files. Every fault
is found in one go.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from twisted_gateway.config.faults import ConfigError, Fault, join
from twisted_gateway.config.keys import PEERS, ROOT
from twisted_gateway.config.models import Models, gather
from twisted_gateway.config.reading import Found, Given, Reading
from twisted_gateway.config.routes import Inbound
from twisted_gateway.config.schema import Config, Model, Peers, S3Adapter
from twisted_gateway.config.services import Services
from twisted_gateway.config.source import MAX_CHARACTERS, Entries, Unreadable, parse

__all__ = ["ConfigError", "Fault", "load", "load_file"]

_MAX_SECRET_BYTES = 65_536


def load(
    text: str,
    *,
    name: str,
    environ: Mapping[str, str],
    read_file: Callable[[str], str],
    options: Mapping[str, str] | None = None,
) -> Config:
    """Read a configuration.

    Args:
        text: the YAML text.
        name: what faults call it, usually the file's path.
        environ: the environment, for references and for the variables that stand for keys.
        read_file: gives the text of a secret's file; raises OSError or ValueError.
        options: what the command line gives for keys, by the option's name (`--listen`), several
            values separated by blanks; it stands in the place of the key's variables.

    Raises:
        ConfigError: with all that is wrong.
    """
    reading = Reading(name=name, environ=environ, read_file=read_file, options=options or {})
    try:
        root = parse(text) or Entries(line=1)
    except Unreadable as fault:
        raise ConfigError([Fault(name, fault.line, "", str(fault))]) from None
    found = ROOT.read(root, "", reading)
    config = Config() if found is None else _assemble(found.value, reading)
    if reading.faults:
        raise ConfigError(reading.faults)
    return config


def load_file(
    path: str | os.PathLike[str],
    environ: Mapping[str, str],
    options: Mapping[str, str] | None = None,
) -> Config:
    """Read the configuration file at `path`.

    Secrets' files with relative paths are looked up beside it. The rest is as `load` has it.

    Raises:
        ConfigError: the file cannot be read, or with all that is wrong in it.
    """
    name = os.fspath(path)
    try:
        text = _read_text(Path(name), MAX_CHARACTERS)
    except OSError as fault:
        why = fault.strerror or "it cannot be read"
        raise ConfigError([Fault(name, None, "", f"expected a readable file ({why})")]) from None
    except ValueError as fault:
        raise ConfigError([Fault(name, None, "", f"expected {fault}")]) from None
    beside = Path(name).parent
    return load(
        text,
        name=name,
        environ=environ,
        read_file=lambda secret: _read_text(beside / secret, _MAX_SECRET_BYTES),
        options=options,
    )


def _read_text(path: Path, most_bytes: int) -> str:
    """Give the text of a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is too large, or no text; the message says what was expected.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except ValueError:
        raise ValueError("a path without NUL characters") from None
    if len(content) > most_bytes:
        raise ValueError(f"a file of at most {most_bytes} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = content.count(b"\n", 0, fault.start) + 1
        raise ValueError(f"UTF-8 text, which line {line} is not") from None


def _assemble(found: Found, reading: Reading) -> Config:
    """Put together what the file gives, the environment and the defaults.

    The result is worthless where the reading has faults.
    """
    sources: dict[str, str] = {}
    top = gather(ROOT, found, reading, sources)
    _check_listeners(found, top, reading)
    if not any(_has(key, found, reading) for key in ("models", "adapters", "routes")):
        line = found.lines.get("models", 1)
        reading.fault(line, "models", "expected at least one model, or adapters, or routes")
    given = found.values.get("models")
    most_bytes = top.get("max_body_bytes", Config().max_body_bytes)
    models = Models(reading, sources, most_bytes).all({} if given is None else given.value)
    peers = Peers(**gather(PEERS, found.section("peers"), reading, sources))
    _check_peers(peers, models, found, top, reading)
    services = Services(reading, sources, most_bytes)
    adapters = services.adapters(found)
    inbound = Inbound(reading, sources, adapters, most_bytes)
    webhook, routes = inbound.forgejo(found), inbound.routes(found)
    auth = services.auth(found, adapters, models, routes)
    held_bytes = top.get("max_held_bytes", Config().max_held_bytes)
    bounds = [
        *(("models", one.name, one.max_body_bytes) for one in models.values()),
        # What a store takes passes as it comes.
        *(
            ("adapters", one.name, one.max_body_bytes)
            for one in adapters.values()
            if one.kind != S3Adapter.kind
        ),
        *(("routes", one.path, one.max_body_bytes) for one in routes if one.upstream),
        *([("webhooks", "forgejo", webhook.max_body_bytes)] if webhook.secret else []),
    ]
    reading.warnings.extend(
        f"{section}: {name} takes bodies of more than maxHeldBytes, which are always refused"
        for section, name, most_bytes in bounds
        if most_bytes > held_bytes
    )
    return Config(
        **top,
        models=MappingProxyType(models),
        peers=peers,
        adapters=MappingProxyType(adapters),
        auth=auth,
        forgejo_webhook=webhook,
        routes=routes,
        sources=MappingProxyType(sources),
        warnings=tuple(reading.warnings),
    )


def _has(key: str, found: Found, reading: Reading) -> bool:
    """Whether the file has any of these, good or bad: it is meant to serve something."""
    given = found.values.get(key)
    bad = any(re.match(rf"{key}\b", fault.path) for fault in reading.faults)
    return bad or (given is not None and bool(given.value))


def _check_listeners(found: Found, top: Mapping[str, Any], reading: Reading) -> None:
    given = found.values.get("adminListen")
    for one in () if given is None else given.value:
        if one.value in top.get("listen", Config().listen):
            reading.fault(one.line, one.path, "expected another endpoint than those of listen")


def _check_peers(
    peers: Peers,
    models: Mapping[str, Model],
    found: Found,
    top: Mapping[str, Any],
    reading: Reading,
) -> None:
    """See to it that the replicas' exchange has a listener of its own and a token, if there is one.

    A listener without a token would tell anyone what is going on.
    """
    exchanging = next((model for model in models.values() if model.exchanges), None)
    if exchanging is None or any(one.path.split(".")[0] == "peers" for one in reading.faults):
        return
    model: Given = found.values["models"].value[exchanging.name]
    admission = model.value.section("admission")
    section = found.section("peers")
    line = found.lines.get("peers", admission.lines["replicas"])
    if peers.token is None:
        reading.fault(
            section.lines.get("token", line),
            "peers.token",
            "expected the token that the replicas share, of at least 16 characters: "
            f"{join(admission.path, 'replicas')} (line {admission.lines['replicas']}) "
            "gives addresses",
        )
    listen = top.get("listen", Config().listen)
    if peers.listen in (*listen, *top.get("admin_listen", Config().admin_listen)):
        reading.fault(
            section.lines.get("listen", line),
            "peers.listen",
            "expected another endpoint than those of listen and adminListen",
        )
