"""The content of files as the integers that the model `file_type` wants."""

import numpy as np
import triton_python_backend_utils as pb_utils

EDGE_BYTES = 1024
PADDING = 256


class TritonPythonModel:
    """The numbers of files, for each request of a batch."""

    def execute(self, requests):
        """Answer each request."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
        """Return the response to one request."""
        contents = pb_utils.get_input_tensor_by_name(request, "CONTENT").as_numpy()
        rows = np.stack([features(content) for content in contents[:, 0]])
        return pb_utils.InferenceResponse([pb_utils.Tensor("BYTES", rows)])


def features(content):
    """Return the first and the last 1,024 bytes without outer white space, INT32[2048]."""
    beginning, end = content.lstrip()[:EDGE_BYTES], content.rstrip()[-EDGE_BYTES:]
    values = np.full(2 * EDGE_BYTES, PADDING, dtype=np.int32)
    values[: len(beginning)] = list(beginning)
    values[2 * EDGE_BYTES - len(end) :] = list(end)
    return values
