"""What the log says when the gateway starts."""

from __future__ import annotations

from typing import cast

from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher

from tests.stack import CONFIG, Stack
from tests.support import TestCase
from twisted_gateway import __version__


class BannerTests(TestCase):
    """The first lines of the log."""

    def lines(self, config: str = CONFIG) -> list[str]:
        events: list[LogEvent] = []
        observer = cast(ILogObserver, events.append)
        globalLogPublisher.addObserver(observer)
        try:
            Stack(self, config)
        finally:
            globalLogPublisher.removeObserver(observer)
        return [formatEvent(event) for event in events]

    def test_what_runs_and_what_is_in_force(self) -> None:
        """Versions, listeners, bounds with their sources, where traces go; then each model."""
        lines = self.lines("maxConnections: 7\nadminListen: [tcp:9]\n" + CONFIG)
        self.assertTrue(lines[0].startswith(f"twisted-gateway {__version__} on Python 3."))
        self.assertEqual(lines[1], "listens at tcp:8080; operations: tcp:9")
        self.assertIn("maxBodyBytes=1048576 (default)", lines[2])
        self.assertIn("maxConnections=7 (config.yaml line 1)", lines[2])
        self.assertEqual(
            lines[3],
            "models: 1; trusted proxies: none; traces: off; gen_ai metrics: on; "
            "clients identified: no",
        )
        self.assertTrue(lines[4].startswith("reasoning: engine=vllm"))

    def test_no_credential_is_in_it(self) -> None:
        """Keys and tokens stay in the configuration."""
        text = "\n".join(self.lines(CONFIG + "    apiKey: sesame-sesame\n"))
        self.assertNotIn("sesame", text)
