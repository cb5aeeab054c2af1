"""What `/metrics` shows of engines."""

from __future__ import annotations

from tests.stack import Engine, Stack
from tests.support import TestCase

CONFIG = """
models:
  reasoning:
    upstreams: ['http://10.0.0.1:8000', 'http://10.0.0.2:8000']
    engine: vllm
    admission: {maxInflight: 4}
"""
AGE = b'engine_sample_age_seconds{model="reasoning"} '


class SampleAgeTests(TestCase):
    """`engine_sample_age_seconds` of a model with two engines."""

    def setUp(self) -> None:
        super().setUp()
        self.second: Engine | None = None
        self.stack = Stack(self, CONFIG, engine=self.engines)

    def engines(self, stack: Stack) -> Engine:
        """The first, which is up, and the second, which is not."""
        self.second = stack.engines["10.0.0.2", 8000] = Engine(stack)
        self.second.up = False
        return Engine(stack)

    def shown(self) -> list[float]:
        """Its samples."""
        page = self.stack.client().get("/metrics").body
        return [float(line.removeprefix(AGE)) for line in page.splitlines() if AGE in line]

    def test_never_read(self) -> None:
        """It is absent while one of the engines has never been read, however well the other is."""
        self.stack.advance(10)
        self.assertEqual(self.shown(), [])

    def test_oldest(self) -> None:
        """Of two that have been read the older reading is shown."""
        assert self.second is not None
        self.second.up = True
        self.stack.advance(2)
        self.assertEqual(self.shown(), [0])
        self.second.gauges = None
        self.stack.advance(4)
        self.assertEqual(self.shown(), [4])


class FieldTests(TestCase):
    """Header fields that are no text."""

    def test_beyond_ascii(self) -> None:
        """Whatever bytes stand in a field that is read, it is an answer and no fault of ours."""
        stack = Stack(self, CONFIG)
        for path in ("/status", "/status.json", "/status/status.css", "/metrics", "/v1/models"):
            head = b"GET %s HTTP/1.1\r\nHost: a\r\n" % path.encode()
            for name in (b"Accept", b"If-None-Match", b"X-Request-ID", b"Origin", b"Prefer"):
                client = stack.client().send(head + name + b": \xff\xfe\r\n\r\n")
                self.assertIn(client.status, (200, 400, 406), (path, name))
