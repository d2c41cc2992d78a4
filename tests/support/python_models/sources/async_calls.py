"""Calls of other models from an `async def execute`."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


def ask(model_name, *values, outputs=("Y",), **more):
    tensor = pb_utils.Tensor("X", np.array([values], np.float32))
    return pb_utils.InferenceRequest(model_name=model_name, inputs=[tensor], requested_output_names=list(outputs), **more)


def said(response):
    if response.has_error():
        return f"error: {response.error().message()}"
    return [f"{each.name()} {each.as_numpy().tolist()}" for each in response.output_tensors()]


async def a_call(model, request):
    return said(await ask("echo", 1).async_exec())


async def several_at_once(model, request):
    return [said(each) for each in await asyncio.gather(*(ask("echo", value).async_exec() for value in range(4)))]


async def one_of_several_fails(model, request):
    return [said(each) for each in await asyncio.gather(*(ask("failing", value).async_exec() for value in (1, -1, 2)))]


async def a_blocking_call(model, request):
    return said(ask("echo", 1).exec())


async def a_missing_model(model, request):
    return said(await ask("nobody", 1).async_exec())


async def decoupled(model, request):
    return [said(each) for each in await ask("repeat", 3).async_exec(decoupled=True)]


async def decoupled_without_saying_so(model, request):
    return said(await ask("repeat", 2).async_exec())


async def decoupled_async_for(model, request):
    return [said(each) async for each in await ask("repeat", 3).async_exec(decoupled=True)]


async def begun_before_it_is_awaited(model, request):
    calls = [ask("echo", value).async_exec() for value in range(2)]
    return [said(await each) for each in reversed(calls)]


async def created_as_a_task(model, request):
    task = asyncio.create_task(_call())
    return said(await task)


async def _call():
    return await ask("echo", 5).async_exec()


async def sleeping(model, request):
    await asyncio.sleep(0.01)
    return "slept"


class TritonPythonModel:
    async def execute(self, requests):
        return await asyncio.gather(*(self.answer(request) for request in requests))

    async def answer(self, request):
        name = pb_utils.get_input_tensor_by_name(request, "NAME").as_numpy()[0].decode()
        try:
            text = await globals()[name](self, request)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", np.array([str(text).encode()], dtype=object))])
