"""What is wrong with a configuration's batch_input and batch_output."""

from __future__ import annotations

from collections.abc import Iterator

from naiad.config import schema
from naiad.config.findings import FieldPath, Finding
from naiad.proto import Message

_ALLOWED_TYPES = ("TYPE_INT32", "TYPE_FP32")


def batch_tensor_findings(config: Message) -> Iterator[Finding]:
    """Yield a text for each mistake."""
    inputs = {tensor.name for tensor in config.input}
    types = {tensor.name: schema.enum_name(tensor, "data_type") for tensor in config.output}
    outputs = set(types)
    for index, batch_input in enumerate(config.batch_input):
        path: FieldPath = ("batch_input", index)
        for text in (*_source_texts(config.name, "batch input", batch_input, inputs), *_type_texts(config.name, batch_input)):
            yield Finding(text, path)
    targets: set[str] = set()
    for index, batch_output in enumerate(config.batch_output):
        path = ("batch_output", index)
        yield from (Finding(text, path) for text in _source_texts(config.name, "batch output", batch_output, inputs))
        for number, target in enumerate(batch_output.target_name):
            where = (*path, "target_name", number)
            if target not in outputs:
                text = f"batch output '{target}' is not an output of the model, allowed: {_list(outputs)} for {config.name}"
                yield Finding(text, where)
            elif types[target] == "TYPE_STRING":
                text = f"batch output '{target}' has data_type TYPE_STRING, which can't be cut by an input's shapes"
                yield Finding(f"{text} for {config.name}", where)
            if target in targets:
                yield Finding(f"output '{target}' can be the target of one batch output only for {config.name}", where)
            targets.add(target)


def _source_texts(model: str, kind: str, tensor: Message, inputs: set[str]) -> Iterator[str]:
    targets = ", ".join(tensor.target_name)
    if not tensor.target_name:
        yield f"{kind} must specify 'target_name' for {model}"
    if len(tensor.source_input) != 1:
        yield f"{kind} '{targets}' must have exactly 1 source_input, got {len(tensor.source_input)} for {model}"
    for source in tensor.source_input:
        if source not in inputs:
            yield f"{kind} '{targets}' has source_input '{source}', which is not an input, allowed: {_list(inputs)} for {model}"


def _type_texts(model: str, batch_input: Message) -> Iterator[str]:
    name = schema.enum_name(batch_input, "data_type")
    if name not in _ALLOWED_TYPES:
        targets = ", ".join(batch_input.target_name)
        yield f"batch input '{targets}' has data_type {name}, allowed: {', '.join(_ALLOWED_TYPES)} for {model}"


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
