"""Requests and senders: what may be sent when, and who owes an answer."""

from __future__ import annotations

import asyncio
import json
import re

import numpy as np
import pytest

from naiad.worker.api.errors import TritonError, TritonModelException
from naiad.worker.api.request import InferenceRequest
from naiad.worker.api.response import InferenceResponse, get_output_tensor_by_name
from naiad.worker.api.sender import FINAL
from naiad.worker.api.tensor import Tensor


def received(request_id=7, **message):
    return InferenceRequest._received(request_id, {"inputs": [], **message}, [])


def test_a_decoupled_model_sends_any_number_and_the_end(server):
    server.is_decoupled = True
    sender = received().get_response_sender()
    first, last = InferenceResponse(), InferenceResponse()
    sender.send(first)
    sender.send(last, FINAL)
    assert server.sent == [(7, first, False), (7, last, True)]
    with pytest.raises(TritonModelException, match=r"^Unable to send response\. Response sender has been closed\.$"):
        sender.send(first)
    del sender
    assert server.dropped == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((None, 0), "Inference Response object must be provided when the response flags is set to zero."),
        ((None, 2), "Unable to send response. Unsupported flag provided."),
        (("x", 0), "what is sent must be of type InferenceResponse, not str"),
    ],
)
def test_what_cannot_be_sent_is_refused_and_the_request_goes_on(server, arguments, text):
    server.is_decoupled = True
    sender = received().get_response_sender()
    with pytest.raises(TritonModelException) as error:
        sender.send(*arguments)
    assert str(error.value) == text
    sender.send(flags=FINAL)
    assert server.sent == [(7, None, True)]


def test_a_model_that_is_not_decoupled_sends_exactly_one(server):
    sender = received().get_response_sender()
    with pytest.raises(TritonModelException, match="before it has sent a response"):
        sender.send(flags=FINAL)
    response = InferenceResponse()
    sender.send(response)
    with pytest.raises(TritonModelException, match=r"^Non-decoupled model cannot send more than one response\.$"):
        sender.send(response)
    sender.send(flags=FINAL)
    assert server.sent == [(7, response, True)]
    del sender
    assert server.dropped == []


def test_a_request_let_go_without_an_answer_is_noticed(server):
    received()
    assert server.dropped == [7]


def test_a_sender_alone_still_owes_the_answer(server):
    sender = received().get_response_sender()
    assert server.dropped == []
    del sender
    assert server.dropped == [7]


def test_a_request_whose_sender_is_let_go_first_still_owes_the_answer(server):
    request = received()
    request.get_response_sender()
    assert server.dropped == []
    del request
    assert server.dropped == [7]


def test_a_closed_request_owes_nothing_and_sends_nothing(server):
    request, other = received(), received(8)
    sender = request.get_response_sender()
    request.close()
    other.close()
    with pytest.raises(TritonModelException, match="closed"):
        sender.send(InferenceResponse())
    with pytest.raises(TritonModelException, match="answered already"):
        other.get_response_sender()
    del request, sender, other
    assert server.dropped == []


def test_a_request_says_what_the_client_sent(server):
    request = received(id="a", outputs=["Y"], correlation_id="s", flags=3, timeout_us=5, parameters={"k": 1}, trace={"t": "0"})
    request.close()
    assert (request.request_id(), request.requested_output_names(), request.correlation_id()) == ("a", ["Y"], "s")
    assert (request.flags(), request.timeout(), json.loads(request.parameters())) == (3, 5, {"k": 1})
    assert json.loads(request.trace().get_context() or "") == {"t": "0"}
    server.cancelled.add(7)
    assert request.is_cancelled()


def test_a_call_names_the_request_that_it_serves(server):
    request = received(trace={"t": "0"})
    call = InferenceRequest(model_name="m", model_version=2, trace=request.trace(), requested_output_names=["Y"], timeout=9)
    message = call._message()
    assert (message["model"], message["version"], message["caller"], message["trace"]) == ("m", "2", 7, {"t": "0"})
    assert (message["outputs"], message["timeout_us"]) == (["Y"], 9)
    request.close()


def test_exec_returns_the_one_response(server):
    server.responses = [InferenceResponse([Tensor("Y", np.ones(1))])]
    request = InferenceRequest(model_name="m", inputs=[Tensor("X", np.ones(1))])
    assert get_output_tensor_by_name(request.exec(), "Y").as_numpy().tolist() == [1]
    assert asyncio.run(_awaited(request.async_exec())) is server.responses[0]
    assert [is_decoupled for _, is_decoupled in server.calls] == [False, False]


def test_a_decoupled_exec_returns_an_iterator(server):
    server.responses = [InferenceResponse(), InferenceResponse(error=TritonError("no", TritonError.NOT_FOUND))]
    request = InferenceRequest(model_name="m")
    assert list(request.exec(decoupled=True)) == server.responses
    assert asyncio.run(_all(request)) == server.responses
    assert get_output_tensor_by_name(server.responses[1], "Y") is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"inputs": [1]}, "item 0 of inputs"),
        ({"requested_output_names": [1]}, "item 0 of requested_output_names"),
        ({"parameters": {"a": []}}, "parameter 'a'"),
        ({"request_id": 5}, "request_id must be of type str, not int"),
        ({"correlation_id": 1.5}, "correlation_id must be a whole number from 0 to 18446744073709551615, not 1.5"),
        ({"correlation_id": -1}, "correlation_id must be a whole number"),
        ({"correlation_id": None}, "correlation_id must be a whole number"),
        ({"flags": "1"}, "flags must be a whole number from 0 to 4294967295, not '1'"),
        ({"flags": -1}, "flags must be"),
        ({"timeout": 1.5}, "timeout (in microseconds) must be a whole number from 0 to 18446744073709551615, not 1.5"),
        ({"timeout": -1}, "timeout (in microseconds) must be"),
        ({"timeout": 2**64}, "timeout (in microseconds) must be"),
    ],
    ids=str,
)
def test_a_request_of_wrong_parts_is_refused_by_name(server, arguments, text):
    with pytest.raises(TritonModelException, match=re.escape(text)):
        InferenceRequest(model_name="m", **arguments)
    assert server.dropped == []


def test_numbers_of_numpy_are_numbers(server):
    made = InferenceRequest(model_name="m", correlation_id=np.uint64(2**64 - 1), flags=np.int32(1), timeout=np.int64(7))
    message = made._message()
    assert [message[name] for name in ("correlation_id", "flags", "timeout_us")] == [2**64 - 1, 1, 7]
    made.set_flags(np.int64(2))
    assert (made.flags(), type(made.flags())) == (2, int)


def test_a_request_without_a_model_and_a_sender_for_an_own_request_are_refused(server):
    with pytest.raises(TritonModelException, match="model_name"):
        InferenceRequest().exec()
    with pytest.raises(TritonModelException, match="no response sender"):
        InferenceRequest(model_name="m").get_response_sender()


async def _awaited(answer):
    return await answer


async def _all(request):
    return [response async for response in await request.async_exec(decoupled=True)]
