"""Tensors in a GPU's memory that a client shares with the server: Triton's own client library, a real GPU."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from http_models import write_identity
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.gpu

SIZE = 4 << 20


@pytest.fixture
def cuda_memory():
    pytest.importorskip("cuda.bindings.runtime", reason="cuda-python isn't installed")
    from tritonclient.utils import cuda_shared_memory

    return cuda_shared_memory


@pytest.fixture(params=["http", "grpc"])
def client(request, serve, tmp_path):
    write_identity(tmp_path, "echo")
    server = serve(tmp_path, "--allow-client-shm=true")
    module = triton_http if request.param == "http" else triton_grpc
    with module.InferenceServerClient(getattr(server, request.param)) as made:
        made.module = module
        yield made


def regions(client) -> list[str]:
    status = client.get_cuda_shared_memory_status()
    return sorted(entry["name"] for entry in status) if isinstance(status, list) else sorted(status.regions)


def test_inputs_and_outputs_lie_in_the_clients_memory(client, cuda_memory):
    data = np.random.default_rng(0).random((1, SIZE // 4), np.float32)
    given = cuda_memory.create_shared_memory_region("given", SIZE, 0)
    taken = cuda_memory.create_shared_memory_region("taken", SIZE, 0)
    try:
        cuda_memory.set_shared_memory_region(given, [data])
        client.register_cuda_shared_memory("given", cuda_memory.get_raw_handle(given), 0, SIZE)
        client.register_cuda_shared_memory("taken", cuda_memory.get_raw_handle(taken), 0, SIZE)
        assert regions(client) == ["given", "taken"]
        tensor = client.module.InferInput("X", data.shape, "FP32")
        tensor.set_shared_memory("given", SIZE)
        output = client.module.InferRequestedOutput("Y")
        output.set_shared_memory("taken", SIZE)
        client.infer("echo", [tensor], outputs=[output])
        assert (cuda_memory.get_contents_as_numpy(taken, np.float32, data.shape) == data).all()
        client.unregister_cuda_shared_memory()
        assert regions(client) == []
        with pytest.raises(InferenceServerException, match="given"):
            client.infer("echo", [tensor], outputs=[output])
    finally:
        cuda_memory.destroy_shared_memory_region(given)
        cuda_memory.destroy_shared_memory_region(taken)


def test_more_than_the_allocation_has_is_refused(client, cuda_memory):
    region = cuda_memory.create_shared_memory_region("small", 4096, 0)
    try:
        with pytest.raises(InferenceServerException, match="small"):
            client.register_cuda_shared_memory("small", cuda_memory.get_raw_handle(region), 0, 1 << 30)
    finally:
        cuda_memory.destroy_shared_memory_region(region)


def test_a_gpu_that_isnt_there_is_refused(client, cuda_memory):
    region = cuda_memory.create_shared_memory_region("region", 4096, 0)
    try:
        with pytest.raises(InferenceServerException, match="4095"):
            client.register_cuda_shared_memory("region", cuda_memory.get_raw_handle(region), 4095, 4096)
    finally:
        cuda_memory.destroy_shared_memory_region(region)
