"""Y = X, but for X[0] < 0, which is answered by an error, and 666, which raises."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(request, "X").as_numpy()) for request in requests]

    def answer(self, x):
        if x.flat[0] == 666:
            raise ValueError("it raised é")
        if x.flat[0] < 0:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"below zero: {x.flat[0]:g}"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
