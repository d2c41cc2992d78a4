"""Naiad and Triton with 1,000 live sequences on one model. Owns the scenarios, the models' configurations and the rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.load import LoadPlan
from bench.measure import Setting, Subject, make_row, timed
from bench.models import onnx_files
from bench.models.repository import Model, Tensor
from bench.results import Comparison, Sample
from bench.scenarios import SequenceScenario
from bench.sequences.load import run_sequences

PYTHON_ACCUMULATOR = Path(__file__).parent.parent / "models" / "python_accumulator.py"
NUMBERS = (Tensor("INPUT0", "TYPE_INT32", (1,)), Tensor("OUTPUT0", "TYPE_INT32", (1,)))
CONTROLS = """  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "END" control { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } }
  control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } }
  control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT32 } }"""
STATE = """  state { input_name: "STATE_IN" output_name: "STATE_OUT" data_type: TYPE_INT32 dims: [ 1 ]
    initial_state { name: "zero" data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } }"""

IDLE_US = 5_000_000
"""Sequences that are left open keep a server from ending for so long."""
WARM_UP_S = 2.0
"""Time enough for each sequence to start."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way of running the running sum: who keeps the sums."""

    title: str
    backend: str


STATEFUL = Way("ONNX, the server keeps the state", "onnxruntime")
WORKER = Way("worker process", "python")
WAYS = (STATEFUL, WORKER)


def sequence_model(scenario: SequenceScenario, way: Way, name: str) -> Model:
    """Return the model of the running sum; those of Python are told the sequence, those of ONNX its sum."""
    is_python = way.backend == "python"
    inside = CONTROLS if is_python else STATE
    return Model(
        name=name,
        backend=way.backend,
        inputs=NUMBERS[:1],
        outputs=NUMBERS[1:],
        max_batch_size=scenario.max_batch_size,
        instance_count=scenario.instance_count,
        file=PYTHON_ACCUMULATOR if is_python else None,
        file_name="model.py" if is_python else "model.onnx",
        make_file=None if is_python else onnx_files.accumulator,
        more_config=f"sequence_batching {{\n  max_sequence_idle_microseconds: {IDLE_US}\n  {scenario.strategy}\n{inside}\n}}",
    )


def compare_sequences(setting: Setting, scenarios: Sequence[SequenceScenario], ways: Sequence[Way]) -> list[Comparison]:
    """Measure Naiad in each way against Triton, which has the Python model; return a row for each scenario and way.

    Raises BenchError when a server fails, answers wrongly or refuses requests.
    """
    return [row for scenario in scenarios for row in _compare_one(setting, scenario, ways)]


def _compare_one(setting: Setting, scenario: SequenceScenario, ways: Sequence[Way]) -> list[Comparison]:
    with ExitStack() as stack:
        subjects: list[Subject] = []
        if setting.naiad is not None:
            models = [sequence_model(scenario, way, f"sums_{number}") for number, way in enumerate(ways)]
            naiad = stack.enter_context(setting.naiad(scenario.name, tuple(models), ()))
            subjects += [Subject(way.title, naiad, model.name) for way, model in zip(ways, models)]
        ours = len(subjects)
        if setting.triton is not None:
            theirs = sequence_model(scenario, WORKER, "sums")
            subjects.append(Subject("", stack.enter_context(setting.triton(scenario.name, (theirs,), ())), theirs.name))
        samples = _rounds(setting, scenario, subjects)
    triton = samples[-1] if setting.triton is not None else []
    if not ours:
        return [make_row(scenario.name, "", [], triton)]
    return [make_row(scenario.name, subject.title, naiad, triton) for subject, naiad in zip(subjects[:ours], samples)]


def _rounds(setting: Setting, scenario: SequenceScenario, subjects: Sequence[Subject]) -> list[list[Sample]]:
    samples: list[list[Sample]] = [[] for _ in subjects]
    for number in range(setting.rounds):
        for subject, taken in zip(subjects, samples):
            print(f"{scenario.name}, round {number + 1}: {subject.server.name} {subject.title}", flush=True)
            load = partial(run_sequences, setting.generators["wrk"], subject.server.address, subject.model)
            taken.append(timed(subject, load, LoadPlan(scenario.concurrency, setting.duration_s), WARM_UP_S))
    return samples
