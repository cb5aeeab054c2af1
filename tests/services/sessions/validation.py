"""What a kube-apiserver refuses of an object, apart from who sends it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]

from twisted_gateway.config.sandbox import amount

VERSION: str = kubernetes_validate.latest_version()
"""The newest schemas that are here."""
_QUANTITY = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
# Of objects that differ in nothing but these one is looked at.
_ANY = re.compile(
    r'(-session-|"SESSION_ID", "value": "|Time": "|resourceVersion": "|holderIdentity": ")[^"]+'
)
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


class Invalid(Exception):
    """An object that is refused.

    Attributes:
        status: 400, 403 or 422.
        reason: the word for it.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


def check(tree: dict[str, Any]) -> None:
    """See to it that an object may be stored; raises `Invalid`."""
    for path, value in _quantities(tree.get("spec") or {}, ""):
        if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
            raise Invalid(
                400,
                "BadRequest",
                f"{tree['kind']} in version {tree['apiVersion']!r} cannot be handled: {path}: "
                "quantities must match the regular expression "
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            )
    wrong = _wrong(_ANY.sub(r"\1x", json.dumps(tree, sort_keys=True)))
    if wrong:
        raise Invalid(422, "Invalid", wrong)
    name = tree["metadata"]["name"]
    if tree["kind"] == "Service":
        good = len(name) <= 63 and _LABEL_1035.fullmatch(name)
    else:
        good = len(name) <= 253 and _SUBDOMAIN.fullmatch(name)
    if not good:
        raise Invalid(422, "Invalid", f"metadata.name: Invalid value: {name!r}")
    for value in (tree["metadata"].get("labels") or {}).values():
        if len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
            raise Invalid(422, "Invalid", f"metadata.labels: Invalid value: {value!r}")
    if tree["kind"] == "Pod":
        _check_pod(tree["spec"])


@lru_cache(maxsize=1024)
def _wrong(text: str) -> str:
    """Say what the published schema has against an object; a look takes a tenth of a second."""
    try:
        kubernetes_validate.validate(json.loads(text), VERSION, strict=True)
    except kubernetes_validate.ValidationError as fault:
        return str(fault)[:500]
    return ""


def _check_pod(spec: dict[str, Any]) -> None:
    volumes = {one["name"] for one in spec.get("volumes", ())}
    for container in spec["containers"]:
        limits = container["resources"]["limits"]
        for name, asked in container["resources"]["requests"].items():
            if name in limits and amount(asked) > amount(limits[name]) > Decimal(0):
                raise Invalid(422, "Invalid", f"requests: must be at most {name} limit")
        for mount in container["volumeMounts"]:
            if mount["name"] not in volumes:
                raise Invalid(422, "Invalid", f"volumeMounts: Not found: {mount['name']!r}")
        ports = {one["name"] for one in container["ports"]}
        probed = container["readinessProbe"]["tcpSocket"]["port"]
        if isinstance(probed, str) and probed not in ports:
            raise Invalid(422, "Invalid", "readinessProbe: no such port")
        _check_restricted(spec, container)


def _check_restricted(spec: dict[str, Any], container: dict[str, Any]) -> None:
    """The Pod Security Standard `restricted`, as a namespace's label has it enforced."""
    own, pods = container["securityContext"], spec["securityContext"]
    wrong = []
    if own.get("allowPrivilegeEscalation") is not False:
        wrong.append("allowPrivilegeEscalation != false")
    if own.get("capabilities", {}).get("drop") != ["ALL"]:
        wrong.append("unrestricted capabilities")
    if not own.get("runAsNonRoot", pods.get("runAsNonRoot")):
        wrong.append("runAsNonRoot != true")
    if own.get("seccompProfile", pods.get("seccompProfile")) != {"type": "RuntimeDefault"}:
        wrong.append("seccompProfile")
    if wrong:
        raise Invalid(403, "Forbidden", f'violates PodSecurity "restricted": {", ".join(wrong)}')


def check_applied(tree: Any, path: str = "") -> None:
    """Server-side apply tells ports apart by `protocol` too; raises `Invalid`."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name == "ports" and any("protocol" not in one for one in value):
                raise Invalid(
                    500,
                    "InternalError",
                    f"{path}.ports: element 0: associative list with keys has an element that "
                    'omits key field "protocol"',
                )
            check_applied(value, f"{path}.{name}")
    elif isinstance(tree, list):
        for value in tree:
            check_applied(value, path)


def _quantities(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        for name, value in tree.items():
            place = f"{path}.{name}"
            if name in ("requests", "limits") and isinstance(value, dict):
                yield from ((f"{place}.{key}", one) for key, one in value.items())
            elif name == "sizeLimit":
                yield place, value
            else:
                yield from _quantities(value, place)
    elif isinstance(tree, list):
        for value in tree:
            yield from _quantities(value, path)
