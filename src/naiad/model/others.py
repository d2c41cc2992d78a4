"""`OtherModels`: the models that a model can call, as `context.models`.

Owns calls with arrays. They go through the same checks, queues and statistics as those of clients.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from naiad.model.errors import from_triton
from naiad.model.request import Arrays, Parameter, Response, as_tensors
from naiad.worker.api.control import is_model_ready, load_model, unload_model
from naiad.worker.api.request import InferenceRequest
from naiad.worker.api.response import InferenceResponse


@dataclass(frozen=True, slots=True)
class OtherModel:
    """One model to call; `version` "" is the latest. All calls raise ModelError with the called model's error.

    `inputs` are arrays by name, or what has `__dlpack__`; `outputs` the names that are wanted, all when empty.
    """

    name: str
    version: str = ""

    async def infer(
        self, inputs: Mapping[str, Any], outputs: Sequence[str] = (), parameters: Mapping[str, Parameter] | None = None
    ) -> Response:
        """Return the model's response."""
        return _response(await self._request(inputs, outputs, parameters).async_exec())

    def infer_blocking(
        self, inputs: Mapping[str, Any], outputs: Sequence[str] = (), parameters: Mapping[str, Parameter] | None = None
    ) -> Response:
        """Return the model's response, for code that is no coroutine."""
        return _response(self._request(inputs, outputs, parameters).exec())

    async def stream(
        self, inputs: Mapping[str, Any], outputs: Sequence[str] = (), parameters: Mapping[str, Parameter] | None = None
    ) -> AsyncIterator[Response]:
        """Yield the responses of a model that sends many; to stop early gives the call up."""
        responses = await self._request(inputs, outputs, parameters).async_exec(decoupled=True)
        try:
            async for response in responses:
                if response.has_error() or response.output_tensors():
                    yield _response(response)
        finally:
            responses.cancel()

    def stream_blocking(
        self, inputs: Mapping[str, Any], outputs: Sequence[str] = (), parameters: Mapping[str, Parameter] | None = None
    ) -> Iterator[Response]:
        """Yield the same, for code that is no coroutine."""
        responses = self._request(inputs, outputs, parameters).exec(decoupled=True)
        try:
            for response in responses:
                if response.has_error() or response.output_tensors():
                    yield _response(response)
        finally:
            responses.cancel()

    def is_ready(self) -> bool:
        """Return whether it serves."""
        return is_model_ready(self.name, self.version)

    def load(self) -> None:
        """Load it, or load it anew, and block until it serves. Raises TritonModelException when it can't be."""
        load_model(self.name)

    def unload(self) -> None:
        """Unload it. Raises TritonModelException when it can't be."""
        unload_model(self.name)

    def _request(
        self, inputs: Mapping[str, Any], outputs: Sequence[str], parameters: Mapping[str, Parameter] | None
    ) -> InferenceRequest:
        return InferenceRequest(
            inputs=as_tensors(inputs),
            requested_output_names=outputs,
            model_name=self.name,
            model_version=int(self.version or -1),
            parameters=parameters,
        )


class OtherModels:
    """Models by name: `models["resize"]`, or by name and version: `models["resize", "2"]`. Whether there is one shows when
    it is called.
    """

    __slots__ = ()

    def __getitem__(self, key: str | tuple[str, str]) -> OtherModel:
        return OtherModel(key) if isinstance(key, str) else OtherModel(*key)


def _response(response: InferenceResponse) -> Response:
    error = response.error()
    if error is not None:
        raise from_triton(error)
    tensors = {tensor.name(): tensor for tensor in response.output_tensors()}
    return Response(Arrays(tensors), response.parameters_dict())
