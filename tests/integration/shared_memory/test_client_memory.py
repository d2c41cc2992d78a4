"""Tensors in memory that clients share with the server: with the clients' own libraries, and every way to get it wrong."""

from __future__ import annotations

import json
import mmap
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.shared_memory import SharedMemory
from secrets import token_hex
from typing import Any

import numpy as np
import psutil
import pytest
import requests
import tritonclient.http as triton
from http_models import Pair, write_identity
from posix_object import PosixObject
from python_models import write_echo
from raw_http import post
from scripted_models import ENVIRONMENT, ScriptedModel
from server_process import ServerProcess
from tritonclient.utils import InferenceServerException, serialize_byte_tensor
from tritonclient.utils import shared_memory as triton_memory
from waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="objects are made in /dev/shm")

PAGE = mmap.ALLOCATIONGRANULARITY
SIZE = 16 << 20
SYSTEM, CUDA = "/v2/systemsharedmemory", "/v2/cudasharedmemory"


def uses_objects(server: ServerProcess) -> bool:
    """Return whether the server has an object of a test open or mapped."""
    process = psutil.Process(server.pid)
    used = [*process.open_files(), *process.memory_maps(grouped=False)]
    return any("naiad-test" in entry.path for entry in used)


@pytest.fixture(scope="module")
def shared(serve_for_module, tmp_path_factory):
    repository = tmp_path_factory.mktemp("shared_memory") / "models"
    write_identity(repository, "echo")
    write_identity(repository, "strings", Pair(datatype="BYTES"))
    write_identity(repository, "two", Pair("A", "YA"), Pair("B", "YB", "INT32"))
    write_echo(repository, "worker")
    scripted = ScriptedModel(repository, "scripted")
    yield serve_for_module(repository, "--allow-client-shm=true", environment=ENVIRONMENT), scripted
    scripted.release()


@pytest.fixture
def server(shared):
    process = shared[0]
    yield process
    assert requests.post(f"{process.url}{SYSTEM}/unregister", timeout=10).status_code == 200
    body = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
    assert process.infer("echo", body).json()["outputs"][0]["data"] == [1]
    wait_until(lambda: not uses_objects(process))
    assert "fault of the server" not in process.log(), process.log()


@pytest.fixture
def scripted(shared):
    yield shared[1]
    shared[1].release()


@pytest.fixture
def memory():
    with PosixObject(SIZE) as made:
        yield made


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.http) as made:
        yield made


@pytest.fixture
def ask(server):
    def send(method: str, path: str, body: Any = None) -> requests.Response:
        return requests.request(method, server.url + path, data=None if body is None else json.dumps(body), timeout=10)

    return send


@pytest.fixture
def region(ask, memory):
    """Register all of `memory` as `r`."""
    assert ask("POST", f"{SYSTEM}/region/r/register", {"key": memory.key, "byte_size": SIZE}).status_code == 200
    return memory


def piece(size: int, offset: int = 0, name: str = "r") -> dict[str, Any]:
    return {"shared_memory_region": name, "shared_memory_offset": offset, "shared_memory_byte_size": size}


def body_of(source: dict[str, Any], target: dict[str, Any] | None = None, shape: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    """Return an inference with X in the piece `source`, and Y in `target`."""
    body: dict[str, Any] = {"inputs": [{"name": "X", "shape": shape, "datatype": "FP32", "parameters": source}]}
    if target is not None:
        body["outputs"] = [{"name": "Y", "parameters": target}]
    return body


def error(reply: requests.Response, status: int = 400) -> str:
    assert reply.status_code == status, reply.text
    return reply.json()["error"]


def floats(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


# --- with the clients' own libraries


def test_the_client_library_sends_and_gets_tensors_in_shared_memory(client):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    handle = triton_memory.create_shared_memory_region("both", f"/naiad-test-{token_hex(8)}", 48)
    try:
        triton_memory.set_shared_memory_region(handle, [values])
        client.register_system_shared_memory("both", handle._shm_key, 48)
        source = triton.InferInput("X", [2, 3], "FP32")
        source.set_shared_memory("both", 24)
        target = triton.InferRequestedOutput("Y")
        target.set_shared_memory("both", 24, offset=24)
        result = client.infer("echo", [source], outputs=[target])
        output = result.get_output("Y")
        assert output == {"name": "Y", "datatype": "FP32", "shape": [2, 3]}
        found = triton_memory.get_contents_as_numpy(handle, np.float32, output["shape"], offset=24)
        np.testing.assert_array_equal(values, found)
        assert client.get_system_shared_memory_status() == [
            {"name": "both", "key": handle._shm_key, "offset": 0, "byte_size": 48}
        ]
        client.unregister_system_shared_memory("both")
        assert client.get_system_shared_memory_status() == []
        del found
    finally:
        triton_memory.destroy_shared_memory_region(handle)


def test_strings_have_their_length_prefixes_both_ways(client):
    strings = np.array([[b"one", b"", "größer".encode()]], dtype=object)
    encoded = serialize_byte_tensor(strings).item()
    handle = triton_memory.create_shared_memory_region("s", f"/naiad-test-{token_hex(8)}", 4096)
    try:
        triton_memory.set_shared_memory_region(handle, [serialize_byte_tensor(strings)])
        client.register_system_shared_memory("s", handle._shm_key, 4096)
        source = triton.InferInput("X", [1, 3], "BYTES")
        source.set_shared_memory("s", len(encoded))
        target = triton.InferRequestedOutput("Y")
        target.set_shared_memory("s", 1024, offset=2048)
        output = client.infer("strings", [source], outputs=[target]).get_output("Y")
        found = triton_memory.get_contents_as_numpy(handle, np.object_, output["shape"], offset=2048)
        assert strings.tolist() == found.tolist()
    finally:
        triton_memory.destroy_shared_memory_region(handle)


def test_memory_of_pythons_own_library_is_taken_by_its_name(ask):
    memory = SharedMemory(f"naiad-test-{token_hex(8)}", create=True, size=PAGE)
    try:
        memory.buf[:8] = floats(1, 2)
        assert ask("POST", f"{SYSTEM}/region/p/register", {"key": memory.name, "byte_size": PAGE}).status_code == 200
        reply = ask("POST", "/v2/models/echo/infer", body_of(piece(8, name="p"), piece(8, 8, "p")))
        assert reply.json()["outputs"] == [{"name": "Y", "datatype": "FP32", "shape": [1, 2]}]
        assert bytes(memory.buf[8:16]) == floats(1, 2)
    finally:
        memory.close()
        memory.unlink()


def test_large_tensors_go_through_shared_memory_whole(ask, region):
    count = 1 << 20
    values = np.arange(count, dtype=np.float32).tobytes()
    region.write(values)
    reply = ask("POST", "/v2/models/echo/infer", body_of(piece(len(values)), piece(len(values), 8 << 20), (1, count)))
    assert reply.json()["outputs"] == [{"name": "Y", "datatype": "FP32", "shape": [1, count]}]
    assert region.read(len(values), 8 << 20) == values


@pytest.mark.parametrize("count", [2, 1 << 20])
def test_models_in_worker_processes_read_and_fill_the_clients_memory(ask, region, count):
    for round_number in range(3):
        values = np.full(count, round_number, np.float32).tobytes()
        region.write(values)
        body = body_of(piece(len(values)), piece(len(values), 8 << 20), (1, count))
        assert ask("POST", "/v2/models/worker/infer", body).status_code == 200
        assert region.read(len(values), 8 << 20) == values


def test_a_region_that_begins_on_a_later_page(ask, memory):
    memory.write(floats(3, 4), PAGE)
    body = {"key": memory.key, "offset": PAGE, "byte_size": 64}
    assert ask("POST", f"{SYSTEM}/region/later/register", body).status_code == 200
    assert ask("GET", f"{SYSTEM}/region/later/status").json() == [{"name": "later", **body}]
    reply = ask("POST", "/v2/models/echo/infer", body_of(piece(8, name="later"), piece(8, 16, "later")))
    assert reply.status_code == 200
    assert memory.read(8, PAGE + 16) == floats(3, 4)


def test_one_call_mixes_tensors_in_memory_in_json_and_as_bytes(ask, region):
    region.write(floats(1, 2))
    inputs = [
        {"name": "A", "shape": [1, 2], "datatype": "FP32", "parameters": piece(8)},
        {"name": "B", "shape": [1, 1], "datatype": "INT32", "data": [7]},
    ]
    outputs = [{"name": "YA"}, {"name": "YB", "parameters": piece(4, 64)}]
    reply = ask("POST", "/v2/models/two/infer", {"inputs": inputs, "outputs": outputs})
    assert reply.json()["outputs"] == [
        {"name": "YA", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]},
        {"name": "YB", "datatype": "INT32", "shape": [1, 1]},
    ]
    assert region.read(4, 64) == np.int32(7).tobytes()


def test_large_json_beside_shared_memory(ask, region):
    """Large JSON is read and written by another process, which has nothing of the regions."""
    region.write(np.int32(7).tobytes())
    values = list(range(300_000))
    inputs = [
        {"name": "A", "shape": [1, len(values)], "datatype": "FP32", "data": values},
        {"name": "B", "shape": [1, 1], "datatype": "INT32", "parameters": piece(4)},
    ]
    outputs = [{"name": "YA"}, {"name": "YB", "parameters": piece(4, 64)}]
    found = ask("POST", "/v2/models/two/infer", {"inputs": inputs, "outputs": outputs}).json()["outputs"]
    assert found[0]["data"] == values
    assert found[1] == {"name": "YB", "datatype": "INT32", "shape": [1, 1]}
    assert region.read(4, 64) == np.int32(7).tobytes()


def test_the_same_call_again_reads_the_memory_again(ask, region):
    for value in (1, 2, 3):
        region.write(floats(value, value))
        reply = ask("POST", "/v2/models/echo/infer", body_of(piece(8)))
        assert reply.json()["outputs"][0]["data"] == [value, value]


# --- registering


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"byte_size": 8}, "no member 'key'"),
        ({"key": "/x"}, "no member 'byte_size'"),
        ({"key": 1, "byte_size": 8}, "'key' must be a string, got a number"),
        ({"key": "/x", "byte_size": "8"}, "'byte_size' must be an integer from 0 to"),
        ({"key": "/x", "byte_size": -1}, "'byte_size' must be an integer from 0 to"),
        ({"key": "/x", "byte_size": True}, "'byte_size' must be an integer from 0 to"),
        ({"key": "/x", "byte_size": 1, "offset": 1.5}, "'offset' must be an integer from 0 to"),
        ({"key": "/x", "byte_size": 1, "offset": 2**64}, "400"),
        ({"key": "///", "byte_size": 8}, "names no object"),
        ({"key": "/../../etc/passwd", "byte_size": 8}, "is refused"),
        ({"key": "a\0b", "byte_size": 8}, "is refused"),
        ({"key": "//triton_python_backend_shm_region_1", "byte_size": 8}, "reserved"),
        ([], "must be an object"),
    ],
)
def test_a_bad_registration_is_400_and_says_what_is_wrong(ask, body, text):
    assert (text if text != "400" else "") in error(ask("POST", f"{SYSTEM}/region/r/register", body))
    assert ask("GET", f"{SYSTEM}/status").json() == []


def test_an_object_that_is_not_there_is_500(ask):
    text = error(ask("POST", f"{SYSTEM}/region/r/register", {"key": "/naiad-test-nobody", "byte_size": 8}), 500)
    assert text.startswith("Unable to open shared memory region: '/naiad-test-nobody'")


@pytest.mark.parametrize(("offset", "size"), [(0, SIZE + 1), (SIZE, 1), (PAGE, SIZE), (0, 0), (0, 2**64 - 1)])
def test_what_the_object_does_not_hold_is_400(ask, memory, offset, size):
    body = {"key": memory.key, "offset": offset, "byte_size": size}
    text = error(ask("POST", f"{SYSTEM}/region/r/register", body))
    assert text.startswith("failed to register shared memory region 'r': invalid args")


def test_a_name_is_registered_once(ask, region):
    text = error(ask("POST", f"{SYSTEM}/region/r/register", {"key": region.key, "byte_size": 8}))
    assert text == "shared memory region 'r' already in manager"


def test_a_name_is_percent_decoded(ask, memory):
    assert ask("POST", f"{SYSTEM}/region/gr%C3%B6%20er/register", {"key": memory.key, "byte_size": 8}).status_code == 200
    assert [at["name"] for at in ask("GET", f"{SYSTEM}/status").json()] == ["grö er"]
    assert ask("POST", f"{SYSTEM}/region/gr%c3%b6%20er/unregister").status_code == 200
    assert ask("GET", f"{SYSTEM}/status").json() == []


def test_an_unknown_region_has_no_status_and_is_unregistered_without_a_word(ask):
    assert "'nobody'" in error(ask("GET", f"{SYSTEM}/region/nobody/status"), 404)
    assert ask("POST", f"{SYSTEM}/region/nobody/unregister").status_code == 200


# --- using


@pytest.mark.parametrize("target", [False, True], ids=["input", "output"])
@pytest.mark.parametrize(
    ("wrong", "status", "text"),
    [
        (piece(8, name="nobody"), 404, "Unable to find shared memory region: 'nobody'"),
        (piece(8, SIZE), 400, "Invalid offset for shared memory region"),
        (piece(8, 2**64 - 1), 400, "Invalid offset for shared memory region"),
        (piece(SIZE + 1), 400, "Invalid offset + byte size"),
        (piece(8, SIZE - 4), 400, "Invalid offset + byte size"),
        (piece(2**64 - 1, 8), 400, "Invalid offset + byte size"),
    ],
)
def test_a_piece_that_is_not_there_is_refused(ask, region, target, wrong, status, text):
    body = body_of(piece(8), wrong) if target else body_of(wrong)
    assert error(ask("POST", "/v2/models/echo/infer", body), status).startswith(text)


@pytest.mark.parametrize("size", [0, 4, 12])
def test_a_piece_must_have_the_size_of_its_tensor(ask, region, size):
    assert "input byte size mismatch for input 'X'" in error(ask("POST", "/v2/models/echo/infer", body_of(piece(size))))


def test_strings_that_are_no_strings_are_refused(ask, region):
    region.write(b"\xff\xff\xff\xff")
    body = body_of(piece(4), shape=(1, 1))
    body["inputs"][0]["datatype"] = "BYTES"
    assert "incomplete string data" in error(ask("POST", "/v2/models/strings/infer", body))


@pytest.mark.parametrize("size", [0, 7])
def test_an_output_that_does_not_fit_is_500_and_says_how_large_it_is(ask, region, size):
    text = error(ask("POST", "/v2/models/echo/infer", body_of(piece(8), piece(size, 64))), 500)
    assert text == (
        f"shared memory size specified with the request for output 'Y' ({size} bytes) should be at least 8 bytes to hold the "
        "results"
    )
    assert region.read(8, 64) == bytes(8)


@pytest.mark.parametrize("size", [8, 4 << 20])
def test_an_object_that_has_shrunk_is_refused_and_the_server_lives(ask, region, size):
    region.resize(4)
    text = error(ask("POST", "/v2/models/echo/infer", body_of(piece(size), shape=(1, size // 4))))
    assert text.startswith("shared memory region 'r' can't be used")


def test_an_object_that_shrinks_while_its_request_runs_costs_that_request_only(ask, region, scripted):
    region.write(floats(1, 2))
    scripted.hold(1)
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask, "POST", "/v2/models/scripted/infer", body_of(piece(8), piece(8, 64)))
        wait_until(lambda: scripted.ran(1))
        region.resize(0)
        scripted.release()
        assert "has shrunk" in error(reply.result())
    assert region.path.stat().st_size == 0


def test_a_region_that_is_unregistered_while_its_request_runs_is_used_to_the_end(ask, region, scripted):
    region.write(floats(5, 6))
    scripted.hold(5)
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask, "POST", "/v2/models/scripted/infer", body_of(piece(8), piece(8, 64)))
        wait_until(lambda: scripted.ran(5))
        assert ask("POST", f"{SYSTEM}/region/r/unregister").status_code == 200
        assert ask("GET", f"{SYSTEM}/status").json() == []
        scripted.release()
        assert reply.result().status_code == 200
    assert region.read(8, 64) == floats(5, 6)


def test_a_client_that_hangs_up_leaves_no_region_in_use(server, ask, region, scripted, connect):
    region.write(floats(9, 9))
    scripted.hold(9)
    body = json.dumps(body_of(piece(8), piece(8, 64))).encode()
    connection = connect(server).send(post("/v2/models/scripted/infer", body))
    wait_until(lambda: scripted.ran(9))
    connection.close()
    wait_until(lambda: server.metric("nv_inference_request_failure", model="scripted", reason="CANCELED"))
    assert ask("POST", f"{SYSTEM}/region/r/unregister").status_code == 200
    wait_until(lambda: not uses_objects(server))
    scripted.release()
    assert region.read(8, 64) == bytes(8)


# --- GPUs, and a server that doesn't allow it


def test_memory_of_gpus_is_refused_as_by_a_server_without_gpus(client, ask):
    good = {"raw_handle": {"b64": "A" * 84 + "AA=="}, "device_id": 0, "byte_size": 8}
    text = error(ask("POST", f"{CUDA}/region/g/register", good))
    assert text.startswith("failed to register CUDA shared memory region: 'g', GPUs not supported: ")
    assert client.get_cuda_shared_memory_status() == []
    client.unregister_cuda_shared_memory("g")
    client.unregister_cuda_shared_memory()
    with pytest.raises(InferenceServerException, match="'g'"):
        client.get_cuda_shared_memory_status("g")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"raw_handle": ...}, "no member 'raw_handle'"),
        ({"raw_handle": "x"}, "'raw_handle' must be an object"),
        ({"raw_handle": {"b64": "AAAA"}}, "64 bytes, got 3 bytes"),
        ({"raw_handle": {"b64": "?"}}, "isn't valid base64"),
        ({"device_id": -1}, "'device_id' must be an integer"),
        ({"byte_size": ...}, "no member 'byte_size'"),
    ],
)
def test_a_bad_registration_of_a_gpus_memory_is_400(ask, change, text):
    body = {"raw_handle": {"b64": "A" * 86 + "=="}, "device_id": 0, "byte_size": 8, **change}
    body = {key: value for key, value in body.items() if value is not ...}
    assert text in error(ask("POST", f"{CUDA}/region/g/register", body))


def test_a_region_of_the_other_kind_has_no_status_and_the_text_says_why(ask, region):
    assert "registered as system shared memory" in error(ask("GET", f"{CUDA}/region/r/status"), 404)


def test_a_server_that_does_not_allow_it_refuses_to_register_and_unregister_but_tells_the_status(serve, tmp_path, memory):
    write_identity(tmp_path / "models", "echo")
    url = serve(tmp_path / "models").url
    for kind in (SYSTEM, CUDA):
        for end in ("/region/r/register", "/region/r/unregister", "/unregister"):
            reply = requests.post(url + kind + end, json={"key": memory.key, "byte_size": 8}, timeout=10)
            assert error(reply, 501) == (
                "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
            )
        assert requests.get(f"{url}{kind}/status", timeout=10).json() == []


def test_the_clients_object_outlives_the_server(serve, tmp_path, memory):
    write_identity(tmp_path / "models", "echo")
    memory.write(b"mine")
    server = serve(tmp_path / "models", "--allow-client-shm=true")
    body = {"key": memory.key, "byte_size": SIZE}
    assert requests.post(f"{server.url}{SYSTEM}/region/r/register", json=body, timeout=10).status_code == 200
    assert server.stop() == 0
    assert memory.read(4) == b"mine"
