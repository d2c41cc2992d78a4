"""Turning what is wrong with a configuration into one error, so that a user sees every mistake at once."""

from __future__ import annotations

from collections.abc import Iterable

from naiad.errors import invalid_argument


def refuse(findings: Iterable[str]) -> None:
    """Raise INVALID_ARGUMENT with all `findings`, in their order, a single one as it is; nothing when there are none."""
    texts = list(dict.fromkeys(findings))
    if texts:
        raise invalid_argument(texts[0] if len(texts) == 1 else "\n".join([f"{len(texts)} mistakes:", *texts]))
