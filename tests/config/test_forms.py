from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.config import forms
from twisted_gateway.config.faults import Wrong


class FormTests(TestCase):
    """What strings must look like."""

    def accept(self, form: Callable[[str], Any], values: dict[str, Any]) -> None:
        for text, value in values.items():
            self.assertEqual(form(text), value, text)

    def refuse(self, form: Callable[[str], Any], *texts: str) -> None:
        for text in texts:
            try:
                value = form(text)
            except Wrong as wrong:
                self.assertTrue(str(wrong).startswith("expected "), str(wrong))
            else:
                self.fail(f"{text!r} is taken as {value!r}")

    def test_base_url(self) -> None:
        """An engine's URL is http or https with a host; it is normalised."""
        self.accept(
            forms.base_url,
            {
                "http://reasoning.llm:8000": "http://reasoning.llm:8000",
                "HTTP://Reasoning:8000/": "http://reasoning:8000",
                "https://h/a/b//": "https://h/a/b",
                "http://[::1]:80": "http://[::1]:80",
                "http://h_1": "http://h_1",
            },
        )
        self.refuse(
            forms.base_url,
            *(
                "",
                "reasoning:8000",
                "http://",
                "http:///x",
                "ftp://h",
                "http://h:x",
                "http://h:99999",
            ),
            *(
                "http://h/v1",
                "http://h/a/v1/",
                "http://u:p@h",
                "http://@h",
                "http://h?q",
                "http://h/#",
                "http://h?",
                "http://h/a b",
            ),
            *(
                "http://h\n",
                "http://h\\x",
                "http://[::1",
                "http://[x]",
                "http://-h",
                "http://h/<x>",
            ),
            *("http://é", "//h", "http://h:-1"),
        )

    def test_url_hides_passwords(self) -> None:
        """The fault of a URL does not repeat it."""
        fault = self.assertRaises(Wrong, forms.base_url, "http://user:hunter2@host")
        self.assertNotIn("hunter2", str(fault))

    def test_engine_address(self) -> None:
        """Engines are told apart by scheme, host and port, the default one included."""
        self.accept(
            forms.engine_address,
            {
                "http://h": "http://h:80",
                "http://h:80/prefix": "http://h:80",
                "https://h": "https://h:443",
                "http://[::1]:8000": "http://[::1]:8000",
            },
        )

    def test_peer_address(self) -> None:
        """Replicas are told apart by host and port; an IPv6 address has brackets."""
        self.accept(
            forms.peer_address,
            {
                "10.0.0.1:8081": ("10.0.0.1", 8081),
                "Gateway-0.gateway.llm.svc:1": ("gateway-0.gateway.llm.svc", 1),
                "h_1:65535": ("h_1", 65535),
                "[FD00:0::1]:8081": ("fd00::1", 8081),
            },
        )
        self.refuse(
            forms.peer_address,
            *("", ":", "h", "h:", "h:0", "h:65536", "h:-1", "h:x", "h:08", "h:1 ", "h: 1", ":80"),
            *("[::1]", "[::1]:", "[::1]x:1", "::1:8081", "[::1:8081", "[h]:1", "[fe80::1%eth0]:1"),
            *("http://h:80", "h:80/", "u@h:80", "-h:80", "é:80", "h:٣", "h:1\n", "a,b:1", "h:1:2"),
        )

    def test_peer_address_says_what_is_missing(self) -> None:
        """A host without its port, or with one that cannot be, is told so."""
        for text in ("gateway", "[::1]"):
            fault = self.assertRaises(Wrong, forms.peer_address, text)
            self.assertIn("with the port", str(fault))
        fault = self.assertRaises(Wrong, forms.peer_address, "gateway:99999")
        self.assertEqual(str(fault), "expected a port from 1 to 65535")

    def test_peer_text(self) -> None:
        """An address is written as it was taken."""
        for text in ("10.0.0.1:8081", "[fd00::1]:8081", "gateway:1"):
            self.assertEqual(forms.peer_text(forms.peer_address(text)), text)

    def test_origin(self) -> None:
        """Origins are given as browsers spell them."""
        self.accept(
            forms.origin,
            {
                "*": "*",
                "https://Chat.example.com:443": "https://chat.example.com",
                "http://localhost:3000": "http://localhost:3000",
                "tauri://localhost": "tauri://localhost",
            },
        )
        self.refuse(
            forms.origin,
            *("", "null", "chat.example.com", "https://h/", "https://h/x", "https://u@h"),
            *("https://h?x", "https://*.h", "https://h:x", "1x://h"),
        )

    def test_network(self) -> None:
        """A proxy is an address or a network; a network with host bits is a slip."""
        self.accept(
            forms.network,
            {
                "10.0.0.0/8": ip_network("10.0.0.0/8"),
                "10.0.0.1": ip_network("10.0.0.1/32"),
                "fd00::/8": ip_network("fd00::/8"),
            },
        )
        self.refuse(forms.network, "", "x", "10.0.0", "10.0.0.1/8", "10.0.0.0/33", "::/129")

    def test_network_says_what_was_meant(self) -> None:
        """The network without its host bits is offered."""
        fault = self.assertRaises(Wrong, forms.network, "10.0.0.1/8")
        self.assertIn("10.0.0.0/8", str(fault))

    def test_paths(self) -> None:
        """Paths are absolute and without query; those of requests are as dispatch leaves them."""
        self.accept(forms.url_path, {"/": "/", "/rerank": "/rerank", "/a//b/": "/a//b/"})
        self.refuse(forms.url_path, "", "rerank", "/a?b", "/a#b", "/a b", "http://h/a", "/é")
        self.accept(forms.request_path, {"/v1/rerank": "/v1/rerank"})
        self.refuse(forms.request_path, "/v1/rerank/", "/v1//rerank", "/", "v1")

    def test_printable(self) -> None:
        """Names are printable, not empty, and do not begin or end with a space."""
        self.accept(forms.printable, {"ornith:35b": "ornith:35b", "a b": "a b", "模型": "模型"})
        self.refuse(forms.printable, "", " a", "a ", "a\nb", "a\x7f", "a\ud800", "a\u2028b", "\x85")

    def test_credential(self) -> None:
        """A credential cannot break a header; line breaks at its end are dropped."""
        self.accept(forms.credential, {"sk-1\n": "sk-1", "sk-1\r\n": "sk-1", "": "", "\n": ""})
        self.refuse(forms.credential, "a b", "a\nb", "é", "a\0", " ", "a\r\nX-Evil: 1")

    def test_file_path(self) -> None:
        """A path of the file system is not empty and has no NUL."""
        self.accept(forms.file_path, {"/secrets/x": "/secrets/x"})
        self.refuse(forms.file_path, "", "a\0b")

    def test_endpoint(self) -> None:
        """Endpoint strings are those that Twisted can parse, with possible ports."""
        for text in ("tcp:8080", "tcp:0:interface=127.0.0.1", "unix:/run/x", "tcp6:80"):
            self.assertEqual(forms.endpoint(text), text)
        self.refuse(
            forms.endpoint,
            *("", "8080", "tcp", "tcp:", "tcp:x", "tcp:99999", "tcp:-1", "tcp6:65536", "nope:1"),
            *("tcp:80:what=1", "tcp:80\n", "ssl:443:privateKey=/does/not/exist"),
        )

    @examples(60)
    @given(st.text(st.sampled_from("ah:.[]0189%fF- \n"), max_size=16))
    def test_any_peer(self, text: str) -> None:
        """Any text is an address that comes back from its own form, or `Wrong`."""
        try:
            address = forms.peer_address(text)
        except Wrong:
            return
        self.assertEqual(forms.peer_address(forms.peer_text(address)), address)

    @examples(60)
    @given(st.text(st.sampled_from("http:/[]@?#%.\n* 9aé\ud800"), max_size=20))
    def test_any_text(self, text: str) -> None:
        """No text gives anything but a value or `Wrong`."""
        for form in (forms.base_url, forms.origin, forms.network, forms.url_path, forms.printable):
            for prefix in ("", "http://"):
                try:
                    value = form(prefix + text)
                except Wrong:
                    continue
                self.assertEqual(form(str(value)), value, "a value is not its own form")
