"""The control tensors of a sequence model: what it is told of each request beside the client's tensors.

Owns their values. Doesn't own sequences: callers say what is to be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from naiad.config.plan import ControlKind, ControlPlan, ModelPlan
from naiad.errors import invalid_argument
from naiad.request.request import Sequence
from naiad.tensor.datatype import BYTES

Array = np.ndarray[Any, Any]


class ControlTensors:
    """Makes the control tensors of one model version; each has one element, of shape [1, 1] when the model batches and [1]
    otherwise. Those that are true or false are made once.
    """

    __slots__ = ("_flags", "_id", "_model", "_shape")

    def __init__(self, plan: ModelPlan) -> None:
        batching = plan.sequence_batching
        assert batching is not None
        self._model = plan.name
        self._shape = (1, 1) if plan.is_batching else (1,)
        self._id = next((control for control in batching.controls if control.kind is ControlKind.CORRID), None)
        flags = [control for control in batching.controls if control.values is not None]
        self._flags = {
            (start, end, ready): {control.tensor.name: self._flag(control, start, end, ready) for control in flags}
            for start, end, ready in product((False, True), repeat=3)
        }

    def check_id(self, sequence: Sequence) -> None:
        """Raise INVALID_ARGUMENT when the correlation id can't be told: a text for a number, or a number for a text."""
        if self._id is None:
            return
        is_text = isinstance(sequence.id, str)
        if is_text != (self._id.tensor.datatype is BYTES):
            wanted = "a number" if is_text else "a text"
            raise invalid_argument(
                f"sequence {sequence.id!r} of model '{self._model}': the correlation ID must be {wanted}, since control tensor "
                f"'{self._id.tensor.name}' is {self._id.tensor.datatype.config_name}"
            )

    def own_id(self, number: int) -> int | str:
        """Return the id of a sequence that the server makes, in the kind that the model is told."""
        return str(number) if self._id is not None and self._id.tensor.datatype is BYTES else number

    def of(self, sequence: Sequence) -> Mapping[str, Array]:
        """Return the tensors for a request of `sequence`."""
        flags = self._flags[sequence.is_start, sequence.is_end, True]
        return flags if self._id is None else {**flags, self._id.tensor.name: self._id_array(sequence.id)}

    def of_padding(self) -> Mapping[str, Array]:
        """Return the tensors for a slot without a request: not ready, no sequence."""
        flags = self._flags[False, False, False]
        if self._id is None:
            return flags
        return {**flags, self._id.tensor.name: self._id_array("" if self._id.tensor.datatype is BYTES else 0)}

    def _flag(self, control: ControlPlan, is_start: bool, is_end: bool, is_ready: bool) -> Array:
        assert control.values is not None
        is_true = {ControlKind.START: is_start, ControlKind.END: is_end, ControlKind.READY: is_ready}[control.kind]
        return np.full(self._shape, control.values[is_true], control.tensor.datatype.numpy)

    def _id_array(self, sequence_id: int | str) -> Array:
        """Return the id in the control's datatype; of a number that is too large for it the low bits, as in C."""
        assert self._id is not None
        datatype = self._id.tensor.datatype
        if isinstance(sequence_id, str):
            array = np.empty(self._shape, datatype.numpy)
            array[...] = sequence_id.encode()
            return array
        low_bits = (sequence_id % (1 << 8 * datatype.size_bytes)).to_bytes(datatype.size_bytes, "little")
        return np.frombuffer(low_bits, datatype.numpy).reshape(self._shape)
