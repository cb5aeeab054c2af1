"""Whether a 404 of a service is its own, or that of something in between, which knows nothing."""

from __future__ import annotations

from twisted_gateway.upstream.whole import WholeAnswer

_NO_ROUTE = (b"default backend - 404",)
"""What the default backend of Kubernetes' ingresses says.

What Traefik says (`404 page not found`) is what any service in Go says for what it has not.
"""


def says_absent(answer: WholeAnswer) -> bool:
    """Whether a service says that what it was asked for is not there.

    A page for people (HTML) says nothing of the kind, nor does what stands for an address without a
    service behind it: that is a proxy, or a service that has no such route. The services here have
    no format for their own 404; a proxy's that is empty, or JSON, cannot be told from it.
    """
    if answer.code != 404:
        return False
    body = answer.body.strip()
    types = answer.headers.getRawHeaders(b"Content-Type") or [b""]
    is_page = body.startswith(b"<") or types[0].lower().startswith(b"text/html")
    return not is_page and body not in _NO_ROUTE
