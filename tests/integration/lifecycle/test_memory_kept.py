"""Freed memory of large tensors is kept for the next ones: their pages aren't faulted in again each time."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
from model_folders import identity

ROUNDS = 30


def minor_faults(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[7])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_tensors_take_memory_that_was_freed(tmp_path, serve) -> None:
    identity(tmp_path, "echo")
    server = serve(tmp_path)
    array = np.zeros((1, 500_000), np.float32)
    item = triton.InferInput("X", list(array.shape), "FP32")
    item.set_data_from_numpy(array)
    with triton.InferenceServerClient(server.grpc) as client:
        for _ in range(5):
            client.infer("echo", [item])
        before = minor_faults(server.pid)
        for _ in range(ROUNDS):
            client.infer("echo", [item])
    pages = array.nbytes // 4096
    # Without it each of the copies of a request faults all its pages in: some two thousand.
    assert (minor_faults(server.pid) - before) / ROUNDS < pages / 2
