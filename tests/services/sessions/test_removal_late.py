from __future__ import annotations

from tests.services.sessions.apiserver import UNAVAILABLE
from tests.services.sessions.stack import SessionsTestCase
from tests.stack import Asked


class LateTests(SessionsTestCase):
    """A DELETE whose time is over."""

    def test_nothing_behind_the_answer(self) -> None:
        """It removes nothing more: by now the session may have been made anew, elsewhere.

        The API fails for this replica, and then takes eight seconds for each of its requests, so
        that the last pass over what there is begins just before its client is told 504.
        """
        other = self.replica()
        began, reply = self.stack.now, self.kube.reply
        sent: list[tuple[float, str]] = []

        def late(asked: Asked) -> None:
            spent = self.stack.now - began
            sent.append((spent, asked.method))
            if spent < 26:
                self.api.fail = lambda *_: UNAVAILABLE
                reply(asked)
                self.api.fail = lambda *_: None
            else:
                self.stack.reactor.callLater(8, lambda: None if asked.gone else reply(asked))

        self.patch(self.kube, "reply", late)
        client = self.delete()
        while not client.received:
            self.stack.advance(0.25)
            other.stack.advance(0.25)
        self.assertEqual(client.status, 504)
        told = self.stack.now - began
        made = other.post()
        self.api.become_ready()
        other.stack.settle()
        self.assertEqual(made.status, 200)
        for _ in range(240):
            self.stack.advance(0.25)
            other.stack.advance(0.25)
        self.assertEqual([one for one in sent if one[0] > told], [])
        self.assertEqual(
            sorted(kind for kind, name in self.api.objects if name.endswith("session-s1")),
            ["persistentvolumeclaims", "pods", "services"],
        )
