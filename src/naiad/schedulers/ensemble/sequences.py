"""The sequence that a step's request belongs to: the client's, or the one that a step before has named in its response.

Owns the parameters of a response that say so. Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping

from naiad.request.call import Parameter
from naiad.request.request import Sequence

SEQUENCE_PARAMETERS = frozenset({"sequence_id", "sequence_start", "sequence_end"})


def sequence_after(before: Sequence | None, parameters: Mapping[str, Parameter]) -> Sequence | None:
    """Return the sequence for what reads the tensors of a response: `before`, the step's own, as its parameters change it.

    A value that is none of an id (a whole number or a text) or a flag (true or false) changes nothing.
    """
    if not SEQUENCE_PARAMETERS & parameters.keys():
        return before
    number = parameters.get("sequence_id")
    if isinstance(number, bool) or not isinstance(number, (int, str)):
        number = before.id if before is not None else 0
    if not number:
        return None
    start, end = parameters.get("sequence_start"), parameters.get("sequence_end")
    return Sequence(
        number,
        start if isinstance(start, bool) else before is not None and before.is_start,
        end if isinstance(end, bool) else before is not None and before.is_end,
    )


def response_parameters(sequence: Sequence | None, parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return the parameters of an ensemble's response: those of its steps' models, and the sequence where there is one."""
    others = {name: value for name, value in parameters.items() if name not in SEQUENCE_PARAMETERS}
    if sequence is None:
        return others
    flags = {"sequence_id": sequence.id, "sequence_start": sequence.is_start, "sequence_end": sequence.is_end}
    return {**flags, **others}
