"""A model's version as a text of a message.

Owns what may stand there.
"""

from __future__ import annotations

from naiad.errors import invalid_argument

_MOST_VERSION_DIGITS = 18


def check_version(text: str) -> str:
    """Return a version's digits without leading zeros, "" for the latest. Raises INVALID_ARGUMENT for what is no number."""
    if not text:
        return ""
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_VERSION_DIGITS and int(text)):
        raise invalid_argument(
            f"failed to get model version from specified version string '{text[:50]}', version should be an integral value > 0"
        )
    return str(int(text))
