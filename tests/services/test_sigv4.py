from __future__ import annotations

import datetime
import importlib
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SkipTest

from tests.support import TestCase, examples
from twisted_gateway.services.sigv4 import (
    Credentials,
    escaped,
    query_string,
    signature_headers,
)

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
EXAMPLE = Credentials(
    "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1", "s3"
)
HOST = ("Host", "examplebucket.s3.amazonaws.com")
MOMENT = datetime.datetime(2013, 5, 24, tzinfo=datetime.UTC)


def signature(headers: list[tuple[str, str]]) -> str:
    """The signature alone."""
    return dict(headers)["Authorization"].rpartition("Signature=")[2]


class ExampleTests(TestCase):
    """The examples of AWS's own page."""

    def check(self, method: str, path: str, query: str, expected: str, *more: Any) -> None:
        headers = [HOST, *more[:-1]]
        made = signature_headers(
            method, path, query, headers, EXAMPLE, MOMENT.timestamp(), more[-1]
        )
        self.assertEqual(signature(made), expected)

    def test_get(self) -> None:
        """GET Object, with a Range."""
        expected = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        self.check("GET", "/test.txt", "", expected, ("Range", "bytes=0-9"), EMPTY)

    def test_put(self) -> None:
        """PUT Object, with a `$` in its key."""
        self.check(
            "PUT",
            "/" + escaped("test$file.text", safe="/"),
            "",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ("Date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
        )

    def test_parameter_without_value(self) -> None:
        """GET Bucket Lifecycle."""
        expected = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        self.check("GET", "/", query_string([("lifecycle", "")]), expected, EMPTY)

    def test_parameters(self) -> None:
        """GET Bucket (List Objects)."""
        expected = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        query = query_string([("prefix", "J"), ("max-keys", "2")])
        self.check("GET", "/", query, expected, EMPTY)

    def test_not_shown(self) -> None:
        """The secret is in no repr."""
        self.assertNotIn("wJalr", repr(EXAMPLE))


class BotocoreTests(TestCase):
    """Agreement with botocore, whatever is signed."""

    def setUp(self) -> None:
        super().setUp()
        try:
            self.auth: Any = importlib.import_module("botocore.auth")
        except ImportError as fault:
            raise SkipTest(f"{fault}: pip install '.[test]'") from None
        self.request: Any = importlib.import_module("botocore.awsrequest").AWSRequest
        self.keys: Any = importlib.import_module("botocore.credentials").Credentials

    def theirs(self, method: str, url: str, headers: Mapping[str, str], now: float) -> str:
        moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
        request = self.request(method=method, url=url, headers=dict(headers))
        unsigned = SimpleNamespace(s3={"payload_signing_enabled": False})
        request.context["client_config"] = unsigned
        signer = self.auth.S3SigV4Auth(self.keys("AK", "S/K+="), "s3", "eu-central-1")
        with mock.patch.object(self.auth, "get_current_datetime", lambda: moment):
            signer.add_auth(request)
        return str(request.headers["Authorization"])

    @examples(200)
    @given(
        st.sampled_from(["GET", "PUT", "DELETE", "HEAD", "POST"]),
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20).filter(
            lambda key: not {".", ".."} & set(key.split("/"))
        ),
        st.dictionaries(
            st.sampled_from(["prefix", "uploadId", "a b", "ä", "list-type"]),
            st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12),
            max_size=3,
        ),
        st.dictionaries(
            st.sampled_from(["x-amz-meta-a", "X-Amz-Meta-B", "Content-Type"]),
            st.text("abc  ;=/ü", min_size=1, max_size=12),
            max_size=3,
        ),
        st.integers(0, 4_000_000_000),
    )
    def test_same(
        self, method: str, key: str, query: dict[str, str], headers: dict[str, str], now: int
    ) -> None:
        """Any request over https has the same signature, so no store can tell them apart."""
        path = "/bucket/" + escaped(key, safe="/")
        text = query_string(query.items())
        ours = signature_headers(
            method,
            path,
            text,
            [("Host", "store.example:9000"), *headers.items()],
            Credentials("AK", "S/K+=", "eu-central-1", "s3"),
            now,
        )
        url = f"https://store.example:9000{path}" + (f"?{text}" if text else "")
        self.assertEqual(dict(ours)["Authorization"], self.theirs(method, url, headers, now))
