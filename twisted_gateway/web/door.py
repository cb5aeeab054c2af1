"""Who is let in: the process must not be draining, and a token be good where one is needed."""

from __future__ import annotations

from collections.abc import Callable

from twisted_gateway.auth.guard import Guard
from twisted_gateway.auth.refusals import insufficient_scope
from twisted_gateway.auth.token import Principal
from twisted_gateway.web.catalogue import Target
from twisted_gateway.web.problems import draining
from twisted_gateway.web.request import GatewayRequest


class Door:
    """Lets requests to services in.

    Args:
        guard: judges tokens.
        name_tenant: notes in the exchange who a request counts as.
        is_draining: whether the process is shutting down.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        name_tenant: Callable[[GatewayRequest], object],
        is_draining: Callable[[], bool],
    ) -> None:
        """Take what the class documents."""
        self.guard = guard
        self._name_tenant = name_tenant
        self._is_draining = is_draining

    async def admit(
        self, request: GatewayRequest, target: Target | None = None, *, require_auth: bool = False
    ) -> None:
        """Let in who may, and note who it is.

        Args:
            request: whose.
            target: the operation that it asks for, whose adapter may require a token and scopes.
            require_auth: whether a token is required whatever the adapter says.

        Raises:
            Problem: 401, 403, 503.
        """
        if self._is_draining():
            raise draining()
        if require_auth or (target is not None and target.adapter.require_auth):
            needed = self._scopes(target)
            principal = await self.principal(request)
            if not needed <= principal.scopes:
                raise insufficient_scope(needed)
        self._name_tenant(request)

    def _scopes(self, target: Target | None) -> frozenset[str]:
        if target is None:
            return frozenset()
        return self.guard.scopes(target.adapter.name, target.resource)

    async def principal(self, request: GatewayRequest) -> Principal:
        """Judge a request's token.

        Raises:
            Problem: 401, 503.
        """
        fields = request.requestHeaders.getRawHeaders(b"Authorization", [])
        principal = await self.guard.principal(fields)
        request.exchange.subject = principal.subject
        request.make_private()
        return principal

    async def admit_anybody(self, request: GatewayRequest) -> Principal | None:
        """Let in anybody, and judge the token that is there all the same.

        Returns:
            Whom it speaks for; None where there is none. Without `auth` what is there is somebody
            else's credential, such as an engine's key.

        Raises:
            Problem: 401, 503.
        """
        principal = None
        if self.guard.accepts_tokens and request.requestHeaders.hasHeader(b"Authorization"):
            principal = await self.principal(request)
        self._name_tenant(request)
        return principal
