from __future__ import annotations

from tests.support import TestCase
from twisted_gateway.core.caching import private


class PrivateTests(TestCase):
    """`private`."""

    def test_directives(self) -> None:
        """What shared caches are allowed goes, and the rest stays as it was."""
        for said, told in (
            (b"", b"private"),
            (b"public", b"private"),
            (b"Public, max-age=60", b"private, max-age=60"),
            (b"max-age=60,S-MaxAge=9 , must-revalidate", b"private, max-age=60, must-revalidate"),
            (b"private", b"private"),
            (b'private="a, b", no-cache="c, public"', b'private, no-cache="c, public"'),
            (b"no-store", b"no-store"),
            (b"public, No-Store", b"No-Store"),
            (b"proxy-revalidate, , immutable", b"private, immutable"),
            (b"public=1, x", b"private, x"),
            (b'"public, x', b"private, x"),
        ):
            self.assertEqual(private(said), told, said)
