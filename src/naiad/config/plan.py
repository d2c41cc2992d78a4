"""`ModelPlan`: a model's completed configuration, compiled once at load for the hot path and everyone else.

Owns the immutable values; `config.compile` makes them from a validated ModelConfig. Nothing here interprets protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from naiad.config.traffic import TrafficSettings
from naiad.tensor.datatype import Datatype


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """One input or output.

    `dims` is the shape of one item as the config says it, -1 for variable sizes. `shape` is what a client sends or gets: `dims`
    with a leading -1 when the model batches. `backend_shape` is what the backend sees: `reshape` in place of `dims`, with the
    same leading -1. `has_reshape` tells whether the two differ.
    """

    name: str
    datatype: Datatype
    dims: tuple[int, ...]
    shape: tuple[int, ...]
    backend_shape: tuple[int, ...]
    has_reshape: bool = False
    is_optional: bool = False
    allow_ragged_batch: bool = False
    labels: tuple[str, ...] = ()

    @property
    def is_variable(self) -> bool:
        """Whether one item's shape has a variable size."""
        return -1 in self.dims


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How one priority level queues. `timeout_us` 0 is for ever; `max_size` 0 is without limit.

    `is_delay`: an expired request is served after those in time (DELAY) and not refused (REJECT).
    """

    timeout_us: int = 0
    is_delay: bool = False
    allow_timeout_override: bool = False
    max_size: int = 0


@dataclass(frozen=True, slots=True)
class DynamicBatchingPlan:
    """The dynamic batcher's settings. `preferred_batch_sizes` is ascending and not empty when the model batches;
    `levels` is 0 without priorities; `policies` holds the levels with a policy of their own (1 is the highest).
    """

    max_batch_size: int
    preferred_batch_sizes: tuple[int, ...]
    max_queue_delay_us: int
    preserve_ordering: bool
    levels: int
    default_level: int
    default_policy: QueuePolicy
    policies: Mapping[int, QueuePolicy]
    ragged_inputs: frozenset[str]
    """Inputs whose shapes may differ in a batch."""
    variable_inputs: tuple[str, ...]
    """Inputs with a variable dim that must have equal shapes in a batch (those of `ragged_inputs` are not in it)."""
    has_optional_inputs: bool
    refuses_early: bool = False
    """Whether a request that can't be in time by estimate is refused when it comes."""
    client_weights: Mapping[str, int] | None = None
    """The operator's, not the configuration's: by what clients share the model, None where nobody asks who a client is."""
    is_adaptive: bool = False
    """Whether sizes and waits follow what is measured, since the configuration says nothing of them."""
    latency_target_us: int = 0
    """In which nearly all should be answered, 0 for none; only with `is_adaptive`."""

    @property
    def has_reject_timeout(self) -> bool:
        """Whether a request may be refused for the time that it has waited."""
        policies = (self.default_policy, *self.policies.values())
        return any(policy.timeout_us and not policy.is_delay for policy in policies)


class ControlKind(Enum):
    """What a control tensor tells the model of the request it comes with."""

    START = "CONTROL_SEQUENCE_START"
    END = "CONTROL_SEQUENCE_END"
    READY = "CONTROL_SEQUENCE_READY"
    CORRID = "CONTROL_SEQUENCE_CORRID"


@dataclass(frozen=True, slots=True)
class ControlPlan:
    """A tensor of one element that the sequence batcher adds to each request: `values` are those for false and for true, None
    for the correlation id.
    """

    kind: ControlKind
    tensor: TensorPlan
    values: tuple[float | bool, float | bool] | None = None


@dataclass(frozen=True, slots=True)
class StatePlan:
    """A tensor that the sequence batcher keeps between the requests of a sequence: what the model returned as `output` becomes
    the next request's `input`. `initial` is the first request's array, with the batch dimension of 1 when the model batches.
    """

    input: TensorPlan
    output: TensorPlan
    initial: Any


@dataclass(frozen=True, slots=True)
class SequencePlan:
    """The sequence batcher's settings. `slots` is how many sequences an instance serves at once; the strategy is `oldest` when
    that is given, otherwise direct, to which the last two belong.
    """

    slots: int
    max_idle_us: int
    controls: tuple[ControlPlan, ...]
    states: tuple[StatePlan, ...]
    variable_inputs: tuple[str, ...]
    """Inputs with a variable dim, those of states included, that must have equal shapes in a batch."""
    oldest: DynamicBatchingPlan | None
    is_iterative: bool = False
    """A request is a sequence of its own, which the model runs as often as it wants."""
    max_queue_delay_us: int = 0
    minimum_slot_utilization: float = 0.0


class BatchInputKind(Enum):
    """What a tensor that is made of a batch tells of the requests in it."""

    ELEMENT_COUNT = "BATCH_ELEMENT_COUNT"
    ACCUMULATED_ELEMENT_COUNT = "BATCH_ACCUMULATED_ELEMENT_COUNT"
    ACCUMULATED_ELEMENT_COUNT_WITH_ZERO = "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO"
    MAX_ELEMENT_COUNT_AS_SHAPE = "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE"
    ITEM_SHAPE = "BATCH_ITEM_SHAPE"
    ITEM_SHAPE_FLATTEN = "BATCH_ITEM_SHAPE_FLATTEN"


@dataclass(frozen=True, slots=True)
class BatchInputPlan:
    """A tensor of the model's that is made of the shapes that the input `source` has in a batch."""

    kind: BatchInputKind
    tensor: TensorPlan
    source: str


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step of an ensemble: `inputs` are pairs of an input of its model and the ensemble's tensor for it, `outputs` the
    tensors that its model's outputs become. `version` is "" for the latest.
    """

    model_name: str
    version: str
    inputs: tuple[tuple[str, str], ...]
    outputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EnsemblePlan:
    """What an ensemble runs; `max_inflight_requests` is how many calls a step may have open at once, 0 for any number."""

    steps: tuple[StepPlan, ...]
    max_inflight_requests: int = 0


@dataclass(frozen=True, slots=True)
class ResourceNeed:
    """`count` of a resource that an instance needs to run; one that `is_global` is shared by all devices."""

    name: str
    count: int
    is_global: bool


@dataclass(frozen=True, slots=True)
class InstancePlan:
    """One instance to make: `name` is unique in the model, `kind` CPU, GPU or MODEL, `device_id` the GPU or -1.

    `resources` and `priority` (0 counts as 1, the highest) are for the rate limiter.
    `host_policy` names the CPUs that it runs on, see `devices.host_policy`.
    """

    name: str
    kind: str
    device_id: int
    group: str
    is_passive: bool = False
    resources: tuple[ResourceNeed, ...] = ()
    priority: int = 0
    host_policy: str = "cpu"


@dataclass(frozen=True, slots=True, eq=False)
class WarmupSample:
    """A batch to run before the model serves: `batch_size` requests of one item with `inputs`, `count` times."""

    name: str
    batch_size: int
    count: int
    inputs: Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """Everything the server needs to know about one model version.

    `config` is the completed configuration in its JSON form (what `/config` shows), to be read only. `directory` is the model's
    folder, `version_directory` the folder with the model's files, `model_file` the file or folder name in it.
    """

    name: str
    version: int
    backend: str
    platform: str
    max_batch_size: int
    inputs: tuple[TensorPlan, ...]
    outputs: tuple[TensorPlan, ...]
    required_inputs: frozenset[str]
    is_decoupled: bool
    dynamic_batching: DynamicBatchingPlan | None
    sequence_batching: SequencePlan | None
    batch_inputs: tuple[BatchInputPlan, ...]
    scattered_outputs: Mapping[str, str]
    """Outputs whose elements lie in one row for all requests of a batch, each with the input whose shapes it is cut by."""
    instances: tuple[InstancePlan, ...]
    parameters: Mapping[str, str]
    metric_tags: Mapping[str, str]
    directory: Path
    version_directory: Path
    model_file: str
    config: Mapping[str, Any]
    inputs_by_name: Mapping[str, TensorPlan]
    outputs_by_name: Mapping[str, TensorPlan]
    traffic: TrafficSettings | None = None
    warmup: tuple[WarmupSample, ...] = ()
    is_cached: bool = False
    """Whether the config wants answers to be kept, `response_cache.enable`."""
    answers_digest: bytes = b""
    """What equal models have in common that share kept answers; b"" for one that shares none."""
    ensemble: EnsemblePlan | None = None

    @property
    def is_batching(self) -> bool:
        """Whether clients prepend a batch dimension."""
        return self.max_batch_size > 0

    @property
    def joins_ragged(self) -> bool:
        """Whether inputs of different shapes go to the model as one row of elements."""
        return bool(self.batch_inputs or self.scattered_outputs)

    def for_backend(self) -> ModelPlan:
        """Return the plan as the model sees it: with the tensors that are added for it and taken from it, and with one row of
        elements in place of those that are joined although their shapes differ.
        """
        if self.sequence_batching is None and not self.joins_ragged:
            return self
        added, taken = [made.tensor for made in self.batch_inputs], []
        if self.sequence_batching is not None:
            states = self.sequence_batching.states
            added += [control.tensor for control in self.sequence_batching.controls] + [state.input for state in states]
            taken = [state.output for state in states if state.output.name not in self.outputs_by_name]
        rows = {tensor.name for tensor in self.inputs if tensor.allow_ragged_batch} if self.joins_ragged else set()
        inputs = tuple(_in_a_row(tensor) if tensor.name in rows else tensor for tensor in (*self.inputs, *added))
        outputs = tuple(
            _in_a_row(tensor) if tensor.name in self.scattered_outputs else tensor for tensor in (*self.outputs, *taken)
        )
        return replace(
            self,
            inputs=inputs,
            outputs=outputs,
            required_inputs=self.required_inputs | {tensor.name for tensor in added},
            inputs_by_name={tensor.name: tensor for tensor in inputs},
            outputs_by_name={tensor.name: tensor for tensor in outputs},
        )


def _in_a_row(tensor: TensorPlan) -> TensorPlan:
    return replace(tensor, backend_shape=(-1,), has_reshape=False)
