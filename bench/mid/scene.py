"""One run: who asks the engine for what, and when each was answered."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.integration.engines import MAX_NUM_SEQS, MODEL
from tests.integration.wire import Call

LONG_PROMPTS = 2
LONG_TOKENS = 5000
SHORT_PROMPTS = 6
SHORT_TOKENS = (200, 500)
ANSWER_TOKENS = 24
LEAD_SECONDS = 0.3
"""By so much the long ones come first: the order that is worst for the others."""
BUSY_PROMPT_TOKENS = 100
BUSY_ANSWER_TOKENS = 64
BYTES_PER_TOKEN = 4
"""As the gateway reckons; and a word and the space before it are so many."""
END_SECONDS = 900.0

# Each is one token to the model, with the space before it.
_WORDS = (
    *("act", "add", "all", "and", "any", "bit", "but", "can", "day"),
    *("end", "for", "fun", "get", "got", "has", "how", "key", "let"),
)

LONG, SHORT = "long", "short"


class Failed(Exception):
    """A request was not answered as it should; the text shows what came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the long and the short ones find.

    Attributes:
        name: as the command line and the figures have it.
        words: what it is.
        busy: how many answers are under way in the engine when they come.
    """

    name: str
    words: str
    busy: int


SCENES = {
    scene.name: scene
    for scene in (
        Scene(name="idle", words="into an idle engine", busy=0),
        Scene(
            name="busy", words="into an engine with four short answers under way", busy=MAX_NUM_SEQS
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one request. Times are seconds from the moment that the first one came.

    Attributes:
        kind: long or short.
        prompt_tokens: how long its prompt is.
        at: when it asked.
        first: when its first content came.
        end: when its answer was whole.
    """

    kind: str
    prompt_tokens: int
    at: float
    first: float
    end: float

    @property
    def ttft(self) -> float:
        """From asking to first content."""
        return self.first - self.at

    @property
    def completion(self) -> float:
        """From asking to the whole answer."""
        return self.end - self.at


def play(scene: Scene, url: str, *, lengths: int, words: str) -> list[Answer]:
    """Play it, and wait for all answers.

    Args:
        scene: what.
        url: of the engine, or of the gateway before it.
        lengths: the seed of the short prompts' lengths.
        words: the seed of what prompts say: no two runs have the same, so that no prefix is cached.

    Raises:
        Failed: an answer is not whole.
    """
    draw = random.Random(lengths)
    shorts = [draw.randint(*SHORT_TOKENS) for _ in range(SHORT_PROMPTS)]
    asked: list[tuple[str, int, float, Call]] = []
    before = [
        ask(url, BUSY_PROMPT_TOKENS, BUSY_ANSWER_TOKENS, f"{words}/busy/{number}")
        for number in range(scene.busy)
    ]
    for call in before:
        call.expect(lambda one: one.contents or one.done.is_set(), END_SECONDS, "content")
    started = time.monotonic()
    for kind, sizes in ((LONG, [LONG_TOKENS] * LONG_PROMPTS), (SHORT, shorts)):
        for number, tokens in enumerate(sizes):
            at = time.monotonic() - started
            call = ask(url, tokens, ANSWER_TOKENS, f"{words}/{kind}/{number}")
            asked.append((kind, tokens, at, call))
        if kind == LONG:
            time.sleep(LEAD_SECONDS)
    for call in (*before, *(each[3] for each in asked)):
        finish(call)
    return [
        Answer(
            kind=kind,
            prompt_tokens=tokens,
            at=at,
            first=at + call.contents[0],
            end=at + call.lines[-1][0],
        )
        for kind, tokens, at, call in asked
    ]


def ask(url: str, prompt_tokens: int, answer_tokens: int, seed: str) -> Call:
    """Ask for a stream of exactly so many tokens."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": text(prompt_tokens, seed)}],
        "max_tokens": answer_tokens,
        "ignore_eos": True,
        "stream": True,
    }
    return Call(f"{url}/v1/chat/completions", body, silence_seconds=END_SECONDS)


def finish(call: Call) -> Call:
    """Wait for a whole answer.

    Raises:
        Failed: it is another one.
    """
    call.finish(END_SECONDS)
    if not call.whole or not call.contents:
        raise Failed(call.describe())
    return call


def text(tokens: int, seed: str) -> str:
    """So many words, the same for the same seed; no two begin alike."""
    draw = random.Random(seed)
    return "".join(f" {draw.choice(_WORDS)}" for _ in range(tokens))


def of_kind(kind: str, answers: Sequence[Answer]) -> list[Answer]:
    """Those that are long, or short."""
    return [answer for answer in answers if answer.kind == kind]
