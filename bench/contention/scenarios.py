"""What open-loop rows measure, as plain values: one model of a known price, how it is batched, and how requests arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.contention.traces import bursts, constant, poisson
from bench.http_infer import Array
from bench.models.repository import Model, Tensor

PYTHON_COSTLY = Path(__file__).parent.parent / "models" / "python_costly.py"
MAX_BATCH_SIZE = 8
CAPACITY_PER_S = 500.0
"""Full batches of 8 take 16 ms (bench/models/python_costly.py); one request at a time would be 111."""
QUEUE_TIMEOUT_MS = 100.0
OVERLOAD = "overload-3x"
QUEUE_POLICY = f"default_queue_policy {{ default_timeout_microseconds: {QUEUE_TIMEOUT_MS * 1000:.0f} timeout_action: REJECT }}"


@dataclass(frozen=True, slots=True)
class Batching:
    """One way of batching: `settings` stand in dynamic_batching, `parameters` are the model's. `on_triton` says whether Triton
    is measured with it too.
    """

    title: str
    settings: str
    on_triton: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpenScenario:
    """One trace of requests on the costly model; an answer is good that comes within `deadline_ms` of its moment in the trace.

    `arrivals` makes the trace of so many seconds.
    """

    name: str
    arrivals: Callable[[float], Array]
    deadline_ms: float


BATCHINGS = (
    Batching("dynamic_batching { }", "", on_triton=True),
    Batching("dynamic_batching { }, 50 ms wanted", "", parameters={"naiad_latency_target_ms": "50"}),
    Batching("no delay", "", parameters={"naiad_adaptive_batching": "off"}),
    Batching("delay 2 ms", "max_queue_delay_microseconds: 2000"),
    Batching("delay 10 ms", "max_queue_delay_microseconds: 10000"),
)
WITH_TIMEOUT = Batching("queue time-out 100 ms", QUEUE_POLICY, on_triton=True)

ADAPTIVE_SCENARIOS = (
    OpenScenario("adaptive-constant-300", lambda duration_s: constant(300, duration_s), 50),
    OpenScenario("adaptive-poisson-50", lambda duration_s: poisson(50, duration_s), 50),
    OpenScenario("adaptive-poisson-300", lambda duration_s: poisson(300, duration_s), 50),
    OpenScenario("adaptive-poisson-425", lambda duration_s: poisson(425, duration_s), 50),
    OpenScenario("adaptive-bursts-300", lambda duration_s: bursts(300, duration_s), 50),
)
LOAD_FACTORS = (0.8, 0.9, 1.0, 1.2, 3.0)
OVERLOAD_DEADLINE_MS = QUEUE_TIMEOUT_MS + 25
"""The time-out is that of the queue: one execution and the way there and back come to it."""


def overload_scenario(factor: float) -> OpenScenario:
    """Return the load of `factor` times what the model can do, requests at random."""
    name = OVERLOAD if factor == LOAD_FACTORS[-1] else f"overload-{factor:g}x"
    return OpenScenario(name, lambda duration_s: poisson(factor * CAPACITY_PER_S, duration_s), OVERLOAD_DEADLINE_MS)


def costly_model(name: str, batching: Batching) -> Model:
    """Return the costly model with this batching, one instance."""
    return Model(
        name=name,
        backend="python",
        inputs=(Tensor("INPUT0", "TYPE_FP32", (16,)),),
        outputs=(Tensor("OUTPUT0", "TYPE_FP32", (16,)),),
        max_batch_size=MAX_BATCH_SIZE,
        file=PYTHON_COSTLY,
        file_name="model.py",
        parameters=batching.parameters,
        more_config=f"dynamic_batching {{ {batching.settings} }}",
    )


def costly_inputs() -> dict[str, Array]:
    """Return one request's tensor."""
    return {"INPUT0": np.arange(16, dtype=np.float32).reshape(1, 16)}
