"""`naiad.model`: each form of a model keeps Triton's contract."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from naiad.model import Code, Context, Model, ModelError, Request, Response
from naiad.model.adapter import adapt
from naiad.worker.api.errors import TritonError
from naiad.worker.api.model_config import ModelConfig
from naiad.worker.api.request import InferenceRequest
from naiad.worker.api.response import InferenceResponse
from naiad.worker.api.tensor import Tensor


def started(model_class, *, decoupled=False, max_batch_size=8):
    config = {"name": "m", "max_batch_size": max_batch_size, "parameters": {"factor": {"string_value": "3"}}}
    model = adapt(model_class)()
    model.initialize({
        "model_config": json.dumps({**config, "model_transaction_policy": {"decoupled": decoupled}}),
        "model_instance_kind": "CPU", "model_instance_device_id": "0", "model_instance_name": "m_0",
        "model_repository": "/r/m", "model_version": "1", "model_name": "m",
    })  # fmt: skip
    return model


def request(*rows, number=1, **message):
    array = np.array(rows, np.float32)
    made = InferenceRequest._received(number, {"inputs": [], **message}, [Tensor("X", array)])
    if not message:
        made.close()
    return made


def values(responses):
    return [response.output_tensors()[0].as_numpy().tolist() for response in responses]


class Multiplier(Model):
    def load(self, context: Context) -> None:
        self.factor = int(context.parameters["factor"])
        context.logger.warning("loaded %s", context.name)

    def infer(self, requests: list[Request]) -> list[object]:
        return [Response({"Y": item.inputs["X"] * self.factor}, {"n": item.inputs["X"].size}) for item in requests]


def test_infer_answers_each_request(server):
    responses = started(Multiplier).execute([request([1, 2]), request([3])])
    assert values(responses) == [[[3, 6]], [[9]]]
    assert json.loads(responses[0].parameters()) == {"n": 2}
    assert server.lines == [("WARNING", "loaded m")]


def test_a_coroutine_answers_each_request(server):
    class Async(Multiplier):
        async def infer(self, requests: list[Request]) -> list[object]:
            return [{"Y": item.inputs["X"]} for item in requests]

    assert values(asyncio.run(started(Async).execute([request([1, 2])]))) == [[[1, 2]]]


def test_a_batched_model_gets_joined_arrays_and_its_rows_are_split(server):
    seen = []

    class Batched(Model):
        batched = True

        def infer(self, inputs):
            seen.append(inputs["X"].shape)
            return {"Y": inputs["X"] + 1}

    requests = [request([1], [2]), request([3]), request([4, 5])]
    assert values(started(Batched).execute(requests)) == [[[2], [3]], [[4]], [[5, 6]]]
    assert seen == [(3, 1), (1, 2)]
    with pytest.raises(ValueError, match="max_batch_size of model 'm' is 0"):
        started(Batched, max_batch_size=0)


def test_a_batched_model_that_loses_rows_is_refused(server):
    class Short(Model):
        batched = True

        def infer(self, inputs):
            return {"Y": inputs["X"][:1]}

    with pytest.raises(ValueError, match=r"output 'Y' of infer must have 2 rows"):
        started(Short).execute([request([1]), request([2])])


def test_a_model_error_is_the_answer_of_the_batch_or_of_one(server):
    class Picky(Model):
        def infer(self, requests):
            if len(requests) == 1:
                raise ModelError("not_found", "nothing")
            return [{"Y": requests[0].inputs["X"]}, ModelError(Code.INVALID_ARGUMENT, "second")]

    model = started(Picky)
    (alone,) = model.execute([request([1])])
    assert (alone.error().code(), alone.error().message()) == (TritonError.NOT_FOUND, "nothing")
    first, second = model.execute([request([1]), request([2])])
    assert (first.has_error(), second.error().code()) == (False, TritonError.INVALID_ARG)


@pytest.mark.parametrize(("returned", "error"), [(None, TypeError), ([], ValueError), ([1], TypeError)])
def test_infer_may_not_return_anything_else(server, returned, error):
    class Wrong(Model):
        def infer(self, requests):
            return returned

    with pytest.raises(error):
        started(Wrong).execute([request([1])])


def test_a_stream_sends_each_answer_and_the_end(server):
    class Counting(Model):
        def stream(self, request):
            for number in range(2):
                yield {"Y": request.inputs["X"] + number}

    class AsyncCounting(Model):
        async def stream(self, request):
            for number in range(2):
                yield {"Y": request.inputs["X"] + number}

    server.is_decoupled = True
    model = started(Counting, decoupled=True)
    model.execute([request([1], id="a")])
    model.finalize()
    asyncio.run(started(AsyncCounting, decoupled=True).execute([request([1], id="a")]))
    sent = [(response and response.output_tensors()[0].as_numpy().tolist(), is_final) for _, response, is_final in server.sent]
    assert sent == [([[1]], False), ([[2]], False), (None, True)] * 2
    assert server.dropped == []


def test_a_stream_that_raises_ends_with_the_error(server):
    class Failing(Model):
        async def stream(self, request):
            yield {"Y": request.inputs["X"]}
            raise KeyError("é")

    server.is_decoupled = True
    asyncio.run(started(Failing, decoupled=True).execute([request([1], id="a")]))
    _, last, is_final = server.sent[-1]
    assert (last.error().message(), is_final) == ("KeyError: 'é'", True)
    assert server.lines[-1][0] == "ERROR"


def test_a_stream_stops_when_the_client_is_gone(server):
    class Endless(Model):
        async def stream(self, request):
            while True:
                yield {"Y": request.inputs["X"]}

    server.is_decoupled = True
    server.cancelled.add(1)
    asyncio.run(started(Endless, decoupled=True).execute([request([1], id="a")]))
    assert server.sent == [(1, None, True)]


def test_a_stream_makes_its_model_decoupled(server):
    class Streaming(Model):
        async def stream(self, request):
            yield {}

    completed = adapt(Streaming).auto_complete_config(ModelConfig({"name": "m"})).as_dict()
    assert completed["model_transaction_policy"] == {"decoupled": True}
    with pytest.raises(ValueError, match="not decoupled"):
        started(Streaming)


def test_infer_in_a_decoupled_model_sends_the_one_answer(server):
    server.is_decoupled = True
    assert started(Multiplier, decoupled=True).execute([request([1], id="a")]) is None
    assert [is_final for _, _, is_final in server.sent] == [True]


def test_a_class_must_define_one_of_both():
    with pytest.raises(TypeError, match="neither"):
        adapt(type("Empty", (Model,), {}))


def test_other_models_answer_with_arrays_or_raise(server):
    class Caller(Model):
        def load(self, context: Context) -> None:
            self.other = context.models["other", "2"]

        async def infer(self, requests):
            return [await self.other.infer({"X": item.inputs["X"]}, ["Y"]) for item in requests]

    model = started(Caller)
    server.responses = [InferenceResponse([Tensor("Y", np.ones(1, np.float32))])]
    assert values(asyncio.run(model.execute([request([1])]))) == [[1]]
    called, is_decoupled = server.calls[0]
    assert (called.model_name(), called.model_version(), is_decoupled) == ("other", 2, False)
    server.responses = [InferenceResponse(error=TritonError("gone", TritonError.UNAVAILABLE))]
    (response,) = asyncio.run(model.execute([request([1])]))
    assert (response.error().code(), response.error().message()) == (TritonError.UNAVAILABLE, "gone")


def test_what_has_dlpack_is_an_array_too(server):
    class Foreign(Model):
        def infer(self, requests):
            return [{"Y": Tensor("any", item.inputs["X"])} for item in requests]

    assert values(started(Foreign).execute([request([1])])) == [[[1]]]
