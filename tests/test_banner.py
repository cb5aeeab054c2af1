"""What the log says when the gateway starts."""

from __future__ import annotations

from typing import cast

from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher

from tests.stack import CONFIG, Stack
from tests.support import TestCase
from twisted_gateway import __version__
from twisted_gateway.banner import banner, beyond_limits
from twisted_gateway.cgroup import Limits
from twisted_gateway.config.load import load


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

    def test_what_it_may_use(self) -> None:
        """Quota and memory limit as they were seen, in the second line."""
        config = load(CONFIG, name="c", environ={}, read_file=str)
        limits = Limits(usable_cpus=2, quota_cpus=0.5, memory_bytes=512 * 2**20)
        line = list(banner(config, "off", limits))[1]
        self.assertTrue(
            line.startswith("may use 0.5 CPUs by quota, of 2; 512 MiB of memory;"), line
        )

    def test_more_bodies_than_memory(self) -> None:
        """A warning where as many bodies as may be held would not fit; else none."""
        config = load(CONFIG, name="c", environ={}, read_file=str)
        self.assertEqual(config.max_held_bytes, 256 * 2**20)
        said = {
            mib: list(beyond_limits(config, Limits(2, memory_bytes=mib * 2**20)))
            for mib in (256, 383, 384, 512)
        }
        self.assertEqual(
            {mib: len(lines) for mib, lines in said.items()}, {256: 1, 383: 1, 384: 0, 512: 0}
        )
        self.assertTrue(said[256][0].startswith("maxHeldBytes=268435456 and "), said[256])
        self.assertEqual(list(beyond_limits(config, Limits(2))), [])
        self.assertEqual(list(beyond_limits(config, None)), [])

    def test_no_credential_is_in_it(self) -> None:
        """Keys and tokens stay in the configuration."""
        text = "\n".join(self.lines(CONFIG + "    apiKey: sesame-sesame\n"))
        self.assertNotIn("sesame", text)
