"""An identity with a known price: 8 ms an execution and 1 ms for each request in it. Runs inside a server's Python backend."""

from __future__ import annotations

import time
from typing import Any

import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]

EXECUTION_S = 0.008
REQUEST_S = 0.001


class TritonPythonModel:
    """Answers each request with its own tensor, after one sleep for all of them: full batches are the cheapest."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response for each request: OUTPUT0 is INPUT0."""
        time.sleep(EXECUTION_S + REQUEST_S * len(requests))
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor.as_numpy())])
