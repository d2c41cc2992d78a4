"""What is wrong with a configuration, each mistake with the field it is about, and turning all of them into one error.

Owns the value and the error, so that a user sees every mistake at once. Doesn't own where a field stands: `config.positions`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from naiad.errors import invalid_argument

FieldPath = tuple[str | int, ...]
"""The way to a value: names of fields, indices of lists, keys of maps. `("input", 0, "dims", 1)`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake: `text` says what is wrong and what is allowed, `path` leads to the field, `advice` is what to do."""

    text: str
    path: FieldPath = ()
    advice: str = ""


def refuse(findings: Iterable[Finding]) -> None:
    """Raise INVALID_ARGUMENT with the texts of all `findings`, in their order, a single one as it is; nothing without any."""
    texts = list(dict.fromkeys(finding.text for finding in findings))
    if texts:
        raise invalid_argument(texts[0] if len(texts) == 1 else "\n".join([f"{len(texts)} mistakes:", *texts]))
