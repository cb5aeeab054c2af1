"""What a session's things are called, and which ids may name one."""

from __future__ import annotations

import re

from twisted_gateway.services.adapter import BadParameter

POD_PREFIX = "pi-session-"
CLAIM_PREFIX = "workspace-session-"
POLICY = "pi-session-sandbox"
"""The one NetworkPolicy of all sandboxes, and the value of the label that it selects them by."""
LEASE = "pi-session-reaper"
"""The Lease of the replica that removes what has ended."""

MOST_CHARACTERS = 63 - len(CLAIM_PREFIX)
"""How long an id may be: every name that is made of it is a DNS label too, of 63 characters."""

_ID = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def session_id(text: str) -> str:
    """Take a session's id: a DNS label (RFC 1123), for others would lead elsewhere in a path.

    Raises:
        BadParameter: it is none, or too long for the names that are made of it.
    """
    if len(text) > MOST_CHARACTERS or not _ID.fullmatch(text):
        raise BadParameter(
            "a DNS label: lower-case letters, digits and '-', a letter or digit at both ends, "
            f"at most {MOST_CHARACTERS} characters"
        )
    return text


def pod_name(session: str) -> str:
    """Give the name of a session's pod, which is that of its Service."""
    return POD_PREFIX + session


def claim_name(session: str) -> str:
    """Give the name of the PersistentVolumeClaim of a session's workspace."""
    return CLAIM_PREFIX + session


def service_dns(session: str, namespace: str, cluster_domain: str) -> str:
    """Give the DNS name of a session's Service."""
    return f"{pod_name(session)}.{namespace}.svc.{cluster_domain}"
