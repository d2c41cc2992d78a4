"""Answers X several times: N responses, and between the first and the second it waits for a file when asked to `hold`."""

import json
import time
from pathlib import Path

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.folder = Path(args["model_repository"])

    def execute(self, requests):
        for request in requests:
            self.answer(request, request.get_response_sender())

    def answer(self, request, sender):
        parameters = json.loads(request.parameters())
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        for index in range(parameters.get("count", 3)):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + index)]))
            if index == 0 and "hold" in parameters:
                (self.folder / f"{parameters['hold']}.begun").touch()
                while not (self.folder / f"{parameters['hold']}.go").exists() and not request.is_cancelled():
                    time.sleep(0.002)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
