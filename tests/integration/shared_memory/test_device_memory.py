"""Tensors in a GPU's memory over HTTP and gRPC, by Triton's own clients, with a driver that only the test has.

The server runs in the test's process. Every test ends with nothing open and no address misused; `test_cuda.py` has a real GPU.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from fake_device_memory import FakeDeviceMemory
from posix_object import PosixObject
from served_functions import reachable
from tritonclient.utils import InferenceServerException
from waiting import wait_until

from naiad.server import assembly

SIZE = 4 << 20
ALLOWED = {"allow_client_shm": True}


class Model:
    """Doubles its input; when `hold` is called it waits in the next batch until `release`."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.opened = threading.Event()
        self.opened.set()
        self.seen: list[list[float]] = []

    def __call__(self, x):
        self.began.set()
        assert self.opened.wait(10)
        self.seen.append(x[:, 0].tolist())
        return x * 2


class Client:
    """One protocol: Triton's client, and the names of what differs between the two."""

    def __init__(self, kind: str, server: Any) -> None:
        self.module = triton_http if kind == "http" else triton_grpc
        address = server.http_address if kind == "http" else server.grpc_address
        more = {"concurrency": 4} if kind == "http" else {}
        self.triton = self.module.InferenceServerClient(address, **more)
        self._is_http = kind == "http"
        self._kind = kind
        self._server = server

    def again(self) -> Client:
        """Return another of its kind: Triton's client of HTTP belongs to the thread that made it."""
        return Client(self._kind, self._server)

    def infer_apart(self, source: tuple[str, int, int], target: tuple[str, int, int] | None = None) -> Any:
        """Infer on whatever thread this is."""
        own = self.again()
        try:
            return own.infer(source, target)
        finally:
            own.triton.close()

    def register(self, name: str, handle: bytes, size: int = SIZE, device_id: int = 0) -> None:
        self.triton.register_cuda_shared_memory(name, base64.b64encode(handle), device_id, size)

    def status(self, name: str = "") -> list[dict[str, Any]]:
        if self._is_http:
            return self.triton.get_cuda_shared_memory_status(name)
        regions = self.triton.get_cuda_shared_memory_status(name).regions
        return [{"name": at.name, "device_id": at.device_id, "byte_size": at.byte_size} for at in regions.values()]

    def infer(self, source: tuple[str, int, int], target: tuple[str, int, int] | None = None) -> Any:
        """Infer with x in the piece (region, offset, bytes) `source`, and y in `target`."""
        region, offset, size = source
        item = self.module.InferInput("x", [1, size // 4], "FP32")
        item.set_shared_memory(region, size, offset)
        output = self.module.InferRequestedOutput("y")
        if target is not None:
            output.set_shared_memory(target[0], target[2], target[1])
        return self.triton.infer("m", [item], outputs=[output])


@pytest.fixture
def gpu(monkeypatch) -> FakeDeviceMemory:
    made = FakeDeviceMemory(device_count=2)
    monkeypatch.setattr(assembly, "CudaMemory", lambda: made)
    return made


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def server(gpu, model) -> Iterator[Any]:
    with reachable(model, options=ALLOWED) as running:
        yield running
        gpu.gate.set()
        model.opened.set()
    wait_until(lambda: gpu.open_count() == 0)
    assert gpu.misuses == []


@pytest.fixture(params=["http", "grpc"])
def client(request, server) -> Iterator[Client]:
    made = Client(request.param, server)
    yield made
    made.triton.close()


@pytest.fixture
def region(gpu, client) -> bytes:
    """Return the handle of an allocation that is registered as `r`."""
    handle = gpu.export(SIZE)
    client.register("r", handle)
    return handle


def put(gpu: FakeDeviceMemory, handle: bytes, *values: float, offset: int = 0) -> None:
    data = np.array(values, np.float32).tobytes()
    gpu.contents(handle)[offset : offset + len(data)] = data


def floats(gpu: FakeDeviceMemory, handle: bytes, offset: int, count: int) -> list[float]:
    return np.frombuffer(bytes(gpu.contents(handle)), np.float32, count, offset).tolist()


def refusal(act: Any) -> str:
    with pytest.raises(InferenceServerException) as caught:
        act()
    return f"{caught.value.status()} {caught.value.message()}"


# --- tensors


def test_tensors_go_from_and_to_the_gpus_memory(gpu, client, region):
    put(gpu, region, 1, 2, 3, offset=64)
    client.infer(("r", 64, 12), ("r", 1024, 12))
    assert floats(gpu, region, 1024, 3) == [2, 4, 6]


def test_large_tensors_go_whole(gpu, client, region):
    count = SIZE // 8
    put(gpu, region, *range(count))
    client.infer(("r", 0, count * 4), ("r", count * 4, count * 4))
    assert floats(gpu, region, count * 4, count) == [2 * value for value in range(count)]


def test_an_output_can_come_in_the_answer_and_each_call_reads_the_memory_again(gpu, client, region):
    for value in (1, 2, 3):
        put(gpu, region, value, value)
        np.testing.assert_array_equal(client.infer(("r", 0, 8)).as_numpy("y"), [[2 * value, 2 * value]])


def test_one_call_mixes_system_memory_and_a_gpus(gpu, client, region):
    with PosixObject(4096) as memory:
        memory.write(np.array([5, 6], np.float32).tobytes())
        client.triton.register_system_shared_memory("s", memory.key, 4096)
        client.infer(("s", 0, 8), ("r", 8, 8))
        assert floats(gpu, region, 8, 2) == [10, 12]
        client.infer(("r", 8, 8), ("s", 64, 8))
        assert np.frombuffer(memory.read(8, 64), np.float32).tolist() == [20, 24]
        client.triton.unregister_system_shared_memory("s")


def test_no_copy_and_no_opening_runs_on_the_event_loop(gpu, server, client, region):
    put(gpu, region, 1, 2)
    client.infer(("r", 0, 8), ("r", 8, 8))
    client.triton.unregister_cuda_shared_memory("r")
    wait_until(lambda: gpu.open_count() == 0)
    names = {thread.name for thread in threading.enumerate() if thread.ident in gpu.threads}
    assert names
    assert all(name.startswith("naiad-execution") for name in names)


def test_other_requests_are_answered_while_a_copy_takes_its_time(gpu, client, region):
    gpu.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(client.infer_apart, ("r", 0, 8), ("r", 8, 8))
        assert gpu.is_copying.wait(10)
        assert client.triton.is_server_live()
        assert client.status("r") == [{"name": "r", "device_id": 0, "byte_size": SIZE}]
        gpu.gate.set()
        slow.result()


# --- registering


def test_regions_have_a_status_until_they_are_unregistered(gpu, client):
    client.register("a", gpu.export(64), 64)
    client.register("b", gpu.export(64, device_id=1), 32, device_id=1)
    a, b = {"name": "a", "device_id": 0, "byte_size": 64}, {"name": "b", "device_id": 1, "byte_size": 32}
    assert sorted(client.status(), key=lambda at: at["name"]) == [a, b]
    assert client.status("b") == [b]
    client.triton.unregister_cuda_shared_memory("a")
    assert client.status() == [b]
    assert "Unable to find cuda shared memory region: 'a'" in refusal(lambda: client.status("a"))
    client.triton.unregister_cuda_shared_memory("nobody")
    client.triton.unregister_cuda_shared_memory()
    assert client.status() == []
    wait_until(lambda: gpu.open_count() == 0)


@pytest.mark.parametrize(
    ("size", "device_id", "text"),
    [
        (65, 0, "invalid args, byte_size 65 must be at least 1 and lie in the allocation's 64 bytes"),
        (0, 0, "invalid args, byte_size 0 must be at least 1"),
        (2**63, 0, "invalid args"),
        (64, 2, "device_id 2 must be from 0 to 1, one of the 2 GPUs"),
        (64, 1, "failed to open CUDA IPC handle: invalid resource handle"),
    ],
)
def test_what_the_allocation_does_not_hold_and_where_it_is_not_is_refused(gpu, client, size, device_id, text):
    handle = gpu.export(64)
    found = refusal(lambda: client.register("r", handle, size, device_id))
    assert "failed to register CUDA shared memory region 'r'" in found
    assert text in found
    assert found.startswith(("400", "500", "StatusCode.INVALID_ARGUMENT", "StatusCode.INTERNAL"))
    assert gpu.open_count() == 0
    client.register("r", handle, 64)


def test_a_negative_gpu_of_grpc_is_refused(gpu, server):
    with triton_grpc.InferenceServerClient(server.grpc_address) as client:
        handle = base64.b64encode(gpu.export(64))
        found = refusal(lambda: client.register_cuda_shared_memory("r", handle, -1, 64))
    assert "device_id -1 must be from 0 to 1" in found


def test_a_handle_of_another_length_is_refused(gpu, client):
    assert "64 bytes, got 63 bytes" in refusal(lambda: client.register("r", bytes(63)))


def test_a_name_is_one_for_both_kinds_and_each_kind_knows_its_own(gpu, client, region):
    taken = "shared memory region 'r' already in manager"
    with PosixObject(4096) as memory:
        assert taken in refusal(lambda: client.register("r", gpu.export(8), 8))
        assert taken in refusal(lambda: client.triton.register_system_shared_memory("r", memory.key, 4096))
        client.triton.register_system_shared_memory("s", memory.key, 4096)
        assert taken.replace("'r'", "'s'") in refusal(lambda: client.register("s", gpu.export(8), 8))
        assert "'r': a region of that name is registered as cuda shared memory" in refusal(
            lambda: client.triton.get_system_shared_memory_status("r")
        )
        assert "'s': a region of that name is registered as system shared memory" in refusal(lambda: client.status("s"))
        client.triton.unregister_system_shared_memory("r")
        client.triton.unregister_cuda_shared_memory("s")
        client.triton.unregister_system_shared_memory()
        assert [at["name"] for at in client.status()] == ["r"]
        client.triton.register_system_shared_memory("s", memory.key, 4096)
        client.triton.unregister_cuda_shared_memory()
        assert client.status() == []
        assert "registered as system" in refusal(lambda: client.status("s"))


def test_of_many_who_register_a_name_at_once_one_does(gpu, client):
    handle = gpu.export(64)

    def register() -> str:
        own = client.again()
        try:
            own.register("r", handle, 64)
        except InferenceServerException as error:
            return error.message()
        finally:
            own.triton.close()
        return "done"

    with ThreadPoolExecutor(4) as pool:
        outcomes = [job.result() for job in [pool.submit(register) for _ in range(8)]]
    assert sorted(outcomes) == ["done", *["shared memory region 'r' already in manager"] * 7]
    assert gpu.open_count() == 1


# --- using


@pytest.mark.parametrize("is_target", [False, True], ids=["input", "output"])
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (("nobody", 0, 8), "Unable to find shared memory region: 'nobody'"),
        (("r", SIZE, 8), "Invalid offset for shared memory region"),
        (("r", 2**62, 8), "Invalid offset for shared memory region"),
        (("r", SIZE - 4, 8), "Invalid offset + byte size"),
        (("r", 8, SIZE), "Invalid offset + byte size"),
    ],
)
def test_a_piece_that_is_not_there_is_refused_before_anything_is_copied(gpu, client, region, is_target, wrong, text):
    assert text in refusal(lambda: client.infer(("r", 0, 8), wrong) if is_target else client.infer(wrong))
    assert not gpu.is_copying.is_set()


def test_an_output_that_does_not_fit_is_an_error_that_says_how_large_it_is(gpu, client, region):
    found = refusal(lambda: client.infer(("r", 0, 8), ("r", 64, 7)))
    assert "output 'y' (7 bytes) should be at least 8 bytes to hold the results" in found
    assert floats(gpu, region, 64, 1) == [0]


def test_what_the_core_refuses_after_the_copy_reaches_the_client_and_frees_the_region(gpu, client, region):
    def ask(model: str) -> None:
        item = client.module.InferInput("x", [1, 3], "FP32")
        item.set_shared_memory("r", 8)
        client.triton.infer(model, [item])

    assert "input byte size mismatch for input 'x'" in refusal(lambda: ask("m"))
    assert "'nobody'" in refusal(lambda: ask("nobody"))
    client.triton.unregister_cuda_shared_memory("r")
    wait_until(lambda: gpu.open_count() == 0)


@pytest.mark.parametrize(("source", "verb"), [(("r", 0, 8), "read"), (None, "write")])
def test_a_driver_that_refuses_a_copy_costs_that_request_only(gpu, client, region, source, verb):
    gpu.fault = "an illegal memory access was encountered (cudaErrorIllegalAddress)"
    with PosixObject(4096) as memory:
        client.triton.register_system_shared_memory("s", memory.key, 4096)
        found = refusal(lambda: client.infer(source or ("s", 0, 8), None if source else ("r", 8, 8)))
        assert f"can't {verb} 8 bytes" in found
        assert f"CUDA shared memory region 'r': {gpu.fault}" in found
        gpu.fault = ""
        client.infer(("r", 0, 8), ("r", 8, 8))
        client.triton.unregister_system_shared_memory("s")


# --- lifetimes


def test_a_region_that_is_unregistered_while_its_request_runs_is_closed_after_it(gpu, client, region, model):
    put(gpu, region, 5, 6)
    model.opened.clear()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.infer_apart, ("r", 0, 8), ("r", 64, 8))
        assert model.began.wait(10)
        client.triton.unregister_cuda_shared_memory("r")
        assert client.status() == []
        assert gpu.open_count() == 1
        model.opened.set()
        running.result()
    assert floats(gpu, region, 64, 2) == [10, 12]
    wait_until(lambda: gpu.open_count() == 0)


def test_a_region_that_is_unregistered_while_its_input_is_copied_is_closed_after_the_copy(gpu, client, region):
    put(gpu, region, 5, 6)
    gpu.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.infer_apart, ("r", 0, 8))
        assert gpu.is_copying.wait(10)
        client.triton.unregister_cuda_shared_memory()
        assert gpu.open_count() == 1
        gpu.gate.set()
        assert running.result().as_numpy("y").tolist() == [[10, 12]]
    wait_until(lambda: gpu.open_count() == 0)


def test_a_client_that_gives_up_while_its_input_is_copied_has_no_model_run(gpu, server, model):
    client = Client("grpc", server)
    client.register("r", gpu.export(SIZE))
    gpu.gate.clear()
    item = triton_grpc.InferInput("x", [1, 2], "FP32")
    item.set_shared_memory("r", 8)
    ended = threading.Event()
    call = client.triton.async_infer("m", [item], lambda result, error: ended.set())
    assert gpu.is_copying.wait(10)
    call.cancel()
    assert ended.wait(10)
    client.triton.unregister_cuda_shared_memory("r")
    gpu.gate.set()
    wait_until(lambda: gpu.open_count() == 0)
    client.triton.close()
    assert model.seen == []


def test_requests_of_a_stream_keep_their_order_while_inputs_are_copied(gpu, server, model):
    handle = gpu.export(SIZE)
    client = Client("grpc", server)
    client.register("r", handle)
    put(gpu, handle, *range(1, 21))
    gpu.gate.clear()
    answers: list[Any] = []
    done = threading.Event()

    def take(result: Any, error: Any) -> None:
        answers.append(error or result.as_numpy("y").tolist())
        if len(answers) == 20:
            done.set()

    client.triton.start_stream(take)
    for index in range(20):
        item = triton_grpc.InferInput("x", [1, 1], "FP32")
        item.set_shared_memory("r", 4, index * 4)
        client.triton.async_stream_infer("m", [item])
    assert gpu.is_copying.wait(10)
    gpu.gate.set()
    assert done.wait(10)
    client.triton.stop_stream()
    client.triton.close()
    assert answers == [[[2 * value]] for value in range(1, 21)]
    assert [value for batch in model.seen for value in batch] == list(range(1, 21))


def test_regions_are_closed_with_the_server(gpu, model):
    with reachable(model, options=ALLOWED) as server:
        client = Client("http", server)
        client.register("r", gpu.export(64), 64)
        client.triton.close()
        assert gpu.open_count() == 1
    wait_until(lambda: gpu.open_count() == 0)
    assert gpu.misuses == []


# --- servers that don't allow it, or have no GPU


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_server_that_does_not_allow_it_asks_no_gpu(gpu, model, kind):
    with reachable(model) as server:
        client = Client(kind, server)
        assert "Client shared memory is disabled" in refusal(lambda: client.register("r", gpu.export(64), 64))
        assert client.status() == []
        client.triton.close()
    assert gpu.threads == set()


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_server_without_a_gpu_says_so_and_why_and_the_name_stays_free(monkeypatch, model, kind):
    monkeypatch.setattr(assembly, "CudaMemory", FakeDeviceMemory)
    with reachable(model, options=ALLOWED) as server:
        client = Client(kind, server)
        for _ in range(2):
            found = refusal(lambda: client.register("g", bytes(64)))
            assert "failed to register CUDA shared memory region: 'g', GPUs not supported: the test has none" in found
        with PosixObject(4096) as memory:
            client.triton.register_system_shared_memory("g", memory.key, 4096)
        client.triton.close()
