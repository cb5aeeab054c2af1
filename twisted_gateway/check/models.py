"""Checks of models: what each can do is found out by asking, as nothing else says it for sure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from twisted_gateway.check.client import Answer, json_body
from twisted_gateway.check.gateway import (
    NO_WORD,
    Keeps,
    ask_model,
    lacks_word,
    members,
    objects,
)
from twisted_gateway.check.probe import Probe
from twisted_gateway.check.results import Failed, Unable, Verdict
from twisted_gateway.check.runner import Runner

KINDS: Mapping[str, Sequence[str]] = {
    "chat": ("chat", "stream"),
    "embeddings": ("embeddings",),
    "rerank": ("rerank",),
}
"""What a model may be for, in the order of asking -> the checks that are made of it."""
POOLING = frozenset({"tei"})
"""Engines that never chat, by the word of `/status.json`: they need not be asked to."""
MAX_TOKENS = 16

_PROMPT = "Answer with one word: is water wet?"
_TEXTS = ("Water is wet.", "A gateway admits what an engine has room for.")
# What engines say of paths and tasks that they do not have.
_UNABLE = frozenset({400, 404, 405, 415, 422, 424, 501})
_NO_SUCH_MODEL = re.compile(r"(?is)model\b.{0,300}\b(not exist|not found|not_found)")
_BUSY = frozenset({429, 503})
# Of a park's time, what is left to hear of its end before ours is over.
_SPARE_SECONDS = 5.0
_RETRY_SECONDS = 5.0
_REASONING = ("content", "reasoning", "reasoning_content", "tool_calls", "refusal")


class ModelChecks:
    """Makes the checks of models.

    Args:
        runner: makes each.
        clock: for pauses.
        named: whether the user named the models: one that cannot be checked has then failed.
    """

    def __init__(self, runner: Runner, clock: IReactorTime, *, named: bool) -> None:
        """Take what the class documents."""
        self._runner = runner
        self._clock = clock
        self._named = named

    async def check(
        self, model: str, *, kind: str = "", engine: str = "", keeps: Keeps = Keeps.UNKNOWN
    ) -> None:
        """Check one model.

        Args:
            model: its name.
            kind: what it is for, one of `KINDS`; "" to find out.
            engine: what kind of engine serves it, as `/status.json` says; "" if unknown.
            keeps: whether the gateway keeps the token of a request to it.
        """
        if kind:
            await self._all_of(kind, model, keeps, tentative=False)
            return
        refusals, found = [], False
        for each in KINDS:
            if each == "chat" and engine in POOLING:
                continue
            try:
                made = await self._all_of(each, model, keeps, tentative=True, further=found)
            except Unable as why:
                refusals.append(f"{each}: {why}")
                continue
            if made and each == "chat":
                return
            # Who embeds may rank as well.
            found = found or made
        if refusals and not found:
            self._give_up(model, refusals)

    async def _all_of(
        self, kind: str, model: str, keeps: Keeps, *, tentative: bool, further: bool = False
    ) -> bool:
        """Make the checks of one kind; says whether any was made.

        Args:
            kind: one of `KINDS`.
            model: the model.
            keeps: see `check`.
            tentative: whether it is not known to be of this kind.
            further: whether it is known to be of another.
        """
        made, why = False, ""
        for name in KINDS[kind]:
            work = partial(self._ask, name, model, keeps, further)
            if self._runner.skips(name):
                if not tentative:
                    await self._runner.check(name, model, work)
                continue
            if why:
                self._runner.record(name, model, Verdict.SKIPPED, why)
                continue
            # Once it has answered it is of this kind.
            good = await self._runner.check(name, model, work, tentative=tentative and not made)
            made = True
            if not good:
                why = f"{name} has not passed, and this would end in the same way, as slowly"
        return made

    def _give_up(self, model: str, refusals: Sequence[str]) -> None:
        wrong = any(_NO_SUCH_MODEL.search(one) for one in refusals)
        asked = [name for name in KINDS if not self._runner.skips(name)]
        named = self._named and len(asked) == len(KINDS)
        verdict = Verdict.FAILED if wrong or named else Verdict.SKIPPED
        name = next(iter(asked), "stream")
        said = f"its engine does none of what can be checked: {'; '.join(refusals)}"
        self._runner.record(name, model, verdict, said)

    async def _ask(self, name: str, model: str, keeps: Keeps, further: bool, probe: Probe) -> str:
        try:
            return await self._see(name, model, keeps, probe)
        except Failed as why:
            if further:
                # That it does not do what nobody said it does is no fault.
                raise Unable(str(why)) from None
            raise

    async def _see(self, name: str, model: str, keeps: Keeps, probe: Probe) -> str:
        path, body, read = _ASKING[name]
        began = probe.now()
        body_sent = json_body({"model": model, **body})
        answer = await self._patiently(probe, path, body_sent, keeps)
        if answer.status in _UNABLE and not answer.problem:
            raise Unable(answer.words)
        probe.expect(answer, 200, hint=NO_WORD if lacks_word(answer, probe, keeps) else "")
        return read(answer, began)

    async def _patiently(self, probe: Probe, path: str, body: bytes, keeps: Keeps) -> Answer:
        """Ask as one who can wait: behind people, and again after a refusal for want of room."""
        until = probe.now() + probe.seconds
        while True:
            left = until - probe.now()
            headers = {
                "X-Priority": "batch",
                "Prefer": f"wait={max(1, int(left - _SPARE_SECONDS))}",
            }
            answer = await ask_model(probe, path, body, keeps, headers, left)
            if answer.status not in _BUSY:
                return answer
            pause = _retry_after(answer)
            if pause is None or probe.now() + pause + _SPARE_SECONDS > until:
                return answer
            await deferLater(self._clock, pause)


def _retry_after(answer: Answer) -> float | None:
    """Give after how many seconds to ask again; None where nobody said."""
    field = answer.field("Retry-After")
    if not (field.isascii() and field.isdigit() and len(field) < 6):
        return None
    return max(float(field), _RETRY_SECONDS)


# What answers must say


def _chat(answer: Answer, began: float) -> str:
    tree = members(answer.tree)
    first = next(iter(objects(tree.get("choices"))), {})
    message = members(first.get("message"))
    tokens = members(tree.get("usage")).get("completion_tokens")
    if not any(message.get(name) for name in _REASONING):
        raise Failed("the answer has no message with content")
    return f"{tokens} tokens" if _is_number(tokens) else ""


def _stream(answer: Answer, began: float) -> str:
    stream = answer.stream
    if stream is None:
        raise Failed(f"the answer is no event stream, but {answer.field('Content-Type') or 'bare'}")
    if stream.error is not None:
        raise Failed(f"an error in the stream: {stream.error}")
    queued = "; it stood in the gateway's queue" if stream.queued else ""
    if stream.fault:
        raise Failed(f"the stream did not end: {stream.fault}{queued}")
    if stream.first_content_at is None:
        raise Failed("the stream has no content")
    if not stream.terminal:
        raise Failed("the stream ended without its last event, [DONE]")
    first = stream.first_content_at - began
    return f"content after {first:.1f} s, in {stream.contents} pieces{queued}"


def _embeddings(answer: Answer, began: float) -> str:
    first = next(iter(objects(members(answer.tree).get("data"))), {})
    vector = first.get("embedding")
    if not (isinstance(vector, list) and vector and all(map(_is_number, vector))):
        raise Failed("the answer has no embedding")
    return f"{len(vector)} dimensions"


def _rerank(answer: Answer, began: float) -> str:
    # TEI answers with the bare list.
    tree = answer.tree
    ranked = objects(tree if isinstance(tree, list) else members(tree).get("results"))
    scores = [one.get("relevance_score", one.get("score")) for one in ranked]
    if len(scores) != len(_TEXTS) or not all(map(_is_number, scores)):
        raise Failed(f"the answer has no scores for {len(_TEXTS)} texts")
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_MESSAGES = {
    "messages": [{"role": "user", "content": _PROMPT}],
    "max_tokens": MAX_TOKENS,
    "temperature": 0,
}
# The texts to rank are `documents` to vLLM, infinity and llama.cpp, `texts` to TEI; each leaves
# the other's alone.
_RANKED = {"query": _PROMPT, "documents": list(_TEXTS), "texts": list(_TEXTS)}
_ASKING: Mapping[str, tuple[str, Mapping[str, Any], Callable[[Answer, float], str]]] = {
    "chat": ("/v1/chat/completions", _MESSAGES, _chat),
    "stream": ("/v1/chat/completions", {**_MESSAGES, "stream": True}, _stream),
    "embeddings": ("/v1/embeddings", {"input": [_PROMPT]}, _embeddings),
    "rerank": ("/v1/rerank", _RANKED, _rerank),
}
