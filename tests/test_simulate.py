"""The simulator: its engine does what was measured, and nobody is lost whatever the policy."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from bench.simulate import faults
from bench.simulate.__main__ import main
from bench.simulate.baselines import Predecessor, Semaphore, Ungated
from bench.simulate.clients import Client, End, Fault, Metrics, World
from bench.simulate.exchange import Exchange, Network
from bench.simulate.figures import figures, percentile
from bench.simulate.ours import GatedReplica, blocks
from bench.simulate.policies import POLICIES, gated
from bench.simulate.runs import Run, play, simulate
from bench.simulate.spread import spread
from bench.simulate.targets import TARGETS
from tests.support import TestCase
from twisted_gateway.core.policy import Ordering, Replicas
from twisted_gateway.load.arrivals import Arrival

NETWORK = Network()


def arrival(
    at: float,
    prompt: int,
    answer: int,
    *,
    tries: int = 1,
    stream: bool = True,
    direct: bool = False,
    patience: float = 5000.0,
    group: str | None = None,
    prefix: int = 0,
) -> Arrival:
    """A client that wants so much."""
    return Arrival(
        at=at,
        tenant="t",
        prompt_tokens=prompt,
        answer_tokens=answer,
        max_tokens=answer,
        tries=tries,
        stream=stream,
        direct=direct,
        patience_seconds=patience,
        group=group,
        prefix_tokens=prefix,
    )


def played(
    arrivals: Sequence[Arrival],
    policy: str = "none",
    *,
    befall: Sequence[Fault] = (),
    replicas: int = 3,
    until: float = 20_000,
    seed: int = 1,
) -> World:
    """A world whose gateways estimate prompts right, after the last client has ended."""
    world = World([(one, one.prompt_tokens) for one in arrivals], seed, faults=befall)
    world.replicas = POLICIES[policy].make(world, replicas, NETWORK)
    world.run(until)
    return world


def ttft(client: Client) -> float:
    """Seconds from the first try to the first token."""
    assert client.first_at is not None
    return client.first_at - client.arrival.at


class Measured(TestCase):
    """The engine's model, against what was measured of the real one."""

    def test_a_long_prompt_alone(self) -> None:
        """65,000 tokens are read in 125 s, and answered with 25 a second."""
        world = played([arrival(10, 65_000, 300)])
        (client,) = world.clients
        assert client.done_at is not None and client.first_at is not None
        self.assertAlmostEqual(ttft(client), 125.09, 2)
        self.assertAlmostEqual(299 / (client.done_at - client.first_at), 25, 6)

    def test_a_long_prompt_beside_an_answer(self) -> None:
        """It takes 250 s, and the answer comes at a token every eight seconds meanwhile."""
        world = played([arrival(10, 100, 6000), arrival(20, 65_000, 10)])
        self.assertAlmostEqual(ttft(world.clients[1]), 249.40, 2)

    def test_gauges_lag(self) -> None:
        """What comes during a long step shows in the gauges at the end of the next."""
        world = World([(arrival(0, 20_000, 5), 1), (arrival(0.1, 100, 5), 1)], 1)
        world.replicas = [Ungated(world)]
        seen = []
        for at in (0.2, 3.0, 4.5, 8.5):
            world.timeline.at(at, lambda: seen.append(world.engine.gauges[:2]))
        world.run(1000)
        # Steps take 2048 / 525 + 0.04 = 3.94 s.
        self.assertEqual(seen, [(0, 0), (0, 0), (1, 0), (1, 1)])

    def test_kv_full(self) -> None:
        """Four prompts that do not fit: the last starts over, and all are answered."""
        world = played([arrival(10 + n / 1000, 60_000, 200) for n in range(4)])
        self.assertEqual((world.truth.preemptions, world.truth.wasted_tokens), (1, 31493))
        self.assertEqual({client.end for client in world.clients}, {End.OK})

    def test_kv_fills_while_answers_grow(self) -> None:
        """A running answer that no longer fits starts over with what it had decoded."""
        world = played([arrival(10 + n / 1000, 36_000, 2500) for n in range(4)])
        self.assertGreater(world.truth.preemptions, 0)
        self.assertEqual({client.end for client in world.clients}, {End.OK})
        self.assertEqual(world.engine.used_tokens, 0)

    def test_a_shared_prefix(self) -> None:
        """What a group shares is read once."""
        world = played(
            [arrival(at, 8000, 10, group="g", prefix=6000) for at in (0.0, 100.0, 101.0)]
        )
        self.assertEqual(world.truth.prefilled_tokens, 8000 + 2 * 2000)
        self.assertEqual(world.engine.prefix_hit_tokens, 2 * 6000)

    def test_a_prefix_that_nobody_uses_goes_when_room_is_needed(self) -> None:
        """It is read anew after others have filled the cache."""
        world = played(
            [
                arrival(0, 8000, 10, group="g", prefix=6000),
                arrival(100, 150_000, 10),
                arrival(600, 8000, 10, group="g", prefix=6000),
            ]
        )
        self.assertEqual(world.engine.prefix_hit_tokens, 0)
        self.assertEqual({client.end for client in world.clients}, {End.OK})

    def test_whoever_leaves_frees_its_place(self) -> None:
        """An aborted request is gone after the step under way, and what was read is wasted."""
        world = played([arrival(0, 65_000, 10, patience=20), arrival(1, 100, 10)])
        self.assertEqual([client.end for client in world.clients], [End.GAVE_UP, End.OK])
        self.assertGreater(world.truth.wasted_tokens, 8000)
        self.assertEqual((world.engine.held, world.engine.used_tokens), (0, 0))

    def test_tokens_so_far(self) -> None:
        """How many tokens have come is known in the midst of many steps at once."""
        world = World([(arrival(0, 100, 1000), 100)], 1)
        world.replicas = [Ungated(world)]
        seen: list[int] = []

        def look() -> None:
            job = world.clients[0].job
            assert job is not None
            seen.append(world.engine.generated(job))

        for at in (0.1, 10.25, 20.25):
            world.timeline.at(at, look)
        world.run(1000)
        self.assertEqual(seen, [0, 251, 501])


class Clients(TestCase):
    """Who asks again, and when it is over."""

    def test_a_refused_client_asks_again(self) -> None:
        """After five to six seconds, as often as it means to."""
        world = World([(arrival(0, 100, 10_000), 1)] + [(arrival(1, 9, 5, tries=3), 1)] * 2, 1)
        world.replicas = [Semaphore(world, limit=1, queue=1, max_park_seconds=1000)]
        world.run(5000)
        self.assertEqual([client.attempts for client in world.clients], [1, 1, 3])
        self.assertEqual(world.clients[2].end, End.REFUSED)

    def test_silence(self) -> None:
        """Who asks for no stream hangs up after a minute, and asks again."""
        world = played([arrival(0, 65_000, 10, stream=False, tries=2)])
        (client,) = world.clients
        self.assertEqual((client.end, client.attempts), (End.FAILED, 2))
        self.assertEqual(world.engine.held, 0)

    def test_a_stream_is_waited_for(self) -> None:
        """Who asks for a stream through a gateway hears of it, and waits."""
        world = played([arrival(0, 65_000, 10)])
        self.assertEqual(world.clients[0].end, End.OK)

    def test_direct_callers(self) -> None:
        """They meet no gateway, and hang up after a silent minute as well."""
        world = played([arrival(0, 65_000, 10, direct=True), arrival(70, 100, 10, direct=True)])
        self.assertEqual([client.end for client in world.clients], [End.FAILED, End.OK])
        self.assertEqual(world.truth.most_over_gated, 0)

    def test_what_never_ends_is_an_error(self) -> None:
        """A world that is not over in the time that it has says so."""
        with self.assertRaisesRegex(AssertionError, "1 clients have not ended in 10 s"):
            played([arrival(5, 65_000, 10)], until=10)


class Conservation(TestCase):
    """Every client ends exactly once, and nothing stays behind."""

    def _check(self, world: World) -> None:
        self.assertEqual({client.ends for client in world.clients}, {1})
        self.assertNotIn(End.OPEN, {client.end for client in world.clients})
        engine = world.engine
        self.assertEqual((engine.held, engine.held_gated, engine.used_tokens), (0, 0, 0))
        self.assertEqual((engine.jobs, world.truth.parked), ([], 0))

    def test_in_the_load_test(self) -> None:
        """W1 under every policy but the one that takes long."""
        for policy in POLICIES:
            if policy != "peers":
                self._check(simulate(Run(workload="W1", policy=policy, seed=3)))

    def test_in_a_storm(self) -> None:
        """Every policy, while the engine restarts, metrics fail and a replica dies."""
        befall = (
            Fault(3, faults.answer_metrics(Metrics.DOWN)),
            Fault(11, faults.answer_metrics(Metrics.SLOW)),
            Fault(25, faults.answer_metrics(Metrics.OK)),
            Fault(30, faults.restart_engine(6)),
            Fault(45, faults.kill_replica(1)),
        )
        rng = random.Random(5)
        arrivals = sorted(
            (
                arrival(
                    rng.uniform(0, 60),
                    rng.choice((50, 500, 12_000)),
                    rng.randint(2, 60),
                    tries=rng.choice((1, 3)),
                    stream=rng.random() < 0.8,
                    direct=rng.random() < 0.2,
                    patience=rng.choice((20.0, 90.0)),
                    group=rng.choice((None, None, "g")),
                    prefix=40,
                )
                for _ in range(60)
            ),
            key=lambda one: one.at,
        )
        for policy in POLICIES:
            self._check(played(arrivals, policy, befall=befall))


class Policies(TestCase):
    """The baselines as they were, and ours as it is meant to be."""

    def test_the_first_simulator_s_figures(self) -> None:
        """W1 of seeds 0 and 1, to the last digit what the first simulator found."""
        for policy, seed, completed, whole, wasted, over, refusals in (
            ("none", 0, 52.94117647058823, 442.5072921342615, 16.017686304957166, 13, 0.0),
            ("none", 1, 35.294117647058826, 508.79334061338, 69.40298507462687, 13, 0.0),
            ("semaphore", 0, 52.94117647058823, 442.5072921342615, 16.017686304957166, 8, 5 / 17),
            ("predecessor", 1, 35.294117647058826, 508.79334061338, 69.40298507462687, 13, 0.0),
            ("oracle", 0, 94.11764705882354, 254.43128941028664, 12.626087781281862, 0, 1 / 17),
        ):
            _, found = play(Run(workload="W1", policy=policy, seed=seed))
            self.assertAlmostEqual(found["completed_percent"], completed)
            self.assertAlmostEqual(found["whole_mean"], whole)
            self.assertAlmostEqual(found["wasted_percent"], wasted)
            self.assertEqual(found["most_over"], over)
            self.assertAlmostEqual(found["refusals"], refusals)

    def test_a_seed_says_all_of_it(self) -> None:
        """The same seed gives the same figures, through our gate as well."""
        for policy in ("predecessor", "static"):
            run = Run(workload="W1", policy=policy, seed=2)
            self.assertEqual(repr(play(run)), repr(play(run)))

    def test_one_of_ours_never_overfills(self) -> None:
        """Alone, with callers of its own only, the gate keeps to S and wastes no place."""
        world = played([arrival(1 + n / 100, 1500, 100) for n in range(30)], "alone")
        self.assertEqual(world.truth.most_over, 0)
        self.assertLess(figures(world)["idle_percent"], 0.5)
        self.assertEqual({client.end for client in world.clients}, {End.OK})

    def test_the_predecessor_s_herd(self) -> None:
        """A page that shows room lets all go that are parked."""
        arrivals = [arrival(5, 100, 200) for _ in range(4)]
        arrivals += [arrival(8 + n / 10, 100, 200) for n in range(12)]
        world = World([(one, 100) for one in arrivals], 1)
        world.replicas = [Predecessor(world, queue=None)]
        world.run(1000)
        self.assertEqual(world.truth.most_over, 8)

    def test_the_predecessor_s_queue(self) -> None:
        """It parks no more than its queue holds."""
        arrivals = [arrival(5, 100, 2000) for _ in range(4)]
        arrivals += [arrival(9 + n / 10, 100, 20) for n in range(12)]
        world = World([(one, 100) for one in arrivals], 1)
        world.replicas = [Predecessor(world, queue=8)]
        world.run(1000)
        self.assertEqual(sum(client.refusals for client in world.clients), 4)

    def _peers(self, network: Network) -> World:
        world = World([(arrival(1 + n / 100, 1500, 50), 1500) for n in range(15)], 1)
        addresses = tuple((f"replica{n}", 9000) for n in range(3))
        policy = gated(Ordering.COST, Replicas(addresses=addresses))
        replicas = [GatedReplica(world, policy) for _ in range(3)]
        world.replicas = replicas
        Exchange(world.timeline, replicas, network)
        world.run(1000)
        self.assertEqual({client.end for client in world.clients}, {End.OK})
        return world

    def test_replicas_that_ask_each_other(self) -> None:
        """Three of them put at most two over S into the engine."""
        self.assertLessEqual(self._peers(NETWORK).truth.most_over, 2)

    def test_replicas_that_hear_little(self) -> None:
        """With answers that are lost or late each keeps to S, and everybody is served."""
        for network in (Network(loss=0.6), Network(delay_seconds=0.3), Network(loss=1.0)):
            self.assertLessEqual(self._peers(network).truth.most_over, 8)

    def test_blocks(self) -> None:
        """Bodies of a group share the names of their prefix, and no other."""
        one, other, third = (
            blocks(Client(number, arrival(0, 5000, 5, group=group, prefix=3000), 5000))
            for number, group in enumerate(("g", "g", "h"))
        )
        self.assertEqual(len(one), 4)
        self.assertEqual(one[:2], other[:2])
        self.assertEqual(len({*one, *other, *third}), 4 + 2 + 4)


class Results(TestCase):
    """Numbers, tables and pictures."""

    def test_percentiles(self) -> None:
        """The least value that so great a share does not pass."""
        values = [5.0, 1.0, 4.0, 2.0, 3.0]
        self.assertEqual([percentile(values, share) for share in (0, 0.5, 0.95, 1)], [1, 3, 5, 5])

    def test_spreads(self) -> None:
        """Median and quartiles as text; what was not to be seen is a hyphen."""
        self.assertEqual(str(spread([1, 2, 3, 4, float("nan"), 5])), "3 (2 .. 4)")
        self.assertEqual(str(spread([7.0, 7.0])), "7")
        self.assertEqual(str(spread([])), "-")

    def test_targets(self) -> None:
        """A ratio of nothing to nothing is one; bounds are least or most."""
        target = next(one for one in TARGETS if one.figure == "wasted_percent")
        self.assertEqual(target.measure({"wasted_percent": 0}, {"wasted_percent": 0}), 1)
        self.assertEqual(target.measure({"wasted_percent": 1}, {"wasted_percent": 4}), 0.25)
        self.assertTrue(target.reached(0.3, "peers"))
        self.assertFalse(target.reached(0.31, "peers"))
        self.assertTrue(target.reached(0.31, "alone"))

    def test_the_program(self) -> None:
        """It prints a table of figures and one of targets, and writes a page and a picture."""
        directory = Path(self.mktemp())
        line = ["W1", "--policies", "none,alone", "--seeds", "2", "--holdout", "1", "--jobs", "1"]
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = main([*line, "--out", str(directory)])
        self.assertEqual(status, 0)
        page = (directory / "simulation.md").read_text()
        for text in (said.getvalue(), page):
            self.assertIn("| no gate", text)
            self.assertIn("| completed, to no gate", text)
        self.assertIn("![W1 in a picture](simulation/W1.svg)", page)
        picture = ElementTree.parse(directory / "simulation" / "W1.svg")
        self.assertIn("no gate", "".join(picture.getroot().itertext()))

    def test_a_name_that_there_is_not(self) -> None:
        """An unknown workload or policy ends with the exit status of a wrong line."""
        said = io.StringIO()
        for line in (
            *(["W9"], ["W1", "--policies", "magic"], ["--seeds", "0"], ["--jobs", "0"]),
            *(["--replicas", "0"], ["--loss", "2"], ["--delay", "-1"], ["--holdout", "few"]),
        ):
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
                main(line)
            self.assertEqual(ended.exception.code, 2)
        self.assertIn("there is no magic", said.getvalue())
