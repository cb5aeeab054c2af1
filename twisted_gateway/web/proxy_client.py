"""The client that requests go to an engine by."""

from __future__ import annotations

from typing import Any, cast

from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.web.http_headers import Headers
from twisted.web.iweb import IBodyProducer

from twisted_gateway.upstream.response import UpstreamResponse


class ProxyClient(HTTPClient):
    """treq's client without its browser manners: no cookies, no redirects, no decoding."""

    def request(  # type: ignore[override]
        self,
        method: str,
        url: str,
        *,
        headers: Headers,
        data: IBodyProducer | None = None,
        **options: Any,
    ) -> Deferred[UpstreamResponse]:
        """Send as it stands.

        Returns:
            Fires with the response when its head is there, its body unread; fails with an
            `UpstreamError`. Cancelling aborts the connection.
        """
        answer = self._agent.request(method.encode("ascii"), url.encode("ascii"), headers, data)
        return cast("Deferred[UpstreamResponse]", answer)
