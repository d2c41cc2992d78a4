"""`InferCall`: what a codec read from a client's message, unchecked.

Owns the shape of that value. Nothing in it has been compared with a model yet: names may be unknown, shapes wrong, sizes false.
`core.validate` turns it into an `InferRequest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Buffer = bytes | bytearray | memoryview
Parameter = str | int | bool | float


@dataclass(frozen=True, slots=True)
class RegionSlice:
    """Bytes of a shared-memory region that a client registered: `size_bytes` of them from `offset` in the region `name`."""

    name: str
    offset: int
    size_bytes: int


@dataclass(slots=True)
class CallInput:
    """One input tensor as it was sent.

    `shape` holds integers >= 0 as the client wrote them; `datatype` is any text. The elements are in exactly one of `buffer`
    (binary form: little-endian, row-major, BYTES with length prefixes; a view of the received bytes), `array` (a flat
    array that a codec made from JSON or protobuf, in the numpy dtype of `datatype`; its length may not fit the shape) and
    `region` (where the binary form lies in shared memory).
    """

    name: str
    datatype: str
    shape: list[int]
    buffer: Buffer | None = None
    array: np.ndarray[Any, Any] | None = None
    region: RegionSlice | None = None


@dataclass(slots=True)
class CallOutput:
    """One requested output. `classification` is the number of classes wanted, 0 for the tensor itself; `is_binary` is whether
    the client asked for the binary form (meant for the codec that writes the response); `region` is where in shared memory
    the binary form is to be put, None for the response itself.
    """

    name: str
    classification: int = 0
    is_binary: bool = False
    region: RegionSlice | None = None


class CallTemplate:
    """What calls have in common that say the same of their inputs but for the elements: a token to know them by.

    Two calls with one template have equal names, datatypes, shapes, sizes in bytes, outputs and parameters, so what was checked
    of one holds for the other.
    """

    __slots__ = ()


@dataclass(slots=True)
class InferCall:
    """One inference as its client asked for it.

    `model_version` is "" for the latest. `outputs` empty means all outputs. `parameters` are the custom ones only; those with
    a meaning of their own have fields. `sequence_id` is 0 or "" outside a sequence. `priority` 0 is the model's default.
    `timeout_us` is in microseconds, 0 for none. `binary_output` is the default form for outputs when none is listed.
    """

    model_name: str
    model_version: str = ""
    id: str = ""
    inputs: list[CallInput] = field(default_factory=list)
    outputs: list[CallOutput] = field(default_factory=list)
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    sequence_id: int | str = 0
    is_sequence_start: bool = False
    is_sequence_end: bool = False
    priority: int = 0
    timeout_us: int = 0
    binary_output: bool = False
    raw_buffer: Buffer | None = None
    """The whole body of a raw binary request: the single input's bytes, whose name, datatype and shape the model tells."""
    template: CallTemplate | None = None
    """Set by a codec that has read the same call before; None says nothing."""
    is_uncached: bool = False
    """Whether no answer may be looked up or kept: who sent it can change its inputs while it is answered, or they came from a
    device."""
    takes_many_responses: bool = False
    """Whether the caller takes any number of responses; otherwise models that may give another number than one refuse it."""
    may_omit_outputs: bool = False
    """Whether the caller can do without wanted outputs that the model doesn't return; otherwise that is an error."""
    client: str = ""
    """Who asks, where clients have fair shares; "" where they don't, and for those without a name."""
    deadline_ns: int | None = None
    """Until when the caller waits for the answer, a monotonic time; None when it doesn't say."""

    @property
    def uses_regions(self) -> bool:
        """Whether a tensor of the call is in shared memory."""
        for item in self.inputs:
            if item.region is not None:
                return True
        for output in self.outputs:  # noqa: SIM110 - a generator takes three times as long, and every call gets here
            if output.region is not None:
                return True
        return False

    def repeated(
        self, model_name: str, model_version: str, call_id: str, inputs: list[CallInput], template: CallTemplate
    ) -> InferCall:
        """Return a call that says the same of another tensor; what is neither given nor a plain value is shared with it."""
        return InferCall(
            model_name,
            model_version,
            call_id,
            inputs,
            self.outputs,
            self.parameters,
            self.sequence_id,
            self.is_sequence_start,
            self.is_sequence_end,
            self.priority,
            self.timeout_us,
            self.binary_output,
            None,
            template,
        )
