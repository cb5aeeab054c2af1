from __future__ import annotations

from tests.config.loading import LoadingTestCase
from twisted_gateway.config.load import load
from twisted_gateway.config.schema import Peers
from twisted_gateway.core.policy import Replicas

TOKEN = "0123456789abcdef"
FORMS = "a whole number from 1 to 64, dns:HOST:PORT or a list of HOST:PORT"
NEEDED = (
    "expected the token that the replicas share, of at least 16 characters: "
    "models.m.admission.replicas (line {line}) gives addresses"
)


class ReplicasTests(LoadingTestCase):
    """How many gateways are in front of an engine, or where."""

    def replicas(self, text: str, environ: dict[str, str] | None = None) -> Replicas:
        config = self.load(f"peers: {{token: {TOKEN}}}\n" + self.vllm(f"replicas: {text}"), environ)
        return config.models["m"].policy.replicas

    def assertRefused(self, text: str, expected: str, key: str = "") -> None:
        self.assertFaults(
            f"peers: {{token: {TOKEN}}}\n" + self.vllm(f"replicas: {text}"),
            f"f.yaml: line 2: models.m.admission.replicas{key}: expected {expected}",
        )

    def test_numbers(self) -> None:
        """A number is how many there are; one where nothing is said."""
        self.assertEqual(self.load(self.vllm("")).models["m"].policy.replicas, Replicas())
        for count in (1, 3, 64):
            self.assertEqual(self.replicas(str(count)), Replicas(count=count))

    def test_name(self) -> None:
        """A name stands for all of them."""
        self.assertEqual(
            self.replicas("dns:Gateway.llm.svc:8081"), Replicas(dns=("gateway.llm.svc", 8081))
        )

    def test_list(self) -> None:
        """A list has the address of each, and what order it has does not matter."""
        self.assertEqual(
            self.replicas("[b:8081, 10.0.0.1:9, '[FD00::1]:8081']"),
            Replicas(addresses=(("10.0.0.1", 9), ("b", 8081), ("fd00::1", 8081))),
        )

    def test_references(self) -> None:
        """Each form may come from the environment, a list item by item."""
        environ = {"N": "3", "D": "dns:gateway:1", "A": "a:1"}
        self.assertEqual(self.replicas("'${N}'", environ), Replicas(count=3))
        self.assertEqual(self.replicas("'${D}'", environ), Replicas(dns=("gateway", 1)))
        self.assertEqual(self.replicas("['${A}']", environ), Replicas(addresses=(("a", 1),)))

    def test_no_such_number(self) -> None:
        """What is no number of replicas is told all that there may be."""
        for text in ("0", "-1", "65", "1.5", "2.0", "1e1", "true", "auto", "0x3"):
            self.assertRefused(text, f"{FORMS}, not {text}")
        self.assertRefused("'3'", f'{FORMS}, not the string "3"')
        self.assertRefused("", f"{FORMS}, not nothing")
        self.assertRefused("{count: 3}", f"{FORMS}, not a mapping")

    def test_one_address_alone(self) -> None:
        """An address is one of a list, or has dns: before it."""
        self.assertRefused("gateway:8081", f"{FORMS}, not gateway:8081")

    def test_bad_name(self) -> None:
        """A name needs its port."""
        missing = "HOST:PORT, with the port of the replicas' peers.listen, after dns:"
        self.assertRefused("dns:gateway", missing)
        self.assertRefused("'dns:gateway:'", missing)
        self.assertRefused("dns:gateway:0", "a port from 1 to 65535, after dns:")
        for text in ("dns::1:8081", "dns://gateway:8081", "'dns:'"):
            self.assertRefused(
                text, "HOST:PORT such as 10.0.0.1:8081 or [fd00::1]:8081, after dns:"
            )

    def test_bad_items(self) -> None:
        """Each item of a list has a place of its own."""
        for text, expected in {
            "gateway": "HOST:PORT, with the port of the replicas' peers.listen",
            "gateway:0": "a port from 1 to 65535",
            "gateway:65536": "a port from 1 to 65535",
            "gateway:http": "a port from 1 to 65535",
            "'::1:8081'": "HOST:PORT such as 10.0.0.1:8081 or [fd00::1]:8081",
            "http://gateway:8081": "HOST:PORT such as 10.0.0.1:8081 or [fd00::1]:8081",
            "dns:gateway:8081": "HOST:PORT such as 10.0.0.1:8081 or [fd00::1]:8081",
            "8081": "HOST:PORT: put quotes round it, if it is one",
            "[a]": "HOST:PORT, not a list",
        }.items():
            self.assertRefused(f"[a:1, {text}]", expected, "[1]")

    def test_item_twice(self) -> None:
        """No replica stands twice, however it is spelt."""
        for text in ("[a:1, A:1]", "['[::1]:1', '[0::1]:1']"):
            self.assertRefused(
                text,
                "each only once, and models.m.admission.replicas[0] is the same",
                "[1]",
            )

    def test_how_many(self) -> None:
        """A list is not empty, and no longer than the exchange bears."""
        self.assertRefused("[]", "at least 1 in the list of HOST:PORT")
        items = [f"a:{port}" for port in range(1, 66)]
        self.assertRefused(f"[{', '.join(items)}]", "at most 64 in the list of HOST:PORT")
        self.assertEqual(len(self.replicas(f"[{', '.join(items[:64])}]").addresses), 64)


class PeersTests(LoadingTestCase):
    """The listener of the exchange, and its token."""

    def exchanging(self, peers: str) -> str:
        return f"{peers}\n" + self.vllm("replicas: [a:1, b:1]")

    def test_defaults(self) -> None:
        """Without replicas to ask there is a place for the listener, and no token."""
        config = self.load(self.vllm("replicas: 3"))
        self.assertEqual(config.peers, Peers(listen="tcp:8081", token=None))
        self.assertFalse(config.exchanges)

    def test_values(self) -> None:
        """What the file gives goes where it belongs."""
        config = self.load(self.exchanging(f"peers: {{listen: tcp:9, token: {TOKEN}}}"))
        assert config.peers.token is not None
        self.assertEqual((config.peers.listen, config.peers.token.value), ("tcp:9", TOKEN))
        self.assertTrue(config.exchanges)
        self.assertEqual(config.sources["peers.listen"], "f.yaml line 1")

    def test_token_from_a_file(self) -> None:
        """The token may stand in a mounted file."""
        self.files = {"/secrets/peers": TOKEN + "\n"}
        config = self.load(self.exchanging("peers: {token: {file: /secrets/peers}}"))
        assert config.peers.token is not None
        self.assertEqual(config.peers.token.value, TOKEN)

    def test_listen(self) -> None:
        """The listener is one endpoint."""
        self.assertFaults(
            f"peers:\n  token: {TOKEN}\n  listen: [tcp:9]\n" + self.vllm(""),
            "f.yaml: line 3: peers.listen: expected a Twisted server endpoint such as tcp:8080, "
            "not a list",
        )
        self.assertFaults(
            "peers: {listen: 9}\n" + self.vllm(""),
            "f.yaml: line 1: peers.listen: expected a Twisted server endpoint such as tcp:8080: "
            "put quotes round it, if it is one",
        )

    def test_listener_of_its_own(self) -> None:
        """The listener that is opened is none of the others."""
        fault = "peers.listen: expected another endpoint than those of listen and adminListen"
        peers = f"peers:\n  token: {TOKEN}\n  listen: tcp:8080"
        self.assertFaults(self.exchanging(peers), f"f.yaml: line 3: {fault}")
        self.assertFaults(
            self.exchanging(f"adminListen: [tcp:8081]\npeers: {{token: {TOKEN}}}"),
            f"f.yaml: line 2: {fault}",
        )
        self.load("listen: [tcp:8081]\n" + self.vllm("replicas: 3"))

    def test_no_token(self) -> None:
        """An exchange without a token is refused, at the nearest line that there is."""
        needed = NEEDED.format(line=2)
        self.assertFaults(
            "\n" + self.vllm("replicas: dns:a:1"), f"f.yaml: line 2: peers.token: {needed}"
        )
        self.assertFaults(
            self.exchanging("peers: {listen: tcp:9}"), f"f.yaml: line 1: peers.token: {needed}"
        )

    def test_empty_token(self) -> None:
        """A token that comes out empty is none, which does no harm without an exchange."""
        self.files = {"/empty": "\n"}
        for text in ("''", "'${PEER_TOKEN:-}'", "{file: /empty}"):
            peers = f"peers:\n  token: {text}"
            self.assertFaults(
                self.exchanging(peers),
                f"f.yaml: line 2: peers.token: {NEEDED.format(line=3)}",
            )
            self.assertIsNone(self.load(f"{peers}\n" + self.vllm("replicas: 3")).peers.token)

    def test_short_token(self) -> None:
        """A short token is refused, exchange or not, and is not shown."""
        self.files = {"/short": "hunter2\n"}
        for text in ("hunter2", "hunter2-hunter2", "{file: /short}", "'${T}'"):
            for replicas in ("3", "[a:1]"):
                self.assertFaults(
                    f"peers: {{token: {text}}}\n" + self.vllm(f"replicas: {replicas}"),
                    "f.yaml: line 1: peers.token: expected at least 16 characters",
                    environ={"T": "hunter2"},
                )

    def test_faulty_token(self) -> None:
        """A token that cannot be read is one fault, not one more for its absence."""
        for text in ("{file: /none}", "'${T}'", "[x]"):
            error = self.refused(self.exchanging(f"peers: {{token: {text}}}"))
            self.assertEqual(len(error.faults), 1)
        self.assertFaults(
            self.exchanging("peers: tcp:9"),
            "f.yaml: line 1: peers: expected a mapping, not a single value",
        )

    def test_never_shown(self) -> None:
        """No repr of the configuration has the token."""
        text = self.exchanging("peers: {token: hunter2-hunter2-hunter2}")
        config = load(text, name="f", environ={}, read_file=lambda path: "")
        self.assertNotIn("hunter2", repr(config))

    def test_no_gate(self) -> None:
        """Where nothing is gated nothing is exchanged, and no token is needed."""
        text = self.vllm("replicas: [a:1]")
        self.assertFalse(self.load(text, {"ADMISSION_OBSERVE_MODELS": ""}).exchanges)
        text = self.model("engine: tei, admission: {replicas: [a:1]}")
        self.assertFalse(self.load(text).exchanges)
        text = self.model("engine: tei, admission: {replicas: [a:1], maxInflight: 2}")
        self.assertIn("peers.token", str(self.refused(text)))

    def test_one_of_several_models(self) -> None:
        """The model that needs the token is named."""
        self.assertFaults(
            "models:\n  a: {upstream: http://a, engine: vllm}\n"
            "  m:\n    upstream: http://m\n    engine: vllm\n    admission:\n"
            "      replicas: [a:1]\n",
            f"f.yaml: line 7: peers.token: {NEEDED.format(line=7)}",
        )
