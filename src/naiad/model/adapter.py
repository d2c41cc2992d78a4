"""`adapt`: from a class of `naiad.model` to one with the contract of `TritonPythonModel`.

Owns the four forms that a model can have: `infer` or `stream`, each as a plain function or as a coroutine function.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from naiad.model.batching import Call, ListCall, batched_calls
from naiad.model.context import Context, context_of
from naiad.model.errors import ModelError
from naiad.model.model import Model
from naiad.model.request import Request, as_inference_response
from naiad.worker.api.model_config import ModelConfig, using_decoupled_model_transaction_policy
from naiad.worker.api.request import InferenceRequest
from naiad.worker.api.response import InferenceResponse
from naiad.worker.api.sender import FINAL, InferenceResponseSender

# So many streams of coroutines can wait for slow readers before one of them holds up others; threads are made when needed.
_MAX_WAITING_STREAMS = 256


def adapt(model_class: type[Model]) -> type[Any]:
    """Return the class that a worker runs for `model_class`. Raises TypeError unless it defines one of infer and
    stream.
    """
    has_infer = model_class.infer is not Model.infer
    has_stream = model_class.stream is not Model.stream
    if has_infer is has_stream:
        which = "both" if has_infer else "neither"
        raise TypeError(f"model class {model_class.__name__} must define infer or stream, it defines {which}")
    base: type[Any]
    if has_stream:
        base = _AsyncStream if inspect.isasyncgenfunction(model_class.stream) else _Stream
    else:
        base = _AsyncInfer if inspect.iscoroutinefunction(model_class.infer) else _Infer
    members: dict[str, Any] = {"model_class": model_class, "__module__": model_class.__module__}
    if has_stream or model_class.configure is not Model.configure:
        members["auto_complete_config"] = staticmethod(_completion(model_class, is_decoupled=has_stream))
    if model_class.is_ready is not Model.is_ready:
        members["is_ready"] = _is_ready
    return type(model_class.__name__, (base,), members)


def _completion(model_class: type[Model], *, is_decoupled: bool) -> Any:
    def auto_complete_config(config: ModelConfig) -> ModelConfig:
        model_class.configure(config)
        if is_decoupled:
            config.set_model_transaction_policy({"decoupled": True})
        return config

    return auto_complete_config


def _is_ready(adapted: _Adapted) -> Any:
    return adapted.model.is_ready()


class _Adapted:
    """What the four forms share."""

    model_class: ClassVar[type[Model]]

    def __init__(self) -> None:
        self.model = self.model_class()
        self.is_decoupled = False

    def initialize(self, args: Mapping[str, str]) -> None:
        context = context_of(args)
        self.is_decoupled = using_decoupled_model_transaction_policy(context.config)
        self._check(context)
        self._prepare(context)
        self.model.load(context)

    def finalize(self) -> None:
        self.model.unload()

    def _check(self, context: Context) -> None:
        if self.model.batched and not int(context.config.get("max_batch_size") or 0):
            name = type(self.model).__name__
            raise ValueError(f"{name}.batched is True, but max_batch_size of model '{context.name}' is 0: there are no batches")

    def _prepare(self, context: Context) -> None:
        """Get what the form needs."""


class _Inferring(_Adapted):
    def _calls(self, requests: Sequence[InferenceRequest]) -> list[Call]:
        own = [Request(request) for request in requests]
        return batched_calls(own) if self.model.batched else [ListCall(own)]

    def _reply(
        self, requests: Sequence[InferenceRequest], responses: list[InferenceResponse]
    ) -> list[InferenceResponse] | None:
        if not self.is_decoupled:
            return responses
        for request, response in zip(requests, responses):
            request.get_response_sender().send(response, FINAL)
        return None


class _Infer(_Inferring):
    def execute(self, requests: Sequence[InferenceRequest]) -> list[InferenceResponse] | None:
        responses: list[InferenceResponse] = []
        for call in self._calls(requests):
            responses += self._run(call)
        return self._reply(requests, responses)

    def _run(self, call: Call) -> list[InferenceResponse]:
        try:
            return call.responses(self.model.infer(call.argument))
        except ModelError as error:
            return [as_inference_response(error)] * call.count


class _AsyncInfer(_Inferring):
    async def execute(self, requests: Sequence[InferenceRequest]) -> list[InferenceResponse] | None:
        responses: list[InferenceResponse] = []
        for call in self._calls(requests):
            responses += await self._run(call)
        return self._reply(requests, responses)

    async def _run(self, call: Call) -> list[InferenceResponse]:
        try:
            return call.responses(await self.model.infer(call.argument))
        except ModelError as error:
            return [as_inference_response(error)] * call.count


class _Streaming(_Adapted):
    logger: Any

    def _check(self, context: Context) -> None:
        if not self.is_decoupled:
            name = type(self.model).__name__
            raise ValueError(f"{name} has stream, but the configuration of model '{context.name}' makes it not decoupled")

    def _prepare(self, context: Context) -> None:
        self.logger = context.logger

    def _fail(self, sender: InferenceResponseSender, error: Exception) -> None:
        """Answer a request whose stream raised."""
        if not isinstance(error, ModelError):
            self.logger.error("stream raised", exc_info=error)
            error = ModelError("INTERNAL", f"{type(error).__name__}: {error}")
        sender.send(as_inference_response(error), FINAL)


class _Stream(_Streaming):
    _threads: ThreadPoolExecutor

    def _prepare(self, context: Context) -> None:
        super()._prepare(context)
        self._threads = ThreadPoolExecutor(self.model.concurrent_streams, "stream")

    def execute(self, requests: Sequence[InferenceRequest]) -> None:
        for request in requests:
            self._threads.submit(self._run, Request(request), request.get_response_sender())

    def finalize(self) -> None:
        self._threads.shutdown()
        super().finalize()

    def _run(self, request: Request, sender: InferenceResponseSender) -> None:
        try:
            answers = self.model.stream(request)
            for answer in answers:
                if sender.is_cancelled():
                    answers.close()
                    break
                sender.send(as_inference_response(answer))
        except Exception as error:
            self._fail(sender, error)
        else:
            sender.send(flags=FINAL)


class _AsyncStream(_Streaming):
    _threads: ThreadPoolExecutor

    def _prepare(self, context: Context) -> None:
        super()._prepare(context)
        self._threads = ThreadPoolExecutor(_MAX_WAITING_STREAMS, "send")

    def finalize(self) -> None:
        self._threads.shutdown()
        super().finalize()

    async def execute(self, requests: Sequence[InferenceRequest]) -> None:
        await asyncio.gather(*[self._run(Request(request), request.get_response_sender()) for request in requests])

    async def _run(self, request: Request, sender: InferenceResponseSender) -> None:
        loop = asyncio.get_running_loop()
        try:
            answers = self.model.stream(request)
            async for answer in answers:
                if sender.is_cancelled():
                    await answers.aclose()
                    break
                # A client that reads slowly holds up this stream only.
                await loop.run_in_executor(self._threads, sender.send, as_inference_response(answer))
        except Exception as error:
            self._fail(sender, error)
        else:
            sender.send(flags=FINAL)
