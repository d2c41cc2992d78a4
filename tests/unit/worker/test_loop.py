"""Whatever a model does in execute, is_ready and finalize, each request gets its own answer and the worker goes on."""

from __future__ import annotations

import asyncio
import json
import threading

import numpy as np
import pytest
from worker_peer import running_worker

from naiad.worker.api.errors import TritonError
from naiad.worker.api.request import InferenceRequest
from naiad.worker.api.response import InferenceResponse
from naiad.worker.api.sender import FINAL
from naiad.worker.api.tensor import Tensor
from naiad.worker.frames import FLAG_FAILED, FLAG_FINAL, Kind

ONE = np.array([1], np.float32)
TWO = np.array([2], np.float32)


def echo(request) -> InferenceResponse:
    return InferenceResponse([Tensor("Y", request.inputs()[0].as_numpy() + 1)])


def model_of(execute, **members):
    """Return a class of models with that `execute`, which gets the requests only."""
    return type("TritonPythonModel", (), {"execute": lambda self, requests: execute(requests), **members})


def run(execute, *arrays, **more):
    """Return what a batch of `arrays` is answered, and that a good one is answered after it."""
    calls = []

    def first_wrong(requests):
        calls.append(1)
        return execute(requests) if len(calls) == 1 else [echo(request) for request in requests]

    with running_worker(model_of(first_wrong), **more) as worker:
        said = worker.peer.answer(*arrays)
        assert worker.peer.answer(ONE) == [[2]]
    assert worker.end is None
    return said


def test_each_request_of_a_batch_gets_its_own_response():
    assert run(lambda requests: [echo(request) for request in requests], ONE, TWO) == [[2], [3]]


def test_an_answer_does_not_wait_for_the_batch_behind_it():
    """The server sends short batches ahead; one of them may take for ever, or end the process."""
    began, go, last = threading.Event(), threading.Event(), threading.Event()

    def execute(requests):
        value = requests[0].inputs()[0].as_numpy()[0]
        if value == 0:
            began.set()
            go.wait(10)
            requests[0].is_cancelled()  # Takes what has come meanwhile.
        elif value == 2:
            assert last.wait(10)
        return [echo(request) for request in requests]

    with running_worker(model_of(execute)) as worker:
        peer = worker.peer
        peer.execute(np.array([0], np.float32))
        began.wait(10)
        peer.execute(ONE)
        peer.execute(TWO)
        go.set()
        assert [peer.said(peer.next_frame()) for _ in range(2)] == [[[1]], [[2]]]
        last.set()
        assert peer.said(peer.next_frame()) == [[3]]


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (lambda good: None, "Expected a list in the execute return, found type 'NoneType'"),
        (tuple, "found type 'tuple'"),
        (lambda good: good[0], "found type 'InferenceResponse'"),
        (iter, "found type 'list_iterator'"),
        (lambda good: [], "expected 2 responses, got 0"),
        (lambda good: good[:1], "expected 2 responses, got 1"),
        (lambda good: good * 2, "expected 2 responses, got 4"),
        (lambda good: [good[0], "Y"], "Expected an 'InferenceResponse' object in the execute function return list"),
    ],
    ids=["none", "tuple", "no list", "iterator", "empty", "too few", "too many", "not a response"],
)
def test_what_execute_may_not_return_fails_the_whole_batch(returned, text):
    said = run(lambda requests: returned([echo(request) for request in requests]), ONE, TWO)
    assert len(said) == 1
    assert text in said[0]


def test_a_model_may_take_the_requests_out_of_its_list():
    def execute(requests):
        return [echo(requests.pop(0)) for _ in range(len(requests))]

    assert run(execute, ONE, TWO) == [[2], [3]]


def test_what_a_model_does_to_the_parameters_of_a_request_stays_in_that_request():
    class Model:
        def execute(self, requests):
            parameters = requests[0].parameters_dict()
            parameters["count"] = parameters["count"] + 1
            return [InferenceResponse([Tensor("Y", np.array([parameters["count"]], np.float32))])]

    with running_worker(Model) as worker:
        block = worker.peer.place(ONE, names="X")
        for request_id in (1, 2):
            messages = [{"inputs": block[0], "outputs": ["Y"], "parameters": {"count": 1}}]
            worker.peer.say(Kind.EXECUTE, request_id, messages, block=block[1])
            assert worker.peer.said(worker.peer.next_frame()) == [[2]]


def test_none_without_a_sender_fails_that_request_only():
    said = run(lambda requests: [None, echo(requests[1])], ONE, TWO)
    assert "returned None for this request" in said[0]
    assert said[1] == [3]


def test_the_error_of_one_response_is_that_requests_only():
    said = run(
        lambda requests: [InferenceResponse(error=TritonError("no", TritonError.NOT_FOUND)), echo(requests[1])], ONE, TWO
    )
    assert said == ["no", [3]]


def test_one_response_object_can_answer_two_requests():
    assert run(lambda requests: [echo(requests[0])] * 2, ONE, TWO) == [[2], [2]]


def test_a_misspelt_output_is_named_with_the_one_that_was_meant():
    said = run(lambda requests: [InferenceResponse([Tensor("y", ONE)])], ONE)
    assert "'y' is no output of the model, which declares: Y; did you mean 'Y'?" in said[0]


def test_an_array_that_cannot_be_sent_fails_its_request_only():
    said = run(lambda requests: [InferenceResponse([Tensor("Y", ONE.astype(complex))]), echo(requests[1])], ONE, TWO)
    assert "complex128" in said[0]
    assert said[1] == [3]


class _WithoutText(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("é\n" * 10), "ValueError: é\né"),
        (SystemExit(4), "SystemExit: 4"),
        (KeyboardInterrupt("now"), "KeyboardInterrupt: now"),
        (GeneratorExit("gone"), "GeneratorExit: gone"),
        (MemoryError("much"), "MemoryError: much"),
        (asyncio.CancelledError("stop"), "CancelledError: stop"),
        (StopIteration("end"), "StopIteration: end"),
        (_WithoutText(), "_WithoutText: (its text can't be had: SystemExit)"),
        (ValueError("half \ud83d pair"), "ValueError: half ? pair"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_whatever_execute_raises_fails_the_batch_and_no_more(error, text):
    def execute(requests):
        raise error

    said = run(execute, ONE, TWO)
    assert len(said) == 1
    assert said[0].startswith(f"Failed to process the request(s) for model instance 'm_0', message: {text}")
    assert "in execute" not in said[0]
    assert f"{__file__}(" in said[0]


def test_recursion_without_end_is_an_error_like_others():
    def execute(requests):
        return execute(requests)

    assert "RecursionError: maximum recursion depth exceeded" in run(execute, ONE)[0]


def test_the_whole_traceback_goes_to_the_log():
    def execute(requests):
        raise ValueError("no") from KeyError("why")

    with running_worker(model_of(execute)) as worker:
        worker.peer.answer(ONE)
        (line,) = [json.loads(frame.tail) for frame in worker.peer.kept(Kind.LOG)]
    assert line["level"] == "ERROR"
    assert "KeyError: 'why'" in line["message"]
    assert "in execute" in line["message"]
    assert "naiad/worker/loop.py" not in line["message"]


def test_a_model_without_execute_says_so_to_each_request():
    with running_worker(type("TritonPythonModel", (), {})) as worker:
        assert worker.peer.answer(ONE) == ["Python model m does not implement `execute` method."]


# Response senders of models that aren't decoupled.


def test_a_request_may_be_answered_by_its_sender_alone():
    def execute(requests):
        requests[0].get_response_sender().send(echo(requests[0]))
        return [None]

    with running_worker(model_of(execute)) as worker:
        worker.peer.execute(ONE)
        response, result = worker.peer.next_frame(), worker.peer.next_frame()
        assert (response.kind, response.flags) == (Kind.RESPONSE, FLAG_FINAL)
        assert worker.peer.outputs(response)["Y"].tolist() == [2]
        assert (result.kind, json.loads(result.tail)) == (Kind.RESULT, [{"none": True}])


def test_a_sender_and_a_response_for_one_request_are_an_error():
    def execute(requests):
        requests[0].get_response_sender().send(echo(requests[0]))
        return [echo(requests[0])]

    with running_worker(model_of(execute)) as worker:
        worker.peer.execute(ONE)
        assert worker.peer.next_frame().kind == Kind.RESPONSE
        assert (
            "answered the request by its response sender and returned a response too"
            in (worker.peer.said(worker.peer.next_frame())[0])
        )


def test_a_sender_that_is_let_go_without_an_answer_ends_its_request():
    def execute(requests):
        requests[0].get_response_sender()
        return [None]

    with running_worker(model_of(execute)) as worker:
        first, _ = worker.peer.execute(ONE)
        ended = worker.peer.wait(Kind.RESPONSE)
        assert (ended.id, ended.flags) == (first, FLAG_FINAL)
        assert "let go of the request's response sender" in json.loads(ended.tail)["error"][1]


# Decoupled models.


def test_an_exception_after_some_responses_ends_the_request_with_it():
    def execute(requests):
        requests[0].get_response_sender().send(echo(requests[0]))
        raise ValueError("then")

    with running_worker(model_of(execute), is_decoupled=True) as worker:
        worker.peer.execute(ONE)
        response, returned = worker.peer.next_frame(), worker.peer.next_frame()
        assert (response.kind, response.flags) == (Kind.RESPONSE, 0)
        assert returned.flags & FLAG_FAILED
        assert "ValueError: then" in json.loads(returned.tail)["error"][1]
        worker.peer.sync()
        assert worker.peer.kept(Kind.RESPONSE) == []


def test_a_decoupled_model_may_return_none_only():
    with running_worker(model_of(lambda requests: [echo(requests[0])]), is_decoupled=True) as worker:
        assert "the execute function must return None, it returned a list" in worker.peer.answer(ONE)[0]


def test_a_request_that_a_decoupled_model_forgets_is_ended_with_an_error():
    with running_worker(model_of(lambda requests: None), is_decoupled=True) as worker:
        first, _ = worker.peer.execute(ONE, TWO)
        ended = [worker.peer.wait(Kind.RESPONSE) for _ in range(2)]
        assert {frame.id for frame in ended} == {first, first + 1}
        assert all("would never have ended" in frame.tail.decode() for frame in ended)
        assert worker.peer.wait(Kind.RETURNED).flags & FLAG_FAILED == 0


def test_responses_of_threads_after_execute_returned_keep_their_order():
    def answer(request):
        sender = request.get_response_sender()
        for index in range(5):
            sender.send(InferenceResponse([Tensor("Y", np.array([index], np.float32))]))
        sender.send(flags=FINAL)

    def execute(requests):
        threads.extend(threading.Thread(target=answer, args=(request,)) for request in requests)
        for thread in threads:
            thread.start()

    threads: list[threading.Thread] = []
    with running_worker(model_of(execute), is_decoupled=True) as worker:
        first, _ = worker.peer.execute(ONE, TWO)
        frames = [worker.peer.wait(Kind.RESPONSE) for _ in range(12)]
        for request_id in (first, first + 1):
            own = [frame for frame in frames if frame.id == request_id]
            assert [worker.peer.outputs(frame)["Y"].tolist() for frame in own[:-1]] == [[0], [1], [2], [3], [4]]
            assert (own[-1].flags, own[-1].tail) == (FLAG_FINAL, b"")
        for thread in threads:
            thread.join()


# Models with a coroutine function.


class AsyncEcho:
    async def execute(self, requests):
        return [echo(request) for request in requests]


def test_a_coroutine_function_answers_like_a_plain_one():
    with running_worker(AsyncEcho) as worker:
        assert worker.peer.answer(ONE, TWO) == [[2], [3]]
    assert worker.end is None


def test_batches_of_a_coroutine_function_run_one_at_a_time_in_their_order():
    """The server sends short ones ahead, and takes them back in their order only."""
    running = []

    class Model:
        async def execute(self, requests):
            running.append(1)
            # The longer, the earlier it came.
            for _ in range(0 if requests[0].inputs()[0].as_numpy()[0] == 2 else 20):
                await asyncio.sleep(0)
            assert running == [1]
            running.clear()
            return [echo(request) for request in requests]

    with running_worker(Model) as worker:
        sent = [worker.peer.execute(array)[0] for array in (ONE, TWO, ONE, TWO)]
        frames = [worker.peer.next_frame() for _ in sent]
        answers = [(frame.id, worker.peer.said(frame)) for frame in frames]
    assert answers == list(zip(sent, ([[2]], [[3]], [[2]], [[3]])))


def test_batches_of_a_decoupled_coroutine_function_return_at_once():
    class Model:
        async def execute(self, requests):
            await asyncio.sleep(0)
            requests[0].get_response_sender().send(echo(requests[0]), FINAL)

    with running_worker(Model, is_decoupled=True) as worker:
        worker.peer.execute(ONE)
        assert [worker.peer.next_frame().kind for _ in range(2)] == [Kind.RETURNED, Kind.RESPONSE]


ERRORS = [ValueError("no"), SystemExit("no"), KeyboardInterrupt("no"), asyncio.CancelledError("no")]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_whatever_a_coroutine_raises_fails_its_batch_and_no_more(error):
    class Model:
        async def execute(self, requests):
            raise error

    with running_worker(Model) as worker:
        for _ in range(2):
            worker.peer.execute(ONE)
            failed = worker.peer.wait(lambda frame: bool(frame.flags & FLAG_FAILED))
            assert f"{type(error).__name__}: no" in json.loads(failed.tail)["error"][1]
    assert worker.end is None


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_what_a_decoupled_coroutine_raises_ends_the_requests_that_it_has_not_ended(error):
    class Model:
        async def execute(self, requests):
            requests[0].get_response_sender().send(echo(requests[0]), FINAL)
            requests[1].get_response_sender().send(echo(requests[1]))
            raise error

    with running_worker(Model, is_decoupled=True) as worker:
        for _ in range(2):
            first, _ = worker.peer.execute(ONE, TWO)
            frames = [worker.peer.next_frame() for _ in range(4)]
            assert [(frame.kind, frame.id, frame.flags & FLAG_FINAL) for frame in frames] == [
                (Kind.RETURNED, first, 0),
                (Kind.RESPONSE, first, FLAG_FINAL),
                (Kind.RESPONSE, first + 1, 0),
                (Kind.RESPONSE, first + 1, FLAG_FINAL),
            ]
            assert f"{type(error).__name__}: no" in json.loads(frames[-1].tail)["error"][1]
    assert worker.end is None


def test_a_decorator_may_hide_a_coroutine_function():
    class Model:
        def execute(self, requests):
            return AsyncEcho.execute(self, requests)

    with running_worker(Model) as worker:
        assert worker.peer.answer(ONE) == [[2]]
        assert worker.peer.answer(TWO) == [[3]]


def test_is_ready_is_answered_while_a_batch_awaits():
    class Model:
        async def execute(self, requests):
            self.may_go = asyncio.Event()
            await self.may_go.wait()
            return [echo(request) for request in requests]

        async def is_ready(self):
            self.may_go.set()
            return True

    with running_worker(Model) as worker:
        worker.peer.execute(ONE)
        assert json.loads(worker.peer.ask(Kind.CHECK_READY).tail) == {"is_ready": True}
        assert worker.peer.said(worker.peer.next_frame()) == [[2]]


def call(value) -> InferenceRequest:
    return InferenceRequest(model_name="other", inputs=[Tensor("X", value)])


async def called_async(requests):
    responses = await asyncio.gather(*[call(request.inputs()[0].as_numpy()).async_exec() for request in requests])
    return [InferenceResponse([Tensor("Y", response.output_tensors()[0].as_numpy())]) for response in responses]


class AwaitingCalls:
    async def execute(self, requests):
        return await called_async(requests)


class BlockingCalls:
    async def execute(self, requests):
        return [
            InferenceResponse([Tensor("Y", call(request.inputs()[0].as_numpy()).exec().output_tensors()[0].as_numpy())])
            for request in requests
        ]


class LoopOfItsOwn:
    def execute(self, requests):
        return asyncio.run(called_async(requests))


@pytest.mark.parametrize("model", [AwaitingCalls, BlockingCalls, LoopOfItsOwn])
def test_other_models_can_be_called_from_every_kind_of_execute(model):
    with running_worker(model) as worker:
        for _ in range(3):
            worker.peer.execute(ONE, TWO)
            for _ in range(2):
                frame = worker.peer.wait(Kind.CALL)
                message = json.loads(frame.tail)
                value = worker.peer.outputs(frame._replace(tail=json.dumps({"outputs": message["inputs"]}).encode()))["X"]
                worker.peer.release(frame)
                worker.peer.respond(frame, value * 10, flags=FLAG_FINAL)
                worker.peer.released()
            assert worker.peer.said(worker.peer.next_frame()) == [[10], [20]]


def test_the_inputs_of_a_batch_that_returned_at_once_live_as_long_as_it():
    """A decoupled coroutine's block is in use after its RETURNED, and released once."""

    class Model:
        async def execute(self, requests):
            self.may_go = asyncio.Event()
            await self.may_go.wait()
            for request in requests:
                request.get_response_sender().send(echo(request), FINAL)

        async def is_ready(self):
            self.may_go.set()
            return True

    with running_worker(Model, is_decoupled=True) as worker:
        _, block = worker.peer.execute(ONE, TWO)
        assert not worker.peer.settle(worker.peer.wait(Kind.RETURNED), block)
        assert worker.peer.released() == []
        worker.peer.sync()
        worker.peer.wait_released(block)
        assert [worker.peer.outputs(worker.peer.wait(Kind.RESPONSE))["Y"].tolist() for _ in range(2)] == [[2], [3]]


def test_a_finalize_while_a_stream_awaits_gives_the_stream_up():
    class Model:
        async def execute(self, requests):
            await asyncio.Event().wait()

    with running_worker(Model, is_decoupled=True) as worker:
        first, _ = worker.peer.execute(ONE)
        worker.peer.wait(Kind.RETURNED)
        assert worker.peer.ask(Kind.FINALIZE).kind == Kind.DONE
        ended = worker.peer.wait(Kind.RESPONSE)
        assert (ended.id, ended.flags) == (first, FLAG_FINAL)
        assert "CancelledError" in ended.tail.decode()
        worker.join()
    assert worker.end is None


def test_finalize_of_an_async_model_may_run_a_loop_of_its_own():
    class Model(AsyncEcho):
        def finalize(self):
            asyncio.run(asyncio.sleep(0))

    with running_worker(Model) as worker:
        assert worker.peer.answer(ONE) == [[2]]
        assert worker.peer.ask(Kind.FINALIZE).kind == Kind.DONE


# is_ready and finalize.


async def _later(value):
    await asyncio.sleep(0)
    if isinstance(value, BaseException):
        raise value
    return value


def _raise(error):
    raise error


@pytest.mark.parametrize("base", [model_of(lambda requests: None), AsyncEcho], ids=["plain", "async"])
@pytest.mark.parametrize(
    ("is_ready", "answer"),
    [
        (lambda self: True, True),
        (lambda self: [], False),
        (lambda self: _later(1), True),
        (lambda self: _later(None), False),
        (lambda self: _raise(ValueError("no")), "ValueError: no"),
        (lambda self: _raise(SystemExit(1)), "SystemExit: 1"),
        (lambda self: _later(ValueError("no")), "ValueError: no"),
        (lambda self: _later(SystemExit(1)), "SystemExit: 1"),
    ],
    ids=["true", "empty", "async true", "async none", "raises", "exits", "async raises", "async exits"],
)
def test_is_ready_is_what_the_model_says_or_why_it_cannot(base, is_ready, answer):
    with running_worker(type("Model", (base,), {"is_ready": is_ready})) as worker:
        for _ in range(2):
            frame = worker.peer.ask(Kind.CHECK_READY)
            message = json.loads(frame.tail)
            if isinstance(answer, bool):
                assert (frame.kind, message) == (Kind.DONE, {"is_ready": answer})
            else:
                assert frame.kind == Kind.FAILED
                assert message["message"].startswith(answer)


@pytest.mark.parametrize("base", [model_of(lambda requests: None), AsyncEcho], ids=["plain", "async"])
def test_a_finalize_that_raises_ends_the_worker_in_order(base):
    with running_worker(type("Model", (base,), {"finalize": lambda self: _raise(SystemExit("never"))})) as worker:
        answer = worker.peer.ask(Kind.FINALIZE)
        assert answer.kind == Kind.FAILED
        assert json.loads(answer.tail)["message"].startswith("SystemExit: never")
        worker.join()
    assert worker.end is None


def test_a_completed_configuration_that_is_no_json_fails_with_its_reason():
    def auto_complete_config(config):
        config.as_dict()["parameters"] = {"x": float("nan")}
        return config

    model = model_of(lambda requests: None, auto_complete_config=staticmethod(auto_complete_config))
    with running_worker(model) as worker:
        answer = worker.peer.ask(Kind.COMPLETE_CONFIG, {"config": {"name": "m"}})
        assert answer.kind == Kind.FAILED
        assert "Out of range float" in json.loads(answer.tail)["message"]
        assert worker.peer.ask(Kind.CHECK_READY).kind == Kind.DONE


# Order.


def test_the_last_result_is_never_held_back():
    with running_worker(model_of(lambda requests: [echo(item) for item in requests])) as worker:
        for count in (1, 2, 9):
            ids = [worker.peer.execute(ONE)[0] for _ in range(count)]
            assert [worker.peer.next_frame().id for _ in range(count)] == ids
