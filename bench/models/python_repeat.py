"""A decoupled Python model: one request, as many small responses as its COUNT says. Runs inside a server's Python backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]


class TritonPythonModel:
    """Answers each request with the numbers from 0 on, each in a response of its own."""

    def execute(self, requests: list[Any]) -> None:
        """Send COUNT responses to each request: OUT is the response's number."""
        for request in requests:
            self._repeat(request)

    def _repeat(self, request: Any) -> None:
        sender = request.get_response_sender()
        count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy().item())
        for number in range(count):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([number], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
