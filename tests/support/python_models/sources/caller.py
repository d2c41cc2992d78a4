"""Y is what the model `picky` answers to X, called in the way that the model's parameter `way` names."""

import asyncio
import json

import numpy as np
import triton_python_backend_utils as pb_utils


def ask(x, model_name="picky", outputs=("Y",)):
    return pb_utils.InferenceRequest(
        model_name=model_name, requested_output_names=list(outputs), inputs=[pb_utils.Tensor("X", x)]
    )


def answer_of(response):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return pb_utils.InferenceResponse([pb_utils.get_output_tensor_by_name(response, "Y")])


def plain(model, x):
    return answer_of(ask(x).exec())


def raises_with_tensors_in_hand(model, x):
    response = ask(x).exec()
    copies = [pb_utils.Tensor("Y", x.copy()) for _ in range(3)]
    if response.has_error():
        raise ValueError(response.error().message())
    return pb_utils.InferenceResponse(copies[:1])


def keeps_the_last(model, x):
    model.last = ask(x).exec()
    return answer_of(model.last)


def async_calls(model, x):
    async def both():
        return await asyncio.gather(ask(x).async_exec(), ask(np.abs(x)).async_exec())

    return answer_of(asyncio.run(both())[0])


def drops_an_iterator(model, x):
    for _ in ask(np.float32([[5]]), "repeat").exec(decoupled=True):
        break
    return plain(model, x)


def calls_nobody(model, x):
    response = ask(x, "nobody").exec()
    if x.flat[0] < 0:
        raise pb_utils.TritonModelException("below zero: " + response.error().message())
    return plain(model, x)


class TritonPythonModel:
    def initialize(self, args):
        self.way = globals()[json.loads(args["model_config"])["parameters"]["way"]["string_value"]]

    def execute(self, requests):
        return [self.way(self, pb_utils.get_input_tensor_by_name(request, "X").as_numpy()) for request in requests]
