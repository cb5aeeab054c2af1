"""`python -m bench.replicas.gateway SPEED ARGUMENTS`: twistd, with the order of service sped up.

What of the gateway's times can be configured a run divides by its speed in the configuration. The
order of service has three more, which are no settings: how fast what a tenant has used is
forgotten, its steps, and what is added to a wait. Left alone they would be twenty times as long
in the workload's time, and a flood would be 200 s old before it counts as one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from twisted.scripts import twistd

from twisted_gateway.core import order

STRETCHED = ("USE_SECONDS", "USE_STEP_SECONDS", "LEAST_WAIT_SECONDS")


def hurry(speed: float) -> None:
    """Let the order of service forget so many times as fast, in this process."""
    for name in STRETCHED:
        setattr(order, name, getattr(order, name) / speed)


def main(arguments: Sequence[str]) -> None:
    """Run twistd; it ends the process."""
    speed, *rest = arguments
    hurry(float(speed))
    sys.argv = ["twistd", *rest]
    twistd.run()


if __name__ == "__main__":
    main(sys.argv[1:])
