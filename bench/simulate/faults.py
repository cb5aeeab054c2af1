"""What befalls the engine and the gateways in W6."""

from __future__ import annotations

from collections.abc import Callable

from bench.simulate.clients import Fault, Metrics, World


def answer_metrics(how: Metrics) -> Callable[[World], None]:
    """From here on the engine's `/metrics` answers like this."""

    def befall(world: World) -> None:
        world.metrics = how

    return befall


def restart_engine(down_seconds: float) -> Callable[[World], None]:
    """The engine dies, and takes no connections for a while."""

    def befall(world: World) -> None:
        world.engine.restart(down_seconds)

    return befall


def kill_replica(index: int) -> Callable[[World], None]:
    """A gateway dies for good, unless it is the only one."""

    def befall(world: World) -> None:
        if len(world.replicas) > 1:
            world.replicas[index].die()

    return befall


W6 = (
    Fault(600, answer_metrics(Metrics.DOWN)),
    Fault(630, answer_metrics(Metrics.OK)),
    Fault(1200, restart_engine(60.0)),
    Fault(1800, answer_metrics(Metrics.SLOW)),
    Fault(1860, answer_metrics(Metrics.OK)),
    Fault(2400, kill_replica(1)),
)
