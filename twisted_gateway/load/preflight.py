"""What is to be seen before a run: whether anybody is there, and serves the model."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from twisted_gateway.load.look import Looker, NoAnswer

_MAX_NAMES = 10
_MAX_NAME_CHARS = 100
# Ollama lists models with their tag, and takes a name without one for this.
_DEFAULT_TAG = ":latest"


class Unreachable(Exception):
    """Nobody listens at an address; the text says which, and why."""


class NoSuchModel(Exception):
    """An address does not serve the model; the text says which it has."""


class _Model(Struct):
    id: str


class _Models(Struct):
    data: list[_Model] = field(default_factory=list)


async def preflight(
    looker: Looker, addresses: Iterable[str], model: str, *, unlisted: bool = False
) -> None:
    """Ask every address for its models, one after the other.

    Whoever answers with something else may be an API that lists no models, or none to us: that
    shows with the first request.

    Args:
        looker: fetches.
        addresses: base URLs, without `/v1`.
        model: which is to be asked for.
        unlisted: let an address serve what it does not list.

    Raises:
        Unreachable: no connection can be had.
        NoSuchModel: it lists models, and not this one.
        CancelledError: it was cancelled.
    """
    for url in dict.fromkeys(addresses):
        try:
            models = await looker.fetch(f"{url}/v1/models", _Models)
        except NoAnswer as fault:
            if fault.unreachable:
                raise Unreachable(f"{url} cannot be reached: {fault}") from None
            continue
        names = [one.id for one in models.data]
        if names and not unlisted and not {model, model + _DEFAULT_TAG} & {*names}:
            raise NoSuchModel(
                f"{url} has no model {model}. It has {_some(names)}. (--unlisted asks all the same)"
            )


def _some(names: list[str]) -> str:
    shown = [name[:_MAX_NAME_CHARS] for name in names[:_MAX_NAMES]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
