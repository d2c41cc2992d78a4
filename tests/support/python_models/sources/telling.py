"""SAID is what a request carries beside its tensors."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        facts = {
            "id": request.request_id(),
            "correlation": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "parameters": json.loads(request.parameters()),
            "outputs": sorted(request.requested_output_names()),
        }
        text = json.dumps(facts, sort_keys=True).encode()
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", np.array([text], dtype=object))])
