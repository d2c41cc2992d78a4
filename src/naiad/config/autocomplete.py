"""Complete a configuration from what the model file tells of its tensors, and check a written one against it.

Owns the rule of batching and the comparison of tensors. Doesn't read model files: a backend gives the `ModelSignature`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from naiad.config import schema
from naiad.config.findings import FieldPath, Finding, refuse
from naiad.config.signature import ModelSignature, TensorSignature
from naiad.proto import Message
from naiad.tensor import datatype, shape

DEFAULT_MAX_BATCH_SIZE = 4


def complete(config: Message, signature: ModelSignature, default_max_batch_size: int = DEFAULT_MAX_BATCH_SIZE) -> list[str]:
    """Fill `max_batch_size`, `input`, `output` and the dynamic batcher of a ModelConfig; return what to warn of.

    Does nothing when inputs and outputs are both written. A model batches when the first dim of each of its tensors is
    variable; then a `max_batch_size` of 0 becomes the default, and a model without a scheduler gets the dynamic batcher.
    Raises INVALID_ARGUMENT when `max_batch_size` is given and the model can't batch.
    """
    has_inputs = bool(config.input or config.batch_input)
    if has_inputs and config.output:
        return []
    warnings = _complete_batching(config, signature.supports_batching, default_max_batch_size)
    signature = _without_added(config, signature)
    is_batching = config.max_batch_size > 0
    if not has_inputs:
        _add_tensors(config.input, signature.inputs, is_batching)
    if not config.output:
        _add_tensors(config.output, signature.outputs, is_batching)
    return warnings


def check(config: Message, signature: ModelSignature) -> None:
    """Compare a completed config with the model file: names, datatypes, shapes. Raises INVALID_ARGUMENT with every difference.

    An output may be left out of the config, an input may not. A fixed dim of the model must be written as it is.
    """
    refuse(differences(config, signature))


def _complete_batching(config: Message, can_batch: bool, default_max_batch_size: int) -> list[str]:
    if not can_batch:
        if config.max_batch_size > 0:
            text = (
                f"autofill failed for model '{config.name}': model does not support batching while non-zero max_batch_size "
                f"({config.max_batch_size}) is specified; batching needs a variable first dimension in every input and output"
            )
            refuse([Finding(text, ("max_batch_size",))])
        return []
    warnings: list[str] = []
    if config.max_batch_size == 0 and default_max_batch_size > 0:
        config.max_batch_size = default_max_batch_size
        warnings.append(
            f"model '{config.name}' supports batching and its max_batch_size is 0 or not given: it is set to "
            f"{default_max_batch_size}; write max_batch_size, input and output to have it otherwise"
        )
    if config.max_batch_size > 1 and config.WhichOneof("scheduling_choice") is None:
        config.dynamic_batching.SetInParent()
    return warnings


def _add_tensors(target: Any, tensors: Iterable[TensorSignature], is_batching: bool) -> None:
    for tensor in tensors:
        added = target.add(name=tensor.name)
        added.data_type = added.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_name[_config_type(tensor)].number
        dims = tensor.shape[1:] if is_batching else tensor.shape
        added.dims.extend(dims or (1,))
        if not dims and is_batching:
            # One value an item: dims can't be empty, so clients see [1] and the model its own shape. Without a batch dimension
            # a reshape to a scalar isn't allowed, and the backend takes the one value for it.
            added.reshape.SetInParent()


def _without_added(config: Message, signature: ModelSignature) -> ModelSignature:
    """Return the tensors that clients send and get: those that the sequence batcher adds and takes have a place of their own in
    the config, and are compared with the model when it is loaded.
    """
    batching = config.sequence_batching
    added = {tensor.name for tensor in batching.control_input} | {state.input_name for state in batching.state}
    taken = {state.output_name for state in batching.state} - {tensor.name for tensor in config.output}
    return replace(
        signature,
        inputs=tuple(tensor for tensor in signature.inputs if tensor.name not in added),
        outputs=tuple(tensor for tensor in signature.outputs if tensor.name not in taken),
    )


def _config_type(tensor: TensorSignature) -> str:
    return datatype.BY_NAME[tensor.datatype].config_name


def differences(config: Message, signature: ModelSignature) -> Iterator[Finding]:
    """Yield where a completed config and the model file differ, as `check` raises it."""
    yield from (Finding(text, path) for path, text in _differences(config, signature))


def _differences(config: Message, signature: ModelSignature) -> Iterator[tuple[FieldPath, str]]:
    from_batch = [name for batch_input in config.batch_input for name in batch_input.target_name]
    signature = _without_added(config, signature)
    expected = len(config.input) + len(from_batch)
    if expected != len(signature.inputs):
        yield (
            ("input",),
            (
                f"unable to load model '{config.name}', configuration expects {expected} inputs, "
                f"model provides {len(signature.inputs)}"
            ),
        )
    for kind, written, provided in (
        ("input", config.input, signature.inputs),
        ("output", config.output, signature.outputs),
    ):
        by_name = {tensor.name: tensor for tensor in provided}
        for index, tensor in enumerate(written):
            if tensor.name in by_name:
                texts = _tensor_differences(config, kind, tensor, by_name[tensor.name])
                yield from (((kind, index), text) for text in texts)
            else:
                yield (kind, index, "name"), _unexpected(config.name, kind, tensor.name, by_name)
    known = {tensor.name for tensor in signature.inputs}
    for name in from_batch:
        if name not in known:
            yield ("batch_input",), _unexpected(config.name, "input", name, sorted(known))


def _unexpected(model: str, kind: str, name: str, allowed: Iterable[str]) -> str:
    return f"unable to load model '{model}': unexpected inference {kind} '{name}', allowed {kind}s are: {', '.join(allowed)}"


def _tensor_differences(config: Message, kind: str, tensor: Message, provided: TensorSignature) -> Iterator[str]:
    written = schema.enum_name(tensor, "data_type")
    if written != _config_type(provided):
        yield (
            f"unable to load model '{config.name}', configuration expects datatype {written} for {kind} '{tensor.name}', "
            f"model provides {_config_type(provided)}"
        )
    dims = tuple(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)
    yield from _shape_differences(config, tensor.name, dims, provided.shape)


def _shape_differences(config: Message, name: str, dims: tuple[int, ...], model: tuple[int, ...]) -> Iterator[str]:
    is_batching = config.max_batch_size > 0
    where = f"model '{config.name}', tensor '{name}'"
    if is_batching and model[:1] != (-1,):
        yield (
            f"{where}: for the model to support batching its shape must have a first dimension that is variable, but the model "
            f"expects shape {shape.text(model)}; set max_batch_size to 0"
        )
        return
    whole = (-1, *dims) if is_batching else dims
    if len(whole) != len(model):
        batch = (
            " (an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete "
        )
        yield (
            f"{where}: the model expects {len(model)} dimensions (shape {shape.text(model)}) but the model configuration "
            f"specifies {len(whole)} dimensions{batch if is_batching else ' ('}shape {shape.text(whole)})"
        )
    elif any(size not in (-1, written) for size, written in zip(model, whole)):
        specified = f"the model configuration specifies shape {shape.text(whole)}"
        yield f"{where}: the model expects shape {shape.text(model)} but {specified}"
