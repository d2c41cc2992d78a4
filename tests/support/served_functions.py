"""Servers in the test's own process whose models are functions, and Triton's client against them."""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import requests
import tritonclient.http as triton
from waiting import wait_until

import naiad
from naiad import Tensor

X = Tensor("x", np.float32, (-1,))
Y = Tensor("y", np.float32, (-1,))


@contextmanager
def serving(function: Callable[..., Any], inputs=(X,), outputs=(Y,), **more: Any) -> Iterator[naiad.ModelHandle]:
    """Serve one function as `m` without a socket."""
    server = naiad.Server(http=False)
    server.bind("m", function, list(inputs), list(outputs), **more)
    with server:
        yield server.models["m"]


def reachable(
    function: Callable[..., Any], inputs=(X,), outputs=(Y,), options: dict[str, Any] | None = None, **more: Any
) -> naiad.Server:
    """Return a server, not yet started, with one function as `m`, on ports that the system chooses."""
    server = naiad.Server(**{"http_port": 0, "grpc_port": 0, "metrics_port": 0, **(options or {})})
    server.bind("m", function, list(inputs), list(outputs), **more)
    return server


def row(*values: float) -> np.ndarray[Any, Any]:
    """Return one item, with the batch dimension."""
    return np.array([values], np.float32)


def ask_by_triton(address: str, model: str, datatypes: dict[str, str], **inputs: Any) -> dict[str, Any]:
    """Return every output of one inference by Triton's own client."""
    made = []
    for name, array in inputs.items():
        item = triton.InferInput(name, array.shape, datatypes[name])
        item.set_data_from_numpy(array)
        made.append(item)
    with triton.InferenceServerClient(address) as client:
        result = client.infer(model, made)
        return {output["name"]: result.as_numpy(output["name"]) for output in result.get_response()["outputs"]}


def wait_pending(server: naiad.Server, count: int) -> None:
    """Wait until `count` requests wait for the server's only model."""

    def is_so() -> bool:
        lines = requests.get(f"http://{server.metrics_address}/metrics", timeout=10).text.splitlines()
        found = [line for line in lines if line.startswith("nv_inference_pending_request_count{")]
        return [float(line.rsplit(" ", 1)[1]) for line in found] == [count]

    wait_until(is_so, what=f"{count} waiting requests")


class Gate:
    """A function that waits: `began` is set when it runs, and it returns 2 x when `opened` is."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.opened = threading.Event()
        self.batches: list[int] = []

    def __call__(self, x):
        self.batches.append(len(x))
        self.began.set()
        assert self.opened.wait(20), "nobody opened the gate"
        return x * 2


def process_state() -> dict[str, object]:
    """Return what a server might change of its process."""
    logger = logging.getLogger("naiad")
    return {
        "signals": {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)},
        "log": (list(logger.handlers), logger.level, logger.propagate, list(logging.getLogger().handlers)),
        "switch interval": sys.getswitchinterval(),
        "garbage": (gc.get_threshold(), gc.get_freeze_count(), gc.isenabled()),
        "folder": Path.cwd(),
    }


def double(x):
    return x * 2
