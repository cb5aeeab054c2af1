"""Whom the gateway believes: each way to believe too many is noticed."""

from __future__ import annotations

from tests.k8s import trust
from tests.k8s.breaking import configure
from tests.k8s.overlays import overlay
from tests.k8s.policies import Policy
from tests.support import TestCase


class BrokenTests(TestCase):
    """Each policy notices what it is for."""

    def test_tenants(self) -> None:
        """All the world is a proxy, or each client says itself who it is."""
        policy = trust.tenants
        for given, said in (
            ("0.0.0.0/0", "0.0.0.0/0 is not a proxy's"),
            ("0.0.0.0/1", "0.0.0.0/1 is not a proxy's"),
            ("198.41.0.0/16", "198.41.0.0/16 is not a proxy's"),
            ("'::/0'", "::/0 is not a proxy's"),
        ):
            self.assertFault(
                policy, "trustedProxies: [10.244.0.0/16]", f"trustedProxies: [{given}]", said
            )
        self.assertFault(
            policy, "from: [subject, address]", "from: [subject, header, address]", "X-Tenant"
        )

    def test_tokens(self) -> None:
        """A legacy route, and a service, for everybody."""
        policy = trust.tokens
        self.assertFault(
            policy,
            "  - path: /memory\n",
            "  - path: /memory\n    requireAuth: false\n",
            "the route /memory is anybody's",
        )
        self.assertFault(
            policy, "  memory:\n", "  memory:\n    requireAuth: false\n", "the service memory is"
        )

    def assertFault(self, policy: Policy, old: str, new: str, said: str) -> None:
        """The policy says so of an overlay whose file was changed."""
        objects = overlay("homelab").objects
        self.assertEqual(list(policy(objects)), [])
        self.assertIn(said, "\n".join(policy(objects.changed(configure(old, new)))))
