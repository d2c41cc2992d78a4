"""Decoupled: threads of the model answer each X with X, X + 1, X + 2; X < 0 has special ways to end.

-1: sends after its end, which it notes in `told` of the model's folder. -2: lets go of the sender without an end.
"""

import concurrent.futures
import pathlib

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def initialize(self, args):
        self.threads = concurrent.futures.ThreadPoolExecutor(32)
        self.notes = pathlib.Path(args["model_repository"], "told")

    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy().copy()
            if x[0] != -2:
                self.threads.submit(self.work, request.get_response_sender(), x)
            else:
                request.get_response_sender()

    def work(self, sender, x):
        for number in range(3):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + np.float32(number))]))
        sender.send(flags=FINAL)
        if x[0] == -1:
            try:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
            except pb_utils.TritonModelException as error:
                self.notes.write_text(str(error))
