"""Which version has which open sequence.

Owns that memory, which is bounded: a sequence that was pushed out, or whose version is gone, goes where new ones go.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from naiad.core.traffic.policy import SequenceId

MOST_OPEN = 10_000


class OpenSequences:
    """See the module."""

    __slots__ = ("_version_of",)

    def __init__(self) -> None:
        self._version_of: dict[SequenceId, int] = {}

    def __len__(self) -> int:
        return len(self._version_of)

    def choose(
        self, sequence_id: SequenceId, begin: Callable[[SequenceId], int], ready: Container[int], *, is_start: bool
    ) -> int:
        """Return the version for a request of a sequence: one that is open stays where it is as long as its version is `ready`,
        whatever the weights have become; others go where `begin` says.
        """
        version = None if is_start else self._version_of.get(sequence_id)
        return version if version is not None and version in ready else begin(sequence_id)

    def note(self, sequence_id: SequenceId, version: int, *, is_end: bool) -> None:
        """Note that `version` has accepted a request of a sequence, its last one or not."""
        if is_end:
            self._version_of.pop(sequence_id, None)
            return
        if sequence_id not in self._version_of and len(self._version_of) >= MOST_OPEN:
            del self._version_of[next(iter(self._version_of))]
        self._version_of[sequence_id] = version
