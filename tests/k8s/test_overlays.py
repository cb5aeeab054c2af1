"""The overlays' configurations load, by their files alone: for whoever has no kubectl."""

from __future__ import annotations

from tests.k8s import availability, policies, routing, trust
from tests.k8s.objects import Objects
from tests.k8s.overlays import overlay, overlays, sound
from tests.support import TestCase
from twisted_gateway.config.faults import ConfigError

# What needs no more than the configuration, the environment and the Secrets.
POLICIES = (
    # First: a key that is not there is said more clearly here than by the configuration.
    policies.secrets,
    policies.environment,
    policies.configuration,
    policies.coupled,
    policies.resources,
    availability.drain,
    routing.ports,
    trust.tenants,
    trust.tokens,
)


class ConfigTests(TestCase):
    """config.yaml of each overlay."""

    def test_sound(self) -> None:
        """It loads without a warning, and agrees with environment, Secrets and ports."""
        for each in overlays():
            for policy in POLICIES:
                sound(each, policy(each.objects))

    def test_variables(self) -> None:
        """The patches are found: what they set is in force."""
        environ = overlay("example").objects.environ
        self.assertEqual(environ["ADMISSION_OBSERVE_MODELS"], "chat")
        models = overlay("homelab").objects.config.models.values()
        (gated,) = [one for one in models if one.gated]
        self.assertEqual(gated.policy.max_queue_depth, 8)

    def test_secrets(self) -> None:
        """A key that the Secret lacks is a fault of the file."""
        changed: Objects = overlay("homelab").objects.changed(
            lambda o: o.one("SopsSecret")["spec"]["secretTemplates"][0]["stringData"].pop(
                "gotify-token"
            )
        )
        fault = self.assertRaises(ConfigError, lambda: changed.config)
        self.assertIn("adapters.notification.token", str(fault))
