"""What is wrong with a configuration, each mistake with the field it is about, and turning all of them into one error.

Owns the value and the error, so that a user sees every mistake at once. Doesn't own where a field stands: `config.positions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from naiad.errors import Code, InferenceServerError

FieldPath = tuple[str | int, ...]
"""The way to a value: names of fields, indices of lists, keys of maps. `("input", 0, "dims", 1)`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake: `text` says what is wrong and what is allowed, `path` leads to the field, `advice` is what to do."""

    text: str
    path: FieldPath = ()
    advice: str = ""


class MistakesError(InferenceServerError):
    """All of `findings`, of which there is one at least, in one error: their texts in their order, a single one as it is."""

    def __init__(self, findings: Iterable[Finding], code: Code = Code.INVALID_ARGUMENT) -> None:
        self.findings = tuple(findings)
        texts = list(dict.fromkeys(finding.text for finding in self.findings))
        super().__init__(code, texts[0] if len(texts) == 1 else "\n".join([f"{len(texts)} mistakes:", *texts]))


def refuse(findings: Iterable[Finding]) -> None:
    """Raise MistakesError (INVALID_ARGUMENT) with all `findings`; nothing without any."""
    found = tuple(findings)
    if found:
        raise MistakesError(found)


@contextmanager
def about(path: FieldPath) -> Iterator[None]:
    """Let what is raised inside be about a field, unless it says itself what it is about."""
    try:
        yield
    except MistakesError:
        raise
    except InferenceServerError as error:
        raise MistakesError([Finding(error.message, path)], error.code) from error
