"""What the gate learns of an engine from the answers that pass through the whole stack."""

from __future__ import annotations

from tests.stack import DONE, ROLE, Stack, event, token
from tests.support import TestCase

CONFIG = """
models:
  reasoning: {upstream: 'http://10.0.0.1:8000', engine: vllm, admission: {maxInflight: 4}}
"""


class Learning(TestCase):
    """Rates of prefill."""

    def serve(self, stack: Stack, count: int, *last: bytes) -> None:
        """Streams of 5,023 tokens by their bytes, each read in 4 s and ended by these."""
        for number in range(count):
            text = f"{number:05}" + "x" * 20_000
            stack.client().chat(stream=True, messages=[{"role": "user", "content": text}])
            stack.advance(4)
            stack.engine().last.stream(ROLE, token("a"), *last, DONE).end()

    def rate(self, stack: Stack) -> float:
        admission = stack.gateway.fleet.groups["http://10.0.0.1:8000",].admission
        assert admission is not None
        return admission.gate.view(stack.now).prefill_tokens_per_second

    def test_the_engine_tells(self) -> None:
        """The prompt's tokens count as the answer's `usage` says, less those cached."""
        stack = Stack(self, CONFIG)
        self.serve(stack, 5, event(choices=[], usage={"prompt_tokens": 2000}))
        self.assertEqual(self.rate(stack), 500)
        details = {"cached_tokens": 6000}
        usage = {"prompt_tokens": 10_000, "prompt_tokens_details": details}
        self.serve(stack, 15, event(choices=[], usage=usage))
        self.assertEqual(self.rate(stack), 1000)

    def test_it_tells_nothing(self) -> None:
        """Without `usage` the body's bytes count, a quarter of them."""
        stack = Stack(self, CONFIG)
        self.serve(stack, 5)
        self.assertEqual(self.rate(stack), 1255.75)
