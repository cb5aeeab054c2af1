"""Tests of the forms in which a simulated engine embeds, reranks and scores."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

from tests.demo.harness import CHAT, HELLO, EngineCase, Recorded, keys_in_order
from twisted_gateway.demo.service import EMBEDDINGS
from twisted_gateway.demo.vectors import DIMENSIONS, embed, similarity


class PoolingTests(EngineCase):
    """An engine that pools."""

    profile = EMBEDDINGS
    model = "embeddings"
    pools = True

    def like(self, name: str, path: str, document: Any) -> Any:
        answer = self.ask(path, document)
        recorded = Recorded(f"vllm_embed_{name}")
        self.assertEqual(
            (answer.status, answer.headers["content-type"]),
            (recorded.status, recorded.headers["content-type"]),
        )
        self.assertEqual(keys_in_order(answer.json), keys_in_order(recorded.json))
        return answer.json

    def test_embeddings(self) -> None:
        """Vectors of one length, the same for the same text, near for like texts."""
        texts = ["the cat sat", "a cat sat there", "quarterly revenue", "the cat sat"]
        answer = self.ask("/v1/embeddings", {"input": texts, "model": "embeddings"}).json
        vectors = [item["embedding"] for item in answer["data"]]
        self.assertEqual([item["index"] for item in answer["data"]], [0, 1, 2, 3])
        for vector in vectors:
            self.assertEqual(len(vector), DIMENSIONS)
            self.assertAlmostEqual(math.hypot(*vector), 1.0, 5)
        self.assertEqual(vectors[0], vectors[3])
        self.assertGreater(similarity(vectors[0], vectors[1]), 0.4)
        self.assertLess(similarity(vectors[0], vectors[2]), 0.3)

    def test_embeddings_as_base64(self) -> None:
        """The same floats, as OpenAI's clients ask for them."""
        document = {"input": "hi there", "encoding_format": "base64"}
        answer = self.like("embeddings_base64", "/v1/embeddings", document)
        raw = base64.b64decode(answer["data"][0]["embedding"])
        self.assertEqual(list(struct.unpack(f"<{DIMENSIONS}f", raw)), embed(b"hi there"))

    def test_embeddings_of_tokens(self) -> None:
        """Token lists are texts too."""
        answer = self.ask("/v1/embeddings", {"input": [[1, 2], [3, 4, 5]]}).json
        self.assertEqual((len(answer["data"]), answer["usage"]["prompt_tokens"]), (2, 5))

    def test_text_without_words(self) -> None:
        """Even what has no word in it has a unit vector."""
        for text in (b"", b"?!", "日本".encode()):
            self.assertAlmostEqual(math.hypot(*embed(text)), 1.0, 5)

    def test_rerank(self) -> None:
        """The best document comes first, with its index among those sent."""
        document = {
            "query": "which language is python",
            "documents": ["bananas are yellow", {"text": "python is a language"}],
        }
        for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
            answer = self.like("rerank", path, document)
            self.assertEqual([item["index"] for item in answer["results"]], [1, 0])
            self.assertEqual(answer["results"][0]["document"]["text"], "python is a language")
        best = self.ask("/rerank", {**document, "top_n": 1}).json["results"]
        self.assertEqual([item["index"] for item in best], [1])

    def test_score(self) -> None:
        """One to many, or pair by pair, under each of the names that vLLM takes."""
        self.like("score", "/v1/score", {"text_1": "a cat", "text_2": ["the cat", "a dog"]})
        for one, other in (("data_1", "data_2"), ("queries", "documents")):
            answer = self.ask("/score", {one: ["x y", "z"], other: ["x y", "q"]}).json
            self.assertAlmostEqual(answer["data"][0]["score"], 1.0, 5)
            self.assertLess(answer["data"][1]["score"], 0.5)

    def test_refusals(self) -> None:
        """400 and 404 as vLLM gives them."""
        error = self.like("err_too_long", "/v1/embeddings", {"input": "x" * 40_000})
        self.assertIn("maximum context length is 8192 tokens", error["error"]["message"])
        self.like("err_unknown_model", "/v1/embeddings", {"input": "x", "model": "nope"})
        self.like("chat_on_embed_model", CHAT, {"messages": HELLO})
        for path, document in (
            ("/v1/embeddings", {}),
            ("/v1/embeddings", {"input": "x", "encoding_format": "hex"}),
            ("/v1/embeddings", {"input": "x", "dimensions": 7}),
            ("/rerank", {"query": "x"}),
            ("/rerank", {"query": "x", "documents": []}),
            ("/rerank", {"query": "x", "documents": ["y"], "top_n": -1}),
            ("/rerank", {"query": "x", "documents": ["y"], "top_n": "all"}),
            ("/score", {"text_1": ["a", "b"], "text_2": ["c"]}),
            ("/score", {"text_1": "a"}),
            ("/score", {}),
        ):
            self.assertEqual(self.ask(path, document).status, 400, document)

    def test_takes_time_and_places(self) -> None:
        """Each text is a sequence in the engine, and is computed there."""
        connection = self.send("POST", "/v1/embeddings", {"input": ["x" * 8000] * 40})
        self.assertEqual(connection.answer.raw, b"")
        self.assertEqual(self.host.engine.in_engine_now, 40)
        self.clock.advance(3.9)
        self.assertEqual(connection.answer.raw, b"")
        self.assertGreater(self.host.engine.gauges().waiting + self.host.engine.gauges().running, 0)
        self.clock.advance(0.3)
        self.assertEqual(connection.answer.json["usage"]["prompt_tokens"], 80_000)

    def test_client_that_leaves_is_dropped(self) -> None:
        """A lost connection takes its texts out of the engine."""
        connection = self.send("POST", "/v1/embeddings", {"input": ["x" * 8000] * 4})
        connection.transport.drop()
        self.assertEqual(self.host.engine.in_engine_now, 0)
        self.clock.advance(1)

    def test_faults(self) -> None:
        """Refusal, hanging and death reach those who embed too."""
        self.host.change_faults({"refuse_next": 1})
        self.assertEqual(self.ask("/v1/embeddings", {"input": "x"}).status, 503)
        connection = self.send("POST", "/v1/embeddings", {"input": ["x", "y"]})
        self.host.change_faults({"die": True})
        self.assertEqual(connection.answer.status, 500)
        self.assertEqual(self.ask("/rerank", {"query": "x", "documents": ["y"]}).status, 500)
        self.host.change_faults({"die": False, "hang": True})
        self.assertEqual(self.ask("/v1/embeddings", {"input": "x"}).raw, b"")
