"""Runs the function of `probes`, beside it, that NAME names: SAID is what it returned, or the exception that it raised."""

import numpy as np
import probes
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.args = args
        if hasattr(probes, "initialize"):
            probes.initialize(self)

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        name = pb_utils.get_input_tensor_by_name(request, "NAME").as_numpy()[0].decode()
        try:
            said = getattr(probes, name)(self, request)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", np.array([str(said).encode()], dtype=object))])
