"""Every question of a model gets an answer, whatever it says; what it makes of metrics goes with its worker."""

from __future__ import annotations

import asyncio
import base64

import orjson
import pytest
from event_loops import run_on_asyncio, until
from fake_worker import Bench

from naiad.errors import not_found, unavailable
from naiad.worker.frames import Kind


class Service:
    """What a model may ask for; `fault` is raised instead."""

    def __init__(self) -> None:
        self.asked: list = []
        self.fault: Exception | None = None

    async def load_model(self, name, parameters):
        self._note("load", name, parameters)

    async def unload_model(self, name, is_unload_dependents):
        self._note("unload", name, is_unload_dependents)

    async def is_model_ready(self, name, version):
        self._note("ready", name, version)
        return True

    def _note(self, *asked) -> None:
        self.asked.append(asked)
        if self.fault is not None:
            raise self.fault


def answer_to(question, fault: Exception | None = None):
    """Return the answer to a question and what the service was asked for."""

    async def run():
        bench = Bench()
        service = bench.host.service = Service()
        service.fault = fault
        bench.process.push(Kind.QUERY, 5, question)
        await until(lambda: bench.process.end_turn() or bench.process.sent)
        (frame,) = bench.process.take(Kind.ANSWER)
        assert (frame.id, bench.process.broken) == (5, [])
        await bench.instance.close()
        return orjson.loads(frame.tail), service.asked

    return run_on_asyncio(run())


def test_a_model_may_be_loaded_with_a_config_and_files():
    files = {"file:1/model.py": base64.b64encode(b"x").decode()}
    question = {"name": "load_model", "arguments": {"model_name": "b", "config": "{}", "files": files}}
    assert answer_to(question) == ({"value": None}, [("load", "b", {"config": "{}", "file:1/model.py": b"x"})])


def test_a_model_may_be_unloaded_with_its_dependents():
    question = {"name": "unload_model", "arguments": {"model_name": "b", "unload_dependents": True}}
    assert answer_to(question) == ({"value": None}, [("unload", "b", True)])


def test_whether_a_model_is_ready_is_no_for_one_that_is_not_known():
    question = {"name": "is_model_ready", "arguments": {"model_name": "b"}}
    assert answer_to(question) == ({"value": True}, [("ready", "b", "")])
    assert answer_to(question, not_found("no b"))[0] == {"value": False}


def test_a_metric_can_be_read():
    assert answer_to({"name": "metric_value", "arguments": {"family": "f", "labels": {}}})[0] == {"value": 3.0}


def test_a_refusal_is_the_answer():
    question = {"name": "load_model", "arguments": {"model_name": "b"}}
    assert answer_to(question, unavailable("not in this mode"))[0] == {"error": ["UNAVAILABLE", "not in this mode"]}


@pytest.mark.parametrize(
    "question",
    [
        5,
        {},
        {"name": "what"},
        {"name": []},
        {"name": "load_model"},
        {"name": "load_model", "arguments": {}},
        {"name": "load_model", "arguments": {"model_name": "b", "files": {"f": "a"}}},
        {"name": "load_model", "arguments": {"model_name": "b", "files": []}},
        {"name": "metric_value", "arguments": 1},
    ],
    ids=repr,
)
def test_a_question_that_cannot_be_read_is_answered_with_an_error(question):
    answer, asked = answer_to(question)
    assert answer["error"][0] == "INVALID_ARGUMENT"
    assert asked == []


@pytest.mark.parametrize(("kind", "tail"), [(Kind.QUERY, b"{"), (Kind.METRIC, b""), (Kind.METRIC, b"[]")])
def test_what_is_no_message_breaks_the_worker(kind, tail):
    async def run():
        bench = Bench()
        bench.process.push(kind, 1, tail)
        assert len(bench.process.broken) == 1
        await bench.instance.close()

    run_on_asyncio(run())


def test_an_answer_to_a_worker_that_is_gone_goes_nowhere_and_its_metrics_are_dropped():
    async def run():
        bench = Bench()
        bench.host.service = Service()
        bench.process.push(Kind.METRIC, 0, {"operation": "family"})
        bench.process.push(Kind.QUERY, 1, {"name": "is_model_ready", "arguments": {"model_name": "b"}})
        bench.process.die()
        await asyncio.sleep(0)
        assert (len(bench.metrics.messages), len(bench.metrics.dropped)) == (1, 1)
        await bench.instance.close()

    run_on_asyncio(run())
