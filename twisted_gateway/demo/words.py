"""What a simulated engine says: readable English that depends on the prompt alone."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

_OPENINGS = (
    "This is a simulated answer, made up while you wait.",
    "No model has read your question, but the timing of this answer is that of a real engine.",
    "Here is some text from a simulated engine, one token at a time.",
    "A simulated engine speaks, so please judge the pace and not the wisdom.",
)

_SENTENCES = (
    "A queue is a promise that somebody will be served.",
    "The longest prompt in the room decides how long everybody waits.",
    "An engine publishes what it knows at the end of a step, and not a moment sooner.",
    "Four people fit at the table, and the fifth waits by the door.",
    "Nothing is lost while it waits, as long as someone remembers who came first.",
    "The kettle boils no faster because more cups are lined up beside it.",
    "A quiet line is not a broken line, and a short comment now and then proves it.",
    "Memory grows with every word that is said and returns when the speaker leaves.",
    "Those who ask for little should not wait behind those who ask for much.",
    "What was said before need not be worked out again.",
    "A good gate is one that nobody notices.",
    "It is better to hear no at once than yes too late.",
    "The harbour master counts the ships he has sent out, whatever the lighthouse reports.",
    "Every train that leaves on time makes room for the next one.",
    "Figures from a minute ago are history, and history is no reason to slam a door.",
    "The baker sells the first loaf as soon as it is out of the oven.",
    "Patience has a bound, and it is kind to say where it lies.",
    "When the bridge is full, let people cross as others step off it.",
    "A crowd that arrives at once looks like nobody until the doorman turns his head.",
    "Whoever leaves the queue should give up the place behind them too.",
    "Steady work on small things keeps large things from piling up.",
    "A letter that ends in the middle of a word should say why.",
    "The river is measured at the mill, but it rains in the hills.",
    "Two slow readers share one page more easily than one fast reader shares two.",
)


class Answer:
    """An endless text, token by token, with a natural length.

    Attributes:
        natural_tokens: how many tokens the answer has when nobody makes it go on, the last of them
            being the end-of-sequence token, which is no text.
    """

    def __init__(self, prompt: bytes, choice: int = 0) -> None:
        """Make the answer to `prompt`; each `choice` of one prompt reads differently."""
        chance = random.Random(zlib.crc32(prompt) * 131 + choice)
        body = chance.sample(_SENTENCES, chance.randint(8, 16))
        self._tokens = _tokens([chance.choice(_OPENINGS), *body])
        self.natural_tokens = len(self._tokens) + 1

    def text(self, start: int, stop: int) -> str:
        """The text of the tokens `start` to `stop`; past its end the answer begins anew."""
        count = len(self._tokens)
        return "".join(
            " " + self._tokens[index % count] if index else self._tokens[0]
            for index in range(start, stop)
        )


def _tokens(sentences: Sequence[str]) -> list[str]:
    return " ".join(sentences).split(" ")


def prompt_tokens(text: bytes) -> int:
    """How many tokens a prompt has by this engine's tokenizer: one for each four bytes."""
    return max(1, -(-len(text) // 4))


def block_keys(text: bytes, block_tokens: int) -> list[int]:
    """One key for each full block of a prompt, each standing for all of the prompt up to there."""
    size = 4 * block_tokens
    keys: list[int] = []
    key = 0
    for start in range(0, len(text) - size + 1, size):
        key = hash((key, text[start : start + size]))
        keys.append(key)
    return keys
