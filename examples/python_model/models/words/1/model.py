"""The words of a text, one response each: a decoupled model in Triton's API."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Sends each WORD of TEXT as a response of its own."""

    def execute(self, requests):
        """Send the words; such a model returns nothing."""
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[0]
            sender = request.get_response_sender()
            for word in text.split():
                if sender.is_cancelled():
                    break
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("WORD", np.array([word], object))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
