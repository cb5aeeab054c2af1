"""Tests of the path of a request to a model, through the whole stack."""

from __future__ import annotations

import gzip
import json

import zstandard

from tests.stack import CONFIG, DONE, ROLE, Client, Stack, event, token
from tests.support import TestCase
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.web import proxy

COMMENT = b": keep-alive\n\n"
UNGATED = "models: {plain: {upstream: 'http://10.0.0.1:8000'}}"
TWO = "models: {plain: {upstreams: ['http://10.0.0.1:8000', 'http://10.0.0.2:8000']}}"


class Relaying(TestCase):
    """What goes to the engine and comes back."""

    def test_a_stream_passes_byte_for_byte(self) -> None:
        """Every event of a stream reaches the client as the engine wrote it."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        stack.engine().last.stream(ROLE, token("a"), token("b"), DONE).end()
        self.assertEqual(client.status, 200)
        self.assertEqual(client.body, ROLE + token("a") + token("b") + DONE)
        self.assertTrue(client.whole)
        self.assertEqual(client.headers["x-accel-buffering"], "no")
        self.assertEqual(stack.outcomes, ["ok"])

    def test_a_whole_answer_passes_with_its_status_and_headers(self) -> None:
        """Status, end-to-end headers and bytes are the engine's; hop-by-hop ones are not."""
        stack = Stack(self)
        client = stack.client().chat()
        asked = stack.engine().last
        asked.answer(
            418,
            b"short and stout",
            "text/plain",
            extra="x-own: 1\r\nconnection: x-hop\r\nx-hop: 1\r\n",
        )
        self.assertEqual((client.status, client.body), (418, b"short and stout"))
        self.assertEqual(client.headers["x-own"], "1")
        self.assertNotIn("x-hop", client.headers)
        self.assertEqual(stack.outcomes, ["upstream_status"])

    def test_the_body_reaches_the_engine_byte_for_byte(self) -> None:
        """Odd spacing, escapes and order survive; the query string passes."""
        stack = Stack(self)
        body = b'{ "z" : [1, 2 ],\t"model":"reasoning" , "x":"\\u00e4\xc3\xa4" }\n'
        stack.client().post("/v1/chat/completions?a=1&b=%20", body)
        asked = stack.engine().last
        self.assertEqual(asked.body, body)
        self.assertEqual(asked.path, "/v1/chat/completions?a=1&b=%20")

    def test_an_alias_becomes_the_models_own_name_in_place(self) -> None:
        """Only the one value is rewritten."""
        stack = Stack(self)
        stack.client().post("/v1/completions", b'{"a": 1, "model": "gpt-4o", "b": "gpt-4o"}')
        self.assertEqual(stack.engine().last.body, b'{"a": 1, "model": "reasoning", "b": "gpt-4o"}')

    def test_upstream_model_is_what_the_engine_reads(self) -> None:
        """`upstreamModel` replaces the client's value towards the engine."""
        config = UNGATED.replace("8000'", "8000', upstreamModel: Qwen/Q")
        stack = Stack(self, config)
        stack.client().chat(model="plain")
        self.assertEqual(json.loads(stack.engine().last.body)["model"], "Qwen/Q")

    def test_rerank_goes_where_engines_have_it(self) -> None:
        """/v1/rerank is /rerank to the engine, repeated and trailing slashes are dropped."""
        stack = Stack(self)
        stack.client().post("//v1///rerank//", {"model": "reasoning", "query": "q"})
        self.assertEqual(stack.engine().last.path, "/rerank")

    def test_the_request_carries_what_a_proxy_adds(self) -> None:
        """X-Request-ID, X-Forwarded-*; the client's own word on itself is hearsay."""
        stack = Stack(self)
        stack.client().chat(
            headers={
                "X-Request-ID": "abc-1",
                "X-Forwarded-For": "6.6.6.6",
                "Authorization": "Bearer k",
                "Connection": "close, X-Hop",
                "X-Hop": "1",
                "traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01",
            }
        )
        headers = stack.engine().last.headers
        self.assertEqual(headers["x-request-id"], "abc-1")
        self.assertEqual(headers["x-forwarded-for"], "192.0.2.7")
        self.assertEqual(headers["authorization"], "Bearer k")
        self.assertEqual(headers["traceparent"], "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01")
        self.assertNotIn("x-hop", headers)
        self.assertEqual(headers["host"], "10.0.0.1:8000")

    def test_an_unfinished_event_is_held(self) -> None:
        """Whole events leave; the half one waits for its end."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        whole = token("abc")
        asked = stack.engine().last.stream(ROLE + whole[:9])
        self.assertEqual(client.body, ROLE)
        asked.more(whole[9:])
        self.assertEqual(client.body, ROLE + whole)

    def test_an_encoded_event_stream_passes_untouched(self) -> None:
        """Nothing is put into what cannot be read; nothing is held."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        stack.engine().last.stream(b"\x1f\x8b half", extra="content-encoding: gzip\r\n")
        stack.advance(40)
        self.assertEqual(client.body, b"\x1f\x8b half")
        self.assertEqual(client.headers["content-encoding"], "gzip")
        self.assertEqual(client.headers["x-accel-buffering"], "no")

    def test_models_are_asked_for_identity_when_streaming(self) -> None:
        """`stream: true` goes upstream with Accept-Encoding: identity."""
        stack = Stack(self)
        stack.client().chat(stream=True, headers={"Accept-Encoding": "gzip"})
        self.assertEqual(stack.engine().last.headers["accept-encoding"], "identity")

    def test_encoded_bodies_are_decoded(self) -> None:
        """gzip and zstd bodies go on as identity."""
        stack = Stack(self)
        body = json.dumps({"model": "reasoning", "prompt": "x" * 5000}).encode()
        for coding, data in (
            ("gzip", gzip.compress(body)),
            ("zstd", zstandard.compress(body)),
        ):
            stack.client().post("/v1/completions", data, {"Content-Encoding": coding})
            asked = stack.engine().last
            self.assertEqual(asked.body, body)
            self.assertNotIn("content-encoding", asked.headers)
        client = stack.client().post("/v1/completions", b"??", {"Content-Encoding": "br"})
        self.assertEqual((client.status, client.headers["accept-encoding"]), (415, "gzip, zstd"))
        client = stack.client().post("/v1/completions", b"??", {"Content-Encoding": "gzip"})
        self.assertEqual(client.status, 400)

    def test_connections_to_the_client_are_kept(self) -> None:
        """A second request on the same connection is served."""
        stack = Stack(self)
        client = stack.client().chat()
        stack.engine().last.answer(200, b"{}")
        client.get("/health")
        self.assertEqual(client.received.count(b"HTTP/1.1 200"), 2)


class Refusing(TestCase):
    """What is wrong with a request is said in words."""

    def refused(self, client: Client, status: int, kind: str) -> dict[str, object]:
        """Check the problem document and return it."""
        self.assertEqual(client.status, status, client.received)
        self.assertEqual(client.headers["content-type"], "application/problem+json")
        tree: dict[str, object] = client.json
        self.assertEqual(tree["type"], f"urn:twisted-gateway:problem:{kind}")
        self.assertEqual(tree["status"], status)
        self.assertIn("message", tree["error"])
        return tree

    def test_an_unknown_model(self) -> None:
        """400 with the names that are valid."""
        client = Stack(self).client().chat(model="nope")
        tree = self.refused(client, 400, "unknown_model")
        self.assertEqual(tree["valid_models"], ["gpt-4o", "reasoning"])

    def test_malformed_bodies(self) -> None:
        """Each of these is a 400 that says what was wrong."""
        stack = Stack(self)
        for body in (
            b"",
            b"{",
            b"[]",
            b'{"model": 4}',
            b'{"Model": "reasoning", "model": "reasoning"}',
            b'{"model": "reasoning", "model": "reasoning"}',
            b'\xef\xbb\xbf{"model": "reasoning"}',
            b'{"model": "reasoning", "stream": "yes"}',
            b'{"model": "reasoning", "x": "\xff"}',
            b"[" * 100_000,
        ):
            self.refused(stack.client().post("/v1/completions", body), 400, "malformed_body")
        self.assertEqual(stack.engine().asked, [])
        self.assertEqual(set(stack.outcomes), {"bad_request"})

    def test_a_body_that_says_it_is_too_large(self) -> None:
        """413 at once, before a byte of it was sent; the connection closes."""
        stack = Stack(self)
        client = stack.client().send(
            b"POST /v1/completions HTTP/1.1\r\nHost: g\r\nContent-Length: 1048577\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        self.refused(client, 413, "body_too_large")
        self.assertNotIn(b"100 Continue", client.received)
        self.assertTrue(client.wire.half_closed)
        stack.advance(6)
        self.assertTrue(client.wire.closed)
        self.assertEqual(stack.entries[-1].status, 413)

    def test_a_body_that_becomes_too_large(self) -> None:
        """413 as soon as the limit is crossed; the rest is read to nowhere."""
        stack = Stack(self)
        client = stack.client().send(
            b"POST /v1/completions HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(16):
            client.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        self.assertEqual(client.received, b"")
        client.send(b"1\r\nx\r\n")
        self.refused(client, 413, "body_too_large")
        client.send(b"10000\r\n" + b"x" * 65536 + b"\r\n0\r\n\r\n")
        self.assertEqual(client.received.count(b"HTTP/1.1"), 1)
        self.assertEqual(stack.gateway._held.now, 0)

    def test_a_body_over_its_models_own_limit(self) -> None:
        """The model's own limit counts once the model is known."""
        config = "maxBodyBytes: 4096\n" + UNGATED.replace("8000'", "8000', maxBodyBytes: 100")
        client = Stack(self, config).client().chat(model="plain", x="y" * 100)
        self.assertEqual(self.refused(client, 413, "body_too_large")["max_body_bytes"], 100)

    def test_a_body_that_comes_too_slowly(self) -> None:
        """408 when the whole has not come within bodySeconds."""
        stack = Stack(self)
        client = stack.client().send(
            b"POST /v1/completions HTTP/1.1\r\nHost: g\r\nContent-Length: 100\r\n\r\n"
        )
        for _ in range(6):
            stack.advance(9)
            client.send(b"x")
        stack.advance(7)
        self.refused(client, 408, "body_timeout")

    def test_more_bodies_than_the_process_may_hold(self) -> None:
        """503 queue_full, and everything is given back in the end."""
        stack = Stack(self, "maxHeldBytes: 1000\n" + CONFIG)
        first = stack.client().send(
            b"POST /v1/completions HTTP/1.1\r\nHost: g\r\nContent-Length: 900\r\n\r\n" + b"x" * 800
        )
        client = stack.client().post("/v1/completions", b"y" * 300)
        self.assertEqual(self.refused(client, 503, "queue_full")["reason"], "queue_full")
        self.assertEqual(stack.gateway._held.now, 800)
        first.leave()
        self.assertEqual(stack.gateway._held.now, 0)

    def test_unknown_paths_and_methods(self) -> None:
        """404, and 405 with what is allowed."""
        stack = Stack(self)
        self.refused(stack.client().get("/nowhere"), 404, "not_found")
        client = stack.client().get("/v1/chat/completions")
        self.refused(client, 405, "method_not_allowed")
        self.assertEqual(client.headers["allow"], "POST")
        client = stack.client().get("/health", "DELETE")
        self.assertEqual(client.headers["allow"], "GET, HEAD")
        self.refused(
            stack.client().post("/v1/models", {"model": "reasoning"}), 405, "method_not_allowed"
        )

    def test_malformed_targets(self) -> None:
        """Paths that are no UTF-8 or climb, methods that are no tokens; never a traceback."""
        stack = Stack(self)
        for path in ("/v1/../metrics", "/v1/%2e%2E/x", "/v1/a/..\\b", "/%ff", "/v1/."):
            self.refused(stack.client().get(path, "POST"), 400, "malformed_target")
        self.assertEqual(stack.client().get("/health", "GE(T").status, 400)
        self.assertEqual(stack.engine().asked, [])

    def test_odd_hosts_and_absolute_targets(self) -> None:
        """The host is nobody's concern here."""
        stack = Stack(self)
        for host in ("a..b", "x" * 300, "\xff", "", "[::1]:99999999"):
            client = stack.client().send(
                b"GET /health HTTP/1.1\r\nHost: " + host.encode("latin-1") + b"\r\n\r\n"
            )
            self.assertEqual(client.status, 200, host)
        self.assertEqual(stack.client().get("http://other:99/health?x=1").status, 200)
        self.assertEqual(stack.client().get("HTTPS://other").status, 404)

    def test_a_websocket_handshake(self) -> None:
        """426 at once."""
        client = Stack(self).client().get("/v1/realtime", Upgrade="websocket", Connection="Upgrade")
        self.refused(client, 426, "websocket")

    def test_an_h2c_upgrade_is_ignored(self) -> None:
        """It is answered in HTTP/1.1."""
        client = Stack(self).client().get("/health", Upgrade="h2c", Connection="Upgrade")
        self.assertEqual(client.status, 200)

    def test_an_unknown_priority(self) -> None:
        """400 with the words that are valid."""
        client = Stack(self).client().chat(headers={"X-Priority": "urgent"})
        self.refused(client, 400, "invalid_priority")


class Listing(TestCase):
    """`GET /v1/models`."""

    def test_the_list_has_aliases(self) -> None:
        """Names and aliases, in OpenAI's form."""
        client = Stack(self).client().get("/v1/models")
        self.assertEqual([one["id"] for one in client.json["data"]], ["gpt-4o", "reasoning"])

    def test_one_of_them(self) -> None:
        """Ids may contain slashes and colons, also percent-encoded."""
        config = 'models: {"org/m:7b": {upstream: "http://10.0.0.1:8000"}}'
        stack = Stack(self, config)
        for path in ("/v1/models/org/m:7b", "/v1/models/org%2Fm%3A7b"):
            self.assertEqual(stack.client().get(path).json["id"], "org/m:7b")
        self.assertEqual(stack.client().get("/v1/models/nope").status, 404)

    def test_head_answers_where_get_does(self) -> None:
        """Status and length without a body."""
        client = Stack(self).client().get("/v1/models", "HEAD")
        self.assertEqual((client.status, client.body), (200, b""))
        self.assertGreater(int(client.headers["content-length"]), 10)


class Failing(TestCase):
    """Engines that fail."""

    def test_a_refused_connection_without_a_gate(self) -> None:
        """502."""
        stack = Stack(self, UNGATED)
        stack.engine().up = False
        client = stack.client().chat(model="plain")
        self.assertEqual((client.status, stack.outcomes), (502, ["upstream_error"]))
        self.assertNotIn("10.0.0.1", client.body.decode())

    def test_another_upstream_is_tried_only_on_a_refused_connection(self) -> None:
        """Of two engines the one that is up serves."""
        stack = Stack(self, TWO)
        stack.engine().up = False
        for _ in range(3):
            client = stack.client().chat(model="plain")
            stack.engine("10.0.0.2").last.answer(200, b"{}")
            self.assertEqual(client.status, 200)

    def test_a_dead_pooled_connection_is_retried_once_in_silence(self) -> None:
        """The prompt goes again over a new connection; a second death is a 502."""
        stack = Stack(self, UNGATED)
        stack.client().chat(model="plain")
        stack.engine().last.answer(200, b"{}")
        client = stack.client().chat(model="plain")
        stack.engine().last.die()
        self.assertEqual(len(stack.engine().asked), 3)
        stack.engine().last.answer(200, b"{}")
        self.assertEqual(client.status, 200)
        client = stack.client().chat(model="plain")
        stack.engine().last.die()
        stack.engine().last.die()
        self.assertEqual(client.status, 502)
        self.assertEqual(len(stack.engine().asked), 5)

    def test_a_fresh_connection_that_dies_is_not_retried(self) -> None:
        """The engine may have read the prompt: 502."""
        stack = Stack(self, UNGATED)
        client = stack.client().chat(model="plain")
        stack.engine().last.die()
        self.assertEqual((client.status, len(stack.engine().asked)), (502, 1))

    def test_an_engine_that_says_nothing(self) -> None:
        """504 after firstContentSeconds, and the engine's slot is given back."""
        stack = Stack(self, UNGATED.replace("8000'", "8000', timeouts: {firstContentSeconds: 20}"))
        client = stack.client().chat(model="plain")
        stack.advance(20)
        self.assertEqual((client.status, stack.outcomes), (504, ["upstream_timeout"]))
        self.assertTrue(stack.engine().last.gone)

    def test_a_head_alone_is_not_the_first_content(self) -> None:
        """vLLM sends its 200 at once: the bound runs on to the first content."""
        stack = Stack(self, CONFIG + "    timeouts: {firstContentSeconds: 20, idleSeconds: 5}\n")
        client = stack.client().chat(stream=True)
        stack.engine().last.stream(ROLE)
        stack.advance(20)
        self.assertIn(b"event: error", client.body)
        self.assertIn(b'"status":504', client.body)
        self.assertTrue(client.whole)
        self.assertNotIn(b"[DONE]", client.body)
        self.assertEqual(stack.outcomes, ["upstream_timeout"])

    def test_an_engine_that_falls_silent(self) -> None:
        """From the first content on idleSeconds counts."""
        stack = Stack(self, CONFIG + "    timeouts: {firstContentSeconds: 900, idleSeconds: 5}\n")
        client = stack.client().chat(stream=True)
        asked = stack.engine().last.stream(ROLE, token("a"))
        stack.advance(4)
        asked.more(token("b"))
        stack.advance(4.5)
        self.assertNotIn(b"event: error", client.body)
        stack.advance(1)
        self.assertIn(b"idle_timeout", client.body)
        self.assertTrue(asked.gone)

    def test_a_stream_that_breaks_off(self) -> None:
        """An error event at a boundary, no [DONE], outcome upstream_incomplete."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        stack.engine().last.stream(ROLE, token("a"), token("half")[:10]).die()
        self.assertTrue(client.body.startswith(ROLE + token("a") + b"event: error\ndata: "))
        self.assertNotIn(b"[DONE]", client.body)
        self.assertTrue(client.whole)
        self.assertEqual(stack.outcomes, ["upstream_incomplete"])

    def test_an_oversized_event_that_breaks_off(self) -> None:
        """Inside an event nothing can be said: the connection is cut."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        stack.engine().last.stream(b"data: " + b"x" * 70_000).die()
        stack.settle()
        self.assertTrue(client.wire.aborted)
        self.assertFalse(client.whole)

    def test_an_answer_that_breaks_off(self) -> None:
        """Any other answer is cut, so that no client takes it for whole."""
        stack = Stack(self)
        client = stack.client().chat()
        stack.engine().last.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").die()
        self.assertTrue(client.wire.aborted)
        self.assertEqual(stack.outcomes, ["upstream_incomplete"])

    def test_the_engines_own_error_inside_its_stream(self) -> None:
        """vLLM's in-band error and its [DONE] pass as they are; the outcome is an error."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        error = event(error={"message": "EngineCore encountered an issue", "code": 500})
        stack.engine().last.stream(ROLE, token("a"), error, DONE).end()
        self.assertEqual(client.body, ROLE + token("a") + error + DONE)
        self.assertEqual(stack.outcomes, ["upstream_error"])

    def test_the_engines_refusal_parks_the_request_again(self) -> None:
        """Its 503 is not the client's: five times the request waits, then the answer goes on."""
        stack = Stack(self)
        client = stack.client().chat()
        for _ in range(5):
            stack.engine().last.answer(503, {"error": {"message": "busy"}})
            self.assertEqual(client.received, b"")
            before = len(stack.engine().asked)
            stack.advance(33, step=1)
            self.assertEqual(len(stack.engine().asked), before + 1)
        stack.engine().last.answer(503, {"error": {"message": "busy"}})
        self.assertEqual((client.status, client.json), (503, {"error": {"message": "busy"}}))
        self.assertEqual(stack.outcomes, ["upstream_status"])

    def test_a_refused_connection_waits_for_the_engine(self) -> None:
        """An engine that starts takes minutes; the request goes when it is there."""
        stack = Stack(self)
        engine = stack.engine()
        engine.up = False
        engine.gauges = None
        for wire, _ in engine._wires:
            wire.lose()
        client = stack.client().chat()
        stack.advance(60, step=1)
        self.assertEqual(client.received, b"")
        engine.up, engine.gauges = True, {"running": 0, "waiting": 0, "kv": 0.0}
        stack.advance(5)
        engine.last.answer(200, b"{}")
        self.assertEqual(client.status, 200)

    def test_wait_0_fails_fast(self) -> None:
        """`Prefer: wait=0` is refused at once where there is no place, and is acknowledged."""
        stack = Stack(self)
        for _ in range(4):
            stack.client().chat(headers={"Prefer": "wait=0"})
        self.assertEqual(len(stack.engine().asked), 4)
        client = stack.client().chat(headers={"Prefer": "wait=0"})
        self.assertEqual((client.status, client.json["reason"]), (503, "park_timeout"))
        self.assertEqual(client.headers["preference-applied"], "wait=0")
        self.assertIn(client.headers["retry-after"], ("5", "6"))
        self.assertEqual(client.json["max_inflight"], 4)


class KeepingAlive(TestCase):
    """Silent streams are kept alive in every phase."""

    def test_between_slow_tokens(self) -> None:
        """A comment after keepAliveSeconds of silence, and only between events."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        asked = stack.engine().last.stream(ROLE, token("a"))
        stack.advance(14)
        asked.more(token("b"))
        stack.advance(14)
        self.assertNotIn(COMMENT, client.body)
        stack.advance(1.5)
        self.assertEqual(client.body, ROLE + token("a") + token("b") + COMMENT)

    def test_during_a_long_prefill(self) -> None:
        """The engine's 200 is out; comments follow until it speaks."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        asked = stack.engine().last.stream()
        self.assertEqual((client.status, client.body), (200, b""))
        stack.advance(46, step=1)
        self.assertEqual(client.body, COMMENT * 3)
        asked.more(ROLE, token("x"), DONE).end()
        self.assertEqual(client.body, COMMENT * 3 + ROLE + token("x") + DONE)

    def test_an_engine_that_withholds_its_head(self) -> None:
        """llama.cpp answers when a slot is free: the gateway's 200 comes first."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        stack.advance(16)
        self.assertEqual((client.status, client.body), (200, COMMENT))
        stack.engine().last.stream(DONE).end()
        self.assertEqual(client.body, COMMENT + DONE)

    def test_not_in_a_stream_whose_events_carry_ids(self) -> None:
        """Some clients choke on a comment there."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        stack.engine().last.stream(b"id: 1\n" + token("a"))
        stack.advance(40, step=1)
        self.assertNotIn(COMMENT, client.body)

    def test_not_to_a_paused_client(self) -> None:
        """What the client does not take is not added to."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        client.wire.congested = True
        stack.engine().last.stream(ROLE)
        for _ in range(50):
            client.wire.take(1)
            stack.advance(1, step=1)
        self.assertNotIn(COMMENT, client.body)

    def test_not_a_request_that_wants_a_whole_answer(self) -> None:
        """It waits in silence."""
        stack = Stack(self)
        client = stack.client().chat()
        stack.advance(60, step=1)
        self.assertEqual(client.received, b"")

    def test_a_park_timeout_behind_a_spent_status(self) -> None:
        """One error frame with the gate's reason, then the end."""
        stack = Stack(self, CONFIG.replace("4}", "4, maxParkSeconds: 20}"))
        for _ in range(4):
            stack.client().chat(stream=True)
        client = stack.client().chat(stream=True)
        stack.advance(21)
        tree = json.loads(client.body.rpartition(b"data: ")[2])
        self.assertEqual((tree["reason"], tree["status"]), ("park_timeout", 503))
        self.assertTrue(client.whole)
        self.assertEqual(stack.outcomes, ["rejected"])

    def test_a_json_answer_behind_a_spent_status(self) -> None:
        """Anything but an event stream becomes the error frame."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        stack.advance(16)
        stack.engine().last.answer(200, {"object": "chat.completion"})
        self.assertIn(b"event: error", client.body)
        self.assertEqual(stack.outcomes, ["upstream_error"])


class Measuring(TestCase):
    """The metrics of section 5, with their meanings."""

    def test_ttft_is_the_first_content(self) -> None:
        """Not the head, not the role delta; from the request's head, the park included."""
        stack = Stack(self)
        stack.client().chat(stream=True)
        asked = stack.engine().last.stream()
        stack.advance(3)
        asked.more(ROLE)
        stack.advance(2)
        asked.more(event(choices=[{"delta": {"reasoning_content": "hm"}}]))
        stack.advance(1)
        asked.more(token("b"), event(choices=[], usage={"completion_tokens": 7}), DONE).end()
        self.assertEqual(stack.metric("llm_ttft_seconds_sum", model="reasoning"), 5)
        self.assertEqual(stack.metric("llm_itl_seconds_sum", model="reasoning"), 1)
        self.assertEqual(stack.metric("llm_itl_seconds_count", model="reasoning"), 1)
        self.assertEqual(stack.metric("llm_tokens_total", model="reasoning"), 7)
        self.assertEqual(stack.metric("gateway_upstream_seconds_sum", model="reasoning"), 6)
        self.assertEqual(stack.entries[-1].ttft_seconds, 5)

    def test_without_usage_content_events_count(self) -> None:
        """[DONE] and the role delta never do."""
        stack = Stack(self)
        stack.client().chat(stream=True)
        stack.engine().last.stream(ROLE, token("a"), token("b"), DONE).end()
        self.assertEqual(stack.metric("llm_tokens_total", model="reasoning"), 2)

    def test_time_per_token_ends_with_the_last(self) -> None:
        """However long the engine, or the client, takes for what comes after it."""
        stack = Stack(self)
        stack.client().chat(stream=True)
        asked = stack.engine().last.stream(ROLE, token("a"))
        for _ in range(4):
            stack.advance(0.5)
            asked.more(token("b"))
        stack.advance(9)
        asked.more(DONE).end()
        name = "gen_ai_server_time_per_output_token_seconds_sum"
        self.assertEqual(stack.metric(name), 0.5)

    def test_refusals_for_other_reasons(self) -> None:
        """They are told and logged; the metric's label has the gate's reasons alone."""
        stack = Stack(self)
        stack.client().chat()
        problem = Problem(
            "busy", 429, "Busy.", outcome=Outcome.REJECTED, members={"reason": "rate_limited"}
        )
        next(iter(stack.gateway.exchanges)).interrupt(problem)
        stack.settle()
        entry = stack.entries[-1]
        self.assertEqual((entry.outcome, entry.reason), (Outcome.REJECTED, "rate_limited"))
        self.assertIsNone(stack.metric("admission_rejected_total", reason="rate_limited"))

    def test_gauges_of_the_gate(self) -> None:
        """Parked, in flight and the reading of the engine, now."""
        stack = Stack(self)
        clients = [stack.client().chat(stream=True) for _ in range(6)]
        self.assertEqual(stack.metric("admission_in_flight", model="reasoning"), 4)
        self.assertEqual(stack.metric("admission_parked_requests", model="reasoning"), 2)
        self.assertEqual(stack.metric("admission_parked_total", model="reasoning"), 2)
        self.assertEqual(stack.metric("gateway_inflight", model="reasoning"), 6)
        for client in clients:
            client.leave()
        self.assertEqual(stack.metric("admission_in_flight", model="reasoning"), 0)
        self.assertEqual(stack.metric("admission_parked_requests", model="reasoning"), 0)
        self.assertEqual(stack.metric("admission_parked_bytes", model="reasoning"), 0)
        self.assertEqual(stack.metric("gateway_inflight", model="reasoning"), 0)
        self.assertEqual(
            stack.metric("gateway_requests_total", model="reasoning", outcome="client_disconnect"),
            6,
        )


class Hardening(TestCase):
    """What hostile clients and engines have shown."""

    def test_a_length_of_thousands_of_digits(self) -> None:
        """It is too large, like any other; nothing is logged as a fault."""
        client = (
            Stack(self)
            .client()
            .send(b"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n")
        )
        self.assertEqual((client.status, client.json["max_body_bytes"]), (413, 1048576))

    def test_a_body_that_twisted_refuses(self) -> None:
        """Its 400 is the client's fault, not a client that left."""
        stack = Stack(self)
        client = stack.client().send(
            b"POST /v1/x HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"
        )
        self.assertEqual(client.status, 400)
        stack.advance(1)
        self.assertEqual(stack.entries[-1].outcome.value, "bad_request")

    def test_one_host(self) -> None:
        """RFC 9112: exactly one in HTTP/1.1."""
        stack = Stack(self)
        for lines, status in ((b"", 400), (b"Host: a\r\n", 200), (b"Host: a\r\nHost: b\r\n", 400)):
            client = stack.client().send(b"GET /health HTTP/1.1\r\n" + lines + b"\r\n")
            self.assertEqual(client.status, status, lines)
        self.assertEqual(stack.client().send(b"GET /health HTTP/1.0\r\n\r\n").status, 200)

    def test_a_stream_that_breaks_off_behind_its_end(self) -> None:
        """After [DONE] there is nothing to tell: it ends cleanly."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        stack.engine().last.stream(ROLE, token("a"), DONE).die()
        self.assertEqual(client.body, ROLE + token("a") + DONE)
        self.assertTrue(client.whole)
        self.assertEqual(stack.outcomes, ["ok"])

    def test_a_refusal_that_is_not_whole(self) -> None:
        """It does not go on as if it were: too long, or broken off."""
        for length in (200_000, 100):
            stack = Stack(self)
            client = stack.client().chat(headers={"Prefer": "wait=0"})
            asked = stack.engine().last.send(
                b'HTTP/1.1 503 Busy\r\ncontent-length: %d\r\n\r\n{"error": "busy"}' % length
            )
            asked.send(b" " * 70_000 if length > 100 else b"")
            asked.die()
            self.assertEqual(client.status, 503)
            self.assertEqual(client.json["type"], "urn:twisted-gateway:problem:upstream_refused")
            self.assertEqual(stack.outcomes, ["upstream_status"])

    def test_an_answer_that_has_no_body(self) -> None:
        """204 leaves without a length."""
        stack = Stack(self)
        client = stack.client().chat()
        stack.engine().last.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        self.assertEqual(client.status, 204)
        self.assertNotIn("content-length", client.headers)

    def test_names_with_underscores(self) -> None:
        """What a CGI-like server takes for a hyphen is judged as one."""
        stack = Stack(self)
        stack.client().chat(
            headers={"X_Forwarded_For": "6.6.6.6", "Content_Length": "1", "a_b": "c"}
        )
        headers = stack.engine().last.headers
        self.assertNotIn("x_forwarded_for", headers)
        self.assertNotIn("content_length", headers)
        self.assertEqual(headers["a_b"], "c")

    def test_connections_end_with_a_drain(self) -> None:
        """Idle ones once listening has stopped, others with their answer."""
        stack = Stack(self)
        idle = stack.client().get("/health")
        busy = stack.client().chat()
        drained = stack.gateway.drain()
        stack.advance(3)
        self.assertTrue(idle.wire.closed)
        self.assertFalse(busy.wire.closed)
        stack.engine().last.answer(200, b"{}")
        stack.advance(1)
        self.assertEqual(busy.status, 200)
        self.assertTrue(busy.wire.closed)
        stack.advance(3)
        self.assertTrue(drained.called)


class Reviewed(TestCase):
    """What a second pair of eyes has found."""

    def test_the_target_that_is_judged_is_the_target_that_is_sent(self) -> None:
        """A fragment would be dropped on the way, and an ungated path become a gated one."""
        stack = Stack(self)
        for _ in range(6):
            client = stack.client().post(
                "/v1/chat/completions#/tokenize", {"model": "reasoning", "stream": True}
            )
            self.assertEqual(client.json["type"], "urn:twisted-gateway:problem:malformed_target")
        client = stack.client().send(b"POST /v1/x?\xe4 HTTP/1.1\r\nHost: g\r\n\r\n")
        self.assertEqual(client.status, 400)
        self.assertEqual(stack.engine().asked, [])

    def test_ungated_paths_pass_a_full_gate(self) -> None:
        """Counting tokens never enters the engine's scheduler."""
        stack = Stack(self)
        for _ in range(5):
            stack.client().chat()
        stack.client().post("/v1/messages/count_tokens", {"model": "reasoning"})
        self.assertEqual(stack.engine().last.path, "/v1/messages/count_tokens")

    def test_an_engine_that_leaves_its_stream_open(self) -> None:
        """After the last event a stream has ended, whether or not the engine says so."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        asked = stack.engine().last.stream(ROLE, token("a"), DONE)
        stack.advance(4)
        self.assertFalse(client.whole)
        stack.advance(2)
        self.assertTrue(client.whole)
        self.assertTrue(client.body.endswith(DONE))
        self.assertTrue(asked.gone)
        self.assertEqual((stack.outcomes, stack.facts()["own"]), (["ok"], 0))

    def test_a_refusal_that_never_comes_whole(self) -> None:
        """It is not waited for as for an answer: the request parks again."""
        stack = Stack(self)
        stack.client().chat()
        asked = stack.engine().last.send(b"HTTP/1.1 503 Busy\r\ncontent-length: 100\r\n\r\n{")
        stack.advance(11)
        self.assertTrue(asked.gone)
        self.assertEqual(len(stack.facts()["parked"]) + stack.facts()["own"], 1)
        stack.advance(5)
        self.assertEqual(len(stack.engine().asked), 2)

    def test_parking_is_counted_once(self) -> None:
        """However often the engine sends a request back, it had to wait once."""
        stack = Stack(self)
        stack.client().chat()
        for hold_seconds in (2, 4, 8):
            stack.engine().last.answer(503, b"{}")
            stack.advance(hold_seconds)
        self.assertEqual(stack.metric("admission_parked_total", model="reasoning"), 1)
        stack.engine().last.answer(200, b"{}")
        # Four tries that took no time: what was parked between is not the engine's.
        self.assertEqual(stack.metric("gateway_upstream_seconds_count", model="reasoning"), 4)
        self.assertEqual(stack.metric("gateway_upstream_seconds_sum", model="reasoning"), 0)

    def test_a_fault_of_ours_in_a_stream(self) -> None:
        """The client gets the error event; the log gets the traceback; nothing is left open."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        stack.advance(16)
        self.patch(proxy, "is_event_stream", lambda _: 1 / 0)
        stack.engine().last.answer(500, b"{}")
        self.assertIn(b"internal_error", client.body)
        self.assertEqual(stack.outcomes, ["internal_error"])
        self.assertEqual(len(stack.gateway.exchanges), 0)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_no_credential_of_a_target_is_logged(self) -> None:
        """A request names itself without its query."""
        stack = Stack(self)
        client = stack.client().get("/health?api_key=SECRET")
        self.assertEqual(client.status, 200)
        request = stack.client().chat().wire.protocol.requests[0]
        self.assertNotIn("completions", repr(request))

    def test_an_engine_that_dies_takes_no_parked_request_along(self) -> None:
        """The place that a broken stream frees goes to nobody before a poll shows that it lives."""
        stack = Stack(self)
        for _ in range(6):
            stack.client().chat(stream=True)
        for asked in list(stack.engine().asked):
            asked.stream(ROLE, token("a")).die()
        self.assertEqual(len(stack.engine().asked), 4)
        self.assertEqual(len(stack.facts()["parked"]), 2)
        self.assertEqual(stack.facts()["engines"][0]["hold"], "refused_connection")
        stack.poll(running=0)
        self.assertEqual(len(stack.engine().asked), 6)

    def test_many_requests_at_once(self) -> None:
        """One in each turn; none while the client reads no answers; all in the end."""
        stack = Stack(self)
        client = stack.client()
        client.wire.congested = True
        client.wire.protocol.dataReceived(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n" * 50)
        self.assertEqual(client.received.count(b"HTTP/1.1 200"), 1)
        stack.advance(5)
        self.assertEqual(client.received.count(b"HTTP/1.1 200"), 1)
        self.assertEqual(client.wire.producerState, "paused")
        client.wire.relieve()
        stack.advance(1)
        self.assertEqual(client.received.count(b"HTTP/1.1 200"), 50)

    def test_a_client_that_does_not_take_its_last_answer(self) -> None:
        """Its connection is cut in the end."""
        stack = Stack(self)
        client = stack.client()
        client.wire.congested = True
        client.send(b"GET /health HTTP/1.0\r\n\r\n")
        for _ in range(3):
            client.wire.take(1)
            stack.advance(50, step=5)
        self.assertFalse(client.wire.closed)
        stack.advance(121, step=5)
        self.assertTrue(client.wire.aborted)

    def test_a_head_and_a_body_have_bounds_of_their_own(self) -> None:
        """An idle connection's timer neither cuts an upload nor answers for its bound."""
        stack = Stack(self, CONFIG + "    timeouts: {bodySeconds: 200}\n")
        client = stack.client().get("/health")
        stack.advance(74)
        client.send(b"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: 100\r\n\r\n")
        stack.advance(100, step=1)
        self.assertFalse(client.wire.closed)
        stack.advance(101, step=1)
        self.assertIn(b"HTTP/1.1 408", client.received)

    def test_close_among_other_tokens(self) -> None:
        """Connection is a list."""
        stack = Stack(self)
        client = stack.client().get("/health", Connection="te, close")
        stack.advance(1)
        self.assertTrue(client.wire.closed)
        self.assertEqual(client.headers["connection"], "close")

    def test_two_upstreams_are_shown_together(self) -> None:
        """What runs adds up, the fullest cache speaks."""
        config = CONFIG.replace(
            "upstream: http://10.0.0.1:8000",
            "upstreams: ['http://10.0.0.1:8000', 'http://10.0.0.2:8000']",
        )
        stack = Stack(self, config)
        stack.engine("10.0.0.2").gauges = {"running": 2, "waiting": 1, "kv": 0.5}
        stack.poll(running=1, kv=0.1)
        stack.advance(2)
        self.assertEqual(stack.metric("vllm_requests_running", model="reasoning"), 3)
        self.assertEqual(stack.metric("vllm_kv_usage_perc", model="reasoning"), 0.5)
        self.assertEqual(stack.facts()["running"], 3)

    def test_refusals_are_counted_with_their_reason(self) -> None:
        """Whoever refuses: gate, drain, bytes, connections."""
        stack = Stack(self, "maxConnections: 1\nmaxHeldBytes: 2000\nmaxBodyBytes: 2000\n" + CONFIG)
        first = stack.client()
        stack.client()
        first.leave()
        stack.client().post("/v1/x", b"x" * 1500 + b" " * 600).leave()
        self.assertEqual(stack.metric("admission_rejected_total", model="", reason="queue_full"), 1)
        drained = stack.gateway.drain()
        client = stack.client().chat()
        self.assertEqual(client.status, 503)
        self.assertEqual(stack.metric("admission_rejected_total", model="", reason="draining"), 1)
        stack.advance(15)
        self.assertTrue(drained.called)

    def test_headers_that_every_answer_bears(self) -> None:
        """Date on what is answered early; Vary is added to, not replaced."""
        stack = Stack(self, "cors: {origins: ['https://a.example']}\n" + CONFIG)
        self.assertIn("date", stack.client().get("/v1/..").headers)
        client = stack.client().chat(headers={"Origin": "https://a.example"})
        stack.engine().last.answer(200, b"{}", extra="Vary: Accept\r\n")
        self.assertIn(b"Vary: Origin", client.received)
        self.assertIn(b"Vary: Accept", client.received)

    def test_a_decoded_body_is_held_once(self) -> None:
        """What counts is what is in memory: the coded bytes go when they are decoded."""
        stack = Stack(self)
        body = json.dumps({"model": "reasoning", "prompt": "x" * 5000}).encode()
        client = stack.client().post(
            "/v1/completions", gzip.compress(body), {"Content-Encoding": "gzip"}
        )
        self.assertEqual(stack.gateway._held.now, len(body))
        self.assertEqual(client.wire.protocol.requests[0].content.whole(), b"")
        stack.engine().last.answer(200, b"{}")
        self.assertEqual(stack.gateway._held.now, 0)
