"""Naiad and Triton under the same traces, in alternating rounds. Owns the order of runs and what answers add up to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.contention.scenarios import Batching, OpenScenario, costly_inputs, costly_model
from bench.errors import BenchError
from bench.http_infer import Address, Array, Form, InferRequest, check_answer, counts, make_request, on_the_wire
from bench.measure import WARM_UP_S, Setting, Subject
from bench.results import OpenLoop, OpenSample, median_open

ROOT = Path(__file__).parent.parent.parent
CONNECTIONS = 256
OK = 200
REFUSALS = (429, 503)


@dataclass(frozen=True, slots=True)
class Answers:
    """What came back to one trace: seconds from each request's moment to its answer, statuses (0 for none), seconds until it
    was sent.
    """

    latencies: Array
    statuses: Array
    lags: Array


def compare_open_loop(setting: Setting, scenarios: Sequence[OpenScenario], batchings: Sequence[Batching]) -> list[OpenLoop]:
    """Measure Naiad with each batching, and Triton with those that it has a row for; return a row for each scenario of each.

    Raises BenchError when a server fails, an answer is lost, or all are refused.
    """
    if not scenarios:
        return []
    with _serving(setting, batchings) as subjects:
        samples: dict[tuple[str, int], list[OpenSample]] = {}
        for number in range(setting.rounds):
            for scenario in scenarios:
                for place, subject in enumerate(subjects):
                    print(f"{scenario.name}, round {number + 1}: {subject.server.name} {subject.title}", flush=True)
                    samples.setdefault((scenario.name, place), []).append(_measure(setting, subject, scenario))
        return [
            OpenLoop(scenario.name, subject.server.name, subject.title, median_open(samples[scenario.name, place]))
            for scenario in scenarios
            for place, subject in enumerate(subjects)
        ]


@contextmanager
def _serving(setting: Setting, batchings: Sequence[Batching]) -> Iterator[list[Subject]]:
    """Run the servers with one model for each batching."""
    theirs = [each for each in batchings if each.on_triton]
    with ExitStack() as stack:
        subjects: list[Subject] = []
        for starter, chosen in ((setting.naiad, batchings), (setting.triton, theirs)):
            if starter is None:
                continue
            models = tuple(costly_model(f"costly_{number}", batching) for number, batching in enumerate(chosen))
            server = stack.enter_context(starter("open-loop", models, ()))
            subjects += [Subject(batching.title, server, model.name) for batching, model in zip(chosen, models)]
        yield subjects


def _measure(setting: Setting, subject: Subject, scenario: OpenScenario) -> OpenSample:
    address, inputs = subject.server.address, costly_inputs()
    request = make_request(subject.model, inputs, Form.BINARY)
    check_answer(address, request, {"OUTPUT0": inputs["INPUT0"]})
    follow(setting.folder, address, request, scenario.arrivals(WARM_UP_S))
    before = counts(address, subject.model)
    answers = follow(setting.folder, address, request, scenario.arrivals(setting.duration_s))
    after = counts(address, subject.model)
    executions = after.executions - before.executions
    batch_size = (after.successes - before.successes) / executions if executions else 0.0
    return sample_of(answers, setting.duration_s, scenario.deadline_ms, batch_size)


def follow(folder: Path, address: Address, request: InferRequest, arrivals: Array) -> Answers:
    """Send `request` at each moment of `arrivals` from a process of its own; raise BenchError when that fails."""
    sent, trace, came = folder / "request", folder / "arrivals.npy", folder / "answers.npz"
    sent.write_bytes(on_the_wire(address, request))
    np.save(trace, arrivals)
    command = [sys.executable, "-m", "bench.contention.client", "--address", str(address), "--request", str(sent)]
    command += ["--arrivals", str(trace), "--answers", str(came), "--connections", str(CONNECTIONS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"the open-loop client ended with code {done.returncode}: {done.stderr[-800:]}")
    with np.load(came) as found:
        return Answers(found["latencies"], found["statuses"], found["lags"])


def sample_of(answers: Answers, duration_s: float, deadline_ms: float, batch_size: float) -> OpenSample:
    """Return the figures of one run. Latencies are those of answers with 200; what is refused has a figure of its own.

    Raises BenchError when an answer was lost, none was good, or one is neither an answer nor a refusal for now (429, 503).
    """
    kinds = {int(status): int(count) for status, count in zip(*np.unique(answers.statuses, return_counts=True))}
    wrong = {status: count for status, count in kinds.items() if status not in (OK, *REFUSALS)}
    if wrong or OK not in kinds:
        raise BenchError(f"the answers to one trace have these statuses: {kinds}")
    good, refused = answers.latencies[answers.statuses == OK], answers.latencies[answers.statuses != OK]
    return OpenSample(
        offered_per_s=len(answers.statuses) / duration_s,
        goodput_per_s=float(np.sum(good <= deadline_ms / 1000)) / duration_s,
        p50_us=float(np.percentile(good, 50)) * 1e6,
        p99_us=float(np.percentile(good, 99)) * 1e6,
        refused_share=len(refused) / len(answers.statuses),
        refusal_p50_us=float(np.percentile(refused, 50)) * 1e6 if len(refused) else 0.0,
        batch_size=batch_size,
        lag_p99_us=float(np.percentile(answers.lags, 99)) * 1e6,
    )
