"""Numbers that describe a text: a model in Triton's API, which runs on Triton and on Naiad."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """FEATURES of each TEXT: its length, its number of words, its number of exclamation marks."""

    def initialize(self, args):
        """Say where the model runs."""
        pb_utils.Logger.log_info(f"{args['model_instance_name']} is ready")

    def execute(self, requests):
        """Answer each request of a batch by itself; a request may hold several texts."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        try:
            rows = [describe(text.decode()) for text in texts[:, 0]]
        except UnicodeDecodeError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
        return pb_utils.InferenceResponse([pb_utils.Tensor("FEATURES", np.array(rows, np.float32))])


def describe(text):
    """Return the three numbers."""
    return len(text), len(text.split()), text.count("!")
