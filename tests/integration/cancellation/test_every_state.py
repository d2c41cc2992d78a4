"""Whoever gives a request up, in whatever state it is: it ends once, as cancelled, frees its place at once and harms nobody."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ensembles
import grpc_models
import numpy as np
import pytest
import raw_http
import requests
from asking import Asked, Asker
from grpc_server import GrpcServer, stub
from raw_http import Connection
from scripted_models import ENVIRONMENT, ScriptedModel
from server_process import ServerProcess
from waiting import wait_until

DEADLINE_S = 0.6
NEEDS_R = 'instance_group [{ kind: KIND_CPU rate_limiter { resources [{ name: "R" global: true count: 1 }] } }]'
MODELS = {
    "direct": "",
    "batch": "dynamic_batching { }",
    "ordered": "dynamic_batching { preserve_ordering: true }",
    "levels": "dynamic_batching { priority_levels: 3 default_priority_level: 2 }",
    "holder": NEEDS_R,
    "limited": NEEDS_R,
    "limited_batch": f"dynamic_batching {{ }} {NEEDS_R}",
    "sequence": "sequence_batching { direct { } max_sequence_idle_microseconds: 20000000 }",
    "oldest": "sequence_batching { oldest { max_candidate_sequences: 4 } max_sequence_idle_microseconds: 20000000 }",
    "cached": "response_cache { enable: true }",
    "first": "",
    "second": "",
    "narrow": "",
    "called": "",
}


ROW = f"max_batch_size: 1 input [ {ensembles.tensor('X')} ] output [ {ensembles.tensor('Y')} ]"
CALLS = """
        tensors = [pb_utils.get_input_tensor_by_name(request, "X") for request in requests]
        asked = dict(model_name="called", requested_output_names=["Y"])
        calls = [pb_utils.InferenceRequest(inputs=[each], **asked) for each in tensors]
        return [answer(Y=call.exec().output_tensors()[0].as_numpy()) for call in calls]
"""
DIES = """
        if array(requests[0], "X").item() < 0:
            os._exit(3)
        return [answer(Y=array(request, "X")) for request in requests]

    def initialize(self, args):
        while os.path.exists(os.path.join(args["model_repository"], "hold")):
            time.sleep(0.005)
"""


@dataclass
class Ask:
    """A request of one value with parameters, and when it is where it is to be given up: in the queue of the model `place`, or
    once `is_there` says so. `others` are those that wait at its model besides, once it has gone.
    """

    model: str
    value: float
    parameters: dict[str, Any] = field(default_factory=dict)
    place: str | None = None
    is_there: Callable[[], object] | None = None
    others: int = 0

    def http(self) -> bytes:
        return raw_http.infer(self.model, [self.value], [1, 1], parameters=self.parameters)

    def grpc(self) -> Any:
        made = grpc_models.request(self.model, X=np.array([[self.value]], np.float32))
        for name, value in self.parameters.items():
            kind = "bool_param" if isinstance(value, bool) else "int64_param"
            setattr(made.parameters[name], kind, value)
        return made


class Bench:
    def __init__(self, server: ServerProcess, models: dict[str, ScriptedModel], repository: Path) -> None:
        self.server = server
        self.restart_hold = repository / "dies" / "hold"
        self.models = models
        self.askers = {name: Asker(server, model) for name, model in models.items()}
        self._numbers = itertools.count(1)

    def value(self) -> float:
        return next(self._numbers)

    def metric(self, name: str, model: str, **labels: str) -> float:
        return self.server.metric(name, model=model, **labels)

    def pending(self, model: str) -> float:
        return self.metric("nv_inference_pending_request_count", model)

    def cancelled(self, model: str) -> float:
        return self.metric("nv_inference_request_failure", model, reason="CANCELED")

    def occupy(self, model: str, **parameters: Any) -> tuple[float, Asked]:
        """Let a request run until everything is released."""
        value = self.value()
        self.models[model].hold(value)
        asked = self.askers[model].ask(value, **parameters)
        wait_until(lambda: self.models[model].ran(value), what=f"the execution of {value}")
        return value, asked

    def release(self) -> None:
        for model in self.models.values():
            model.release()
        self.restart_hold.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def bench(tmp_path_factory, serve_for_module) -> Bench:
    repository = tmp_path_factory.mktemp("models")
    models = {name: ScriptedModel(repository, name, more, 1 if "batch" not in name else 4) for name, more in MODELS.items()}
    delay = "dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 60000000 }"
    models["delay"] = ScriptedModel(repository, "delay", delay)
    ensembles.chain(repository, "ens", ["first", "second"], 1)
    ensembles.python_model(repository, "calls", CALLS, ROW)
    ensembles.python_model(repository, "dies", DIES, ROW)
    step = ensembles.step("narrow", {"X": "X"}, {"Y": "Y"})
    text = ensembles.config([ensembles.tensor("X")], [ensembles.tensor("Y")], [step], 1, inside="max_inflight_requests: 1")
    ensembles.write_model(repository, "inflight", text)
    server = serve_for_module(
        repository,
        "--rate-limit=execution_count",
        "--cache-config=local,size=1048576",
        environment=ENVIRONMENT,
    )
    return Bench(server, models, repository)


@pytest.fixture(autouse=True)
def _released(bench) -> Iterator[None]:
    """Let a test that fails harm no other."""
    yield
    bench.release()


@contextmanager
def queued(bench: Bench, model: str, parameters: dict[str, Any], occupying: dict[str, Any] | None = None) -> Iterator[Ask]:
    value, occupied = bench.occupy(model, **(occupying or {}))
    yield Ask(model, bench.value(), parameters, place=model)
    bench.release()
    assert occupied.answer() == (200, [value])


@contextmanager
def waiting_for_delay(bench: Bench) -> Iterator[Ask]:
    yield Ask("delay", bench.value(), place="delay")


@contextmanager
def waiting_for_resource(bench: Bench, model: str) -> Iterator[Ask]:
    value, occupied = bench.occupy("holder")
    yield Ask(model, bench.value(), place=model)
    bench.release()
    assert occupied.answer() == (200, [value])


@contextmanager
def running(bench: Bench, model: str, runs_in: str) -> Iterator[Ask]:
    ask = Ask(model, bench.value())
    ask.is_there = lambda: bench.models[runs_in].ran(ask.value)
    bench.models[runs_in].hold(ask.value)
    yield ask
    bench.release()


@contextmanager
def queued_in_ensemble(bench: Bench, at: str) -> Iterator[Ask]:
    value, occupied = bench.occupy(at)
    yield Ask("ens", bench.value(), place=at)
    bench.release()
    assert occupied.answer() == (200, [value])


@contextmanager
def held_back_in_ensemble(bench: Bench) -> Iterator[Ask]:
    value = bench.value()
    bench.models["narrow"].hold(value)
    occupied = Asked(bench.server, raw_http.infer("inflight", [value], [1, 1]))
    wait_until(lambda: bench.models["narrow"].ran(value), what="the first one runs")
    yield Ask("inflight", bench.value(), is_there=lambda: bench.pending("inflight") == 2)
    assert bench.pending("narrow") == 0
    bench.release()
    assert occupied.answer() == (200, [value])


@contextmanager
def following(bench: Bench) -> Iterator[Ask]:
    """Another client has asked the same: it goes on waiting for the answer."""
    value, occupied = bench.occupy("cached")
    yield Ask("cached", value, place="cached")
    bench.release()
    assert occupied.answer() == (200, [value])


@contextmanager
def leading(bench: Bench) -> Iterator[Ask]:
    """Another client waits for the answer to this one, and gets it."""
    ask = Ask("cached", bench.value(), others=1)
    follower: list[Asked] = []

    def is_there() -> bool:
        if not follower and bench.models["cached"].ran(ask.value):
            follower.append(bench.askers["cached"].ask(ask.value))
        return bool(follower) and bench.pending("cached") == 1

    ask.is_there = is_there
    bench.models["cached"].hold(ask.value)
    yield ask
    bench.release()
    assert follower[0].answer() == (200, [ask.value])


@contextmanager
def calling(bench: Bench) -> Iterator[Ask]:
    """A model has asked another one for it, where it is queued."""
    value, occupied = bench.occupy("called")
    yield Ask("calls", bench.value(), is_there=lambda: bench.pending("called") == 1)
    wait_until(lambda: bench.pending("called") == 0, what="the end of the nested call")
    bench.release()
    assert occupied.answer() == (200, [value])


@contextmanager
def waiting_for_restart(bench: Bench) -> Iterator[Ask]:
    bench.restart_hold.touch()
    assert Asked(bench.server, raw_http.infer("dies", [-1], [1, 1])).answer()[0] == 503
    yield Ask("dies", bench.value(), place="dies")
    bench.release()


START = {"sequence_id": 7, "sequence_start": True}
WHOLE = {"sequence_id": 6, "sequence_start": True, "sequence_end": True}
QUEUED = {
    "queued plainly": lambda bench: queued(bench, "direct", {}),
    "queued in a batcher": lambda bench: queued(bench, "ordered", {}),
    "queued in a lower level": lambda bench: queued(bench, "levels", {"priority": 3}),
    "waiting for the delay": waiting_for_delay,
    "waiting for a resource": lambda bench: waiting_for_resource(bench, "limited"),
    "waiting for a resource in a batcher": lambda bench: waiting_for_resource(bench, "limited_batch"),
    "in the backlog of sequences": lambda bench: queued(bench, "sequence", START, WHOLE),
    "behind another of its sequence": lambda bench: queued(bench, "sequence", {"sequence_id": 7}, START),
    "queued among the oldest": lambda bench: queued(bench, "oldest", START, WHOLE),
    "queued at a step": lambda bench: queued_in_ensemble(bench, "first"),
    "queued at a later step": lambda bench: queued_in_ensemble(bench, "second"),
    "behind an equal one": following,
    "in a nested call": calling,
    "waiting for a worker": waiting_for_restart,
    "held back by max_inflight_requests": held_back_in_ensemble,
}
RUNNING = {
    "running": lambda bench: running(bench, "direct", "direct"),
    "running in a step": lambda bench: running(bench, "ens", "first"),
    "running in the last step": lambda bench: running(bench, "ens", "second"),
    "running for others too": leading,
    "running with nobody who follows": lambda bench: running(bench, "cached", "cached"),
}


@contextmanager
def begun(bench: Bench, ask: Ask, way: str) -> Iterator[Callable[[], None]]:
    """Send the request; yield what gives it up."""
    with ExitStack() as stack:
        if way.startswith("HTTP"):
            client = stack.enter_context(Connection(bench.server.host_port)).send(ask.http())
            yield client.close
            return
        asks = stub(stack.enter_context(GrpcServer(bench.server).channel()))
        if way == "gRPC stream":
            yield asks.ModelStreamInfer(iter([ask.grpc()])).cancel
            return
        call = asks.ModelInfer.future(ask.grpc(), timeout=DEADLINE_S if way == "gRPC deadline" else None)

        def give_up() -> None:
            if way == "gRPC deadline":
                assert call.code().name == "DEADLINE_EXCEEDED"
            else:
                call.cancel()

        yield give_up


WAYS = ["HTTP", "gRPC cancel", "gRPC deadline", "gRPC stream"]


def give_up(bench: Bench, ask: Ask, way: str) -> None:
    before = bench.cancelled(ask.model)
    pending = {name: bench.pending(name) for name in (ask.model, ask.place or ask.model)}
    with begun(bench, ask, way) as leave:
        if ask.place is not None:
            wait_until(lambda: bench.pending(ask.place) == pending[ask.place] + 1, what="its place in the queue")
        if ask.is_there is not None:
            wait_until(ask.is_there, what="the state")
        leave()
        wait_until(lambda: bench.cancelled(ask.model) == before + 1, what="the count of the cancelled")
        pending[ask.model] += ask.others
        assert {name: bench.pending(name) for name in pending} == pending


def check_idle(bench: Bench) -> None:
    """Nothing waits and nothing runs, of any model."""
    gauges = ("nv_inference_pending_request_count{", "naiad_running_requests{")

    def is_idle() -> bool:
        lines = requests.get(f"http://{bench.server.metrics}/metrics", timeout=10).text.splitlines()
        values = [line.rsplit(" ", 1)[1] for line in lines if line.startswith(gauges)]
        return len(values) > 30 and set(values) == {"0"}

    wait_until(is_idle, what="an idle server")


def check_serves(bench: Bench, ask: Ask) -> None:
    if ask.model == "delay":
        values = [bench.value() for _ in range(8)]
        assert bench.askers["delay"].ask(*values).answer() == (200, values)
        return
    value = bench.value()
    parameters = WHOLE if ask.model in ("sequence", "oldest") else {}
    asked = Asked(bench.server, raw_http.infer(ask.model, [value], [1, 1], parameters=parameters))
    assert asked.answer() == (200, [value])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("state", QUEUED)
def test_what_waits_leaves_at_once_and_never_runs(bench, state, way):
    with QUEUED[state](bench) as ask:
        give_up(bench, ask, way)
    check_idle(bench)
    ran_in = {"ens": "second", "inflight": "narrow", "calls": "called"}.get(ask.model, ask.model)
    if ran_in in bench.models and state != "behind an equal one":
        assert not bench.models[ran_in].ran(ask.value)
    check_serves(bench, ask)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("state", RUNNING)
def test_the_answer_of_what_runs_is_dropped(bench, state, way):
    with RUNNING[state](bench) as ask:
        give_up(bench, ask, way)
    check_idle(bench)
    check_serves(bench, ask)


def test_a_step_that_ran_for_one_who_left_begins_no_other(bench):
    with running(bench, "ens", "first") as ask:
        give_up(bench, ask, "HTTP")
    check_idle(bench)
    assert not bench.models["second"].ran(ask.value)
