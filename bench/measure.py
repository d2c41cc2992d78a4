"""Times a load on a running server, and Naiad against Triton in alternating rounds. Owns the order in which things are run.

Within a round every subject gets the same load one after the other, so that a slow minute of the machine hits all of them.
Before a figure counts, one answer is checked and the subject is warmed up for a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.errors import BenchError
from bench.grpc import infer as grpc_infer
from bench.grpc.h2load import RecordedCall, run_h2load
from bench.http_infer import Array, Form, check_answer, counts, make_request
from bench.load import LoadPlan, LoadResult, run_perf_analyzer, run_wrk
from bench.models.repository import Model, write_repository
from bench.results import Comparison, Footprint, FootprintSample, Sample, median_footprint, median_sample
from bench.scenarios import FAMILIES, IDENTITY, VARIANTS, Scenario, Variant, naiad_identity, triton_identity, variants_of
from bench.servers import Server, naiad_launch, serving, triton_launch
from bench.triton_setup import Program

WARM_UP_S = 1.0


@dataclass(frozen=True, slots=True)
class Setting:
    """One run's frame: `folder` takes repositories and logs, `generators` are by name.

    `naiad` and `triton` start a server with some models, bound to some cores (none: all); None for one that isn't measured.
    """

    rounds: int
    duration_s: float
    folder: Path
    generators: Mapping[str, Program]
    naiad: Starter | None
    triton: Starter | None


Starter = Callable[[str, tuple[Model, ...], Sequence[int]], AbstractContextManager[Server]]
"""(name of its folder and log, models, cores) → a context that runs the server."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing to load: a model on a server."""

    title: str
    server: Server
    model: str


@dataclass(frozen=True, slots=True)
class Shot:
    """One load: what is sent, what must come back, from which generator and how hard."""

    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    form: Form
    plan: LoadPlan
    generator: str = "wrk"


def naiad_starter(folder: Path) -> Starter:
    """Return what starts this checkout's Naiad; raise Unavailable when it isn't installed."""
    naiad_launch(folder)

    def start(name: str, models: tuple[Model, ...], cores: Sequence[int]) -> AbstractContextManager[Server]:
        repository = write_repository(folder / f"naiad-{name}", models)
        return serving(naiad_launch(repository), folder / f"naiad-{name}.log", cores)

    return start


def triton_starter(folder: Path, program: Program) -> Starter:
    """Return what starts the C++ Triton."""

    def start(name: str, models: tuple[Model, ...], cores: Sequence[int]) -> AbstractContextManager[Server]:
        repository = write_repository(folder / f"triton-{name}", models)
        return serving(triton_launch(program, repository), folder / f"triton-{name}.log", cores)

    return start


def compare(setting: Setting, scenarios: Sequence[Scenario], variants: Sequence[Variant]) -> list[Comparison]:
    """Measure Naiad in each variant against Triton, both up all the time; return a row for each scenario and variant.

    Raises BenchError when a server fails, answers wrongly or refuses requests.
    """
    if not scenarios:
        return []
    with ExitStack() as stack:
        naiad = triton = None
        if setting.naiad is not None:
            models = tuple(naiad_identity(family, variant) for family in FAMILIES for variant in variants_of(family, variants))
            naiad = stack.enter_context(setting.naiad("identity", models, ()))
        if setting.triton is not None:
            models = tuple(triton_identity(family) for family in FAMILIES)
            triton = stack.enter_context(setting.triton("identity", models, ()))
        rows: list[Comparison] = []
        for scenario in scenarios:
            chosen = variants_of(scenario.family, variants)
            if naiad is None or (scenario.form is Form.GRPC and naiad.grpc is None):
                chosen = []
            ours = [Subject(each.title, naiad, naiad_identity(scenario.family, each).name) for each in chosen if naiad]
            theirs = Subject("", triton, triton_identity(scenario.family).name) if triton else None
            rows += _compare_one(setting, scenario, ours, theirs)
        return rows


def _compare_one(setting: Setting, scenario: Scenario, ours: Sequence[Subject], theirs: Subject | None) -> list[Comparison]:
    inputs = scenario.family.inputs()
    plan = LoadPlan(scenario.concurrency, setting.duration_s)
    shot = Shot(inputs, {"OUTPUT0": inputs["INPUT0"]}, scenario.form, plan, scenario.generator)
    subjects = [*ours, *([theirs] if theirs else [])]
    if not subjects:
        return []
    samples: list[list[Sample]] = [[] for _ in subjects]
    for number in range(setting.rounds):
        for subject, taken in zip(subjects, samples):
            print(f"{scenario.name}, round {number + 1}: {subject.server.name} {subject.title}", flush=True)
            taken.append(fire(setting, subject, shot))
            if scenario.family.is_cached and taken[-1].batch_size:
                raise BenchError(f"{scenario.name}: {subject.server.name} ran the model, so these weren't hits of the cache")
    triton = samples[-1] if theirs else []
    tensor_bytes = sum(array.nbytes for array in inputs.values())
    if not ours:
        return [make_row(scenario.name, "", [], triton, tensor_bytes)]
    return [make_row(scenario.name, subject.title, naiad, triton, tensor_bytes) for subject, naiad in zip(ours, samples)]


def make_row(
    scenario: str, variant: str, naiad: Sequence[Sample], triton: Sequence[Sample], tensor_bytes: int = 0
) -> Comparison:
    """Return the row of these rounds; no samples for what wasn't measured."""
    medians = [median_sample(samples) if samples else None for samples in (naiad, triton)]
    rounds = [tuple(round(sample.requests_per_s, 1) for sample in samples) for samples in (naiad, triton)]
    return Comparison(scenario, variant, medians[0], medians[1], rounds[0], rounds[1], tensor_bytes)


def fire(setting: Setting, subject: Subject, shot: Shot) -> Sample:
    """Check one answer, warm up, load. Raises BenchError when the answer is wrong or a request fails."""
    _check(subject, shot)
    warm_up_s = WARM_UP_S if shot.generator != "perf_analyzer" else 0  # its first window is its own warm-up
    return timed(subject, partial(_load, setting, subject, shot), shot.plan, warm_up_s)


def timed(subject: Subject, load: Callable[[LoadPlan], LoadResult], plan: LoadPlan, warm_up_s: float = WARM_UP_S) -> Sample:
    """Warm up for `warm_up_s` seconds, 0 for not at all, then load as `plan` says.

    CPU time is divided by what the server's own statistics counted meanwhile. Raises BenchError when a request fails or none is
    counted.
    """
    address, model = subject.server.address, subject.model
    if warm_up_s:
        load(LoadPlan(plan.concurrency, warm_up_s, plan.cores))
    cpu_s, before = subject.server.cpu_s(), counts(address, model)
    result = load(plan)
    cpu_s, after = subject.server.cpu_s() - cpu_s, counts(address, model)
    successes, executions = after.successes - before.successes, after.executions - before.executions
    if successes <= 0:
        raise BenchError(f"{subject.server.name}: the statistics of '{model}' counted no request during the load")
    # With a response cache there may be no execution at all.
    batch_size = successes / executions if executions else 0.0
    return Sample(result.requests_per_s, result.p50_us, result.p99_us, cpu_s * 1e6 / successes, batch_size)


def _load(setting: Setting, subject: Subject, shot: Shot, plan: LoadPlan) -> LoadResult:
    server, program = subject.server, setting.generators[shot.generator]
    address = server.grpc_address if shot.form is Form.GRPC else server.address
    if shot.generator == "perf_analyzer":
        return run_perf_analyzer(program, address, subject.model, plan, "grpc" if shot.form is Form.GRPC else "http")
    if shot.form is Form.GRPC:
        message = grpc_infer.make_message(subject.model, shot.inputs)
        answer_bytes = grpc_infer.check_answer(address, message, shot.expected)
        return run_h2load(program, address, RecordedCall(message, answer_bytes), plan)
    return run_wrk(program, address, make_request(subject.model, shot.inputs, shot.form), plan)


def _check(subject: Subject, shot: Shot) -> None:
    if shot.form is Form.GRPC:
        message = grpc_infer.make_message(subject.model, shot.inputs)
        grpc_infer.check_answer(subject.server.grpc_address, message, shot.expected)
    else:
        check_answer(subject.server.address, make_request(subject.model, shot.inputs, shot.form), shot.expected)


def footprints(setting: Setting) -> list[Footprint]:
    """Start each server afresh every round with one identity model, answer one request, and weigh it."""
    starts = [
        (name, starter, model)
        for name, starter, model in (
            ("Naiad", setting.naiad, naiad_identity(IDENTITY, VARIANTS[0])),
            ("Triton", setting.triton, triton_identity(IDENTITY)),
        )
        if starter is not None
    ]
    samples: dict[str, list[FootprintSample]] = {name: [] for name, _, _ in starts}
    for number in range(setting.rounds):
        for name, starter, model in starts:
            print(f"footprint, round {number + 1}: {name}", flush=True)
            with starter("footprint", (model,), ()) as server:
                samples[name].append(_weigh(server, model.name))
    return [Footprint(name, median_footprint(found)) for name, found in samples.items()]


def _weigh(server: Server, model: str) -> FootprintSample:
    inputs = IDENTITY.inputs()
    check_answer(server.address, make_request(model, inputs, Form.BINARY), {"OUTPUT0": inputs["INPUT0"]})
    pss_bytes, rss_bytes = server.memory_bytes()
    return FootprintSample(server.ready_s, pss_bytes, rss_bytes)
