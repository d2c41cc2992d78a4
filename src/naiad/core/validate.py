"""From an `InferCall` to checked arrays: every rule that a request must keep before it may be queued.

Owns the checks of a call against its model's plan and their messages (existing clients match their words). It copies nothing
but BYTES elements: an array is a view of the received bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from naiad.config.plan import ModelPlan, TensorPlan
from naiad.core.shape_advice import advise
from naiad.errors import InferenceServerError, invalid_argument
from naiad.request.call import CallInput, CallTemplate, InferCall
from naiad.tensor import bytes_tensor
from naiad.tensor import shape as shapes

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """What an `InferRequest` is made of: arrays by input name, wanted outputs in order, number of items."""

    inputs: dict[str, Array]
    outputs: tuple[str, ...]
    batch_size: int


_MOST_REMEMBERED = 512


@dataclass(frozen=True, slots=True)
class _Remembered:
    """What was found of a call whose template comes again; shapes and dtypes in the order of its inputs."""

    tensors: tuple[tuple[str, np.dtype[np.generic], tuple[int, ...]], ...]
    outputs: tuple[str, ...]
    batch_size: int


class CallValidator:
    """Checks the calls of one model version. `check` raises INVALID_ARGUMENT with everything the client needs to mend it."""

    __slots__ = ("_all_outputs", "_inputs", "_max_batch_size", "_model", "_outputs", "_plan", "_remembered", "_required")

    def __init__(self, plan: ModelPlan) -> None:
        self._plan = plan
        self._model = plan.name
        self._inputs = plan.inputs_by_name
        self._outputs = plan.outputs_by_name
        self._required = plan.required_inputs
        self._all_outputs = tuple(output.name for output in plan.outputs)
        self._max_batch_size = plan.max_batch_size
        self._remembered: dict[CallTemplate, _Remembered] = {}

    def check(self, call: InferCall) -> CheckedCall:
        """Return the call's arrays, outputs and batch size, or raise.

        Of a call with the template of an earlier one everything but the elements is known to be right.
        """
        template = call.template
        if template is None:
            return self._check(call)
        known = self._remembered.get(template)
        if known is None:
            checked = self._check(call)
            self._remember(template, call, checked)
            return checked
        arrays = {
            name: np.frombuffer(item.buffer, dtype).reshape(shape)  # type: ignore[arg-type]
            for item, (name, dtype, shape) in zip(call.inputs, known.tensors)
        }
        return CheckedCall(arrays, known.outputs, known.batch_size)

    def _remember(self, template: CallTemplate, call: InferCall, checked: CheckedCall) -> None:
        """Remember a good call, unless its elements have rules of their own or there are none to make an array of."""
        if any(array.dtype.hasobject or not array.size for array in checked.inputs.values()):
            return
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        tensors = tuple(
            (item.name, self._inputs[item.name].datatype.numpy, checked.inputs[item.name].shape) for item in call.inputs
        )
        self._remembered[template] = _Remembered(tensors, checked.outputs, checked.batch_size)

    def _check(self, call: InferCall) -> CheckedCall:
        sent = [self._raw_input(call)] if call.raw_buffer is not None else call.inputs
        arrays: dict[str, Array] = {}
        batch_size = 0
        for item in sent:
            plan = self._inputs.get(item.name)
            if plan is None or item.name in arrays:
                self._refuse_names(call)
            if item.datatype != plan.datatype.name:
                self._refuse_datatype(call, item, plan)
            batch_size = self._check_shape(call, item, plan, batch_size)
            arrays[item.name] = self._array(call, item, plan)
        if len(arrays) != len(self._inputs) and not self._required <= arrays.keys():
            self._refuse_names(call)
        return CheckedCall(arrays, self._wanted(call) if call.outputs else self._all_outputs, batch_size or 1)

    def _wanted(self, call: InferCall) -> tuple[str, ...]:
        for output in call.outputs:
            if output.name not in self._outputs:
                raise self._error(
                    call,
                    f"unexpected inference output '{output.name}' for model '{self._model}', "
                    f"its outputs are: {', '.join(self._outputs)}",
                )
        return tuple(dict.fromkeys(output.name for output in call.outputs))

    def _check_shape(self, call: InferCall, item: CallInput, plan: TensorPlan, batch_size: int) -> int:
        """Check the item's shape; return the batch size that all inputs must share (0 when the model doesn't batch)."""
        shape = item.shape
        limit = self._max_batch_size
        if not limit:
            if not shapes.matches(shape, plan.shape):
                self._refuse_shape(call, item, plan)
            return 0
        if not shape:
            raise self._error(
                call,
                f"input '{item.name}' has no shape but model requires batch dimension for '{self._model}': "
                f"expected {shapes.text(plan.shape)}, got []. Add the batch dimension, 1 for one item",
            )
        if not shapes.matches(shape, plan.shape) or not shape[0]:
            self._refuse_shape(call, item, plan)
        if shape[0] > limit:
            raise self._error(
                call,
                f"inference request batch-size must be <= {limit} for '{self._model}': input '{item.name}' has shape "
                f"{shapes.text(shape)}, batch {shape[0]} exceeds max_batch_size {limit}",
            )
        if batch_size and shape[0] != batch_size:
            raise self._error(
                call,
                f"input '{item.name}' batch size does not match other inputs for '{self._model}': "
                f"shape {shapes.text(shape)} has batch size {shape[0]}, the others have {batch_size}",
            )
        return shape[0]

    def _array(self, call: InferCall, item: CallInput, plan: TensorPlan) -> Array:
        count = shapes.element_count(item.shape)
        datatype = plan.datatype
        try:
            if item.array is not None:
                if item.array.size != count:
                    self._refuse_count(call, item, count, item.array.size)
                return item.array.reshape(item.shape)
            buffer = item.buffer if item.buffer is not None else b""
            if not datatype.size_bytes:
                return self._strings(call, item, count)
            if len(buffer) != count * datatype.size_bytes:
                self._refuse_size(call, item, count * datatype.size_bytes, len(buffer))
            if not count:
                return np.empty(item.shape, datatype.numpy)
            return np.frombuffer(buffer, datatype.numpy).reshape(item.shape)
        except (ValueError, OverflowError) as error:
            # Only a shape with a zero beside a size beyond numpy's range gets here: the counts agree, the array can't exist.
            raise self._error(
                call, f"shape {shapes.text(item.shape)} of input '{item.name}' for model '{self._model}' is too large: {error}"
            ) from error

    def _strings(self, call: InferCall, item: CallInput, count: int) -> Array:
        try:
            elements = bytes_tensor.decode(item.buffer or b"", count)
        except ValueError as error:
            raise self._error(call, f"{error} for inference input '{item.name}' of model '{self._model}'") from error
        if len(elements) > count:
            raise self._error(
                call,
                f"unexpected number of string elements for inference input '{item.name}' of model '{self._model}', "
                f"expecting {count} for shape {shapes.text(item.shape)}, got more",
            )
        if len(elements) < count:
            raise self._error(
                call,
                f"expected {count} string elements for inference input '{item.name}' of model '{self._model}' "
                f"with shape {shapes.text(item.shape)}, got {len(elements)}",
            )
        return bytes_tensor.as_array(elements, tuple(item.shape))

    def _raw_input(self, call: InferCall) -> CallInput:
        """Return the one input whose bytes are the whole body: name, datatype and shape come from the model."""
        buffer = call.raw_buffer or b""
        what = f"raw binary request to model '{self._model}'"
        if len(self._plan.inputs) != 1:
            raise self._error(call, f"{what}: the model must have exactly 1 input, it has {len(self._plan.inputs)}")
        plan = self._plan.inputs[0]
        if plan.dims.count(shapes.VARIABLE) > 1:
            raise self._error(
                call, f"{what}: input '{plan.name}' may have one variable dimension at most, it has {shapes.text(plan.dims)}"
            )
        batch = [1] if self._max_batch_size else []
        if not plan.datatype.size_bytes:
            if shapes.element_count(plan.dims) not in (1, -1):
                raise self._error(
                    call, f"{what}: BYTES input '{plan.name}' must have shape [1], it has {shapes.text(plan.dims)}"
                )
            encoded = bytes_tensor.encode([bytes(buffer)])
            return CallInput(plan.name, "BYTES", [*batch, *(abs(dim) for dim in plan.dims)], buffer=encoded)
        known = plan.datatype.size_bytes * abs(shapes.element_count(plan.dims))
        variable, rest = divmod(len(buffer), known)
        if rest:
            raise self._error(
                call, f"{what}: {len(buffer)} bytes don't fill input '{plan.name}' of shape {shapes.text(plan.dims)}"
            )
        dims = [variable if dim == shapes.VARIABLE else dim for dim in plan.dims]
        return CallInput(plan.name, plan.datatype.name, [*batch, *dims], buffer=buffer)

    def _refuse_names(self, call: InferCall) -> NoReturn:
        """Raise what is wrong with the set of inputs: one twice, a wrong number, or one that the model doesn't have."""
        names = [item.name for item in call.inputs]
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise self._error(call, f"input '{name}' already exists in request")
            seen.add(name)
        if call.outputs:
            self._wanted(call)
        missing = [name for name in self._inputs if name in self._required and name not in seen]
        is_count_wrong = not len(self._required) <= len(names) <= len(self._inputs)
        if is_count_wrong or (missing and all(name in self._inputs for name in names)):
            raise self._error(call, self._count_text(names, missing))
        unknown = next(name for name in names if name not in self._inputs)
        raise self._error(
            call,
            f"unexpected inference input '{unknown}' for model '{self._model}', its inputs are: {', '.join(self._inputs)}",
        )

    def _count_text(self, names: list[str], missing: list[str]) -> str:
        fewest, most = len(self._required), len(self._inputs)
        if fewest == most:
            expected = f"expected {most} inputs but got {len(names)} inputs"
        else:
            expected = f"expected number of inputs between {fewest} and {most} but got {len(names)} inputs"
        # Ten thousand names would be a text of their own kind of attack.
        shown = str(names[:20]) if len(names) <= 20 else f"{str(names[:20])[:-1]}, … {len(names) - 20} more]"
        text = f"{expected} for model '{self._model}'. Got input(s) {shown}"
        if missing:
            return f"{text}, but missing required input(s) {missing}. Please provide all required input(s)."
        return f"{text}, the model's inputs are {list(self._inputs)}"

    def _refuse_datatype(self, call: InferCall, item: CallInput, plan: TensorPlan) -> NoReturn:
        numpy_name = "object (bytes)" if plan.datatype.name == "BYTES" else plan.datatype.numpy.name
        if plan.datatype.name == "BF16":
            numpy_name = "bfloat16 of ml_dtypes"
        raise self._error(
            call,
            f"inference input '{item.name}' data-type is '{item.datatype}', but model '{self._model}' expects "
            f"'{plan.datatype.name}' (numpy dtype {numpy_name})",
        )

    def _refuse_shape(self, call: InferCall, item: CallInput, plan: TensorPlan) -> NoReturn:
        got = shapes.text(item.shape) if len(item.shape) <= 32 else f"{len(item.shape)} dimensions"
        raise self._error(
            call,
            f"unexpected shape for input '{item.name}' for model '{self._model}'. "
            f"Expected {shapes.text(plan.shape)}, got {got}. NOTE: {advise(item.shape, plan, self._max_batch_size)}",
        )

    def _refuse_size(self, call: InferCall, item: CallInput, expected: int, got: int) -> NoReturn:
        raise self._error(
            call,
            f"input byte size mismatch for input '{item.name}' for model '{self._model}'. Expected {expected}, got {got}: "
            f"shape {shapes.text(item.shape)} of {item.datatype} takes {expected} bytes",
        )

    def _refuse_count(self, call: InferCall, item: CallInput, expected: int, got: int) -> NoReturn:
        raise self._error(
            call,
            f"input '{item.name}' for model '{self._model}': shape does not match true shape of 'data' field, "
            f"shape {shapes.text(item.shape)} takes {expected} elements, got {got}",
        )

    def _error(self, call: InferCall, text: str) -> InferenceServerError:
        return invalid_argument(f"[request id: {call.id or '<id_unknown>'}] {text}")
