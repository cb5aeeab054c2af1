"""What is seen of models: what each is for is found out, and each failure is told as what it is."""

from __future__ import annotations

import json
import math
from typing import Any

from tests.check.harness import (
    CHAT,
    NOTHING,
    Answer,
    Came,
    Says,
    ToolTestCase,
    content,
    problem,
    stream,
)
from twisted_gateway.check import gateway

VECTOR = Says(200, {"data": [{"embedding": [0.1, 0.2, 0.3]}]})
RANKED = Says(200, {"results": [{"relevance_score": 0.9}, {"relevance_score": 0.1}]})
RANKED_BY_TEI = Says(200, [{"index": 0, "score": 0.9}, {"index": 1, "score": 0.1}])
NOT_FOUND = Says(404, {"detail": "Not Found"})
CHAT_PATH, EMBEDDINGS, RERANK = "/v1/chat/completions", "/v1/embeddings", "/v1/rerank"


class ModelsTestCase(ToolTestCase):
    """A gateway whose one model does what a test says."""

    def engine(
        self, chat: Answer = NOT_FOUND, embeddings: Answer = NOT_FOUND, rerank: Answer = NOT_FOUND
    ) -> None:
        """Say what the engine answers."""

        def of_m(came: Came) -> Says:
            if came.tree["model"] != "m":
                return problem(400, "unknown_model", valid_models=["m"])
            return chat if isinstance(chat, Says) else chat(came)

        self.gateway.says |= {CHAT_PATH: of_m, EMBEDDINGS: embeddings, RERANK: rerank}

    def of_model(self) -> dict[str, str]:
        """The verdicts on the model."""
        return {name: how for name, how in self.verdicts().items() if name.endswith(" m")}


class KindTests(ModelsTestCase):
    """What a model is for is found out by asking."""

    def test_embeddings(self) -> None:
        """A model that embeds is not asked for more than one chat, and has not failed at it."""
        self.engine(embeddings=VECTOR)
        self.assertEqual(self.check(), 0)
        self.assertEqual(self.of_model(), {"embeddings m": "ok"})
        self.assertEqual(self.rows()["embeddings m"][1], "3 dimensions")

    def test_refusals_of_engines(self) -> None:
        """Engines say in many ways that they do not chat."""
        for status in (400, 404, 405, 415, 422, 424, 501):
            self.again()
            self.engine(chat=Says(status, {"error": "no chat"}), embeddings=VECTOR)
            self.assertEqual(self.check(), 0)
            self.assertEqual(self.of_model(), {"embeddings m": "ok"})

    def test_rerank(self) -> None:
        """A model that ranks is found too, in either form of the answer."""
        for said in (RANKED, RANKED_BY_TEI):
            self.again()
            self.engine(rerank=said)
            self.assertEqual(self.check(), 0)
            self.assertEqual(self.of_model(), {"rerank m": "ok"})
            came = self.gateway.came[-1].tree
            # TEI's own name for them, and everybody else's.
            self.assertEqual(came["documents"], came["texts"])

    def test_both(self) -> None:
        """Who embeds and ranks is checked for both; who ranks badly and embeds is no ranker."""
        self.engine(embeddings=VECTOR, rerank=RANKED)
        self.check()
        self.assertEqual(self.of_model(), {"embeddings m": "ok", "rerank m": "ok"})
        for said in (Says(500, {"error": "x"}), Says(200, {"results": []})):
            self.again()
            self.engine(embeddings=VECTOR, rerank=said)
            self.assertEqual(self.check(), 0)
            self.assertEqual(self.of_model(), {"embeddings m": "ok"})

    def test_tei(self) -> None:
        """An engine that never chats is not asked to."""
        status = {"models": {"m": {"engine": "tei", "aliases": ["gpt-4o"]}}}
        self.gateway.says["/status.json"] = self.gateway.admin(Says(200, status))
        self.engine(embeddings=VECTOR)
        self.assertEqual(self.check(), 0)
        chats = [one.tree["model"] for one in self.gateway.came if one.key == CHAT_PATH]
        self.assertNotIn("m", chats)

    def test_no_status(self) -> None:
        """A gateway without /status.json has its models found out all the same, aliases too."""
        self.gateway.says["/status.json"] = self.gateway.admin(Says(None, ends="cut"))
        self.engine(embeddings=VECTOR)
        self.assertEqual(self.check("--models", "m"), 0)
        self.assertEqual(self.of_model(), {"embeddings m": "ok"})
        self.again()
        self.gateway.says["/status.json"] = self.gateway.admin(Says(None, ends="cut"))
        self.assertEqual(self.check(), 0)
        self.assertEqual(self.verdicts()["chat gpt-4o"], "ok")

    def test_none_of_these(self) -> None:
        """A model for something else is skipped with the reasons; one that was named has failed."""
        self.engine()
        self.assertEqual(self.check(), 0)
        verdict, said = self.rows()["chat m"]
        self.assertEqual(verdict, "skipped")
        self.assertIn("chat: status 404: Not Found; embeddings: status 404", said)
        self.again()
        self.engine()
        self.assertEqual(self.check("--models", "m"), 1)
        self.assertEqual(self.of_model(), {"chat m": "FAILED"})

    def test_unknown_to_the_engine(self) -> None:
        """An engine that knows the model by no such name has failed, whoever named it."""
        for message in (
            "The model `m` does not exist.",
            "model 'm' not found, try pulling it first",
        ):
            self.again()
            said = Says(404, {"error": {"message": message, "code": 404}})
            self.engine(said, said, said)
            self.assertEqual(self.check(), 1)
            self.assertEqual(self.of_model(), {"chat m": "FAILED"})
            self.assertIn(message, self.rows()["chat m"][1])

    def test_kind_that_was_said(self) -> None:
        """What the user says it is for is checked, and nothing else."""
        self.engine(embeddings=VECTOR, rerank=RANKED)
        self.assertEqual(self.check("--models", "m=rerank"), 0)
        self.assertEqual(self.of_model(), {"rerank m": "ok"})
        self.again()
        self.engine(embeddings=VECTOR)
        self.assertEqual(self.check("--models", "m=chat"), 1)
        self.assertEqual(self.of_model(), {"chat m": "FAILED", "stream m": "skipped"})

    def test_not_listed(self) -> None:
        """A model that is named and not configured has failed, in the gateway's words."""
        self.assertEqual(self.check("--models", "other"), 1)
        self.assertIn("it is unknown_model", self.rows()["chat other"][1])

    def test_skip(self) -> None:
        """Checks of models can be left out."""
        self.assertEqual(self.check("--skip", "chat"), 0)
        self.assertEqual(self.of_model(), {"stream m": "ok"})
        self.again()
        self.assertEqual(self.check("--skip", "chat", "--skip", "stream", "--models", "m"), 0)
        self.assertEqual(self.of_model(), {"embeddings m": "skipped"})
        self.again()
        self.assertEqual(self.check("--skip", "stream", "--models", "m=chat"), 0)
        self.assertEqual(self.of_model(), {"chat m": "ok", "stream m": "skipped"})

    def test_too_many(self) -> None:
        """A hundred are checked, and it is said that there are more."""
        data = [{"id": f"m{number}"} for number in range(101)]
        self.gateway.says["/v1/models"] = Says(200, {"data": data})
        self.assertEqual(self.check("--skip", "chat", "--skip", "stream"), 1)
        self.assertIn("101 models, and one run checks 100", self.printed.getvalue())

    def test_many_aliases(self) -> None:
        """The aliases of each model are read once, however many names are listed."""
        names = [f"n{number}" for number in range(40)]
        described = {name: {"aliases": ["other"]} for name in names}
        self.gateway.says["/v1/models"] = Says(200, {"data": [{"id": name} for name in names]})
        self.gateway.says["/status.json"] = self.gateway.admin(Says(200, {"models": described}))
        read: list[object] = []
        words = gateway.words

        def counted(tree: Any) -> list[str]:
            read.append(tree)
            return words(tree)

        self.patch(gateway, "words", counted)
        self.assertEqual(self.check("--models", ""), 0)
        self.assertEqual(len(read), len(described))


class AnswerTests(ModelsTestCase):
    """What is wrong with an answer."""

    def test_chat(self) -> None:
        """A chat is answered with something, by the engine."""
        for said, why in (
            (Says(200, {"choices": []}), "no message with content"),
            (Says(200, {"choices": [{"message": {"content": ""}}]}), "no message with content"),
            (Says(200, b"<html>", "text/html"), "no message with content"),
            (Says(500, {"error": {"message": "out of memory"}}), "status 500: out of memory"),
            (problem(502, "upstream_error"), "status 502: it is upstream_error"),
            (problem(504, "upstream_timeout"), "status 504"),
        ):
            self.again()
            self.engine(chat=said)
            self.assertEqual(self.check(), 1)
            # The stream would fail in the same way; the table says so.
            self.assertEqual(self.of_model(), {"chat m": "FAILED", "stream m": "skipped"})
            self.assertIn("chat has not passed", self.rows()["stream m"][1])
            self.assertIn(why, self.rows()["chat m"][1])

    def test_reasoning(self) -> None:
        """A reasoner may come no further than its thoughts in so few tokens."""
        message = {"content": None, "reasoning_content": "Hm."}
        self.engine(
            chat=lambda came: (
                stream(content(), "[DONE]")
                if came.tree.get("stream")
                else Says(200, {"choices": [{"message": message}]})
            )
        )
        self.assertEqual(self.check(), 0)

    def test_stream(self) -> None:
        """A stream has content, and its end."""
        error = json.dumps({"error": {"message": "engine died", "code": 500}})
        for said, why in (
            (stream("[DONE]"), "has no content"),
            (stream(content()), "without its last event"),
            (stream(content(), ends="cut"), "did not end: it broke off"),
            (stream(content(), error, "[DONE]"), "an error in the stream: engine died"),
            (CHAT, "no event stream, but application/json"),
            (stream(content("x" * 60_000) * 20, "[DONE]"), "longer than 1048576 bytes"),
        ):
            self.again()

            def answer(came: Came, said: Says = said) -> Says:
                return said if came.tree.get("stream") else CHAT

            self.engine(chat=answer)
            self.assertEqual(self.check(), 1)
            self.assertEqual(self.of_model(), {"chat m": "ok", "stream m": "FAILED"})
            self.assertIn(why, self.rows()["stream m"][1])

    def test_stream_that_hangs(self) -> None:
        """A stream that goes on for too long is given up, and says that it stood in the queue."""
        place = b": keep-alive position=3 eta=42\n\n"
        waiting = Says(200, place, "text/event-stream", ends="never")
        self.engine(chat=lambda came: waiting if came.tree.get("stream") else CHAT)
        self.assertEqual(self.check("--timeout", "20", seconds=25), 1)
        self.assertIn("it stood in the gateway's queue", self.rows()["stream m"][1])

    def test_nothing_is_served(self) -> None:
        """Where nothing but the lists says what there is, two empty ones have failed."""
        some = {"memory": {"kind": "memory", "resources": {}}}
        for listed, arguments, verdict in (
            ({}, (), "FAILED"),
            ({}, ("--models", ""), "ok"),
            ({}, ("--services", ""), "ok"),
            (some, (), "ok"),
        ):
            self.again()
            self.gateway.says["/v1/models"] = Says(200, {"data": []})
            self.gateway.says["/v1/services"] = Says(200, {"services": listed})
            status = self.check(*arguments)
            self.assertTrue(status or verdict == "ok")
            self.assertEqual(self.rows()["models"], ("ok", "there are none"))
            self.assertEqual(self.verdicts()["services"], verdict)

    def test_no_list_of_models(self) -> None:
        """A gateway without the list may be accepted."""
        self.gateway.says["/v1/models"] = problem(404, "not_found")
        accepts = ("--accept", "models=404", "--accept", "request-id=404")
        self.assertEqual(self.check(*accepts), 0)
        self.assertEqual(self.verdicts()["models"], "accepted")

    def test_interrupted(self) -> None:
        """Ctrl-C in the middle of a stream drops it."""
        endless = stream(content(), ends="never")
        self.engine(chat=lambda came: endless if came.tree.get("stream") else CHAT)
        made = self.begin("--models", "m")
        self.reactor.handlers[2](2, None)
        self.settle()
        self.assertEqual(self.status(made), 130)
        verdict, said = self.rows()["stream m"]
        self.assertEqual(verdict, "FAILED")
        self.assertIn("under way when the run was interrupted", said)

    def test_count_of_tokens(self) -> None:
        """A count is a number; what else stands there is not shown as one."""
        for count, told in ((16, "16 tokens"), (True, ""), ("16", ""), (None, "")):
            self.again()
            said = Says(200, {**CHAT.body, "usage": {"completion_tokens": count}})

            def answer(came: Came, said: Says = said) -> Says:
                return stream(content(), "[DONE]") if came.tree.get("stream") else said

            self.engine(chat=answer)
            self.assertEqual(self.check(), 0)
            self.assertEqual(self.rows()["chat m"], ("ok", told))

    def test_embeddings(self) -> None:
        """An embedding is a list of numbers; NaN and infinities are none, nor are they JSON."""
        wrong: list[Any] = [[], [{"embedding": []}], [{"embedding": ["x"]}], None]
        wrong += [[{"embedding": [0.5, value]}] for value in (math.nan, math.inf, True)]
        for data in wrong:
            self.again()
            self.engine(embeddings=Says(200, {"data": data}))
            self.assertEqual(self.check(), 1)
            self.assertIn("no embedding", self.rows()["embeddings m"][1])

    def test_rerank(self) -> None:
        """Each text has a score."""
        infinite = [{"relevance_score": math.nan}, {"relevance_score": -math.inf}]
        wrong: list[Any] = [{"results": [{"score": 1}]}, [{"score": "x"}, {"score": 1}], {}]
        for tree in (*wrong, {"results": infinite}):
            self.again()
            self.engine(rerank=Says(200, tree))
            self.assertEqual(self.check(), 1)
            self.assertIn("no scores for 2 texts", self.rows()["rerank m"][1])


class PatienceTests(ModelsTestCase):
    """An engine that is busy."""

    def test_waits(self) -> None:
        """A refusal for want of room is not the end while there is time."""
        self.tries = 0

        def busy(came: Came) -> Says:
            self.tries += 1
            if self.tries < 3:
                said = problem(503, "park_timeout", reason="park_timeout")
                return Says(503, said.body, said.content_type, (("Retry-After", "7"),))
            return self.gateway._chat(came)

        self.engine(chat=busy)
        made = self.begin("--timeout", "60")
        self.advance(20)
        self.assertEqual(self.status(made), 0)
        waits = [one.headers["prefer"] for one in self.gateway.came if "prefer" in one.headers]
        self.assertEqual(waits, ["wait=55", "wait=48", "wait=41", "wait=55"])

    def test_no_time_left(self) -> None:
        """When time is up it has failed, in the gateway's words; a user may accept that."""
        said = problem(503, "queue_full")
        self.engine(chat=Says(503, said.body, said.content_type, (("Retry-After", "5"),)))
        self.assertEqual(self.check("--timeout", "20", seconds=30), 1)
        self.assertIn("status 503: it is queue_full", self.rows()["chat m"][1])
        self.assertEqual(self.verdicts()["chat m"], "FAILED")

    def test_accepted(self) -> None:
        """A busy engine may be accepted."""
        self.engine(chat=problem(503, "queue_full"))
        for further in ((), ("--accept", "stream=503")):
            self.again()
            self.engine(chat=problem(503, "queue_full"))
            self.assertEqual(self.check("--accept", "chat=503", *further), 0)
            self.assertEqual(self.of_model(), {"chat m": "accepted", "stream m": "skipped"})

    def test_says_nothing(self) -> None:
        """An engine that says nothing has failed when time is up."""
        self.engine(chat=NOTHING)
        self.assertEqual(self.check("--timeout", "20", seconds=25), 1)
        self.assertIn("no whole answer within 20 s", self.rows()["chat m"][1])
