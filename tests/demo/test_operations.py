"""Tests of what every simulated engine says of itself."""

from __future__ import annotations

import json
import re
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.demo.harness import (
    CHAT,
    FIXTURES,
    HELLO,
    Connection,
    EngineCase,
    Recorded,
    keys_in_order,
)
from twisted_gateway.demo.faults import METRICS_MODES
from twisted_gateway.demo.server import MAX_BODY_BYTES


class MetricsTests(EngineCase):
    """The exposition text."""

    def page(self) -> str:
        answer = self.send("GET", "/metrics").answer
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["content-type"], "text/plain; version=1.0.0; charset=utf-8")
        return answer.body.decode()

    def samples(self) -> dict[str, float]:
        """The samples by name and those labels that differ."""
        found = {}
        for family in text_string_to_metric_families(self.page()):
            for sample in family.samples:
                own = {k: v for k, v in sample.labels.items() if k not in ("engine", "model_name")}
                found[sample.name[5:] + "".join(f" {v}" for v in own.values())] = sample.value
        return found

    def test_series_are_those_of_vllm(self) -> None:
        """Every series and type, buckets and `_created` ones too, is one that vLLM publishes."""
        recorded = set((FIXTURES / "vllm_series.txt").read_text().splitlines())
        own = {
            line if line.startswith("#") else line.rsplit(" ", 1)[0]
            for line in self.page().splitlines()
            if line.startswith(("# TYPE vllm:", "vllm:")) and "cache_config_info" not in line
        }
        self.assertEqual(own - recorded, set())
        self.assertGreater(len(own), 250)

    def test_cache_is_described(self) -> None:
        """`cache_config_info` says how many tokens the KV cache holds."""
        line = next(x for x in self.page().splitlines() if x.startswith("vllm:cache_config_info"))
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        self.assertEqual(
            (labels["block_size"], labels["num_gpu_blocks"], labels["kv_cache_size_tokens"]),
            ("16", "9527", "152432"),
        )
        self.assertTrue(line.endswith(" 1.0"))

    def test_gauges_are_those_of_the_last_step(self) -> None:
        """A fresh page is no fresh reading: it shows what the last step's end was."""
        for _ in range(6):
            self.send("POST", CHAT, {"messages": [{"content": "x" * 28_000}], "max_tokens": 1})
        self.clock.advance(3.9)
        found = self.samples()
        self.assertEqual((found["num_requests_running"], found["num_requests_waiting"]), (0, 0))
        self.clock.advance(4)
        found = self.samples()
        self.assertEqual((found["num_requests_running"], found["num_requests_waiting"]), (1, 5))
        self.assertEqual(found["num_requests_waiting_by_reason capacity"], 5)
        self.assertEqual(found["num_requests_waiting_by_reason deferred"], 0)
        self.assertAlmostEqual(found["kv_cache_usage_perc"], 256 / 9527)

    def test_steps_that_only_prefill_are_no_iterations(self) -> None:
        """`iteration_tokens_total_count` stands still until there is a token."""
        self.send("POST", CHAT, {"messages": [{"content": "x" * 28_000}], "max_tokens": 2})
        self.clock.advance(12)
        found = self.samples()
        self.assertGreater(found["kv_cache_usage_perc"], 0)
        self.assertEqual(found["iteration_tokens_total_count"], 0)
        self.assertEqual(found["prefix_cache_queries_total"], 7000)
        self.assertEqual(found["prompt_tokens_total"], 0)
        self.clock.advance(3)
        found = self.samples()
        self.assertEqual(found["iteration_tokens_total_count"], 2)
        self.assertEqual(found["iteration_tokens_total_sum"], 7002)
        self.assertEqual(found["prompt_tokens_total"], 7000)

    def test_what_finished_requests_leave(self) -> None:
        """Counters and histograms add up over requests; a cached prefix counts as hit."""
        document = {"messages": [{"content": "y" * 4200}], "max_tokens": 4}
        self.ask(CHAT, document)
        self.ask(CHAT, document)
        self.ask(CHAT, {"messages": HELLO})
        found = self.samples()
        self.assertEqual(found["request_success_total length"], 2)
        self.assertEqual(found["request_success_total stop"], 1)
        self.assertEqual(found["prefix_cache_hits_total"], 1040)
        self.assertEqual(found["prompt_tokens_cached_total"], 1040)
        self.assertEqual(found["prompt_tokens_total"], 2 * 1050 + 12)
        self.assertEqual(found["time_to_first_token_seconds_count"], 3)
        self.assertEqual(found["request_prefill_time_seconds_count"], 3)
        self.assertAlmostEqual(
            found["request_prefill_time_seconds_sum"], (1050 + 10 + 12) / 525 + 3 * 0.04
        )
        self.assertEqual(found["request_params_max_tokens_count"], 3)
        self.assertEqual(
            found["inter_token_latency_seconds_count"], found["generation_tokens_total"] - 3
        )
        self.assertEqual(found["num_requests_running"], 0)

    def test_idle_gauges_after_an_abort(self) -> None:
        """When the last request has left the page shows an empty engine."""
        connection = self.send("POST", CHAT, {"messages": HELLO, "max_tokens": 100})
        self.clock.advance(1)
        connection.transport.drop()
        self.clock.advance(0.1)
        self.assertEqual(self.samples()["num_requests_running"], 0)

    def test_faulty_pages(self) -> None:
        """Torn, HTML, 500, or no answer at all."""
        found = {}
        for mode in METRICS_MODES:
            self.host.change_faults({"metrics": mode})
            answer = self.send("GET", "/metrics").answer
            found[mode] = (answer.status, answer.headers.get("content-type", "")[:10])
            if answer.raw and mode != "ok":
                self.assertNotIn(b"num_requests_running{", answer.body)
        self.assertEqual(
            found,
            {
                "ok": (200, "text/plain"),
                "hang": (0, ""),
                "garble": (200, "text/plain"),
                "html": (200, "text/html"),
                "500": (500, "text/plain"),
            },
        )


class SelfTests(EngineCase):
    """Health, version, models."""

    def test_health(self) -> None:
        """200 and nothing else."""
        answer = self.send("GET", "/health").answer
        self.assertEqual((answer.status, answer.body), (200, b""))
        self.assertEqual(set(answer.headers), set(Recorded("vllm_health").headers), answer.headers)

    def test_version(self) -> None:
        """The version whose manners these are."""
        self.assertEqual(self.send("GET", "/version").answer.json, Recorded("vllm_version").json)

    def test_models(self) -> None:
        """One model, with the length of its context."""
        answer = self.send("GET", "/v1/models").answer.json
        self.assertEqual(keys_in_order(answer), keys_in_order(Recorded("vllm_models").json))
        self.assertEqual(answer["data"][0]["id"], "reasoning")
        self.assertEqual(answer["data"][0]["max_model_len"], 131_072)


class DemoPathTests(EngineCase):
    """The paths that only a simulated engine has."""

    def test_state_is_the_truth(self) -> None:
        """It says what is in the engine while the gauges do not."""
        for _ in range(3):
            self.send("POST", CHAT, {"messages": HELLO, "max_tokens": 3})
        state = self.send("GET", "/demo/state").answer.json
        self.assertEqual((state["in_engine_now"], state["peak_in_engine"]), (3, 3))
        self.assertEqual((state["prefilled_tokens"], state["wasted_tokens"]), (0, 0))
        self.assertEqual(state["most_behind_seconds"], 0.0)
        self.assertEqual(state["published"], {"running": 0, "waiting": 0, "kv_usage": 0.0})
        self.clock.advance(10)
        self.assertEqual(self.send("POST", "/demo/state").answer.json["peak_in_engine"], 0)

    def test_faults_are_set_and_shown(self) -> None:
        """What is set holds until it is changed; the rest stays as it was."""
        self.ask("/demo/faults", {"metrics": "500", "refuse_next": 7})
        answer = self.ask("/demo/faults", {"metrics": "ok"})
        self.assertEqual(answer.json["faults"]["refuse_next"], 7)
        self.assertEqual(answer.json["faults"]["metrics"], "ok")

    def test_impossible_faults(self) -> None:
        """400 says which; nothing changes."""
        before = self.host.faults
        impossible: tuple[dict[str, Any], ...] = (
            {"nope": 1},
            {"metrics": "bad"},
            {"metrics": []},
            {"refuse_next": -1},
            {"refuse_next": True},
            {"cut_after_tokens": "x"},
            {"hang": 1, "metrics": "500"},
        )
        for wanted in impossible:
            answer = self.ask("/demo/faults", wanted)
            self.assertEqual(answer.status, 400, wanted)
            self.assertIn(next(iter(wanted)), answer.json["error"]["message"])
        self.assertEqual(self.host.faults, before)
        self.assertEqual(self.ask("/demo/faults", {"cut_after_tokens": None}).status, 200)

    def test_only_from_loopback(self) -> None:
        """To callers from elsewhere these paths do not exist."""
        for method, path in (("GET", "/demo/state"), ("POST", "/demo/faults")):
            connection = Connection(self.site, peer="192.0.2.1").send(method, path, b"{}")
            self.assertEqual(connection.answer.status, 404)
        connection = Connection(self.site, peer="192.0.2.1").send("GET", "/health")
        self.assertEqual(connection.answer.status, 200)

    def test_without_an_address(self) -> None:
        """A caller that has no IP address is not on loopback."""
        connection = Connection(self.site, peer="/run/engine.sock").send("GET", "/demo/state")
        self.assertEqual(connection.answer.status, 404)


class BodyTests(EngineCase):
    """Bodies and connections have bounds."""

    def test_large_body_stays_in_memory(self) -> None:
        """A body above Twisted's 100 kB is read without a temporary file."""
        document: Any = {"messages": [{"content": "z" * 300_000}], "max_tokens": 1}
        connection = Connection(self.site)
        body = json.dumps(document).encode()
        connection.send("POST", CHAT, body)
        self.assertEqual(self.host.engine.in_engine_now, 1)

    def test_endless_body_is_cut(self) -> None:
        """A body past the bound loses its connection."""
        connection = self.send("POST", "/nope", {})
        head = b"POST / HTTP/1.1\r\nHost: e\r\nContent-Length: %d\r\n\r\n" % (2 * MAX_BODY_BYTES)
        connection.protocol.dataReceived(head)
        piece = bytes(MAX_BODY_BYTES // 4)
        for _ in range(5):
            connection.protocol.dataReceived(piece)
        self.assertTrue(connection.transport.aborting)

    def test_cut_ends_everything(self) -> None:
        """Cutting the site closes each connection and stops the engine."""
        connections = [
            self.send("POST", CHAT, {"messages": HELLO, "stream": True}) for _ in range(3)
        ]
        self.clock.advance(1)
        self.site.cut()
        self.assertTrue(all(connection.transport.gone for connection in connections))
        self.assertEqual(self.site.channels, set())
        self.assertEqual(self.host.engine.in_engine_now, 0)
