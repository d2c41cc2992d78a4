"""An identity that takes 5 ms an execution, whatever the batch: it shows how well a server fills batches."""

from __future__ import annotations

import time
from typing import Any

import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]


class TritonPythonModel:
    """Answers each request with its own tensor, after one sleep for all of them."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response for each request: OUTPUT0 is INPUT0."""
        time.sleep(0.005)
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor.as_numpy())])
