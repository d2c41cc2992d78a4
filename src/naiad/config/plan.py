"""`ModelPlan`: a model's completed configuration, compiled once at load for the hot path and everyone else.

Owns the immutable values; `config.compile` makes them from a validated ModelConfig. Nothing here interprets protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True, slots=True)
class InstancePlan:
    """One instance to make: `name` is unique in the model, `kind` CPU, GPU or MODEL, `device_id` the GPU or -1."""

    name: str
    kind: str
    device_id: int
    group: str
    is_passive: bool = False


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

    @property
    def is_batching(self) -> bool:
        """Whether clients prepend a batch dimension."""
        return self.max_batch_size > 0
