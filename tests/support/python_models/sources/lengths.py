"""N is how many requests ran together, LENGTH the length of the request's X, SUM the sum of it."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request, len(requests)) for request in requests]

    def answer(self, request, count):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        facts = {"N": count, "LENGTH": x.shape[1], "SUM": int(x.sum())}
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, np.array([[value]], np.int32)) for name, value in facts.items()]
        )
