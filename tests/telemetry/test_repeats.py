"""What comes again and again is said once in a while."""

from __future__ import annotations

from typing import cast

from twisted.logger import ILogObserver, LogEvent, Logger, formatEvent

from tests.support import TestCase
from twisted_gateway.telemetry.repeats import Repeats


class RepeatsTests(TestCase):
    """At most once in an interval, with a count of what was left out."""

    def setUp(self) -> None:
        super().setUp()
        self.events: list[LogEvent] = []
        self.log = Logger("part", observer=cast(ILogObserver, self.events.append))
        self.repeats = Repeats(self.clock, interval_seconds=60, most=3)

    def say(self, key: str) -> None:
        self.repeats.say(key, self.log.warn, "{what} is down", what=key)

    @property
    def lines(self) -> list[str]:
        return [formatEvent(event) for event in self.events]

    def test_the_first_is_said_and_the_others_counted(self) -> None:
        """The line after the interval says how many there were; then it counts anew."""
        for _ in range(5):
            self.say("a")
        self.assertEqual(self.lines, ["a is down"])
        self.clock.advance(59.9)
        self.say("a")
        self.clock.advance(0.2)
        self.say("a")
        self.assertEqual(self.lines[1:], ["a is down (5 more like it in the last 60 s)"])
        self.clock.advance(61)
        self.say("a")
        self.assertEqual(self.lines[2:], ["a is down"])

    def test_different_things_are_said_each(self) -> None:
        """One does not keep another from being said."""
        self.say("a")
        self.say("b")
        self.assertEqual(self.lines, ["a is down", "b is down"])

    def test_what_is_remembered_is_bounded(self) -> None:
        """What was said longest ago is forgotten, and so said again."""
        for key in "abcda":
            self.say(key)
        self.assertEqual([line[0] for line in self.lines], list("abcda"))
        self.say("d")
        self.assertEqual(len(self.lines), 5)

    def test_any_field(self) -> None:
        """A line may have fields of whatever name, also when it is said with a count."""
        for _ in range(3):
            self.repeats.say(
                "late", self.log.warn, "{key} {emit} took {seconds:g} s", key=1, emit=2, seconds=5
            )
            self.repeats.say("late", self.log.warn, "left out")
            self.clock.advance(61)
        said = "1 2 took 5 s"
        self.assertEqual(self.lines, [said, *2 * [f"{said} (1 more like it in the last 61 s)"]])

    def test_a_clock_that_was_set_back(self) -> None:
        """What was said in what is now the future is said again."""
        self.clock.advance(3600)
        self.say("a")
        self.clock.rightNow -= 3600
        self.say("a")
        self.say("a")
        self.assertEqual(self.lines, ["a is down", "a is down"])
