"""What is wrong between ensembles and the models of their steps: names, inputs, datatypes, shapes, batch sizes.

Owns the comparison of completed configs. Reads no files: the caller has the configs, or the reason why there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from naiad.config import schema
from naiad.config.findings import FieldPath, Finding
from naiad.config.validate.ensembles import step_name, step_path
from naiad.proto import Message
from naiad.tensor import shape


@dataclass(frozen=True, slots=True)
class KnownModels:
    """The other models: completed configs by name, why those that can't be loaded can't, and the versions that there are of the
    others, where that is known.
    """

    configs: Mapping[str, Message]
    failed: Mapping[str, str]
    versions: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Use:
    """One end of a tensor: what it is there, and how that end is called."""

    tensor: Message
    shape: tuple[int, ...]
    who: str

    def fits(self, other: _Use) -> bool:
        """Return whether there is a shape that both can have. Where only one of them batches, a batch of one is possible, too:
        it gets its dimension, or loses it.
        """
        return _are_alike(self.shape, other.shape) or (
            len(self.shape) != len(other.shape) and _are_alike(tuple(self.tensor.dims), tuple(other.tensor.dims))
        )


def wiring_findings(config: Message, models: KnownModels) -> Iterator[Finding]:
    """Yield a mistake at a time between the ensemble `config` and the models of its steps."""
    written = {tensor.name: _use(config, tensor, f"input '{tensor.name}' of the ensemble") for tensor in config.input}
    for index, step in enumerate(config.ensemble_scheduling.step):
        model = models.configs.get(step.model_name)
        if model is None:
            yield _absent(config, index, models)
            continue
        yield from _version_findings(config, index, models)
        yield from _batch_findings(config, index, model)
        yield from _name_findings(config, index, model)
        for key, output in _mapped(step.output_map, model.output):
            written.setdefault(step.output_map[key], _use(model, output, f"output '{key}' of model '{model.name}'"))
    yield from _type_findings(config, models, written)
    yield from _decoupled_findings(config, models)


def circular_findings(config: Message, models: KnownModels) -> Iterator[Finding]:
    """Yield the circle that the ensemble `config` and the ensembles in its steps make."""
    trail = _circle(config.name, models, [])
    if trail and trail[0] == config.name:
        text = f"circular dependency between ensembles: {' -> '.join(trail)}"
        yield Finding(text, ("ensemble_scheduling",), "an ensemble can't run itself")


def _circle(name: str, models: KnownModels, trail: list[str]) -> list[str]:
    if name in trail:
        return [*trail[trail.index(name) :], name]
    config = models.configs.get(name)
    steps = config.ensemble_scheduling.step if config is not None else ()
    for inner in sorted({step.model_name for step in steps}):
        found = _circle(inner, models, [*trail, name])
        if found:
            return found
    return []


def _absent(config: Message, index: int, models: KnownModels) -> Finding:
    name = config.ensemble_scheduling.step[index].model_name
    path = step_path(index, "model_name")
    if name in models.failed:
        text = f"ensemble '{config.name}' depends on '{name}' which has no loaded version. "
        text += f"Model '{name}' loading failed with error: {models.failed[name]} (step {index + 1})"
        return Finding(text, path, f"mend model '{name}' first")
    near = schema.suggestion(name, models.configs)
    text = f"ensemble {config.name} contains models that are not available or ambiguous: {name} (step {index + 1}){near}"
    return Finding(text, path, f"models that there are: {', '.join(sorted(models.configs)) or 'none'}")


def _version_findings(config: Message, index: int, models: KnownModels) -> Iterator[Finding]:
    step = config.ensemble_scheduling.step[index]
    versions = models.versions.get(step.model_name)
    if step.model_version >= 0 and versions and step.model_version not in versions:
        there = ", ".join(map(str, versions))
        text = f"{step_name(config, index)} wants version {step.model_version} of the model, loaded are: {there}"
        yield Finding(f"{text}; set model_version: -1 for the latest", step_path(index, "model_version"))


def _batch_findings(config: Message, index: int, model: Message) -> Iterator[Finding]:
    if 0 < model.max_batch_size < config.max_batch_size:
        text = (
            f"{step_name(config, index)} takes batches of {model.max_batch_size} at most, the ensemble {config.max_batch_size}"
        )
        advice = f"set max_batch_size of '{config.name}' to {model.max_batch_size} or less"
        yield Finding(text, ("max_batch_size",), advice)


def _name_findings(config: Message, index: int, model: Message) -> Iterator[Finding]:
    step = config.ensemble_scheduling.step[index]
    for mapping, side, tensors in (("input_map", "input", model.input), ("output_map", "output", model.output)):
        known = [tensor.name for tensor in tensors]
        for key in sorted(getattr(step, mapping)):
            if key not in known:
                near = schema.suggestion(key, known)
                text = f"{step_name(config, index)}: {mapping} has key '{key}', which is not an {side} of the model{near}"
                yield Finding(text, step_path(index, mapping, key), f"its {side}s: {', '.join(known) or 'none'}")
    for tensor in model.input:
        if tensor.name not in step.input_map and not tensor.optional:
            text = f"{step_name(config, index)}: input '{tensor.name}' of the model is not in input_map, and it is required"
            yield Finding(text, step_path(index), f'add input_map {{ key: "{tensor.name}" value: "…" }}')


def _type_findings(config: Message, models: KnownModels, written: Mapping[str, _Use]) -> Iterator[Finding]:
    for index, step in enumerate(config.ensemble_scheduling.step):
        model = models.configs.get(step.model_name)
        for key, tensor in _mapped(step.input_map, model.input) if model is not None else ():
            use = _use(model, tensor, f"input '{key}' of the model")
            where = step_path(index, "input_map", key)
            yield from _compared(step_name(config, index), step.input_map[key], written, use, where)
    for index, tensor in enumerate(config.output):
        use = _use(config, tensor, "the ensemble's output")
        yield from _compared(f"ensemble '{config.name}'", tensor.name, written, use, ("output", index))


def _compared(who: str, name: str, written: Mapping[str, _Use], use: _Use, path: FieldPath) -> Iterator[Finding]:
    """Yield where the reader `use` of tensor `name` and its writer differ."""
    source = written.get(name)
    if source is None:
        return
    types = [schema.enum_name(end.tensor, "data_type") for end in (source, use)]
    if types[0] != types[1]:
        yield Finding(f"{who}: tensor '{name}' is {types[0]} from {source.who}, but {types[1]} as {use.who}", path)
    if not source.fits(use):
        shapes = f"has shape {shape.text(source.shape)} from {source.who}, but {shape.text(use.shape)} as {use.who}"
        batch = " (with the batch dimension where a model batches)" if len(source.shape) != len(use.shape) else ""
        yield Finding(f"{who}: tensor '{name}' {shapes}{batch}", path)


def _decoupled_findings(config: Message, models: KnownModels) -> Iterator[Finding]:
    """Yield where the answers of two models would have to be joined which both answer any number of times. A model behind the
    other is no such case: each of its answers belongs to one of the other's.
    """
    steps = config.ensemble_scheduling.step
    ways: dict[str, tuple[int, ...]] = {}
    for _ in steps:
        for index, step in enumerate(steps):
            model = models.configs.get(step.model_name)
            own = (index,) if model is not None and model.model_transaction_policy.decoupled else ()
            ways.update(dict.fromkeys(step.output_map.values(), (*_longest(step.input_map.values(), ways), *own)))
    for index, step in enumerate(steps):
        names = _unlike(step.input_map.values(), ways, steps)
        if names:
            text = f"{step_name(config, index)} reads tensors of more than one decoupled model: {names}"
            yield Finding(text, step_path(index), "let one of them answer once")
    names = _unlike([tensor.name for tensor in config.output], ways, steps)
    if names:
        text = f"ensemble '{config.name}' has outputs of more than one decoupled model: {names}"
        yield Finding(text, ("output",), "let one of them answer once")


def _longest(tensors: Iterable[str], ways: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the longest list of decoupled steps that one of these tensors has come through."""
    return max((ways.get(name, ()) for name in tensors), key=len, default=())


def _unlike(tensors: Iterable[str], ways: Mapping[str, tuple[int, ...]], steps: Any) -> str:
    """Return the names of the decoupled steps that these tensors have come through on different ways; "" if it is one way."""
    found = {ways.get(name, ()) for name in tensors}
    longest = max(found, key=len, default=())
    if all(longest[: len(way)] == way for way in found):
        return ""
    sources = sorted({source for way in found for source in way})
    return " and ".join(f"step {source + 1} (model '{steps[source].model_name}')" for source in sources)


def _are_alike(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(-1 in pair or pair[0] == pair[1] for pair in zip(one, other))


def _mapped(names: Mapping[str, str], tensors: Iterable[Any]) -> list[tuple[str, Any]]:
    return [(tensor.name, tensor) for tensor in tensors if tensor.name in names]


def _use(config: Message, tensor: Message, who: str) -> _Use:
    batch = (shape.VARIABLE,) if config.max_batch_size > 0 else ()
    return _Use(tensor, (*batch, *tensor.dims), who)
