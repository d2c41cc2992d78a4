"""What is wrong with an ensemble as its own config shows it: steps, and how tensors are handed from one to the next.

Doesn't own what only the models of its steps can tell: `config.validate.wiring`.
"""

from __future__ import annotations

from collections.abc import Iterator

from naiad.config import schema
from naiad.config.findings import FieldPath, Finding
from naiad.proto import Message

_EXCLUDED = ("instance_group", "optimization", "model_warmup")


def ensemble_findings(config: Message) -> Iterator[Finding]:
    """Yield a mistake at a time. A config of any other scheduler, or of none, has none here."""
    if not config.HasField("ensemble_scheduling"):
        return
    given = {field.name for field, _ in config.ListFields()}
    for name in _EXCLUDED:
        if name in given:
            yield Finding(f"ensemble '{config.name}' must not specify '{name}': its steps' models do", (name,))
    steps = config.ensemble_scheduling.step
    if not steps:
        yield Finding(f"ensemble '{config.name}' must have at least one 'step'", ("ensemble_scheduling",))
        return
    yield from _step_findings(config)
    yield from _graph_findings(config)


def step_name(config: Message, index: int) -> str:
    """Return how a step is called in errors; steps are counted from 1."""
    return f"ensemble '{config.name}', step {index + 1} (model '{config.ensemble_scheduling.step[index].model_name}')"


def step_path(index: int, *rest: str | int) -> FieldPath:
    """Return the path of a step, or of what `rest` leads to in it."""
    return ("ensemble_scheduling", "step", index, *rest)


def _step_findings(config: Message) -> Iterator[Finding]:
    for index, step in enumerate(config.ensemble_scheduling.step):
        for field in ("model_name", "input_map", "output_map"):
            if not getattr(step, field):
                yield Finding(f"{step_name(config, index)} must specify '{field}'", step_path(index))
        for field in ("input_map", "output_map"):
            for key, tensor in sorted(getattr(step, field).items()):
                if not key or not tensor:
                    text = f"{step_name(config, index)} has an empty name in {field}: '{key}' to '{tensor}'"
                    yield Finding(text, step_path(index, field, key))


def _graph_findings(config: Message) -> Iterator[Finding]:
    writers = _writers(config)
    yield from _twice(config)
    for path, where, tensor in _reads(config):
        if tensor not in writers:
            near = schema.suggestion(tensor, writers)
            text = f"{where} tensor '{tensor}', which is not an input of the ensemble nor written by any step{near}"
            yield Finding(text, path, f"tensors that are written: {', '.join(sorted(writers)) or 'none'}")
    read = {tensor for _, _, tensor in _reads(config)}
    for tensor, (path, where) in sorted(writers.items()):
        if tensor not in read:
            near = schema.suggestion(tensor, (name for name in read if name not in writers))
            text = f"ensemble '{config.name}': {where} '{tensor}' is not used by any step nor an output{near}"
            yield Finding(text, path, "remove it, or give it to a step or an output of the ensemble")
    yield from _circle(config)


def _writers(config: Message) -> dict[str, tuple[FieldPath, str]]:
    """Return each tensor that there is to read, with the place and the words for who writes it."""
    writers: dict[str, tuple[FieldPath, str]] = {}
    for index, tensor in enumerate(config.input):
        writers[tensor.name] = ("input", index), "input"
    for index, step in enumerate(config.ensemble_scheduling.step):
        for key, name in sorted(step.output_map.items()):
            where = f"step {index + 1} (model '{step.model_name}') writes from its output '{key}' tensor"
            writers.setdefault(name, (step_path(index, "output_map", key), where))
    return writers


def _twice(config: Message) -> Iterator[Finding]:
    first = {tensor.name: "is an input of the ensemble" for tensor in config.input}
    for index, step in enumerate(config.ensemble_scheduling.step):
        for key, name in sorted(step.output_map.items()):
            if name in first:
                text = f"{step_name(config, index)} writes tensor '{name}' from its output '{key}', but it {first[name]}"
                yield Finding(text, step_path(index, "output_map", key), "give one of the two another name")
            first.setdefault(name, f"is written by step {index + 1} (model '{step.model_name}') already")


def _reads(config: Message) -> list[tuple[FieldPath, str, str]]:
    """Return each place where a tensor is read: its path, the words up to the tensor, the tensor."""
    reads: list[tuple[FieldPath, str, str]] = []
    for index, step in enumerate(config.ensemble_scheduling.step):
        for key, name in sorted(step.input_map.items()):
            where = f"{step_name(config, index)} reads for its input '{key}'"
            reads.append((step_path(index, "input_map", key), where, name))
    for index, tensor in enumerate(config.output):
        reads.append((("output", index), f"ensemble '{config.name}' has as output", tensor.name))
    return reads


def _circle(config: Message) -> Iterator[Finding]:
    """Yield the steps that wait for each other. A tensor that nobody writes is another mistake and counts as there."""
    steps = config.ensemble_scheduling.step
    writer = {name: index for index, step in enumerate(steps) for name in step.output_map.values()}
    for tensor in config.input:
        writer.pop(tensor.name, None)
    waiting = {index: {writer[name] for name in step.input_map.values() if name in writer} for index, step in enumerate(steps)}
    while ready := [index for index, needed in waiting.items() if not needed & waiting.keys()]:
        for index in ready:
            del waiting[index]
    # What only comes behind the circle isn't in it.
    while behind := [index for index in waiting if not any(index in needed for needed in waiting.values())]:
        for index in behind:
            del waiting[index]
    if waiting:
        names = ", ".join(f"{index + 1} (model '{steps[index].model_name}')" for index in sorted(waiting))
        text = f"ensemble '{config.name}' has a circle, so that its tensors are not written: steps {names} wait for each other"
        yield Finding(text, step_path(min(waiting)))
