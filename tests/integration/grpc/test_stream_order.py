"""The order of responses on streams: within a request as they were sent, of ordinary requests as these were sent.

`make test` runs one round of each rule, `make soak` twenty.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from grpc_models import rep_request, slow_request, write_grpc_models
from grpc_server import ANY_SIZE, GrpcServer, stub
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

ROUNDS = [0, *(pytest.param(number, marks=pytest.mark.soak) for number in range(1, 20))]
MEGABYTE = 250_000

Requests = Sequence[pb.ModelInferRequest]
Responses = list[pb.ModelStreamInferResponse]


@pytest.fixture(scope="module")
def server(tmp_path_factory, serve_for_module) -> GrpcServer:
    return GrpcServer(serve_for_module(write_grpc_models(tmp_path_factory.mktemp("models"), "slow", "rep")))


def by_threads(server: GrpcServer, requests: Requests, pause_s: float = 0) -> Responses:
    """Send all, then read; `pause_s` before each message."""
    with server.channel() as channel:
        call = stub(channel).ModelStreamInfer(iter(requests), timeout=15)
        responses = []
        for response in call:
            responses.append(response)
            if pause_s:
                time.sleep(pause_s)
        assert call.code() == grpc.StatusCode.OK
    return responses


def by_coroutines(server: GrpcServer, requests: Requests, pause_s: float = 0) -> Responses:
    """As `by_threads`, with grpc.aio."""

    async def exchange() -> Responses:
        async with grpc.aio.insecure_channel(server.address, options=ANY_SIZE) as channel:
            call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(timeout=15)
            for request in requests:
                await call.write(request)
            await call.done_writing()
            responses = []
            while (response := await call.read()) is not grpc.aio.EOF:
                responses.append(response)
                await asyncio.sleep(pause_s)
            assert await call.code() == grpc.StatusCode.OK
            return responses

    return asyncio.run(exchange())


CLIENTS = pytest.mark.parametrize("exchange", [by_threads, by_coroutines])
REPEATED = pytest.mark.parametrize("number", ROUNDS)


def values(responses: Responses, call_id: str) -> Iterator[tuple[int | None, bool]]:
    """Yield, of each response to a request, its first number (None when it is empty) and whether it is the final one."""
    for each in responses:
        response = each.infer_response
        if response.id == call_id:
            raw = response.raw_output_contents
            final = response.parameters["triton_final_response"].bool_param
            yield (int(np.frombuffer(raw[0], np.int32, 1)[0]) if raw else None), final


def check_rep(responses: Responses, call_id: str, count: int) -> None:
    """Fail unless a decoupled request's responses are all there, in order, and the final flag last."""
    assert list(values(responses, call_id)) == [*((index, False) for index in range(count)), (None, True)]


@CLIENTS
@REPEATED
def test_two_hundred_requests_sent_before_an_answer_is_read(server, exchange, number):
    counts = [index % 50 + 1 for index in range(200)]
    responses = exchange(server, [rep_request(count, call_id=str(index)) for index, count in enumerate(counts)])
    assert len(responses) == sum(counts) + len(counts)
    for index, count in enumerate(counts):
        check_rep(responses, str(index), count)


@CLIENTS
@REPEATED
def test_eight_streams_with_small_and_large_responses_in_turn(server, exchange, number):
    requests = [rep_request(4, MEGABYTE if index % 2 else 1, str(index)) for index in range(4)]
    with ThreadPoolExecutor(8) as threads:
        for responses in threads.map(lambda _: exchange(server, requests), range(8)):
            for index in range(4):
                check_rep(responses, str(index), 4)
            assert [len(each.infer_response.raw_output_contents[0]) for each in responses if each.infer_response.outputs].count(
                4 * MEGABYTE
            ) == 8


def mixed(seed: int, count: int) -> list[pb.ModelInferRequest]:
    """Return requests to `slow` of random length, one of them wrong, with requests to `rep` between them."""
    chance = random.Random(seed)
    requests = []
    for index in range(count):
        requests.append(slow_request(chance.randrange(21), value=index, call_id=f"s{index}"))
        if index == count // 2:
            requests[-1].inputs[0].shape[1] = 7
        if index % 4 == 0:
            requests.append(rep_request(5, call_id=f"r{index}"))
    return requests


def check_mixed(responses: Responses, count: int) -> None:
    ordinary = [each for each in responses if each.infer_response.id.startswith("s")]
    assert [f"s{index}" for index in range(count)] == [each.infer_response.id for each in ordinary]
    for index, each in enumerate(ordinary):
        if index == count // 2:
            assert "input byte size mismatch for input 'X'" in each.error_message
        else:
            assert np.frombuffer(each.infer_response.raw_output_contents[0], np.float32).tolist() == [index]
    for index in range(0, count, 4):
        check_rep(responses, f"r{index}", 5)


@CLIENTS
@REPEATED
def test_ordinary_requests_keep_their_order_with_decoupled_ones_and_an_error_between(server, exchange, number):
    check_mixed(exchange(server, mixed(number, 100)), 100)


@CLIENTS
@REPEATED
def test_a_slow_reader_gets_the_same_order(server, exchange, number):
    check_mixed(exchange(server, mixed(number, 30), 0.005), 30)


def test_a_late_first_answer_holds_back_ordinary_ones_only(server):
    requests = [slow_request(400, call_id="s0"), slow_request(0, call_id="s1"), rep_request(3, call_id="r")]
    responses = by_threads(server, requests)
    assert [each.infer_response.id for each in responses] == ["r"] * 4 + ["s0", "s1"]
