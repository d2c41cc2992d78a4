"""Case 33: whatever is loaded, unloaded or asked for, no step of the event loop computes for long, so nothing waits for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import onnx_models
import pytest
import requests
import tritonclient.grpc
from controlled_models import CONFIG
from model_folders import identity
from watched_loop import watched

import naiad

MANY = 500
LIMIT_MS = 20

_BUSY = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

end = time.time() + 0.3
while time.time() < end:
    pass

class TritonPythonModel:
    def initialize(self, args):
        end = time.time() + 0.3
        while time.time() < end:
            pass

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.ones((1, 1), np.float32))]) for _ in requests]
"""


@pytest.fixture
def models(tmp_path):
    """Many small models, and some that take their time to load: they compute in their own process, or are large."""
    folder = tmp_path / "models"
    for number in range(MANY):
        identity(folder, f"m{number:03d}")
    for number in range(4):
        path = folder / f"busy{number}" / "1" / "model.py"
        path.parent.mkdir(parents=True)
        path.write_text(_BUSY)
        (path.parent.parent / "config.pbtxt").write_text(CONFIG)
    for number in range(2):
        onnx_models.save(onnx_models.dense(1500), folder / f"large{number}" / "1" / "model.onnx")
    return folder


class Clients:
    """What a server is asked meanwhile; every answer that isn't 200 is kept."""

    def __init__(self, server: naiad.Server) -> None:
        self.base = f"http://{server.http_address}/v2"
        self.grpc_address = server.grpc_address
        self.metrics = f"http://{server.metrics_address}/metrics"
        self.failures: list[str] = []
        self.is_over = threading.Event()

    def send(self, method: str, url: str, **more: object) -> None:
        answer = requests.request(method, url, timeout=60, **more)
        if answer.status_code != 200:
            self.failures.append(f"{method} {url}: {answer.text}")

    def change(self, action: str, name: str) -> None:
        self.send("POST", f"{self.base}/repository/models/{name}/{action}")

    def infer(self) -> None:
        body = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
        while not self.is_over.is_set():
            self.send("POST", f"{self.base}/models/m001/infer", json=body)

    def look_by_grpc(self) -> None:
        with tritonclient.grpc.InferenceServerClient(self.grpc_address) as client:
            while not self.is_over.is_set():
                client.get_inference_statistics()
                client.get_model_repository_index()
                client.get_model_config("m001")

    def look(self) -> None:
        while not self.is_over.is_set():
            self.send("POST", f"{self.base}/repository/index")
            for path in ("models/stats", "models/m001/config", "health/live"):
                self.send("GET", f"{self.base}/{path}")
            self.send("GET", self.metrics)


@pytest.mark.timeout(120)
def test_no_load_unload_or_question_holds_the_loop(models, monkeypatch):
    changed = [
        *(f"busy{number}" for number in range(4)),
        "large0",
        "large1",
        *(f"m{number:03d}" for number in range(0, MANY, 10)),
    ]
    options = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, "model_control_mode": "explicit", "load_model": ("*",)}
    with watched(monkeypatch) as steps, naiad.Server(model_repository=models, **options) as server:
        clients = Clients(server)
        with ThreadPoolExecutor(12) as pool:
            endless = [pool.submit(work) for work in (clients.infer, clients.look, clients.look_by_grpc)]
            for action in ("unload", "load"):
                list(pool.map(partial(clients.change, action), changed))
            clients.is_over.set()
            for future in endless:
                future.result()
    assert clients.failures == []
    assert steps.over(LIMIT_MS) == []
