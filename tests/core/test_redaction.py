from __future__ import annotations

from tests.support import TestCase
from twisted_gateway.core.redaction import redacted, without_addresses


class RedactionTests(TestCase):
    """`redacted`."""

    def test_words(self) -> None:
        """A credential goes wherever it stands by itself, whatever characters it has."""
        for text, secrets, shown in (
            ("bad token t1.", ["t1"], "bad token ***."),
            ("t1t1 t1", ["t1"], "t1t1 ***"),
            ("a s.c+et/= b", ["s.c+et/="], "a *** b"),
            ("sXc+et/=", ["s.c+et/="], "sXc+et/="),
            ("nothing", [""], "nothing"),
            ("Bearer abc, abc", ["Bearer abc", "abc"], "***, ***"),
        ):
            self.assertEqual(redacted(text, secrets), shown)


class AddressTests(TestCase):
    """`without_addresses`."""

    def test_addresses(self) -> None:
        """What tells where a service is goes, with its port and its credentials."""
        for text, shown in (
            ("dial tcp 10.1.2.3:5432: refused", "dial tcp ***: refused"),
            ('Get "http://minio:9000/b?c": no', 'Get "http://***/b?c": no'),
            ("postgresql://u:p@db.example.com:5432/x", "postgresql://***/x"),
            ("lookup db.storage on 10.9.0.10:53: no", "lookup *** on ***: no"),
            ("[::1]:80 fe80::1, 2001:db8::1 ::ffff:10.0.0.1", "*** ***, *** ***"),
            ("db.svc.cluster.local. and a-b.c.svc:6379", "*** and ***"),
            ("host:sqs.messaging:9324 POST", "host:*** POST"),
            ("kafka:9092 is down", "*** is down"),
        ):
            self.assertEqual(without_addresses(text), shown)

    def test_words(self) -> None:
        """What only looks like it stays."""
        for text in (
            "at 12:30:45 in line 3:14: std::string, code 500",
            "2026-11-30T03:00:00.000Z a/b.c:7 version 1.2.3",
            "Namespace default is not found; e.g. a local.file, svc",
            "out of memory",
        ):
            self.assertEqual(without_addresses(text, ["memory"]), text)

    def test_known_hosts(self) -> None:
        """A name that is known to be inside goes; without dots it has to have a port."""
        for text, shown in (
            ("DB.example.com and db.example.com:80.", "*** and ***."),
            ("memory:80 has no memory", "*** has no memory"),
            ("my-db.example.com, db.example.com-x", "my-db.example.com, db.example.com-x"),
        ):
            self.assertEqual(without_addresses(text, ["db.example.com", "memory", ""]), shown)
