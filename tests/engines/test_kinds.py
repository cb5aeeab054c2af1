"""What each kind of engine's page says."""

from __future__ import annotations

import gzip
import math
from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from tests.engines.pages import body, fixture, vllm
from tests.support import TestCase, examples
from twisted_gateway.config.schema import EngineKind
from twisted_gateway.engines.kinds import KINDS, read
from twisted_gateway.engines.reading import Reading

VLLM = EngineKind.VLLM
SGLANG = EngineKind.SGLANG


class ReadingTestCase(TestCase):
    def assertRead(
        self, kind: EngineKind, text: bytes, names: Collection[str] = (), **expected: object
    ) -> Reading:
        """Read a page and compare the attributes named."""
        reading = read(kind, text, names)
        seen = {key: getattr(reading, key) for key in expected}
        self.assertEqual(seen, expected, reading.problems)
        return reading

    def assertProblem(self, kind: EngineKind, text: bytes, *words: str, readable: bool) -> None:
        """Read a page that lacks something, and look for words that say what."""
        reading = read(kind, text, ["reasoning"])
        self.assertEqual(reading.readable, readable)
        self.assertTrue(reading.problems)
        for word in words:
            self.assertIn(word, "; ".join(reading.problems))


class VllmTests(ReadingTestCase):
    def test_data_parallel_ranks(self) -> None:
        """Running, waiting and KV tokens add up over the ranks; KV usage is the fullest's."""
        self.assertRead(
            VLLM,
            fixture("vllm_dp2_loaded.prom"),
            ["reasoning"],
            running=8,
            waiting=8,
            kv_usage=0.2947368421052632,
            kv_tokens=24_576,
            prefix_hit_tokens=0.0,
            readable=True,
            problems=(),
        )

    def test_one_rank(self) -> None:
        """A page under KV pressure, and one of an idle engine."""
        self.assertRead(
            VLLM,
            fixture("vllm_kv_pressure.prom"),
            ["reasoning"],
            running=3,
            waiting=5,
            kv_usage=0.8210526315789474,
            kv_tokens=12_288,
            prefix_hit_tokens=384.0,
            problems=(),
        )
        self.assertRead(
            VLLM, fixture("vllm_idle.prom"), ["reasoning"], running=0, waiting=0, kv_usage=0.0
        )

    def test_a_pooling_engine_has_gauges_but_no_cache_size(self) -> None:
        """`kv_cache_size_tokens="None"` is unknown; the blocks serve in its place."""
        self.assertRead(
            VLLM, fixture("vllm_embed_idle.prom"), ["embed"], running=0, kv_tokens=128, problems=()
        )

    def test_old_names(self) -> None:
        """An engine of 2024: another KV gauge, no `engine` label, KV tokens from its blocks."""
        self.assertRead(
            VLLM,
            fixture("vllm_0_6.prom"),
            ["llama"],
            running=2,
            waiting=1,
            kv_usage=0.008293092588704587,
            kv_tokens=152_432,
            prefix_hit_tokens=None,
            problems=(),
        )

    def test_the_new_kv_gauge_wins(self) -> None:
        """Where both names are published, the newer one counts."""
        both = vllm(usage=0.25) + b'vllm:gpu_cache_usage_perc{engine="0"} 0.5\n'
        self.assertRead(VLLM, both, ["reasoning"], kv_usage=0.25)

    def test_kv_tokens_that_no_number_gives(self) -> None:
        """A cache configuration without usable figures leaves KV tokens unknown: no fault."""
        for labels in [
            'engine="0",block_size="16",num_gpu_blocks="None"',
            'engine="0",block_size="16"',
            'engine="0",kv_cache_size_tokens="0"',
            'engine="0",kv_cache_size_tokens="9999999999999999999"',
            'engine="0",kv_cache_size_tokens="\u00b2"',
            'engine="1",kv_cache_size_tokens="4096"',
        ]:
            text = vllm() + f"vllm:cache_config_info{{{labels}}} 1.0\n".encode()
            self.assertRead(VLLM, text, ["reasoning"], kv_tokens=None, problems=())

    def test_a_rank_that_is_missing_makes_the_sum_unknown(self) -> None:
        """A page that broke off between two ranks must not read as one rank."""
        whole = fixture("vllm_dp2_loaded.prom")
        for name, readable in [
            (b"vllm:num_requests_running", False),
            (b"vllm:num_requests_waiting", False),
            (b"vllm:kv_cache_usage_perc", True),
        ]:
            lines = [
                line
                for line in whole.splitlines(keepends=True)
                if not line.startswith(name + b'{engine="1"')
            ]
            self.assertProblem(VLLM, b"".join(lines), name.decode(), readable=readable)
        lines = [
            line
            for line in whole.splitlines(keepends=True)
            if not (line.startswith(b"vllm:cache_config_info") and b'engine="1"' in line)
            and not line.startswith(b'vllm:prefix_cache_hits_total{engine="1"')
        ]
        self.assertRead(
            VLLM,
            b"".join(lines),
            ["reasoning"],
            kv_tokens=None,
            prefix_hit_tokens=None,
            problems=(),
        )

    def test_wherever_a_page_breaks_off_it_is_read_right_or_not_at_all(self) -> None:
        """Of a page cut anywhere near its gauges, each figure is the whole page's or unknown."""
        text = fixture("vllm_dp2_loaded.prom")
        whole = read(VLLM, text, ["reasoning"])
        start = text.index(b"vllm:num_requests_running{")
        end = text.index(b"# HELP vllm:external_prefix_cache_queries_total")
        for cut in range(start - 10, end, 3):
            reading = read(VLLM, text[:cut], ["reasoning"])
            self.assertIn(reading.running, (None, whole.running), cut)
            self.assertIn(reading.waiting, (None, whole.waiting), cut)
            self.assertIn(reading.kv_usage, (None, whole.kv_usage), cut)
            self.assertIn(reading.prefix_hit_tokens, (None, whole.prefix_hit_tokens), cut)


class UnknownIsNeverZeroTests(ReadingTestCase):
    def test_busy_gauges(self) -> None:
        """NaN, negative, infinite, fractional, absurd and garbled counts are unknown."""
        for bad in ["NaN", "-1", "+Inf", "-Inf", "2.5", "1e300", "x", "", "1_0"]:
            for page, name in [
                (vllm(running=bad), "vllm:num_requests_running"),
                (vllm(waiting=bad), "vllm:num_requests_waiting"),
            ]:
                self.assertProblem(VLLM, page, name, readable=False)

    def test_kv_usage(self) -> None:
        """A KV gauge that is no share is unknown, and the poll is good without it."""
        for bad in ["NaN", "-0.1", "+Inf", "45.0", "x"]:
            self.assertProblem(VLLM, vllm(1, 0, bad), "kv_cache_usage_perc", readable=True)
            self.assertRead(VLLM, vllm(1, 0, bad), ["reasoning"], running=1, kv_usage=None)

    def test_slightly_over_full_is_full(self) -> None:
        """A share slightly above 1 is real, and means 1."""
        self.assertRead(VLLM, vllm(usage=1.02), ["reasoning"], kv_usage=1.0, problems=())

    def test_missing_gauges(self) -> None:
        """What is not on the page is named."""
        for missing, readable in [
            (b"vllm:num_requests_running", False),
            (b"vllm:num_requests_waiting", False),
            (b"vllm:kv_cache_usage_perc", True),
        ]:
            text = vllm(3, 2, 0.5).replace(missing, b"other")
            self.assertProblem(VLLM, text, f"has no {missing.decode()}", readable=readable)

    def test_a_gauge_that_stands_twice(self) -> None:
        """Two series for one rank contradict each other, or would be counted double."""
        self.assertProblem(VLLM, vllm(3) + vllm(3), "twice", readable=False)

    def test_hits(self) -> None:
        """A counter that cannot be read is unknown, and no fault."""
        for bad in ["NaN", "-5", "x", "+Inf"]:
            text = vllm() + f'vllm:prefix_cache_hits_total{{engine="0"}} {bad}\n'.encode()
            self.assertRead(VLLM, text, ["reasoning"], prefix_hit_tokens=None, problems=())

    def test_pages_that_are_none(self) -> None:
        """HTML, compressed, empty, oversize and other engines' pages are named as such."""
        for text, word in [
            (b"", "empty"),
            (b" \n", "empty"),
            (b"<html><h1>502 Bad Gateway</h1></html>\n", "HTML"),
            (gzip.compress(fixture("vllm_idle.prom")), "compressed"),
            (b"x" * (4 * 1024 * 1024 + 1), "bytes"),
            (fixture("sglang.prom"), "looks like one of sglang"),
            (body("infinity.http"), "no vllm gauges"),
            (b"data: {}\n\n", "no vllm gauges"),
        ]:
            self.assertProblem(VLLM, text, word, readable=False)

    @examples(60)
    @given(
        st.sampled_from(sorted(KINDS, key=lambda kind: kind.value)),
        st.sampled_from(["vllm_idle.prom", "sglang_dp2_tp2_pp2_priority.prom", "tgi.prom"]),
        st.data(),
    )
    def test_nothing_raises_and_every_figure_is_one(
        self, kind: EngineKind, name: str, data: st.DataObject
    ) -> None:
        """Of a page with bytes overwritten at random, each figure is a sane number or unknown."""
        text = bytearray(fixture(name))
        for at in data.draw(st.lists(st.integers(0, len(text) - 1), max_size=8)):
            text[at : at + 4] = data.draw(st.binary(min_size=4, max_size=4))
        reading = read(kind, bytes(text), ["reasoning"])
        for count in (reading.running, reading.waiting, reading.kv_tokens):
            self.assertTrue(count is None or count >= 0)
        self.assertTrue(reading.kv_usage is None or 0 <= reading.kv_usage <= 1)
        hits = reading.prefix_hit_tokens
        self.assertTrue(hits is None or (math.isfinite(hits) and hits >= 0))
        self.assertEqual(
            reading.readable,
            reading.waiting is not None and (reading.running is not None or kind is EngineKind.TEI),
        )


class ModelTests(ReadingTestCase):
    def test_the_model_that_is_asked_for(self) -> None:
        """Of a page of two models the one that has the name counts, whichever name that is."""
        page = vllm(1, model="a") + vllm(2, model="b")
        self.assertRead(VLLM, page, ["x", "b"], running=2, problems=())
        self.assertRead(VLLM, page, ["a"], running=1)

    def test_the_only_model(self) -> None:
        """A page of one model is that model's, whatever it calls itself."""
        self.assertRead(VLLM, vllm(5, model="/models/qwen"), ["reasoning"], running=5, problems=())

    def test_none_of_several(self) -> None:
        """A page of several models, none of which is asked for, is unknown and names them."""
        page = vllm(1, model="a") + vllm(2, model="b")
        self.assertProblem(VLLM, page, "'a', 'b'", readable=False)
        many = b"".join(vllm(model=f"m{n}") for n in range(9))
        self.assertProblem(VLLM, many, "and 4 more", readable=False)

    def test_no_model_label(self) -> None:
        """A page without the label (a relabelling proxy) is taken as it is."""
        page = vllm(4, 1, 0.5).replace(b',model_name="reasoning"', b"")
        self.assertRead(VLLM, page, ["reasoning"], running=4, waiting=1, kv_usage=0.5, problems=())

    def test_facts_without_a_model_belong_to_the_only_one(self) -> None:
        """Of two models on a page it is unknown whose cache the configuration describes."""
        config = b'vllm:cache_config_info{engine="0",kv_cache_size_tokens="4096"} 1.0\n'
        self.assertRead(VLLM, vllm(model="a") + config, ["a"], kv_tokens=4096)
        two = vllm(model="a") + vllm(model="b") + config
        self.assertRead(VLLM, two, ["a"], running=0, kv_tokens=None)


class SglangTests(ReadingTestCase):
    def test_one_process(self) -> None:
        """Busy and KV gauges; hits add up over the tiers that they came from."""
        self.assertRead(
            SGLANG,
            fixture("sglang.prom"),
            ["Qwen/Qwen3-32B"],
            running=7,
            waiting=3,
            kv_usage=0.28,
            kv_tokens=442_353,
            prefix_hit_tokens=4500.0,
            problems=(),
        )

    def test_mirrors_count_once_and_priorities_not_at_all(self) -> None:
        """Tensor and pipeline ranks say the same; the series of each priority are in the total."""
        self.assertRead(
            SGLANG,
            fixture("sglang_dp2_tp2_pp2_priority.prom"),
            ["chat"],
            running=7,
            waiting=4,
            kv_usage=0.9,
            kv_tokens=200_000,
            prefix_hit_tokens=77.0,
            problems=(),
        )

    def test_a_priority_that_says_more_than_the_total(self) -> None:
        """Only the totals count, whatever the series of one priority say meanwhile."""
        page = fixture("sglang_dp2_tp2_pp2_priority.prom").replace(
            b'priority="5",tp_rank="0"} 2.0', b'priority="5",tp_rank="0"} 50.0'
        )
        self.assertIn(b"} 50.0", page)
        self.assertRead(SGLANG, page, ["chat"], running=7, waiting=4)

    def test_mirrors_that_lag(self) -> None:
        """Of mirrors that differ the largest counts, for none may hide what is there."""
        page = fixture("sglang_dp2_tp2_pp2_priority.prom").replace(
            b'pp_rank="1",priority="",tp_rank="1"} 5.0', b'pp_rank="1",priority="",tp_rank="1"} 6.0'
        )
        self.assertRead(SGLANG, page, ["chat"], running=8)

    def test_a_mirror_that_cannot_be_read(self) -> None:
        """A mirror that is NaN leaves its rank unknown."""
        page = fixture("sglang_dp2_tp2_pp2_priority.prom").replace(
            b'tp_rank="1"} 5.0', b'tp_rank="1"} NaN'
        )
        self.assertRead(SGLANG, page, ["chat"], running=None, readable=False)

    def test_the_label_of_early_versions(self) -> None:
        """`name` serves where there is no `model_name`."""
        page = b"".join(
            f'sglang:{gauge}{{name="{model}"}} {value}\n'.encode()
            for model, value in (("a", 1), ("b", 0))
            for gauge in ("num_running_reqs", "num_queue_reqs", "token_usage")
        )
        self.assertRead(SGLANG, page, ["a"], running=1, waiting=1, kv_usage=1.0, problems=())


class OtherKindsTests(ReadingTestCase):
    def test_llamacpp(self) -> None:
        """No labels, and no KV gauge today, which is no fault; the gauge of 2024 is read."""
        self.assertRead(
            EngineKind.LLAMACPP,
            body("llamacpp_loaded.http"),
            ["anything"],
            running=4,
            waiting=4,
            kv_usage=None,
            prefix_hit_tokens=52.0,
            problems=(),
        )
        self.assertRead(EngineKind.LLAMACPP, fixture("llamacpp_2024.prom"), kv_usage=0.25)

    def test_tgi(self) -> None:
        """Batch and queue; it publishes nothing about its KV cache."""
        self.assertRead(
            EngineKind.TGI, fixture("tgi.prom"), running=4, waiting=3, kv_usage=None, problems=()
        )

    def test_tei(self) -> None:
        """The queue alone: running is not published, so unknown, and the page is readable."""
        self.assertRead(
            EngineKind.TEI,
            fixture("tei.prom"),
            running=None,
            waiting=5,
            kv_usage=None,
            readable=True,
            problems=(),
        )
        self.assertProblem(
            EngineKind.TEI, b"te_request_count 4\n", "no te_queue_size", readable=False
        )

    def test_kinds_without_gauges(self) -> None:
        """Ollama and `none` are not observed."""
        self.assertEqual(set(EngineKind) - set(KINDS), {EngineKind.OLLAMA, EngineKind.NONE})


class FingerprintTests(TestCase):
    def test_it_tells_whether_the_engine_moves(self) -> None:
        """Gauges and progress counters count; order and NaN do not make a change."""
        still = read(VLLM, vllm(1, 2, 0.5, generated=7), ["reasoning"]).fingerprint
        swapped = b"".join(reversed(vllm(1, 2, 0.5, generated=7).splitlines(keepends=True)))
        self.assertEqual(read(VLLM, swapped, ["reasoning"]).fingerprint, still)
        for moved in [vllm(1, 2, 0.5, generated=8), vllm(1, 2, 0.6, generated=7)]:
            self.assertNotEqual(read(VLLM, moved, ["reasoning"]).fingerprint, still)
        first, second = (read(VLLM, vllm(1, 0, "NaN"), ["reasoning"]) for _ in range(2))
        self.assertEqual(first.fingerprint, second.fingerprint)

    def test_every_kind_has_one(self) -> None:
        """The recorded and written pages of each kind have progress counters to compare."""
        for kind, text in [
            (VLLM, fixture("vllm_idle.prom")),
            (SGLANG, fixture("sglang.prom")),
            (EngineKind.LLAMACPP, body("llamacpp_loaded.http")),
            (EngineKind.TGI, fixture("tgi.prom")),
            (EngineKind.TEI, fixture("tei.prom")),
        ]:
            self.assertGreater(len(read(kind, text, ["x"]).fingerprint), 3, kind)
