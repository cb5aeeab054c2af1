from __future__ import annotations

from tests.services.sessions.stack import PLAIN, ReaperTestCase

SHORT = PLAIN.replace("requireAuth", "reaperIntervalMinutes: 1\n    requireAuth")


class LeaseTests(ReaperTestCase):
    """Who looks."""

    def test_one_of_two(self) -> None:
        """Of two replicas one looks, and goes on doing so."""
        other = self.replica()
        self.look()
        holder = self.lease()["holderIdentity"]
        self.assertEqual(self.lease()["leaseDurationSeconds"], 600)
        for _ in range(4):
            other.stack.advance(300, step=5)
            self.stack.advance(300, step=5)
        self.assertEqual(self.lease()["holderIdentity"], holder)
        self.assertEqual(self.lease()["leaseTransitions"], 0)
        for one, looks in ((other, 0), (self, 1)):
            self.api.asked.clear()
            one.stack.advance(300, step=5)
            self.assertEqual(self.api.asked.count(("list", "pods")), looks)

    def test_times(self) -> None:
        """It says since when, and until when, and whose it is, for people to read."""
        self.look()
        first = dict(self.lease())
        self.assertEqual(first["acquireTime"], first["renewTime"])
        self.look()
        second = dict(self.lease())
        self.assertEqual(second["acquireTime"], first["acquireTime"])
        self.assertGreater(str(second["renewTime"]), str(first["renewTime"]))
        other = self.replica()
        other.look()
        self.lease()["holderIdentity"] = ""
        other.look()
        self.assertNotEqual(self.lease()["acquireTime"], first["acquireTime"])

    def test_clock_set(self) -> None:
        """A Lease does not expire for a clock that is set."""
        self.look()
        holder = self.lease()["holderIdentity"]
        other = self.replica()
        other.look()
        other.stack.reactor.advance(86_400)
        other.stack.settle()
        self.assertEqual(self.lease()["holderIdentity"], holder)
        other.look()
        self.assertNotEqual(self.lease()["holderIdentity"], holder)

    def test_holder_gone(self) -> None:
        """When the holder is gone another takes the Lease, once it has seen it unchanged so long.

        However far apart their clocks are: what the Lease says of times is not believed.
        """
        self.look()
        other = self.replica()
        self.lease()["renewTime"] = "2099-01-01T00:00:00.000000Z"
        other.stack.advance(15)
        self.api.asked.clear()
        other.stack.advance(590, step=5)
        self.assertNotIn(("list", "pods"), self.api.asked)
        other.stack.advance(300, step=5)
        self.assertIn(("list", "pods"), self.api.asked)
        self.assertEqual(self.lease()["leaseTransitions"], 1)
        # The former holder comes back, and is none any more.
        self.api.asked.clear()
        self.stack.advance(300, step=5)
        self.assertNotIn(("list", "pods"), self.api.asked)

    def test_lasts(self) -> None:
        """It lasts as long as its holder has said, whose configuration may be another."""
        for lasts, looks in (
            (900, 3),
            (300, 1),
            (0, 2),
            (-5, 2),
            ("x", 2),
            (None, 2),
            # However long one that is gone has said that it would last, an hour is believed.
            (3600, 12),
            (86_400 * 365, 12),
        ):
            self.tearDown()
            self.doCleanups()
            self.setUp()
            self.look()
            self.lease()["leaseDurationSeconds"] = lasts
            holder = self.lease()["holderIdentity"]
            other = self.replica()
            other.looks(looks)
            self.assertEqual(self.lease()["holderIdentity"], holder, lasts)
            other.look()
            self.assertNotEqual(self.lease()["holderIdentity"], holder, lasts)

    def test_old_times(self) -> None:
        """A Lease whose times are long past by our clock has not expired for that."""
        self.look()
        other = self.replica()
        self.lease()["renewTime"] = "1999-01-01T00:00:00.000000Z"
        self.api.asked.clear()
        other.stack.advance(15)
        self.assertNotIn(("list", "pods"), self.api.asked)

    def test_both_at_once(self) -> None:
        """Of two that take the Lease at once, one has lost (409 Conflict, or AlreadyExists)."""
        for expired in (False, True):
            other = self.replica()
            if expired:
                self.lease()["holderIdentity"] = ""
            self.api.asked.clear()
            for one in (self, other):
                one.kube.holding = True
                while not one.kube.held:
                    one.stack.advance(5, step=5)
            for _ in range(3):
                for one in (self, other):
                    held, one.kube.held = one.kube.held, []
                    for asked in held:
                        one.kube.reply(asked)
                    one.stack.settle()
            for one in (self, other):
                one.kube.let_go()
            lists = [one for one in self.api.asked if one == ("list", "pods")]
            self.assertEqual(len(lists), 1, expired)

    def test_released(self) -> None:
        """A Lease without a holder is taken at once."""
        self.look()
        self.lease()["holderIdentity"] = ""
        other = self.replica()
        self.api.asked.clear()
        other.look()
        self.assertIn(("list", "pods"), self.api.asked)

    def test_after_a_reload(self) -> None:
        """A replica that reads its configuration again holds the Lease that it held before."""
        self.look()
        for _ in range(2):
            self.assertTrue(self.stack.gateway.reload())
            self.api.asked.clear()
            self.look()
            self.assertIn(("list", "pods"), self.api.asked)

    def reloaded(self, seconds: int, every: int) -> None:
        """For so long the configuration is read again ever so often."""
        for _ in range(seconds // every):
            self.stack.advance(every, step=min(every, 10))
            self.assertTrue(self.stack.gateway.reload())

    def test_reloaded_all_the_time(self) -> None:
        """A replica that reads its configuration ever again looks as often as it is to.

        After ten seconds, and then each interval.
        """
        self.reloaded(640, every=4)
        self.assertEqual(self.api.asked.count(("list", "pods")), 3)

    def test_holder_gone_and_reloaded_all_the_time(self) -> None:
        """It follows one that is gone no later for that."""
        self.look()
        other = self.replica()
        holder = self.lease()["holderIdentity"]
        other.reloaded(580, every=29)
        self.assertEqual(self.lease()["holderIdentity"], holder)
        other.reloaded(60, every=29)
        self.assertNotEqual(self.lease()["holderIdentity"], holder)

    def test_another_interval(self) -> None:
        """Looks that were counted with a shorter interval are none of a longer one's."""
        self.look()
        self.lease()["leaseDurationSeconds"] = 3600
        holder = self.lease()["holderIdentity"]
        other = self.replica()
        other.stack.text = SHORT
        self.assertTrue(other.stack.gateway.reload())
        other.looks(20)
        other.stack.text = PLAIN
        self.assertTrue(other.stack.gateway.reload())
        other.looks(2)
        self.assertEqual(self.lease()["holderIdentity"], holder)

    def test_stopped(self) -> None:
        """A look that is under way when the process stops is given up."""
        self.kube.holding = True
        self.stack.advance(11)
        self.assertEqual(len(self.kube.held), 1)
        self.stack.gateway.stopService()
        self.stack.settle()
        self.assertTrue(self.kube.held[0].gone)


class LongIntervalTests(ReaperTestCase):
    """An interval of which two are more than the longest Lease that is believed."""

    config = PLAIN.replace("requireAuth", "reaperIntervalMinutes: 60\n    requireAuth")

    def test_holder_gone(self) -> None:
        """Its own two intervals are waited for all the same."""
        self.look()
        holder = self.lease()["holderIdentity"]
        other = self.replica()
        other.looks(2)
        self.assertEqual(self.lease()["holderIdentity"], holder)
        other.look()
        self.assertNotEqual(self.lease()["holderIdentity"], holder)
