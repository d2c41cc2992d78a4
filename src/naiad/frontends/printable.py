"""Texts for clients: names of files and words of models need not be valid Unicode, what is sent has to be.

Owns how such a text is shown.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return `text` with escapes for what isn't valid Unicode."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
