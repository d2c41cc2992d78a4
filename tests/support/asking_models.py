"""Python models that are asked for the value of an expression: what they see, where they are, what they can import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import requests
from server_process import ServerProcess

_SOURCE = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils
{imports}


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(0)
        config.add_input({{"name": "EXPRESSION", "data_type": "TYPE_STRING", "dims": [1]}})
        config.add_output({{"name": "VALUE", "data_type": "TYPE_STRING", "dims": [1]}})
        return config

    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        expression = pb_utils.get_input_tensor_by_name(request, "EXPRESSION").as_numpy()[0].decode()
        text = json.dumps(eval(expression, globals(), {{"args": self.args}}), default=str)
        return pb_utils.InferenceResponse([pb_utils.Tensor("VALUE", np.array([text.encode()], object))])


{definitions}
"""


def source(imports: str = "", definitions: str = "") -> str:
    """Return a model's source that runs `imports` at its top and has `definitions` at its end."""
    return _SOURCE.format(imports=imports, definitions=definitions)


def write(repository: Path, name: str, imports: str = "", definitions: str = "", *, version: int = 1, config: str = "") -> Path:
    """Write a model that answers expressions; return its version's folder. `config` is text of a config.pbtxt."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(source(imports, definitions))
    if config:
        (folder.parent / "config.pbtxt").write_text(config)
    return folder


def send(server: ServerProcess, model: str, expression: str, version: int | None = None) -> requests.Response:
    """Return the answer to a request for the value of an expression in the model's process."""
    path = model if version is None else f"{model}/versions/{version}"
    tensor = {"name": "EXPRESSION", "datatype": "BYTES", "shape": [1], "data": [expression]}
    return server.infer(path, {"inputs": [tensor]})


def ask(server: ServerProcess, model: str, expression: str, version: int | None = None) -> Any:
    """Return the value of an expression in the model's process."""
    response = send(server, model, expression, version)
    body = response.json()
    assert response.status_code == 200, body
    return json.loads(body["outputs"][0]["data"][0])
