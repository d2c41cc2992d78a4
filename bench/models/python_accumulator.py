"""A running sum for each sequence as a Python model, which keeps the sums itself. Runs inside a server's Python backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]


class TritonPythonModel:
    """Adds INPUT0 to the sum of the request's sequence, which START sets to zero and END forgets."""

    def initialize(self, _arguments: dict[str, str]) -> None:
        """Start without a sequence."""
        self.sums: dict[int, int] = {}

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response for each request: OUTPUT0 is the sum so far. A slot that isn't ready gets nothing added."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        tensors = {tensor.name(): tensor.as_numpy().item() for tensor in request.inputs()}
        total = self._add(tensors) if tensors.get("READY", 1) else 0
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([[total]], np.int32))])

    def _add(self, tensors: dict[str, int]) -> int:
        name = tensors["CORRID"]
        total = tensors["INPUT0"] + (0 if tensors["START"] else self.sums[name])
        if tensors["END"]:
            self.sums.pop(name, None)
        else:
            self.sums[name] = total
        return total
