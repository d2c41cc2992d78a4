"""Between the server's arrays and the engine's values, where the two differ: strings, BF16 and scalars.

Owns these conversions. Every other tensor goes to the engine and comes back as it is. The engine's strings are UTF-8 text, the
server's are bytes; BF16 has no numpy type, so it travels in the engine's own value type.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnxruntime import OrtValue

from naiad.backends.base import Array
from naiad.backends.onnx.session import Session
from naiad.config.plan import ModelPlan
from naiad.config.signature import ModelSignature
from naiad.errors import invalid_argument
from naiad.tensor.datatype import BF16, BYTES

Encoder = tuple[str, Callable[[Array], Any]]
Decoder = tuple[str, Callable[[Array], Array]]
Run = Callable[[Sequence[str], Mapping[str, Any], Any], Sequence[Array]]
"""Runs a session: output names, inputs by name, run options or None; gives the outputs in the order of the names."""

_ONNX_BFLOAT16 = 16


def encoders(plan: ModelPlan, signature: ModelSignature) -> tuple[Encoder, ...]:
    """Return what has to be done to inputs before a run, by name; most models need nothing."""
    steps: list[Encoder] = []
    for tensor, found in zip(plan.inputs, signature.inputs):
        if not found.shape and tensor.backend_shape == (1,):
            # A config can't describe a scalar without a batch dimension: [1] stands for it.
            steps.append((tensor.name, _as_scalar))
        if tensor.datatype is BYTES:
            steps.append((tensor.name, _text_encoder(plan.name, tensor.name)))
        elif tensor.datatype is BF16:
            steps.append((tensor.name, _bfloat16_value))
    return tuple(steps)


def decoders(plan: ModelPlan, signature: ModelSignature) -> tuple[Decoder, ...]:
    """Return what has to be done to outputs after a run, by name; most models need nothing."""
    steps: list[Decoder] = []
    for tensor, found in zip(plan.outputs, signature.outputs):
        if not found.shape and tensor.backend_shape == (1,):
            steps.append((tensor.name, np.atleast_1d))
        if tensor.datatype is BYTES:
            steps.append((tensor.name, bytes_of_texts))
    return tuple(steps)


def runner(plan: ModelPlan, session: Session) -> Run:
    """Return how to run `session`. Raises INVALID_ARGUMENT for a model with string inputs and BF16 outputs, which the engine's
    Python interface can't run.
    """
    if not any(tensor.datatype is BF16 for tensor in plan.outputs):
        run: Run = session.run
        return run
    if any(tensor.datatype is BYTES for tensor in plan.inputs):
        raise invalid_argument(
            f"model '{plan.name}' has inputs of TYPE_STRING and outputs of TYPE_BF16: onnxruntime can't run both from Python; "
            f"cast the outputs to TYPE_FP32 in the model"
        )

    def run_values(names: Sequence[str], feed: Mapping[str, Any], options: Any) -> Sequence[Array]:
        values = {
            name: item if isinstance(item, OrtValue) else OrtValue.ortvalue_from_numpy(item) for name, item in feed.items()
        }
        return [_array_of(value) for value in session.run_with_ort_values(names, values, options)]

    return run_values


def texts_of_bytes(array: Array) -> Array:
    """Return an object array of `str` of the same shape. Raises UnicodeDecodeError when an element isn't UTF-8."""
    return _object_array([item.decode() for item in array.flat], array.shape)


def bytes_of_texts(array: Array) -> Array:
    """Return an object array of `bytes` (UTF-8) of the same shape."""
    return _object_array([item.encode() for item in array.flat], array.shape)


def _object_array(items: Sequence[str | bytes], shape: tuple[int, ...]) -> Array:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array.reshape(shape)


def _text_encoder(model_name: str, input_name: str) -> Callable[[Array], Array]:
    def encode(array: Array) -> Array:
        try:
            return texts_of_bytes(array)
        except UnicodeDecodeError as error:
            raise invalid_argument(
                f"model '{model_name}': input '{input_name}' has an element that isn't UTF-8 text ({error.reason} at its byte "
                f"{error.start}), which onnxruntime's strings must be"
            ) from error

    return encode


def _as_scalar(array: Array) -> Array:
    return array.reshape(())


def _bfloat16_value(array: Array) -> Any:
    return OrtValue.ortvalue_from_numpy_with_onnx_type(array, _ONNX_BFLOAT16)


def _array_of(value: Any) -> Array:
    array: Array
    if value.element_type() == _ONNX_BFLOAT16:
        shape = value.shape()
        # Copied, since the engine's memory goes with `value`.
        bits = ctypes.string_at(value.data_ptr(), int(np.prod(shape)) * BF16.size_bytes)
        array = np.frombuffer(bits, dtype=BF16.numpy).reshape(shape)
    else:
        array = value.numpy()
    return array
