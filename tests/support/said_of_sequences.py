"""What a model is told of the requests of sequences, by each strategy: a table that holds for Naiad and for the real Triton."""

from __future__ import annotations

from typing import Any

from sequence_models import SequenceClient

_DTYPES = ["float32", "int32", "bool", "int32"]


def _of(sequence_id: int, flags: int, start: float, end: int, corrid: int, value: float) -> list[Any]:
    return [sequence_id, flags, True, start, end, corrid, _DTYPES, [1, 1], value]


_BLANK = [0, 0, False, 0.0, 0, 0, _DTYPES, [1, 1], None]

ASKED = ((5, 1, "S"), (6, 2, "S"), (6, 3, ""), (5, 4, ""), (2**33, 5, "S"), (6, 6, "E"), (5, 7, "S"), (5, 8, "E"))
"""Sequence, value and flags of each request."""

_OLDEST = (
    [_of(5, 1, 1.0, 0, 5, 1.0)],
    [_of(6, 1, 1.0, 0, 6, 2.0)],
    [_of(6, 0, 0.0, 0, 6, 3.0)],
    [_of(5, 0, 0.0, 0, 5, 4.0)],
    [_of(2**33, 1, 1.0, 0, 0, 5.0)],
    [_of(6, 2, 0.0, 7, 6, 6.0)],
    [_of(5, 1, 1.0, 0, 5, 7.0)],
    [_of(5, 2, 0.0, 7, 5, 8.0)],
)
_POSITIONS = (0, 1, 1, 0, 2, 1, 0, 0)
EXPECTED = {
    "direct { }": tuple([_BLANK] * position + batch for position, batch in zip(_POSITIONS, _OLDEST)),
    "oldest { }": _OLDEST,
}
REFUSED = {
    (7, 3, ""): "inference request for sequence 7 to model 'tell' must specify the START flag on the first request",
    (0, 3, ""): "inference request to model 'tell' must specify a non-zero or non-empty correlation ID",
}


def ask_all(client: SequenceClient) -> tuple[list[list[Any]], ...]:
    """Send every request of `ASKED` and return what the model was told each time."""
    return tuple(client.told(*asked) for asked in ASKED)
