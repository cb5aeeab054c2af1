"""What the gateway shows the Kubernetes API, and what it checks the API's certificate by.

Kubernetes rotates both while a pod runs: the token after about an hour, and a token that was read
once would be refused from then on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from OpenSSL.crypto import Error as CryptoError
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IReactorTime
from twisted.internet.ssl import Certificate, trustRootFromCertificates
from twisted.web.client import BrowserLikePolicyForHTTPS
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.upstream.errors import ConnectFailed

REREAD_SECONDS = 60.0
"""How long a token is used before its file is read again."""
MOST_FILE_BYTES = 262_144

_END = b"-----END CERTIFICATE-----"


def read_file(path: str) -> bytes:
    """Read a mounted file, which is small and in memory.

    Raises:
        OSError: it cannot be read, or is not small.
    """
    with Path(path).open("rb") as file:
        content = file.read(MOST_FILE_BYTES + 1)
    if len(content) > MOST_FILE_BYTES:
        raise OSError("it is too large")
    return content


class Token:
    """The bearer token for the API: the one that is configured, or the service account's.

    Args:
        adapter: says which.
        clock: for the time between two looks.
    """

    def __init__(self, adapter: SessionsAdapter, clock: IReactorTime) -> None:
        """Have read nothing yet."""
        self._fixed = None if adapter.token is None else adapter.token.value
        self._path = os.path.join(adapter.service_account, "token")
        self._clock = clock
        self._text = ""
        self._until = 0.0

    def get(self) -> str:
        """Give the token.

        Raises:
            ConnectFailed: there is none that can be read.
        """
        if self._fixed is not None:
            return self._fixed
        if not self._text or self._clock.seconds() >= self._until:
            self._text = self._read()
            self._until = self._clock.seconds() + REREAD_SECONDS
        return self._text

    def refused(self, text: str) -> bool:
        """The API does not accept this token; says whether there is another by now."""
        self._until = 0.0
        return self.get() != text

    def _read(self) -> str:
        try:
            text = read_file(self._path).decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise ConnectFailed("the service account's token cannot be read") from None
        if not text or not text.isprintable() or " " in text:
            raise ConnectFailed("the service account's token is none")
        return text


@implementer(IPolicyForHTTPS)
class ClusterTrust:
    """Checks the API's certificate by the cluster's own, which may be several.

    Args:
        path: the file with them, read for each connection.
    """

    def __init__(self, path: str) -> None:
        """Have read nothing yet."""
        self._path = path
        self._content = b""
        self._policy: BrowserLikePolicyForHTTPS | None = None

    def creatorForNetloc(self, hostname: bytes, port: int) -> IOpenSSLClientConnectionCreator:
        """Make what checks that the peer is `hostname`, by a certificate of the cluster's.

        Raises:
            ConnectFailed: there are none that can be read.
        """
        try:
            content = read_file(self._path)
            if self._policy is None or content != self._content:
                self._policy = BrowserLikePolicyForHTTPS(_root(content))
                self._content = content
        except (OSError, CryptoError, ValueError):
            raise ConnectFailed("the cluster's certificates cannot be read") from None
        creator: IOpenSSLClientConnectionCreator = self._policy.creatorForNetloc(hostname, port)
        return creator


def trust(adapter: SessionsAdapter) -> ClusterTrust:
    """Give what the API's certificate is checked by."""
    return ClusterTrust(adapter.ca or os.path.join(adapter.service_account, "ca.crt"))


def _root(content: bytes) -> Any:
    blocks = [block + _END for block in content.split(_END)[:-1]]
    if not blocks:
        raise ValueError("no certificate")
    return trustRootFromCertificates([Certificate.loadPEM(block) for block in blocks])
