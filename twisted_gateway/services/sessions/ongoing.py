"""What the `sessions` adapters of a process share, over every reload of its configuration.

A reload makes a new adapter, and what the former one has begun goes on. Both must know of it: two
attempts at one session would be in each other's way, and what the former one gives back late to the
fleet controller may be what the new one has just been given. What is counted in looks is counted
on, or a gateway that is reloaded all the time would come to the end of no count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.web.iweb import IPolicyForHTTPS

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.sessions.attempt import Attempts
from twisted_gateway.services.sessions.chores import Chores
from twisted_gateway.services.sessions.credentials import trust
from twisted_gateway.services.sessions.reaper import Sight
from twisted_gateway.upstream.agent import UpstreamAgent


class Ongoing:
    """Lives as long as the process.

    Attributes:
        attempts: what is being done to sessions.
        chores: what is done behind answers.
        sights: what reapers have seen, by what they go by.

    Args:
        clock: for the time.
        agent_trusting: makes an agent that checks certificates in a way of its own.
    """

    def __init__(
        self,
        clock: IReactorTime,
        agent_trusting: Callable[[IPolicyForHTTPS], UpstreamAgent],
    ) -> None:
        """Begin with nothing under way."""
        self.attempts = Attempts(clock)
        self.chores = Chores()
        self.sights: dict[str, Sight] = {}
        self._agent_trusting = agent_trusting
        self._agents: dict[tuple[str | None, str], UpstreamAgent] = {}

    def agent(self, adapter: SessionsAdapter) -> UpstreamAgent:
        """Give what reaches the Kubernetes API of an adapter."""
        key = (adapter.ca, adapter.service_account)
        if key not in self._agents:
            self._agents[key] = self._agent_trusting(trust(adapter))
        return self._agents[key]

    def close(self) -> Deferred[Any]:
        """Begin nothing more, stop what is under way, and close the connections to Kubernetes.

        Returns:
            Fires when nothing is under way, and no connection is left.
        """
        self.chores.close()
        # What is half made is resumed by whoever asks another replica for the session.
        ended = self.attempts.close()
        return gatherResults([ended, *(agent.close() for agent in self._agents.values())])
