"""Credentials kept out of what is shown, where somebody else repeats them."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "***"


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Give a text without these credentials, wherever they stand in it as words of their own."""
    for secret in secrets:
        if secret:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
    return text
