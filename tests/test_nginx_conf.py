"""docs/nginx/nginx.conf agrees with what the gateway does by default; nginx itself is elsewhere."""

from __future__ import annotations

import re
from dataclasses import fields

from tests.support import TestCase
from tests.test_docs import TOP, read
from twisted_gateway.auth.token import MAX_TOKEN_CHARACTERS
from twisted_gateway.config.load import load
from twisted_gateway.config.schema import Adapter, S3Adapter, Timeouts
from twisted_gateway.core.policy import Policy
from twisted_gateway.core.preferences import request_id
from twisted_gateway.web.site import IDLE_SECONDS

UNITS = {"": 1, "s": 1, "m": 60, "k": 2**10, "g": 2**30}
TEXT = (TOP / "docs/nginx/nginx.conf").read_text(encoding="utf-8")
# Without comments: `#` has no other place in this file.
SAID = re.sub(r"(?m)[ \t]*#.*$", "", TEXT)


def number(directive: str) -> int:
    """The last argument of a directive that stands once, in seconds or bytes."""
    (found,) = re.findall(rf"(?m)^\s*{directive} (?:\d+ )?(\d+)([smkg]?);$", SAID)
    return int(found[0]) * UNITS[found[1]]


def values(directive: str) -> list[str]:
    """The arguments of a directive, as often as it stands."""
    return re.findall(rf"(?m)^\s*{directive} ([^;]*);$", SAID)


def default(kind: type[Adapter], attribute: str) -> float:
    """What an adapter has where its configuration says nothing."""
    (field,) = (one for one in fields(kind) if one.name == attribute)
    assert isinstance(field.default, int | float)
    return field.default


class TimesTests(TestCase):
    """Who waits longer than whom."""

    def test_silence(self) -> None:
        """A request that parks and is then read outlives nginx's patience with its answer."""
        longest = Policy().max_park_seconds + Timeouts().first_content_seconds
        self.assertGreater(number("proxy_read_timeout"), longest)
        self.assertIn(f"maxParkSeconds, {Policy().max_park_seconds:g}", TEXT)
        self.assertIn(f"firstContentSeconds, {Timeouts().first_content_seconds:g}", TEXT)

    def test_the_gateway_speaks_first(self) -> None:
        """Where the gateway has a bound of its own nginx leaves it to say so."""
        self.assertGreater(number("client_body_timeout"), Timeouts().body_seconds)
        self.assertGreater(number("send_timeout"), Timeouts().client_stall_seconds)
        self.assertGreater(number("proxy_send_timeout"), default(Adapter, "timeout_seconds"))

    def test_idle_connections(self) -> None:
        """nginx closes what is idle before the gateway does: else a POST meets a closed one."""
        upstream = re.findall(r"upstream llm_gateway \{(.*?)\}", SAID, re.DOTALL)[0]
        (seconds,) = re.findall(r"keepalive_timeout (\d+)s;", upstream)
        self.assertLess(int(seconds), IDLE_SECONDS)

    def test_reload(self) -> None:
        """Old workers have time for the longest park, the longest prefill, and an answer."""
        self.assertGreater(number("worker_shutdown_timeout"), 2 * number("proxy_read_timeout"))


class SizesTests(TestCase):
    """What is let in."""

    def test_bodies(self) -> None:
        """What the largest adapter takes is let in, and no more."""
        self.assertEqual(number("client_max_body_size"), default(S3Adapter, "max_body_bytes"))

    def test_tokens(self) -> None:
        """The longest token that is looked at fits into a buffer with its field's name."""
        longest = len("Authorization: Bearer ") + MAX_TOKEN_CHARACTERS
        self.assertGreater(number("large_client_header_buffers"), longest)

    def test_request_ids(self) -> None:
        """An id is kept by nginx where the gateway keeps it."""
        (pattern,) = re.findall(r'"~(\^\[.*?\$)" \$http_x_request_id;', SAID)
        for given in ("a", "A.b_c-9", "x" * 128, "x" * 129, "", "a b", "ä", "a/b", 'a"b'):
            kept = request_id(given, lambda: "made") == given and given != "made"
            self.assertEqual(re.search(pattern, given) is not None, kept, given)


class DoorTests(TestCase):
    """What is sent on, and what is public."""

    def test_nothing_lies_on_disk(self) -> None:
        """Neither bodies nor answers are buffered, and no answer of an engine is compressed."""
        for directive in ("proxy_request_buffering", "proxy_buffering", "gzip"):
            self.assertEqual(values(directive), ["off"], directive)
        self.assertEqual(values("proxy_ignore_client_abort"), ["off"])

    def test_nothing_is_sent_twice(self) -> None:
        """A prompt that one gateway has is sent to no other; only what may be repeated is, once."""
        self.assertEqual(values("proxy_next_upstream"), ["error timeout"])
        self.assertEqual(values("proxy_next_upstream_tries"), ["2"])

    def test_words_of_strangers(self) -> None:
        """Each field that the gateway believes of a proxy is set here, and by nobody else."""
        sent = dict(one.split(" ", 1) for one in values("proxy_set_header"))
        for name in ("traceparent", "tracestate", "baggage", "X-Tenant"):
            self.assertRegex(sent[name], r"^\$given_")
        self.assertEqual(sent["X-Forwarded-Proto"], "$scheme")
        self.assertEqual(sent["X-Forwarded-Host"], "$host")
        self.assertEqual(sent["Connection"], '""')

    def test_public_paths(self) -> None:
        """Only /v1 is published; everything else is a 404 that needs no list."""
        places = re.findall(r"location (= )?(\S+) \{\s*([^}]*?)\s*\}", SAID)
        passed = [path for _, path, what in places if "proxy_pass" in what]
        self.assertEqual(passed, ["/v1/"])
        self.assertIn(("", "/", "return 404;"), places)

    def test_log(self) -> None:
        """The log has no query strings, fields or bodies of clients, but the request's id."""
        (log,) = values("log_format gateway")
        for name in ("$request ", "$request_uri", "$args", "$query_string", "$arg_", "$http_"):
            self.assertNotIn(name, log)
        self.assertNotIn("$request_body", SAID)


class PageTests(TestCase):
    """docs/nginx.md."""

    def test_gateway_configuration(self) -> None:
        """What it has the gateway configured with loads, and trusts nginx."""
        blocks = re.findall(r"```yaml\n(.*?)```", read("docs/nginx.md"), re.DOTALL)
        self.assertTrue(blocks)
        for block in blocks:
            config = load(block, name="nginx.md", environ={}, read_file=str)
            self.assertEqual(config.warnings, ())
            self.assertTrue(config.trusted_proxies)
            self.assertTrue(config.admin_listen)

    def test_directives(self) -> None:
        """Every directive that it explains stands in the file."""
        named = re.findall(r"^\| `([a-z_]+)", read("docs/nginx.md"), re.MULTILINE)
        self.assertGreater(len(named), 8)
        for name in named:
            self.assertIn(f"{name} ", TEXT)
