"""The models of an embedded server, to be called by its program without a socket.

Owns the calls: what a program's arrays become, and what it gets back. Behind them is the path that clients' requests take.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from naiad.errors import InferenceServerError, cancelled, internal
from naiad.request.call import CallInput, CallOutput, InferCall, Parameter
from naiad.request.response import InferResponse
from naiad.request.service import ModelMetadata
from naiad.server.embedded import arrays
from naiad.server.embedded.arrays import Array
from naiad.server.embedded.background import BackgroundServer
from naiad.server.embedded.in_flight import LoopAnswers, OneAnswer, ThreadAnswers
from naiad.wire.parameters import read_parameters

Inputs = Mapping[str, Any]


class ModelHandle:
    """One model of a running server, the latest version or a given one. May be used on any thread.

    Inputs are arrays by name, or what numpy makes arrays of, with the batch dimension when the model batches; strings may be
    `str`, `bytes` or numpy's string kinds. They must not change before the answer is there. Answers are arrays of the program's
    own; strings are object arrays of `bytes`. `outputs` are the wanted outputs, None for all; `parameters` as in a request of a
    client, `priority`, `timeout` and the like among them. After `timeout_s` seconds the call is given up (DEADLINE_EXCEEDED).

    Every method raises InferenceServerError with the code and text that a client would get.
    """

    def __init__(self, server: BackgroundServer, name: str, version: str = "") -> None:
        self._server = server
        self._name = name
        self._version = version

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    def version(self, number: int | str) -> ModelHandle:
        """Return this model's version `number`."""
        return ModelHandle(self._server, self._name, str(number))

    def infer(
        self,
        inputs: Inputs,
        outputs: Iterable[str] | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Array]:
        """Run the model and return its outputs by name; blocks."""
        answer = self._begin_one(self._call(inputs, outputs, parameters), timeout_s)
        try:
            return self._arrays(answer.future.result())
        except BaseException:
            # Of those that come from outside, ^C: nobody waits any more.
            answer.future.cancel()
            raise

    async def infer_async(
        self,
        inputs: Inputs,
        outputs: Iterable[str] | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Array]:
        """As `infer`, for a coroutine of any loop. When the coroutine is cancelled, so is the request."""
        answer = self._begin_one(self._call(inputs, outputs, parameters), timeout_s)
        return self._arrays(await asyncio.wrap_future(answer.future))

    def stream(
        self,
        inputs: Inputs,
        outputs: Iterable[str] | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[dict[str, Array]]:
        """Yield the outputs of each response: any number for a decoupled model, one for others.

        The request begins with the first response that is asked for, and is cancelled when the iterator is closed early.
        """
        call = self._call(inputs, outputs, parameters, takes_many=True)
        answers = ThreadAnswers(self._server.post_quietly)
        in_flight = self._server.begin(call, answers, timeout_s)
        try:
            for response in answers:
                yield self._arrays(response)
        finally:
            self._server.give_up(in_flight, cancelled())

    async def stream_async(
        self,
        inputs: Inputs,
        outputs: Iterable[str] | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[dict[str, Array]]:
        """As `stream`, for a coroutine of any loop."""
        call = self._call(inputs, outputs, parameters, takes_many=True)
        answers = LoopAnswers(self._server.post_quietly)
        in_flight = self._server.begin(call, answers, timeout_s)
        try:
            async for response in answers:
                yield self._arrays(response)
        finally:
            self._server.give_up(in_flight, cancelled())

    def is_ready(self) -> bool:
        """Return whether the model answers. A model that isn't known isn't ready."""
        try:
            return self._server.ask_and_wait(lambda core: core.is_model_ready(self._name, self._version))
        except InferenceServerError:
            return False

    @property
    def metadata(self) -> ModelMetadata:
        """Inputs and outputs with their datatypes and shapes, and the versions that are ready."""
        return self._server.ask(lambda core: core.model_metadata(self._name, self._version))

    @property
    def config(self) -> dict[str, Any]:
        """The completed configuration, as `/v2/models/<name>/config` shows it; a copy."""
        return self._server.ask(lambda core: copy.deepcopy(dict(core.model_config(self._name, self._version))))

    @property
    def statistics(self) -> dict[str, Any]:
        """The statistics of the model's latest version, or of this one, as `/v2/models/<name>/stats` shows them."""
        return self._server.ask_and_wait(lambda core: core.statistics(self._name, self._version))[-1]

    def _begin_one(self, call: InferCall, timeout_s: float | None) -> OneAnswer:
        answer = OneAnswer()
        in_flight = self._server.begin(call, answer, timeout_s)
        answer.future.add_done_callback(
            lambda future: self._server.give_up(in_flight, cancelled()) if future.cancelled() else None
        )
        return answer

    def _call(
        self,
        inputs: Inputs,
        outputs: Iterable[str] | None,
        parameters: Mapping[str, Parameter] | None,
        takes_many: bool = False,
    ) -> InferCall:
        call = InferCall(self._name, self._version, takes_many_responses=takes_many)
        for name, value in inputs.items():
            datatype, array = arrays.to_server(value, f"input '{name}' for model '{self._name}'")
            call.inputs.append(CallInput(name, datatype.name, list(array.shape), array=array.reshape(-1)))
        call.outputs = [CallOutput(name) for name in outputs or ()]
        if parameters:
            read_parameters(dict(parameters), call)
        return call

    def _arrays(self, response: InferResponse | None) -> dict[str, Array]:
        if response is None:
            raise internal(f"model '{self._name}' ended the request without an answer")
        return {item.name: arrays.from_server(item.datatype, item.array).copy() for item in response.outputs}


class Models:
    """The models of a running server by name: `server.models["m"]`. Iterating yields the names of those that are ready."""

    def __init__(self, server: BackgroundServer) -> None:
        self._server = server

    def __getitem__(self, name: str) -> ModelHandle:
        """Return the model called `name`, known or not: what is wrong with it shows when it is used."""
        return ModelHandle(self._server, name)

    def __iter__(self) -> Iterator[str]:
        index = self._server.ask_and_wait(lambda core: core.repository_index(is_ready_only=True))
        return iter(dict.fromkeys(entry.name for entry in index))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return any(known == name for known in self)
