from __future__ import annotations

from tests.support import TestCase
from tests.web.status.facts import engine, full, model, observer, parked, trend, ungated
from twisted_gateway.web.status.reasons import failures, notes, state, waits_for

REFUSED = "connection refused"


class SentenceTests(TestCase):
    """Why requests wait, in one sentence."""

    def said(self, facts: dict[str, object], *, as_state: str, words: str) -> None:
        self.assertEqual((facts["state"], facts["why"]), (as_state, words))

    def test_idle(self) -> None:
        """Nothing runs, nothing waits."""
        free = model(in_engine=0, engines=[engine(own=0, in_engine=0, running=0)])
        self.said(free, as_state="idle", words="Nobody waits: the engine is idle.")

    def test_serving(self) -> None:
        """Something runs, nothing waits."""
        self.said(model(), as_state="serving", words="Nobody waits: the engine runs 3 of 4.")

    def test_full(self) -> None:
        """The engine is full: when the next place is free is said as roughly as it is known."""
        twelve = full(parked=[parked(position) for position in range(1, 13)])
        words = "12 wait: the engine runs 4 of 4; next place in about 40 s."
        self.said(twelve, as_state="waiting", words=words)
        self.said(
            full(parked=[parked(eta_seconds=None)]),
            as_state="waiting",
            words="1 waits: the engine runs 4 of 4.",
        )

    def test_full_of_others(self) -> None:
        """Whose requests fill it is said where they are not ours."""
        others = engine(own=1, peers=2, foreign=1, in_engine=4)
        words = (
            "1 waits: the engine runs 4 of 4 (2 of them through other replicas, 1 of them from "
            "elsewhere); next place in about 40 s."
        )
        self.said(full(engines=[others]), as_state="waiting", words=words)

    def test_several_engines(self) -> None:
        """Their places are added up."""
        two = [engine(own=4, in_engine=4), engine(number=1, own=4, in_engine=4)]
        words = "1 waits: the 2 engines run 8 of 8; next place in about 40 s."
        self.said(full(engines=two, in_engine=8, max_inflight=8), as_state="waiting", words=words)

    def test_a_place_is_free(self) -> None:
        """Why the first does not go although there is one: each cause has its words."""
        kv_full = engine(kv_usage=0.93)
        little = engine(kv_usage=0.8, kv_tokens=10_000)
        none_of_ours = engine(kv_usage=0.8, kv_tokens=10_000, own=0, foreign=3)
        reading = engine(long_prefill=True)
        unknown = engine(kv_usage=None, kv_tokens=None)
        for changes, words in (
            ({"kv_usage": 0.93, "engines": [kv_full]}, "KV cache is 93 % full: from 90 % on no"),
            ({"kv_usage": 0.8, "engines": [little]}, "too little room for the first (12,345 tok"),
            ({"engines": [reading]}, "a long prefill has it to itself until its answer begins"),
            ({"parked": [parked(long_prefill=True)]}, "waits until nothing else is in the engine"),
            (
                {"parked": [parked(long_prefill=True)], "engines": [reading]},
                "which waits for the long one before it",
            ),
            ({"engines": [none_of_ours]}, "but nobody is let in yet"),
            ({"replicas": 3, "engines": [little]}, "too little room for the first"),
            ({"replicas": 3}, "what is free is another replica's to take (of 3)"),
            ({"parked": [parked(held=True)]}, "but sent back what waits; it is tried again soon"),
            ({"engines": [unknown], "kv_usage": None}, "but nobody is let in yet"),
        ):
            facts = model(**{"parked": [parked()]} | changes)
            self.assertEqual(facts["state"], "waiting")
            self.assertIn(words, facts["why"])
            self.assertIn("the engine runs 3 of 4, but ", facts["why"])

    def test_stale(self) -> None:
        """Gauges that cannot be read come first, with the reason and by what is admitted."""
        gone = observer(ok=False, stale=True, reason=REFUSED)
        for sight, instead in (
            ("ledger", "admitting by our own ledger"),
            ("held", "admitting by the last reading (whenStale: hold)"),
            ("no_gate", "everything is let in, for maxInflight is not known yet"),
        ):
            one = engine(judged_by=sight, observer=gone, sample_age_seconds=12.2, in_engine=4)
            words = (
                f"Gauges stale for 12 s: connection refused; {instead}. "
                "1 waits: 4 of 4 places are taken by our count; next place in about 40 s."
            )
            self.said(full(engines=[one]), as_state="stale", words=words)

    def test_never_read(self) -> None:
        """An engine that has not answered since the start is told from one that fell silent."""
        gone = observer(ok=False, reason=REFUSED, polls=1)
        one = engine(judged_by="unknown", observer=gone, sample_age_seconds=None)
        facts = model(engines=[one])
        self.assertEqual(facts["state"], "stale")
        self.assertIn("Gauges never read: connection refused; admitting by our ", facts["why"])

    def test_not_polled_yet(self) -> None:
        """In the first moment after the start nothing is amiss."""
        fresh = observer(ok=False, reason="not polled yet", polls=0)
        one = engine(judged_by="unknown", observer=fresh, sample_age_seconds=None)
        self.assertEqual(model(engines=[one])["state"], "serving")

    def test_some_stale(self) -> None:
        """Of several engines it is said how many cannot be read."""
        gone = observer(ok=False, stale=True, reason=REFUSED)
        two = [engine(), engine(number=1, judged_by="ledger", observer=gone)]
        facts = model(engines=two)
        self.assertIn("1 of 2 engines: gauges stale for 1.5 s", facts["why"])

    def test_closed(self) -> None:
        """Stale and closed: nothing is let in, and that is what is said."""
        gone = observer(ok=False, stale=True, reason=REFUSED)
        one = engine(judged_by="closed", hold="stale_closed", observer=gone)
        words = (
            "Gauges stale for 1.5 s: connection refused; nothing is let in until they can be read "
            "(whenStale: closed). 1 waits."
        )
        self.said(full(engines=[one]), as_state="shut", words=words)

    def test_refusing_connections(self) -> None:
        """An engine that is down is named as the cause, with what the gauges' poll met."""
        gone = observer(ok=False, stale=True, reason=REFUSED)
        one = engine(judged_by="ledger", hold="refused_connection", observer=gone)
        words = (
            "The engine could not be reached, or broke off an answer; gauges stale for 1.5 s: "
            "connection refused; one request at a time goes to try. 1 waits."
        )
        self.said(full(engines=[one]), as_state="shut", words=words)

    def test_an_engine_that_is_down_has_no_trial_under_way(self) -> None:
        """Where nobody waits nobody tries, and what the engine does is not known."""
        one = engine(hold="refused_connection", own=0, in_engine=0, running=0)
        one |= {"unreached": "the name of the host is unknown"}
        words = (
            "The engine cannot be reached (the name of the host is unknown); the next request "
            "tries it. Nobody waits."
        )
        self.said(model(in_engine=0, engines=[one]), as_state="shut", words=words)

    def test_an_engine_that_runs_what_has_ended_here(self) -> None:
        """Beside a gauge of 1 nobody calls it idle."""
        one = engine(own=0, in_engine=0, running=1)
        words = "Nobody waits: by its gauges the engine still runs what has ended here."
        self.said(model(in_engine=0, engines=[one]), as_state="idle", words=words)

    def test_judged_closed_while_the_observer_is_new(self) -> None:
        """After a reload the gate knows that gauges are stale before the new observer does."""
        fresh = observer(ok=False, reason="not polled yet", polls=0)
        one = engine(judged_by="closed", hold="stale_closed", observer=fresh)
        words = (
            "Gauges stale for 1.5 s: not polled yet; nothing is let in until they can be read "
            "(whenStale: closed). 1 waits."
        )
        self.said(full(engines=[one]), as_state="shut", words=words)

    def test_failing(self) -> None:
        """Errors in a row are said, with what they hint at, gated or not."""
        for status, hint in (
            (500, ""),
            (404, " (does it know the model by upstreamModel, and the path?)"),
            (401, " (is its apiKey right?)"),
        ):
            bad = {"faults_in_a_row": 12, "fault_status": status, "own": 0, "running": 0}
            said = f"The engine answered its last 12 requests with status {status}{hint}."
            self.said(
                model(in_engine=0, engines=[engine(in_engine=0, **bad)]),
                as_state="failing",
                words=f"{said} Nobody waits: the engine is idle.",
            )
            self.said(
                ungated(engines=[ungated()["engines"][0] | bad]),
                as_state="failing",
                words=f"{said} No gate: requests go straight to the engine; 4 under way.",
            )
        few = engine(faults_in_a_row=2, fault_status=500)
        self.assertEqual(model(engines=[few])["state"], "serving")

    def test_silent(self) -> None:
        """Nothing comes for far longer than it should: said where that is long, by estimate."""
        for silent, expected, as_state in (
            (59.0, 1.0, "serving"),
            (95.0, 20.0, "silent"),
            (95.0, 60.0, "serving"),
            (130.0, 60.0, "silent"),
        ):
            one = engine(silent_seconds=silent, expected_seconds=expected)
            self.assertEqual(model(engines=[one])["state"], as_state)
        one = engine(silent_seconds=130.0, expected_seconds=60.0)
        words = (
            "The engine seems to hang: nothing has come from it for 2 min 10 s, where 60 s "
            "would be usual. Nobody waits: the engine runs 3 of 4."
        )
        self.said(model(engines=[one]), as_state="silent", words=words)
        two = [engine(), one | {"number": 1, "address": "http://10.0.0.2:8000"}]
        self.assertIn(
            "One of the 2 engines, http://10.0.0.2:8000, seems to hang", model(engines=two)["why"]
        )

    def test_an_engine_without_gauges(self) -> None:
        """Of one that is not polled (Ollama) nothing is claimed but our own count."""
        one = engine(judged_by="unobserved", observer=None, sample_age_seconds=None)
        facts = model(engine="ollama", observed=False, engines=[one])
        self.said(facts, as_state="serving", words="Nobody waits: the engine runs 3 of 4.")

    def test_no_gate(self) -> None:
        """Nothing can wait here."""
        words = "No gate: requests go straight to the engine; 4 under way."
        self.said(ungated(), as_state="no gate", words=words)
        gone = observer(ok=False, stale=True, reason=REFUSED)
        seen = ungated()["engines"][0] | {"observer": gone}
        words = f"Gauges stale for 1.5 s: connection refused. {words}"
        self.said(ungated(engines=[seen]), as_state="stale", words=words)

    def test_the_worst_comes_first(self) -> None:
        """What is shut ranks before what waits, and that before what serves."""
        shut = full(engines=[engine(hold="refused_connection")])
        ranks = [state(one).rank for one in (shut, full(), model(), ungated())]
        self.assertEqual(ranks, sorted(ranks))
        self.assertEqual(len(set(ranks)), 4)


class NoteTests(TestCase):
    """What else is amiss, engine by engine."""

    def test_all_well(self) -> None:
        """Then nothing is said, however full it is."""
        self.assertEqual(notes(full()), [])
        self.assertEqual(notes(ungated()), [])

    def test_faults(self) -> None:
        """Each names its engine by its address."""
        at = "http://10.0.0.1:8000 "
        for changes, words in (
            ({"drift": True}, "publishes gauges that contradict maxInflight 4: it ran 3 with 1 w"),
            (
                {"observer": observer(degraded=True, reason="no KV usage")},
                "answers without all gauges of its kind: no KV usage.",
            ),
            (
                {"observer": observer(ok=False, reason="no answer within 5 s")},
                "did not answer the last poll: no answer within 5 s.",
            ),
        ):
            said = notes(model(engines=[engine(**changes)]))
            self.assertEqual(len(said), 1)
            self.assertTrue(said[0].startswith(at + words), said)

    def test_one_of_several(self) -> None:
        """The sentence speaks of all of them, so a note speaks of the one."""
        gone = observer(ok=False, stale=True, reason=REFUSED)
        bad = engine(number=1, address="http://10.0.0.2:8000", observer=gone)
        bad |= {"hold": "refused_connection", "judged_by": "ledger"}
        self.assertEqual(
            notes(model(engines=[engine(), bad])),
            [
                "http://10.0.0.2:8000 could not be reached, or broke off an answer: it gets "
                "nothing but a trial.",
            ],
        )
        failing = engine(number=1, address="http://10.0.0.2:8000", faults_in_a_row=3)
        self.assertEqual(
            notes(model(engines=[engine(), failing | {"fault_status": 500}])),
            ["http://10.0.0.2:8000 answered its last 3 requests with status 500."],
        )
        self.assertEqual(
            notes(model(engines=[engine(), bad | {"hold": None}])),
            [
                "http://10.0.0.2:8000 gauges stale for 1.5 s: connection refused; admitting by "
                "our own ledger.",
            ],
        )

    def test_a_reason_is_one_line(self) -> None:
        """What an engine makes the poll say cannot break the page's lines, or a terminal."""
        nasty = observer(ok=False, reason="a\nb\x1b[31mc")
        self.assertIn("a\ufffdb\ufffd[31mc", notes(model(engines=[engine(observer=nasty)]))[0])


class FailureTests(TestCase):
    """What went wrong lately."""

    def test_failures(self) -> None:
        """Faults of engine and gateway are a sentence; refusals and clients that leave are none."""
        ended = {"client_disconnect": 9, "ok": 80, "rejected": 3, "upstream_status": 2}
        self.assertEqual(failures(trend(ended=ended)), [])
        answered = {"2xx": 80, "5xx": 4}
        self.assertEqual(
            failures(trend(ended=ended, answered=answered)),
            ["4 of 84 answers of the last 15 minutes had a status of 5xx."],
        )
        ended |= {"upstream_error": 2, "internal_error": 1}
        self.assertEqual(
            failures(trend(ended=ended)),
            ["3 requests failed in the last 15 minutes: 2 upstream_error, 1 internal_error."],
        )


class TicketTests(TestCase):
    """Why one of the parked waits."""

    def test_causes(self) -> None:
        """Each has a few words."""
        reading = full(engines=[engine(long_prefill=True)])
        for ticket, facts, words in (
            (parked(), full(), "the next place"),
            (parked(2), full(), "its turn"),
            (parked(held=True), full(), "sent back, tried again soon"),
            (parked(priority="warmup"), full(), "nobody else to wait"),
            (parked(long_prefill=True), full(), "an engine to itself (long prefill)"),
            (parked(long_prefill=True), reading, "the long prefill before it"),
        ):
            self.assertEqual(waits_for(ticket, facts), words)
