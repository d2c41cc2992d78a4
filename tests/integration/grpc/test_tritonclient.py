"""gRPC as Triton's own client speaks it, to a real server: every call, streams and their order, ends of every kind."""

from __future__ import annotations

import queue
import random
import threading

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from model_folders import write_model
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException
from waiting import wait_until

import naiad
from naiad.errors import InferenceServerError

SLOW = """
import time
import pathlib
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.ran = pathlib.Path(args["model_repository"], "ran.txt")

    def execute(self, requests):
        with self.ran.open("a") as ran:
            ran.write("x" * len(requests))
        time.sleep(max(int(pb_utils.get_input_tensor_by_name(r, "MS").as_numpy().max()) for r in requests) / 1000)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(r, "X").as_numpy())])
                for r in requests]
"""
REP = """
import threading
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer, args=(request, request.get_response_sender())).start()

    def answer(self, request, sender):
        for index in range(int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0])):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([index], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
ROW = '{{ name: "{0}" data_type: TYPE_FP32 dims: [-1] }}'.format
ECHO = f'backend: "identity" max_batch_size: 8 input [{ROW("X")}] output [{ROW("X")}]'
ROWS = f'max_batch_size: 8 input [{ROW("X")}, {{ name: "MS" data_type: TYPE_INT32 dims: [1] }}] output [{ROW("Y")}]'
ONE = 'input [{ name: "N" data_type: TYPE_INT32 dims: [1] }] output [{ name: "Y" data_type: TYPE_INT32 dims: [1] }]'


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_model(root, "echo", ECHO)
    for name, count in (("slow", 2), ("single", 1)):
        group = f"instance_group [{{ count: {count} kind: KIND_CPU }}]"
        (write_model(root, name, f'backend: "python" {ROWS} {group}') / "1" / "model.py").write_text(SLOW)
    rep = write_model(root, "rep", f'backend: "python" {ONE} model_transaction_policy {{ decoupled: true }}')
    (rep / "1" / "model.py").write_text(REP)
    return root


@pytest.fixture(scope="module")
def server(repository, serve_for_module):
    return serve_for_module(repository)


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.grpc) as client:
        yield client


def tensor(name: str, array: np.ndarray, datatype: str):
    item = triton.InferInput(name, list(array.shape), datatype)
    item.set_data_from_numpy(array)
    return item


def row(*values: float):
    return tensor("X", np.array([values], np.float32), "FP32")


def slow_inputs(milliseconds: int):
    return [row(1, 2), tensor("MS", np.array([[milliseconds]], np.int32), "INT32")]


def count_input(count: int):
    return [tensor("N", np.array([count], np.int32), "INT32")]


def ran(repository, model: str) -> int:
    path = repository / model / "ran.txt"
    return len(path.read_text()) if path.exists() else 0


def test_every_question_has_its_answer(client) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert client.get_server_metadata().name == "triton"
    metadata = client.get_model_metadata("echo")
    assert (list(metadata.versions), metadata.inputs[0].name, list(metadata.inputs[0].shape)) == (["1"], "X", [-1, -1])
    assert client.get_model_config("slow").config.instance_group[0].count == 2
    assert {"echo", "slow", "single", "rep"} == {model.name for model in client.get_model_repository_index().models}
    client.infer("echo", [row(1)])
    assert client.get_inference_statistics("echo").model_stats[0].inference_stats.success.count >= 1
    assert client.update_log_settings({"log_verbose_level": 1}).settings["log_verbose_level"].uint32_param == 1
    assert client.update_log_settings({"log_verbose_level": 0}).settings["log_verbose_level"].uint32_param == 0
    assert len(client.get_system_shared_memory_status().regions) == 0
    assert len(client.get_cuda_shared_memory_status().regions) == 0


@pytest.mark.parametrize(
    ("ask", "status"),
    [
        (lambda client: client.is_model_ready("nobody"), "NOT_FOUND"),
        (lambda client: client.infer("nobody", [row(1)]), "NOT_FOUND"),
        (lambda client: client.infer("echo", [row(1)], model_version="9"), "NOT_FOUND"),
        (lambda client: client.infer("echo", [row(1)], model_version="x"), "INVALID_ARGUMENT"),
        (lambda client: client.infer("echo", slow_inputs(1)), "INVALID_ARGUMENT"),
        (lambda client: client.infer("rep", count_input(1)), "UNIMPLEMENTED"),
        (lambda client: client.load_model("echo"), "UNAVAILABLE"),
        (lambda client: client.register_system_shared_memory("r", "/k", 8), "UNIMPLEMENTED"),
        (lambda client: client.get_trace_settings(), "UNIMPLEMENTED"),
        (lambda client: client.get_model_metadata("nobody"), "NOT_FOUND"),
        (lambda client: client.get_inference_statistics("nobody"), "INVALID_ARGUMENT"),
    ],
)
def test_errors_have_the_statuses_of_the_protocol(client, ask, status) -> None:
    with pytest.raises(InferenceServerException) as raised:
        ask(client)
    assert raised.value.status() == f"StatusCode.{status}"


@pytest.mark.parametrize("coding", [None, "gzip", "deflate"])
def test_large_tensors_both_ways(client, coding) -> None:
    array = np.arange(1_500_000, dtype=np.float32).reshape(1, -1)
    result = client.infer("echo", [tensor("X", array, "FP32")], request_id="big", compression_algorithm=coding)
    assert np.array_equal(array, result.as_numpy("X"))
    assert result.get_response().id == "big"


def test_a_hundred_calls_at_once(client) -> None:
    done: queue.Queue = queue.Queue()
    for index in range(100):
        client.async_infer("echo", [row(index)], callback=lambda result, error: done.put((result, error)))
    answers = [done.get(timeout=10) for _ in range(100)]
    assert [error for _, error in answers if error] == []
    assert sorted(float(result.as_numpy("X")[0, 0]) for result, _ in answers) == [float(index) for index in range(100)]


def test_limits_packing_restrictions_and_forwarding(serve, repository) -> None:
    server = serve(
        repository / "echo",
        "--grpc-max-message-size=1000",
        "--grpc-infer-response-compression-level=high",
        "--grpc-restricted-protocol=inference:key=secret",
        "--grpc-header-forward-pattern=my-.*",
    )
    headers = {"triton-grpc-protocol-key": "secret", "my-header": "x"}
    with triton.InferenceServerClient(server.grpc) as client:
        with pytest.raises(InferenceServerException, match="--grpc-max-message-size") as raised:
            client.infer("echo", [row(*[1.0] * 5000)], headers=headers)
        assert raised.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
        with pytest.raises(InferenceServerException, match="expecting header 'triton-grpc-protocol-key'") as raised:
            client.infer("echo", [row(1)])
        assert raised.value.status() == "StatusCode.UNAVAILABLE"
        assert client.infer("echo", [row(*[1.0] * 200)], headers=headers).as_numpy("X").sum() == 200
        assert client.is_server_live()


class Stream:
    """Asks on one stream; `answers` are (id, value or error, is final)."""

    def __init__(self, address: str) -> None:
        self.client = triton.InferenceServerClient(address)
        self.answers: list[tuple[str, object, bool]] = []
        self.client.start_stream(self._take)

    def _take(self, result, error) -> None:
        if error is not None:
            self.answers.append(("", error.message(), False))
            return
        response = result.get_response()
        value = result.as_numpy("Y")
        final = response.parameters["triton_final_response"].bool_param
        self.answers.append((response.id, None if value is None else value.reshape(-1)[0].item(), final))

    def end(self) -> list[tuple[str, object, bool]]:
        self.client.stop_stream()
        self.client.close()
        return self.answers


@pytest.mark.parametrize("stream_count", [1, 4])
def test_responses_of_a_request_come_in_order_and_the_final_flag_last(server, stream_count) -> None:
    streams = [Stream(server.grpc) for _ in range(stream_count)]
    for count in range(1, 31):
        for stream in streams:
            stream.client.async_stream_infer("rep", count_input(count), request_id=str(count), enable_empty_final_response=True)
    for stream in streams:
        answers = stream.end()
        for count in range(1, 31):
            mine = [(value, final) for call, value, final in answers if call == str(count)]
            assert [(index, False) for index in range(count)] + [(None, True)] == mine


def test_ordinary_requests_keep_their_order_among_decoupled_ones(server) -> None:
    chance = random.Random(5)
    stream = Stream(server.grpc)
    for index in range(60):
        stream.client.async_stream_infer("slow", slow_inputs(chance.randrange(10)), request_id=f"s{index}")
        if index % 5 == 0:
            stream.client.async_stream_infer("rep", count_input(3), request_id=f"r{index}")
    answers = stream.end()
    assert [f"s{index}" for index in range(60)] == [call for call, _, _ in answers if call.startswith("s")]
    for index in range(0, 60, 5):
        assert [value for call, value, _ in answers if call == f"r{index}"] == [0, 1, 2]


def test_an_error_takes_its_place_and_the_stream_goes_on(server) -> None:
    stream = Stream(server.grpc)
    stream.client.async_stream_infer("slow", slow_inputs(50), request_id="first")
    stream.client.async_stream_infer("slow", [row(1)], request_id="wrong")
    stream.client.async_stream_infer("slow", slow_inputs(1), request_id="third")
    answers = stream.end()
    assert [call for call, _, _ in answers] == ["first", "", "third"]
    assert "MS" in str(answers[1][1])


def message(model: str, milliseconds: int):
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="X", datatype="FP32", shape=[1, 1]).contents.fp32_contents.append(1)
    request.inputs.add(name="MS", datatype="INT32", shape=[1, 1]).contents.int_contents.append(milliseconds)
    return request


@pytest.mark.parametrize("way", ["cancel", "deadline"])
def test_calls_that_are_given_up_leave_the_queue(server, repository, way) -> None:
    before = ran(repository, "single")
    with grpc.insecure_channel(server.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        ask = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer
        first = ask.future(message("single", 500))
        wait_until(lambda: ran(repository, "single") == before + 1, what="the first request to run")
        given_up = [ask.future(message("single", 400), timeout=0.05 if way == "deadline" else None) for _ in range(9)]
        if way == "deadline":
            assert {call.exception(timeout=10).code() for call in given_up} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        else:
            wait_until(
                lambda: server.metric("nv_inference_pending_request_count", model="single") == 9, what="nine requests to wait"
            )
            for call in given_up:
                call.cancel()
        wait_until(lambda: server.metric("nv_inference_pending_request_count", model="single") == 0, what="an empty queue")
        first.result(timeout=10)
    assert ran(repository, "single") == before + 1


def test_at_sigterm_calls_in_flight_are_answered_and_connections_end(serve, repository) -> None:
    server = serve(repository / "single")
    answers: queue.Queue = queue.Queue()
    before = ran(repository, "single")
    client = triton.InferenceServerClient(server.grpc)
    client.async_infer("single", slow_inputs(300), callback=lambda result, error: answers.put((result, error)))
    wait_until(lambda: ran(repository, "single") == before + 1, what="the request to run")
    stopped = threading.Thread(target=server.stop)
    stopped.start()
    result, error = answers.get(timeout=10)
    stopped.join(10)
    client.close()
    assert error is None
    assert result.as_numpy("Y").tolist() == [[1, 2]]
    assert server.process.returncode == 0


def test_a_server_in_the_program_has_an_address_for_grpc(repository) -> None:
    ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
    with (
        naiad.Server(model_repository=repository / "echo", **ports) as server,
        triton.InferenceServerClient(server.grpc_address) as client,
    ):
        assert client.infer("echo", [row(3)]).as_numpy("X").tolist() == [[3]]
    with (
        naiad.Server(http=False, model_repository=repository / "echo") as server,
        pytest.raises(InferenceServerError, match="no gRPC socket"),
    ):
        server.grpc_address  # noqa: B018
