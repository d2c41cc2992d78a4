"""What is wrong with the sequence batcher's settings: control tensors, strategy, states."""

from __future__ import annotations

from collections.abc import Iterator

from naiad.config import schema
from naiad.config.findings import FieldPath, Finding
from naiad.config.validate.scheduling import size_texts
from naiad.proto import Message

_VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
_ID_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")
_ID_KIND = "CONTROL_SEQUENCE_CORRID"


def sequence_findings(config: Message) -> Iterator[Finding]:
    """Yield a mistake at a time. A config of any other scheduler, or of none, has none here."""
    if not config.HasField("sequence_batching"):
        return
    for path, text in (*_policy_texts(config), *_control_texts(config.sequence_batching), *_state_texts(config)):
        yield Finding(f"sequence batching {text} for {config.name}", ("sequence_batching", *path))


def _policy_texts(config: Message) -> Iterator[tuple[FieldPath, str]]:
    batching = config.sequence_batching
    if config.response_cache.enable:
        yield (), "excludes response_cache.enable: an answer depends on the requests before it"
    if batching.HasField("oldest"):
        for text in size_texts(batching.oldest.preferred_batch_size, config.max_batch_size):
            yield ("oldest", "preferred_batch_size"), text
    use = batching.direct.minimum_slot_utilization
    if not 0 <= use <= 1:
        yield ("direct", "minimum_slot_utilization"), f"minimum_slot_utilization must be in range [0, 1], got {use:g}"


def _control_texts(batching: Message) -> Iterator[tuple[FieldPath, str]]:
    names: set[str] = set()
    kinds: set[str] = set()
    for index, tensor in enumerate(batching.control_input):
        path: FieldPath = ("control_input", index)
        if not tensor.name:
            yield path, "control tensor must specify 'name'"
        elif tensor.name in names:
            yield (*path, "name"), f"control tensor '{tensor.name}' is given twice"
        names.add(tensor.name)
        if not tensor.control:
            yield path, f"control tensor '{tensor.name}' must specify 'control'"
        for number, control in enumerate(tensor.control):
            kind = schema.enum_name(control, "kind")
            where = (*path, "control", number)
            if kind in kinds:
                yield where, f"specifies {kind} more than once, here by control tensor '{tensor.name}'"
            kinds.add(kind)
            yield from ((where, f"control tensor '{tensor.name}', {kind}: {text}") for text in _value_texts(kind, control))


def _value_texts(kind: str, control: Message) -> Iterator[str]:
    """Yield what is wrong with the values or the type of one control."""
    given = [name for name in _VALUES if len(getattr(control, name))]
    if kind == _ID_KIND:
        if given:
            yield f"must not specify {', '.join(given)}"
        name = schema.enum_name(control, "data_type")
        if name not in _ID_TYPES:
            yield f"data_type is {name}, allowed: {', '.join(_ID_TYPES)}"
        return
    if len(given) != 1:
        yield f"must specify exactly one of {', '.join(_VALUES)}, got {' and '.join(given) or 'none'}"
    for name in given:
        count = len(getattr(control, name))
        if count != 2:
            yield f"{name} must have exactly 2 entries, for false and for true, got {count}"


def _state_texts(config: Message) -> Iterator[tuple[FieldPath, str]]:
    for index, state in enumerate(config.sequence_batching.state):
        path: FieldPath = ("state", index)
        for field in ("input_name", "output_name"):
            if not getattr(state, field):
                yield path, f"state must specify '{field}'"
        if state.data_type == 0:
            yield path, f"state '{state.input_name}' must specify 'data_type'"
        if not state.dims:
            yield path, f"state '{state.input_name}' must specify 'dims'"
        yield from (((*path, "initial_state"), text) for text in _initial_texts(state))


def _initial_texts(state: Message) -> Iterator[str]:
    """Yield what is wrong with the first value of a state."""
    what = f"state '{state.input_name}'"
    if len(state.initial_state) > 1:
        yield f"{what} must have one initial_state at most, got {len(state.initial_state)}"
    for chosen in state.initial_state:
        if not chosen.name:
            yield f"{what}: initial_state must specify 'name'"
        if chosen.data_type != state.data_type:
            found, wanted = schema.enum_name(chosen, "data_type"), schema.enum_name(state, "data_type")
            yield f"{what}: the data_type of initial_state '{chosen.name}' is {found}, must be the state's, {wanted}"
        if len(chosen.dims) != len(state.dims):
            yield (
                f"{what}: initial_state '{chosen.name}' has {len(chosen.dims)} dims {list(chosen.dims)}, must have as many as "
                f"the state, {list(state.dims)}"
            )
        elif any(dim not in (given, -1) for dim, given in zip(state.dims, chosen.dims)):
            yield (
                f"{what}: initial_state '{chosen.name}' has dims {list(chosen.dims)}, which don't fit those of the state, "
                f"{list(state.dims)}"
            )
        if any(dim < 1 for dim in chosen.dims):
            yield f"{what}: the dims of initial_state '{chosen.name}' must be positive, got {list(chosen.dims)}"
        if chosen.WhichOneof("state_data") is None:
            yield f"{what}: initial_state '{chosen.name}' must specify one of zero_data, data_file"
