"""Make the sequence batcher's plan: control tensors, states with their first values, slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from naiad.config import schema
from naiad.config.compile.initial_states import initial_state
from naiad.config.compile.tensors import tensor_plan
from naiad.config.plan import (
    ControlKind,
    ControlPlan,
    DynamicBatchingPlan,
    QueuePolicy,
    SequencePlan,
    StatePlan,
    TensorPlan,
)
from naiad.proto import Message

_DATATYPE_OF_VALUES = {"int32_false_true": "TYPE_INT32", "fp32_false_true": "TYPE_FP32", "bool_false_true": "TYPE_BOOL"}


def sequence_plan(config: Message, inputs: Sequence[TensorPlan], directory: Path) -> SequencePlan | None:
    """Return the plan, None for a model without the sequence batcher; files of states are read from `directory`/initial_state.

    Raises INVALID_ARGUMENT for a file of an initial state that is missing, unreadable, too short or outside that folder.
    """
    if config.WhichOneof("scheduling_choice") != "sequence_batching":
        return None
    batching = config.sequence_batching
    oldest = batching.oldest if batching.WhichOneof("strategy_choice") == "oldest" else None
    states = tuple(_states(config, directory))
    added = [state.input for state in states]
    variable = tuple(tensor.name for tensor in (*inputs, *added) if tensor.is_variable and not tensor.allow_ragged_batch)
    slots = oldest.max_candidate_sequences if oldest is not None else 0
    return SequencePlan(
        slots=slots if slots > 0 else max(1, config.max_batch_size),
        max_idle_us=batching.max_sequence_idle_microseconds,
        controls=tuple(_controls(config)),
        states=states,
        variable_inputs=variable,
        oldest=_oldest_plan(config, oldest, inputs, variable) if oldest is not None else None,
        is_iterative=batching.iterative_sequence,
        max_queue_delay_us=batching.direct.max_queue_delay_microseconds,
        minimum_slot_utilization=batching.direct.minimum_slot_utilization,
    )


def first_inputs(batching: SequencePlan, max_batch_size: int) -> dict[str, Any]:
    """Return what the sequence batcher would add to the first request of a sequence: for requests that don't pass by it."""
    shape = (1, 1) if max_batch_size > 0 else (1,)
    inputs = {state.input.name: state.initial for state in batching.states}
    for control in batching.controls:
        datatype = control.tensor.datatype
        first_id = 1 if datatype.size_bytes else b"1"
        value = first_id if control.values is None else control.values[control.kind is not ControlKind.END]
        inputs[control.tensor.name] = np.full(shape, value, datatype.numpy)
    return inputs


def _oldest_plan(
    config: Message, oldest: Message, inputs: Sequence[TensorPlan], variable: tuple[str, ...]
) -> DynamicBatchingPlan:
    """Return what an instance's ready requests are batched by: they have passed the slots, so no limit holds here."""
    size = max(1, config.max_batch_size)
    return DynamicBatchingPlan(
        max_batch_size=size,
        preferred_batch_sizes=tuple(sorted(set(oldest.preferred_batch_size))) or (size,),
        max_queue_delay_us=oldest.max_queue_delay_microseconds,
        preserve_ordering=oldest.preserve_ordering,
        levels=0,
        default_level=0,
        default_policy=QueuePolicy(),
        policies={},
        ragged_inputs=frozenset(tensor.name for tensor in inputs if tensor.allow_ragged_batch),
        variable_inputs=variable,
        has_optional_inputs=any(tensor.is_optional for tensor in inputs),
    )


def _controls(config: Message) -> Iterator[ControlPlan]:
    for tensor in config.sequence_batching.control_input:
        for control in tensor.control:
            kind = ControlKind(schema.enum_name(control, "kind"))
            field = next((name for name in _DATATYPE_OF_VALUES if len(getattr(control, name))), "")
            datatype = _DATATYPE_OF_VALUES[field] if field else schema.enum_name(control, "data_type")
            values = tuple(getattr(control, field)) if field else None
            yield ControlPlan(kind, tensor_plan(tensor.name, datatype, (1,), config.max_batch_size), values)


def _states(config: Message, directory: Path) -> Iterator[StatePlan]:
    for state in config.sequence_batching.state:
        datatype = schema.enum_name(state, "data_type")
        source, target = (
            tensor_plan(name, datatype, tuple(state.dims), config.max_batch_size)
            for name in (state.input_name, state.output_name)
        )
        yield StatePlan(source, target, initial_state(state, source, directory, is_batching=config.max_batch_size > 0))
