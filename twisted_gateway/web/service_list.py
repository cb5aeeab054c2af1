"""What `GET /v1/services` says of an adapter: what there is, and what of it the caller may use."""

from __future__ import annotations

from typing import Any

from twisted_gateway.auth.guard import Guard
from twisted_gateway.auth.token import Principal
from twisted_gateway.config.schema import Adapter
from twisted_gateway.services.adapter import BodyUse, Operation
from twisted_gateway.web.catalogue import Configured


def described(configured: Configured, guard: Guard, principal: Principal | None) -> dict[str, Any]:
    """Describe an adapter to a caller; its addresses and keys are nobody's business.

    Args:
        configured: the adapter.
        guard: knows the scopes that it takes.
        principal: whom the caller's token speaks for; None for a caller without one.
    """
    adapter = configured.adapter
    return {
        "kind": adapter.kind,
        "require_auth": adapter.require_auth,
        "max_body_bytes": adapter.max_body_bytes,
        "resources": {
            resource: {
                "allowed": _allowed(adapter, resource, guard, principal),
                "methods": {method: _operation(one) for method, one in methods.items()},
            }
            for resource, methods in configured.service.operations.items()
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    return {
        "parameters": [
            {"name": one.name, "required": one.required} for one in operation.parameters
        ],
        "json_body": operation.body is BodyUse.FIELDS,
    }


def _allowed(adapter: Adapter, resource: str, guard: Guard, principal: Principal | None) -> bool:
    if not adapter.require_auth:
        return True
    return principal is not None and guard.scopes(adapter.name, resource) <= principal.scopes
