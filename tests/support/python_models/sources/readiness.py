"""Y = X; `is_ready` does what the first word of the file `way` in the model's folder says."""

import asyncio
import pathlib
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.way = pathlib.Path(args["model_repository"], "way")

    def is_ready(self):
        way = self.way.read_text()
        if way == "raises":
            raise ValueError("not I")
        if way == "exits":
            raise SystemExit
        if way.startswith("coroutine"):
            return self.later(way.endswith("yes"))
        if way == "never":
            time.sleep(3600)
        return {"yes": True, "no": False, "text": "yes", "nothing": None}[way]

    async def later(self, value):
        await asyncio.sleep(0)
        return value

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy())])
            for request in requests
        ]
