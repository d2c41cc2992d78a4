"""gRPC as coroutines speak it, with grpc.aio and with Triton's client on it, to a real server."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from grpc_models import echo_request, noted, rep_request, slow_request, write_grpc_models
from grpc_server import ANY_SIZE, GrpcServer
from http2_frames import DATA, INFER, call, message
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException
from waiting import wait_until


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return write_grpc_models(tmp_path_factory.mktemp("models"), "echo", "slow", "poll", "rep")


@pytest.fixture(scope="module")
def server(repository, serve_for_module):
    return serve_for_module(repository, "--grpc-infer-response-compression-level=low", "--grpc-header-forward-pattern=my-.*")


Ask = Callable[[service_pb2_grpc.GRPCInferenceServiceStub], Awaitable[None]]


def with_stub(server, ask: Ask, **options: object) -> None:
    """Run `ask(stub)` with a channel of its own."""

    async def run() -> None:
        async with grpc.aio.insecure_channel(server.grpc, options=ANY_SIZE, **options) as channel:
            await ask(service_pb2_grpc.GRPCInferenceServiceStub(channel))

    asyncio.run(run())


def pending(server, model: str) -> float:
    return server.metric("nv_inference_pending_request_count", model=model)


@pytest.mark.parametrize("packing", [grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate])
@pytest.mark.parametrize("count", [1, 1_000_000])
def test_requests_in_every_packing_are_answered(server, packing, count):
    async def ask(stub):
        sent = np.arange(count, dtype=np.float32)
        answer = await stub.ModelInfer(echo_request(*sent[:1]) if count == 1 else large(sent))
        assert answer.raw_output_contents == [sent.tobytes()]

    with_stub(server, ask, compression=packing)


def large(sent: np.ndarray) -> service_pb2.ModelInferRequest:
    made = service_pb2.ModelInferRequest(model_name="echo", raw_input_contents=[sent.tobytes()])
    made.inputs.add(name="X", datatype="FP32", shape=[1, len(sent)])
    return made


def test_responses_are_packed_for_a_client_that_takes_gzip(server):
    body = message(large(np.zeros(1000, np.float32)).SerializeToString())
    with GrpcServer(server).connection() as connection:
        connection.send(call(1, INFER, body, (b"grpc-accept-encoding", b"deflate,gzip")) + call(3, INFER, body))
        assert [connection.grpc_status(1), connection.grpc_status(3)] == [0, 0]
        bodies = {
            number: b"".join(each.payload for each in connection.frames if (each.kind, each.stream_id) == (DATA, number))
            for number in (1, 3)
        }
    assert (bodies[1][0], bodies[3][0]) == (1, 0)
    answer = service_pb2.ModelInferResponse.FromString(gzip.decompress(bodies[1][5:]))
    assert answer.raw_output_contents == [bytes(4000)]


def test_three_hundred_calls_at_once_on_one_connection(server):
    async def ask(stub):
        answers = await asyncio.gather(*(stub.ModelInfer(echo_request(index, call_id=str(index))) for index in range(300)))
        assert [answer.id for answer in answers] == [str(index) for index in range(300)]
        assert [np.frombuffer(answer.raw_output_contents[0], np.float32)[0] for answer in answers] == list(range(300))

    with_stub(server, ask)


def test_an_error_has_status_and_text_and_the_next_call_is_answered(server):
    async def ask(stub):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ModelInfer(service_pb2.ModelInferRequest(model_name="n\u00f6body"))
        assert raised.value.code() == grpc.StatusCode.NOT_FOUND
        assert raised.value.details() == "Request for unknown model: 'n\u00f6body' is not found"
        assert (await stub.ServerLive(service_pb2.ServerLiveRequest())).live

    with_stub(server, ask)


def test_metadata_with_binary_empty_and_repeated_values_disturbs_no_call(server):
    async def ask(stub):
        metadata = (("x-bin", bytes(range(256))), ("x-empty", ""), ("my-header", "v"), ("x-many", "a"), ("x-many", "b"))
        assert (await stub.ModelInfer(echo_request(1), metadata=metadata)).raw_output_contents

    with_stub(server, ask)


def test_a_cancelled_call_stops_the_model(server, repository):
    before = noted(repository, "poll", "cancelled.txt")

    async def ask(stub):
        ran = noted(repository, "poll")
        call = stub.ModelInfer(slow_request(10_000, "poll"))
        task = asyncio.ensure_future(call.code())
        await asyncio.to_thread(wait_until, lambda: noted(repository, "poll") > ran)
        call.cancel()
        assert await task == grpc.StatusCode.CANCELLED
        await asyncio.to_thread(wait_until, lambda: noted(repository, "poll", "cancelled.txt") == before + 1, 1)

    with_stub(server, ask)
    wait_until(lambda: pending(server, "poll") == 0)


def test_a_deadline_ends_the_call_on_time_and_stops_the_model(server, repository):
    before = noted(repository, "poll", "cancelled.txt")

    async def ask(stub):
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ModelInfer(slow_request(10_000, "poll"), timeout=0.3)
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert 0.29 < loop.time() - started < 1
        await asyncio.to_thread(wait_until, lambda: noted(repository, "poll", "cancelled.txt") == before + 1, 1)

    with_stub(server, ask)


def test_a_stream_answers_while_it_is_written_to(server):
    async def ask(stub):
        call = stub.ModelStreamInfer()
        for index in range(20):
            await call.write(slow_request(0, value=index, call_id=str(index)))
            answer = await call.read()
            assert (answer.error_message, answer.infer_response.id) == ("", str(index))
            assert answer.infer_response.parameters["triton_final_response"].bool_param
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() == grpc.StatusCode.OK

    with_stub(server, ask)


def test_a_cancelled_stream_ends_its_requests(server):
    async def ask(stub):
        call = stub.ModelStreamInfer()
        await call.write(rep_request(1_000_000))
        assert (await call.read()).infer_response.outputs
        call.cancel()
        assert await call.code() == grpc.StatusCode.CANCELLED

    with_stub(server, ask)
    wait_until(lambda: server.metric("naiad_running_requests", model="rep") == 0, what="the end of the request")


def tensor(array: np.ndarray) -> triton.InferInput:
    made = triton.InferInput("X", list(array.shape), "FP32")
    made.set_data_from_numpy(array)
    return made


@pytest.mark.parametrize("coding", [None, "gzip", "deflate"])
def test_tritons_client_of_coroutines(server, coding):
    async def run() -> None:
        async with triton.InferenceServerClient(server.grpc) as client:
            assert await client.is_server_ready()
            array = np.arange(500_000, dtype=np.float32).reshape(1, -1)
            result = await client.infer("echo", [tensor(array)], compression_algorithm=coding, headers={"my-a": "b"})
            assert np.array_equal(result.as_numpy("Y"), array)
            assert (await client.get_model_metadata("echo")).name == "echo"
            assert (await client.get_model_config("echo", as_json=True))["config"]["name"] == "echo"
            assert len((await client.get_inference_statistics()).model_stats) == 4
            with pytest.raises(InferenceServerException, match="unknown model"):
                await client.infer("nobody", [tensor(array)])

    asyncio.run(run())


def test_a_stream_of_tritons_client_of_coroutines(server):
    async def requests() -> AsyncIterator[dict[str, object]]:
        for index in range(10):
            number = triton.InferInput("N", [1], "INT32")
            number.set_data_from_numpy(np.array([index], np.int32))
            size = triton.InferInput("SIZE", [1], "INT32")
            size.set_data_from_numpy(np.array([1], np.int32))
            yield {"model_name": "rep", "inputs": [number, size], "request_id": str(index)}

    async def run() -> None:
        found: dict[str, list[int]] = {}
        async with triton.InferenceServerClient(server.grpc) as client:
            async for result, error in client.stream_infer(requests()):
                assert error is None
                found.setdefault(result.get_response().id, []).append(int(result.as_numpy("Y")[0]))
        assert found == {str(index): list(range(index)) for index in range(1, 10)}

    asyncio.run(run())
