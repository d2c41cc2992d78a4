"""The vectors of a text's tokens as one vector of length 1: their mean, without the padding."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The EMBEDDING of each text."""

    def execute(self, requests):
        """Answer each request."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
        """Return the response to one request."""
        hidden = pb_utils.get_input_tensor_by_name(request, "HIDDEN").as_numpy()
        mask = pb_utils.get_input_tensor_by_name(request, "MASK").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("EMBEDDING", pooled(hidden, mask))])


def pooled(hidden, mask):
    """Return FP32[texts, 384] of FP32[texts, tokens, 384] and INT64[texts, tokens]."""
    weights = mask[:, :, None].astype(np.float32)
    means = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
    return means / np.linalg.norm(means, axis=1, keepdims=True)
