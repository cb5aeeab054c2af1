"""Keeps credentials out of what is said, whoever repeats them and wherever a text was cut."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from twisted_gateway.core.redaction import MASK, redacted

CUT = "…"
"""With which a text ends that goes on where it was taken from."""
# Of a credential's beginning, how much may be shown: many begin alike (`eyJ`, `sk-`).
_MOST_SHOWN = 3


class Redactor:
    """Masks credentials in texts."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Take the credentials that are known at first."""
        self._secrets = {*secrets} - {""}

    def add(self, secret: str) -> None:
        """Mask this too, from here on."""
        self._secrets.add(secret)

    def __call__(self, text: str) -> str:
        """Give a text without credentials, nor the beginning of one where it was cut."""
        text = redacted(text, self._secrets)
        if not text.endswith(CUT):
            return text
        text = text.removesuffix(CUT)
        begun = self._begun(text)
        return (f"{text[:-begun]}{MASK}" if begun else text) + CUT

    def _begun(self, text: str) -> int:
        """Give how many characters at the end are the beginning of a credential, in any form."""
        return max(
            (
                length
                for secret in self._secrets
                for form in {secret, quote(secret, ""), quote_plus(secret)}
                for length in range(_MOST_SHOWN + 1, len(form))
                if text.endswith(form[:length])
            ),
            default=0,
        )


def nothing_known(text: str) -> str:
    """Give a text as it is: where no credentials were sent none can come back."""
    return text
