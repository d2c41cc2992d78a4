"""How far the best of some scores is ahead of the second best."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """How far ahead the best is, for each request of a batch."""

    def execute(self, requests):
        """Answer each request."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
        """Return the response to one request."""
        scores = pb_utils.get_input_tensor_by_name(request, "SCORES").as_numpy()
        best = np.sort(scores, axis=1)[:, -2:]
        return pb_utils.InferenceResponse([pb_utils.Tensor("LEAD", best[:, 1:] - best[:, :1])])
