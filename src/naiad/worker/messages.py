"""The JSON tails of frames, as types: what both sides write and read.

Owns their shapes. JSON lists stand where a tuple is meant. Sizes and offsets are bytes, counted from the block's start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

TensorMessage = tuple[str, str, Sequence[int], int, int]
"""Name, datatype (FP32, BYTES, …; BYTES lie length-prefixed, BF16 as 16-bit words), shape, offset in the block, size."""

Parameter = str | int | bool | float


class LoadMessage(TypedDict):
    """How to import a model.

    `model_file` is the module's file, `version_directory` and `model_directory` the folders of the model. `backend_directory`
    is "" unless the model belongs to a Python-based backend (whose `model.py` `model_file` then is). `name` is the model's.
    """

    name: str
    version: str
    model_file: str
    model_directory: str
    version_directory: str
    backend_directory: str


class RequestMessage(TypedDict, total=False):
    """One request of a batch; members that have their default are left out.

    `inputs` is always there. `outputs` are the wanted names, in order. `correlation_id` is 0 or "" outside a sequence, `flags`
    are SEQUENCE_START (1) and SEQUENCE_END (2), `timeout_us` 0 is none, `trace` the trace context.
    """

    inputs: list[TensorMessage]
    outputs: list[str]
    id: str
    parameters: dict[str, Parameter]
    correlation_id: int | str
    flags: int
    timeout_us: int
    priority: int
    trace: dict[str, str]


ExecuteMessage = list[RequestMessage]


class ResponseMessage(TypedDict, total=False):
    """One response: tensors or an error. `none` true stands where `execute` returned None for a request, which then gets its
    answer by RESPONSE frames. `error` is [code name of `naiad.errors.Code`, text].
    """

    outputs: list[TensorMessage]
    error: tuple[str, str]
    parameters: dict[str, Parameter]
    none: bool


class CallMessage(RequestMessage, total=False):
    """A request to another model. `version` "" is the latest; `caller` is the id of the request in whose service it is made, 0
    when it isn't known: its cancellation cancels the call.
    """

    model: str
    version: str
    caller: int


class InitializeMessage(TypedDict):
    """What an instance starts with: `args` for `initialize`, whether the model is decoupled and whether it may want requests
    again, and its outputs by name.

    `progress` is segment and offset of the place in the server's memory for what a death must not hide, see `frames.PROGRESS`.
    None: nobody wants to know.
    """

    args: dict[str, str]
    is_decoupled: bool
    is_iterative: bool
    outputs: list[str]
    progress: list[int] | None
