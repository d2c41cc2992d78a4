"""Y = X after MS milliseconds, or as soon as a request is cancelled where the model's folder holds a file `polls`.

Notes X of each request that began in `ran.txt` of the model's folder, and each that was found cancelled in `cancelled.txt`.
"""

import pathlib
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.folder = pathlib.Path(args["model_repository"])
        self.is_polling = (self.folder / "polls").exists()

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        self.note("ran.txt", x)
        end = time.monotonic() + pb_utils.get_input_tensor_by_name(request, "MS").as_numpy().flat[0] / 1000
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.02))
            if self.is_polling and request.is_cancelled():
                self.note("cancelled.txt", x)
                return pb_utils.InferenceResponse(error=pb_utils.TritonError("given up", pb_utils.TritonError.CANCELLED))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])

    def note(self, file, x):
        with (self.folder / file).open("a") as notes:
            notes.write(f"{x.flat[0]:g}\n")
