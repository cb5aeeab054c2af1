"""Embeddings, rerank and score, through nginx and the gateway."""

from __future__ import annotations

from tests.integration import node
from tests.integration.cache import Unavailable
from tests.integration.case import TestCase, openai_client, unavailable
from tests.integration.engines import EMBEDDER
from tests.integration.wire import post
from tests.integration.world import WORLD

TEXTS = ["A gateway stands in front.", "Cats sleep all day.", "Nothing is behind it."]


class PoolingTests(TestCase):
    """What is asked of an engine that generates nothing."""

    def setUp(self) -> None:
        WORLD.pooling()
        super().setUp()
        self.wait(
            lambda: not self.gateway.status(EMBEDDER)["stale"], 15, "the gateway sees the engine"
        )

    def test_embeddings(self) -> None:
        """The OpenAI client gets the same vectors in its default form (base64) and as floats."""
        client = openai_client(self.front)
        answer = client.embeddings.create(model=EMBEDDER, input=TEXTS)
        self.assertEqual(len(answer.data), len(TEXTS))
        floats = client.embeddings.create(model=EMBEDDER, input=TEXTS, encoding_format="float")
        self.assertEqual(len(answer.data[0].embedding), len(floats.data[0].embedding))
        for one, other in zip(answer.data[0].embedding, floats.data[0].embedding, strict=True):
            self.assertAlmostEqual(one, other, places=3)
        self.ended(ok=2)

    def test_embeddings_from_node(self) -> None:
        """The client for Node gets them too."""
        try:
            said = node.run(f"{self.front}/v1", "embeddings", model=EMBEDDER, input=TEXTS)
        except Unavailable as fault:
            raise unavailable(fault) from None
        self.assertEqual(len(said["result"]["data"]), len(TEXTS))
        self.ended(ok=1)

    def test_rerank(self) -> None:
        """`/v1/rerank` ranks every document, the most relevant first."""
        body = {"model": EMBEDDER, "query": "What stands in front?", "documents": TEXTS}
        answer = post(f"{self.front}/v1/rerank", body)
        self.assertEqual(answer.status, 200, answer.body)
        results = answer.json()["results"]
        self.assertEqual(sorted(result["index"] for result in results), [0, 1, 2])
        scores = [result["relevance_score"] for result in results]
        self.assertEqual(scores, sorted(scores, reverse=True))
        if WORLD.pooling_unreal is None:
            self.assertEqual(results[0]["index"], 0)
        self.ended(ok=1)

    def test_score(self) -> None:
        """`/v1/score` scores each pair."""
        body = {"model": EMBEDDER, "text_1": TEXTS[0], "text_2": TEXTS[1:]}
        answer = post(f"{self.front}/v1/score", body)
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(len(answer.json()["data"]), 2)
        self.ended(ok=1)

    def test_chat_is_not_served(self) -> None:
        """What this engine does not do is refused in its own words."""
        body = {"model": EMBEDDER, "messages": [{"role": "user", "content": "Hello"}]}
        answer = post(f"{self.front}/v1/chat/completions", body)
        self.assertIn(answer.status, (400, 404, 501))
        self.ended(upstream_status=1)
