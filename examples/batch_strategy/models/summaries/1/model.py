"""Stands for a model that pads its batch: it sums tokens, and tells how many the padded batch had."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Triton's API: `execute` gets the requests of one batch."""

    def execute(self, requests):
        """Return for each request the sums of its rows and the tokens of the batch."""
        arrays = [pb_utils.get_input_tensor_by_name(request, "TOKENS").as_numpy() for request in requests]
        longest = max(array.shape[1] for array in arrays)
        padded = np.concatenate([np.pad(array, ((0, 0), (0, longest - array.shape[1]))) for array in arrays])
        sums = padded.sum(axis=1, keepdims=True)
        responses, row = [], 0
        for array in arrays:
            count = len(array)
            outputs = [
                pb_utils.Tensor("SUM", sums[row : row + count]),
                pb_utils.Tensor("BATCH_TOKENS", np.full((count, 1), padded.size, np.int64)),
            ]
            responses.append(pb_utils.InferenceResponse(outputs))
            row += count
        return responses
