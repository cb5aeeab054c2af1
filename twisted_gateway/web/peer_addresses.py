"""Where the other replicas are: names are looked up over and over, one lookup of each at a time.

Nothing is looked up to connect: a resolver that hangs would soon have all threads of the pool, for
replicas are asked several times a second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHostResolution,
    IResolutionReceiver,
)
from twisted.logger import Logger
from zope.interface import implementer

from twisted_gateway.config.forms import peer_text
from twisted_gateway.core.policy import Replicas

Address = tuple[str, int]

MAX_ADDRESSES = 64
"""No more replicas than this are asked for one gate."""

RESOLVE_SECONDS = 5.0
"""How long after one lookup of a name the next begins."""

LOOKUP_SECONDS = 60.0
"""How long a lookup may take. A resolver's thread cannot be stopped, so giving up early would only
let threads pile up."""


class PeerAddresses:
    """The addresses of all replicas that the configuration in force names.

    Args:
        reactor: for timers, and its name resolver.
    """

    def __init__(self, reactor: Any) -> None:
        """Look nothing up yet."""
        self._reactor = reactor
        self._names: dict[Address, _Name] = {}

    def adopt(self, wanted: Collection[Replicas]) -> None:
        """Look up the names of these, and no others any more."""
        names = {one.dns for one in wanted if one.dns is not None}
        names.update(
            address for one in wanted for address in one.addresses if not _is_literal(address)
        )
        for gone in self._names.keys() - names:
            self._names.pop(gone).stop()
        for new in names - self._names.keys():
            self._names[new] = name = _Name(self._reactor, new)
            name.look()

    def of(self, replicas: Replicas) -> tuple[Address, ...] | None:
        """The addresses of these replicas, at most `MAX_ADDRESSES`, in an order that stays.

        A name in a list that leads nowhere is left out: nobody is there yet.

        Returns:
            None while nothing can be said: a first lookup is under way, or none has found any.
        """
        if replicas.dns is not None:
            return self._names[replicas.dns].found if replicas.dns in self._names else None
        found: list[Address] = []
        for address in replicas.addresses:
            name = self._names.get(address)
            if name is None:
                found.append(address)
            elif not name.looked_up:
                return None
            else:
                found += name.found or ()
        return tuple(dict.fromkeys(found))[:MAX_ADDRESSES] or None

    def stop(self) -> None:
        """Look nothing up any more."""
        self.adopt(())


class _Name:
    """A name that is looked up over and over; what was found last stays until more is found.

    Attributes:
        looked_up: whether a lookup has ended, however.
        found: the addresses; None while there are none.
    """

    _log = Logger()

    def __init__(self, reactor: Any, name: Address) -> None:
        self.looked_up = False
        self.found: tuple[Address, ...] | None = None
        self._reactor = reactor
        self._host, self._port = name
        self._text = peer_text(name)
        self._lookup: _Lookup | None = None
        self._timer: IDelayedCall | None = None
        self._failing = False

    def look(self) -> None:
        """Begin a lookup."""
        self._timer = self._reactor.callLater(LOOKUP_SECONDS, self._too_slow)
        lookup = self._lookup = _Lookup(self._looked_up)
        try:
            self._reactor.nameResolver.resolveHostName(lookup, self._host, self._port)
        except Exception as fault:  # noqa: BLE001 -- a plugin may raise anything
            self._failed(f"the resolver failed ({type(fault).__name__})")

    def stop(self) -> None:
        """Forget timer and lookup: whatever comes of it is dropped."""
        self._lookup = None
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _looked_up(self, lookup: _Lookup) -> None:
        if lookup is not self._lookup:
            return
        if not lookup.found:
            self._failed("there is no address for it")
            return
        self.found = tuple(sorted(lookup.found)[:MAX_ADDRESSES])
        if self._failing:
            self._failing = False
            self._log.info("{name} can be resolved again", name=self._text)
        self._again()

    def _too_slow(self) -> None:
        self._timer = None
        self._failed("the lookup took too long")

    def _failed(self, why: str) -> None:
        if not self._failing:
            self._failing = True
            self._log.warn(
                "the replicas' {name} cannot be resolved: {why}; {count} addresses are kept",
                name=self._text,
                why=why,
                count=len(self.found or ()),
            )
        self._again()

    def _again(self) -> None:
        self.stop()
        self.looked_up = True
        self._timer = self._reactor.callLater(RESOLVE_SECONDS, self.look)


@implementer(IResolutionReceiver)
class _Lookup:
    """Gathers what one lookup finds."""

    def __init__(self, done: Callable[[_Lookup], None]) -> None:
        self.found: set[Address] = set()
        self._done = done

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        """Nothing to note: no resolver of Twisted's can be stopped."""

    def addressResolved(self, address: IAddress) -> None:
        """Note an address."""
        if isinstance(address, IPv4Address | IPv6Address):
            self.found.add((address.host, address.port))

    def resolutionComplete(self) -> None:
        """There are no others."""
        self._done(self)


def _is_literal(address: Address) -> bool:
    """Whether an address can be connected to without looking anything up."""
    host, _ = address
    return isIPAddress(host) or isIPv6Address(host)
