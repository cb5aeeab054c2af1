"""What the suite runs on."""

from __future__ import annotations

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.integration.world import WORLD


class EngineTests(SynchronousTestCase):
    """The engines are what they are said to be."""

    def test_chat_engine_is_a_vllm(self) -> None:
        """The chat engine is a real vLLM, or this test is skipped and says why it is not."""
        WORLD.engine()
        _judge(WORLD.unreal, WORLD.broken)

    def test_pooling_engine_is_a_vllm(self) -> None:
        """The engine for embeddings and rerank is a real vLLM too."""
        WORLD.pooling()
        _judge(WORLD.pooling_unreal, WORLD.pooling_broken)


def _judge(unreal: str | None, broken: bool) -> None:
    if unreal is None:
        return
    if broken:
        raise AssertionError(unreal)
    raise SkipTest(unreal)
