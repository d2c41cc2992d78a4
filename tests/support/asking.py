"""Requests that are sent now and answered later, each on a connection of its own."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import raw_http
from scripted_models import ScriptedModel
from server_process import ServerProcess
from tritonclient.grpc import service_pb2 as pb
from waiting import wait_until


class Asked:
    """One JSON inference that is under way."""

    def __init__(self, server: ServerProcess, request: bytes) -> None:
        self.began = time.monotonic()
        self.connection = raw_http.Connection(server.host_port).send(request)

    def answer(self) -> tuple[int, Any]:
        """Wait for the response; return its status and Y, or the error's text."""
        with self.connection as connection:
            status, _, body = connection.response()
        content = json.loads(body)
        return status, content["outputs"][0]["data"] if status == 200 else content["error"]

    def answer_after(self) -> tuple[int, Any, float]:
        """Return the same with the seconds from the sending to the answer."""
        status, content = self.answer()
        return status, content, time.monotonic() - self.began

    def hang_up(self) -> None:
        """Close the connection without reading."""
        self.connection.close()


class Asker:
    """Asks one scripted model of one server."""

    def __init__(self, server: ServerProcess, model: ScriptedModel) -> None:
        self.server = server
        self.model = model

    def ask(self, *data: float, **parameters: Any) -> Asked:
        """Send a request with a batch of these values."""
        return Asked(self.server, raw_http.infer(self.model.name, data, [len(data), 1], parameters=parameters))

    def occupy(self, value: float) -> Asked:
        """Send a request that runs until `value` is released; return when it does."""
        self.model.hold(value)
        asked = self.ask(value)
        wait_until(lambda: self.model.ran(value), what=f"the execution of {value}")
        return asked

    def queue(self, *values: float, **parameters: Any) -> list[Asked]:
        """Send requests of one value each, the next when the one before it is in the queue."""
        asked = []
        for value in values:
            before = self.pending()
            asked.append(self.ask(value, **parameters))
            wait_until(lambda before=before: self.pending() == before + 1, what=f"{value:g} in the queue")
        return asked

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of the model's series of a family."""
        return self.server.metric(name, model=self.model.name, **labels)

    def pending(self) -> float:
        """Return the gauge of the requests in the queue."""
        return self.metric("nv_inference_pending_request_count")

    def wait_idle(self, timeout_s: float = 10) -> None:
        """Wait until nothing is queued and nothing runs."""
        wait_until(lambda: self.pending() == self.metric("naiad_running_requests") == 0, timeout_s, "an idle model")


def grpc_request(model: str, value: float, ms: int = 0, **parameters: int) -> pb.ModelInferRequest:
    """Return a request of one value, which takes `ms` milliseconds to run."""
    made = pb.ModelInferRequest(model_name=model)
    for name, datatype, array in (("X", "FP32", np.float32([[value]])), ("MS", "INT32", np.int32([[ms]]))):
        made.inputs.add(name=name, datatype=datatype, shape=[1, 1])
        made.raw_input_contents.append(array.tobytes())
    for name, number in parameters.items():
        made.parameters[name].int64_param = number
    return made
