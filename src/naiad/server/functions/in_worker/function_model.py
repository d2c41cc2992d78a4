"""The Python model around one function, inside a worker process.

Owns the step from requests of the Python model API to the function and back. Doesn't own how a function is called
(`server.embedded.calling`).
"""

from __future__ import annotations

import importlib
import json
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from naiad.backends.base import SingleRequest
from naiad.config.json_form import to_json
from naiad.errors import Code, InferenceServerError, internal, invalid_argument
from naiad.server.embedded import arrays
from naiad.server.embedded.calling import FunctionCaller, check_wanted
from naiad.server.embedded.config import TARGET_PARAMETER, model_config
from naiad.server.embedded.declaration import ModelFunction
from naiad.tensor.datatype import BF16
from naiad.worker.api import host
from naiad.worker.api.errors import TritonError
from naiad.worker.api.model_config import ModelConfig
from naiad.worker.api.request import InferenceRequest
from naiad.worker.api.response import InferenceResponse
from naiad.worker.api.tensor import Tensor

Array = np.ndarray[Any, Any]


def find_function(config: Mapping[str, Any]) -> ModelFunction:
    """Import the function that a configuration names. Raises INVALID_ARGUMENT when it isn't there or has no signature."""
    if TARGET_PARAMETER not in config["parameters"]:
        raise invalid_argument(f"parameter '{TARGET_PARAMETER}' must name a function, as module:function")
    target: str = config["parameters"][TARGET_PARAMETER]["string_value"]
    module_name, _, path = target.partition(":")
    found: Any = importlib.import_module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise invalid_argument(f"{target}: module '{module_name}' has no '{path}'")
        found = getattr(found, part)
    if not isinstance(found, ModelFunction):
        raise invalid_argument(f"{target} has no signature: decorate it with naiad.model_function(inputs=[…], outputs=[…])")
    return found


class TritonPythonModel:
    """The class that the worker makes. One function runs one batch at a time."""

    @staticmethod
    def auto_complete_config(config: ModelConfig) -> ModelConfig:
        """Return the configuration that the function's signature stands for."""
        written = config.as_dict()
        function = find_function(written)
        made = to_json(model_config(written["name"], function.declaration, 1))
        return ModelConfig(json.dumps({**made, "parameters": written["parameters"]}))

    def initialize(self, args: Mapping[str, str]) -> None:
        """Take the function, which the worker has imported for its signature."""
        config = json.loads(args["model_config"])
        function = find_function(config)
        self._name = args["model_name"]
        self._datatypes = {tensor.name: tensor.datatype for tensor in function.declaration.outputs}
        self._caller = FunctionCaller(function.function, function.declaration)

    def execute(self, requests: Sequence[InferenceRequest]) -> list[InferenceResponse]:
        """Run the requests together; when that fails, each alone, so that a bad one can't fail the others."""
        try:
            results = self._results(requests)
            return [self._response(request, result) for request, result in zip(requests, results)]
        except Exception as error:
            if len(requests) > 1:
                return [response for request in requests for response in self.execute([request])]
            return [self._failure(error)]

    def _results(self, requests: Sequence[InferenceRequest]) -> Sequence[Mapping[str, Array]]:
        parts = [{tensor.name(): _array(tensor) for tensor in request.inputs()} for request in requests]
        if self._caller.takes_requests:
            return self._caller.call_requests([_single(request, part) for request, part in zip(requests, parts)])
        if len(parts) == 1:
            return [self._caller.call(parts[0])]
        ends = np.cumsum([len(next(iter(part.values()))) for part in parts])
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        outputs = self._caller.call(joined)
        for name, array in outputs.items():
            if np.shape(array)[:1] != (ends[-1],):
                raise internal(f"output '{name}' has shape {list(np.shape(array))}, must have {ends[-1]} items")
        split = {name: np.split(array, ends[:-1]) for name, array in outputs.items()}
        return [{name: pieces[index] for name, pieces in split.items()} for index in range(len(parts))]

    def _response(self, request: InferenceRequest, result: Mapping[str, Array]) -> InferenceResponse:
        wanted = request.requested_output_names()
        check_wanted(result, wanted)
        return InferenceResponse([Tensor(name, arrays.from_server(self._datatypes[name], result[name])) for name in wanted])

    def _failure(self, error: Exception) -> InferenceResponse:
        if isinstance(error, InferenceServerError):
            code, text = error.code, error.message
        else:
            host.current().log("ERROR", traceback.format_exc())
            code, text = Code.INTERNAL, f"{type(error).__name__}: {error}"
        return InferenceResponse(error=TritonError.received(code.value, f"model '{self._name}' failed: {text}"))


def _array(tensor: Tensor) -> Array:
    datatype, shape, data = tensor.wire()
    if datatype == BF16.name:
        return np.frombuffer(data, BF16.numpy).reshape(shape)
    return tensor.as_numpy()


def _single(request: InferenceRequest, inputs: Mapping[str, Array]) -> SingleRequest:
    wanted = tuple(request.requested_output_names())
    return SingleRequest(inputs, wanted, request.parameters_dict(), request.request_id())
