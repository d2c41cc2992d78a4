"""What is measured, as plain values: models, the ways in which Naiad may run them, and the loads. Owns the names on the CLI.

The identity model costs nothing, so what is left is the server: it is the hardest case for one in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from bench.contention.scenarios import ADAPTIVE_SCENARIOS, OVERLOAD
from bench.errors import BenchError
from bench.http_infer import Array, Form
from bench.models import onnx_files
from bench.models.repository import Model, Tensor
from bench.onnx import files
from bench.sequences.lives import COUNT

PYTHON_IDENTITY = Path(__file__).parent / "models" / "python_identity.py"
PYTHON_SLEEPER = Path(__file__).parent / "models" / "python_sleeper.py"
PYTHON_REPEAT = Path(__file__).parent / "models" / "python_repeat.py"
FOOTPRINT = "footprint"
IDLE = "grpc-idle-1000"
STREAM = "grpc-stream-10000"
MANY = "models-2000"
FAIRNESS = "fairness"
MANY_MODELS = 2000
IDLE_CONNECTIONS = 1000
STREAM_RESPONSES = 10_000
SEED = 20


@dataclass(frozen=True, slots=True)
class Family:
    """An identity model FP32[`dims`] that each server has once for each way of running it: all of them, or only as a Python
    model when it `needs_python`. With `step_count` it is an ensemble of so many such models. With `is_cached` all requests
    but the first are answered from the response cache.
    """

    name: str
    dims: tuple[int, ...]
    is_batched: bool = False
    max_batch_size: int = 8
    python_file: Path = PYTHON_IDENTITY
    needs_python: bool = False
    step_count: int = 0
    is_cached: bool = False

    def inputs(self) -> dict[str, Array]:
        """Return one request's tensor: batch 1, random values, the same in every run."""
        return {"INPUT0": np.random.default_rng(SEED).random((1, *self.dims), dtype=np.float32)}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of running the identity in Naiad. `module` must be there for it, "" for nothing special; with `is_step` only
    the steps of ensembles run that way.
    """

    name: str
    title: str
    backend: str
    parameters: dict[str, str] = field(default_factory=dict)
    module: str = ""
    is_step: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load on one family. `generator` is wrk for HTTP, h2load for gRPC, or perf_analyzer, which makes its own requests (in
    binary form) and does both.
    """

    name: str
    family: Family
    form: Form
    concurrency: int
    generator: str = "wrk"


@dataclass(frozen=True, slots=True)
class SequenceScenario:
    """COUNT live sequences over `concurrency` connections on one model with this `strategy` in its sequence_batching."""

    name: str
    strategy: str
    max_batch_size: int
    instance_count: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class EngineScenario:
    """One real ONNX model, on Naiad and in a bare loop. `batch` requests fill a batch; the load is twice that many at once."""

    name: str
    find_model: Callable[[], Path]
    input: Tensor
    output: Tensor
    batch: int
    is_batching: bool

    @property
    def concurrency(self) -> int:
        """How many requests are on their way at once: one batch runs while the next one gathers."""
        return 2 * self.batch

    def item(self) -> Array:
        """Return one request's input, in its whole shape: random values that suit the model, the same in every run."""
        shape = (1, *self.input.dims) if self.is_batching else self.input.dims
        random = np.random.default_rng(SEED)
        if self.input.data_type == "TYPE_INT32":
            return random.integers(0, 256, shape, dtype=np.int32)
        return random.random(shape, dtype=np.float32)


IDENTITY = Family("identity", (16,))
IDENTITY_BATCHED = Family("identity_batched", (16,), is_batched=True)
IMAGE = Family("image", (3, 224, 224))
SLEEPER = Family("sleeper", (16,), is_batched=True, max_batch_size=16, python_file=PYTHON_SLEEPER, needs_python=True)
ENSEMBLE = Family("ensemble", (16,), step_count=3)
CACHED = Family("cached", (16,), is_cached=True)
FAMILIES = (IDENTITY, IDENTITY_BATCHED, IMAGE, SLEEPER, ENSEMBLE, CACHED)

VARIANTS = (
    Variant("in_place", "in place", "identity", {"naiad_placement": "in_place"}),
    Variant("thread", "in a thread", "identity", {"naiad_placement": "thread"}),
    Variant("worker", "worker process", "python", module="naiad.backends.python"),
    Variant("onnx", "ONNX models", "onnxruntime", module="onnx", is_step=True),
)

SCENARIOS = (
    *(Scenario(f"identity-binary-c{count}", IDENTITY, Form.BINARY, count) for count in (1, 16, 64)),
    *(Scenario(f"identity-json-c{count}", IDENTITY, Form.JSON, count) for count in (1, 16, 64)),
    Scenario("identity-batched-binary-c16", IDENTITY_BATCHED, Form.BINARY, 16),
    Scenario("identity-perf-analyzer-c16", IDENTITY, Form.BINARY, 16, "perf_analyzer"),
    Scenario("image-binary-c1", IMAGE, Form.BINARY, 1),
    Scenario("image-binary-c16", IMAGE, Form.BINARY, 16),
    Scenario("sleep-5ms-batched-c64", SLEEPER, Form.BINARY, 64),
    *(Scenario(f"ensemble-3-binary-c{count}", ENSEMBLE, Form.BINARY, count) for count in (1, 16, 64)),
    Scenario("cached-binary-c16", CACHED, Form.BINARY, 16),
    *(Scenario(f"identity-grpc-c{count}", IDENTITY, Form.GRPC, count, "h2load") for count in (1, 16, 64)),
    Scenario("identity-grpc-perf-analyzer-c16", IDENTITY, Form.GRPC, 16, "perf_analyzer"),
    *(Scenario(f"image-grpc-c{count}", IMAGE, Form.GRPC, count, "h2load") for count in (1, 16)),
)

_BYTES = Tensor("bytes", "TYPE_INT32", (2048,))
_LABEL = Tensor("target_label", "TYPE_FP32", (214,))
_PICTURE = Tensor("gpu_0/data_0", "TYPE_FP32", (1, 3, 224, 224))
_CLASSES = Tensor("gpu_0/softmax_1", "TYPE_FP32", (1, 1000))

ENGINE_SCENARIOS = (
    EngineScenario("magika-batch1", files.magika, _BYTES, _LABEL, 1, is_batching=True),
    EngineScenario("magika-batch8", files.magika, _BYTES, _LABEL, 8, is_batching=True),
    EngineScenario("resnet50", files.resnet50, _PICTURE, _CLASSES, 1, is_batching=False),
)

OLDEST = "oldest { max_candidate_sequences: 1024 }"
SEQUENCE_SCENARIOS = (
    *(SequenceScenario(f"sequences-{COUNT}-oldest-c{count}", OLDEST, 64, 1, count) for count in (64, 256)),
    SequenceScenario(f"sequences-{COUNT}-direct-c64", "direct { }", 128, 8, 64),
)


def scenario_names() -> tuple[str, ...]:
    """Return every name that --scenario takes, in the order of the table."""
    listed = [each.name for each in SCENARIOS] + [each.name for each in SEQUENCE_SCENARIOS]
    listed += [each.name for each in ADAPTIVE_SCENARIOS] + [OVERLOAD]
    return (*listed, *(each.name for each in ENGINE_SCENARIOS), FOOTPRINT, IDLE, STREAM, MANY, FAIRNESS)


def chosen_names(wanted: tuple[str, ...]) -> frozenset[str]:
    """Return the scenarios to run, all of them for none wanted; raise BenchError for a name that doesn't exist."""
    names = scenario_names()
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise BenchError(f"--scenario {unknown[0]}: no such scenario, it must be one of {', '.join(names)}")
    return frozenset(wanted or names)


def variants_of(family: Family, variants: Sequence[Variant]) -> list[Variant]:
    """Return those of `variants` in which the family's model can run."""
    chosen = (each for each in variants if each.backend == "python" or not family.needs_python)
    return [each for each in chosen if family.step_count or not each.is_step]


def naiad_identity(family: Family, variant: Variant) -> Model:
    """Return the family's model as Naiad runs it in this variant."""
    file = family.python_file if variant.backend == "python" else None
    return _identity(f"{family.name}_{variant.name}", family, variant.backend, variant.parameters, file)


def triton_identity(family: Family) -> Model:
    """Return the family's model as Triton runs it: its wheel has the Python backend only."""
    return _identity(family.name, family, "python", {}, family.python_file)


def repeat_model() -> Model:
    """Return the decoupled Python model that both servers run: COUNT small responses to one request."""
    numbers = (Tensor("COUNT", "TYPE_INT32", (1,)), Tensor("OUT", "TYPE_INT32", (1,)))
    return Model("repeat", "python", numbers[:1], numbers[1:], is_decoupled=True, file=PYTHON_REPEAT, file_name="model.py")


def engine_model(scenario: EngineScenario) -> Model:
    """Return the ONNX model as Naiad serves it: one instance, one thread; raise Unavailable when its file can't be had."""
    return Model(
        name=scenario.name,
        backend="onnxruntime",
        inputs=(scenario.input,),
        outputs=(scenario.output,),
        max_batch_size=scenario.batch if scenario.is_batching else 0,
        is_batched=scenario.batch > 1,
        parameters={"intra_op_thread_count": "1"},
        file=scenario.find_model(),
        file_name="model.onnx",
    )


def _identity(name: str, family: Family, backend: str, parameters: dict[str, str], file: Path | None) -> Model:
    is_onnx = backend == "onnxruntime"
    model = Model(
        name=f"{name}_step" if family.step_count else name,
        backend=backend,
        inputs=(Tensor("INPUT0", "TYPE_FP32", family.dims),),
        outputs=(Tensor("OUTPUT0", "TYPE_FP32", family.dims),),
        max_batch_size=family.max_batch_size,
        is_batched=family.is_batched,
        is_cached=family.is_cached,
        parameters=parameters,
        file=file,
        file_name="model.py" if file else "model.onnx" if is_onnx else "",
        make_file=partial(onnx_files.identity, *family.dims) if is_onnx else None,
    )
    if not family.step_count:
        return model
    return Model(name, "", model.inputs, model.outputs, model.max_batch_size, step=model, step_count=family.step_count)
