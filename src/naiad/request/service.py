"""The one interface between frontends and the core: plain values and a sink, nothing shared.

Owns the values that it passes. `core.server` implements it. Every call is made on the loop thread. Frontends may one day live
in processes of their own, so nothing here hands out a live object of the core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from naiad.request.call import InferCall
from naiad.request.responder import ResponseSink


class InferHandle(Protocol):
    """An accepted inference, for its frontend to give up."""

    def cancel(self) -> None:
        """Give it up: the sink gets CANCELLED unless it had its end before."""


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """An input or output as a client sees it; `shape` has a leading -1 when the model batches."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """The model metadata of the protocol. `versions` are the ready ones, or the one asked for."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]
    max_batch_size: int
    is_decoupled: bool


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    """The server metadata of the protocol."""

    name: str
    version: str
    extensions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One line of the repository index. `version`, `state` and `reason` are "" where the index leaves them out."""

    name: str
    version: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class SystemRegion:
    """A registered region of system shared memory: `byte_size` bytes from `offset` in the POSIX object `key`."""

    name: str
    key: str
    offset: int
    byte_size: int


@dataclass(frozen=True, slots=True)
class CudaRegion:
    """A registered region of a GPU's memory."""

    name: str
    device_id: int
    byte_size: int


class InferenceService(Protocol):
    """What the server does for its frontends. Every method may raise InferenceServerError."""

    def infer(self, call: InferCall, sink: ResponseSink) -> InferHandle:
        """Check `call` and queue it. Raises for what is wrong with it; after that every outcome goes to `sink`, maybe before
        this returns.
        """

    def is_live(self) -> bool:
        """Return whether the server runs (also true while it drains)."""

    def is_ready(self) -> bool:
        """Return whether the server takes inferences and, with strict readiness, all its models are ready."""

    def is_draining(self) -> bool:
        """Return whether the server is shutting down: connections should be closed after their response."""

    async def is_model_ready(self, name: str, version: str) -> bool:
        """Return whether that model version (latest for "") answers; a model may be asked itself.

        Raises NOT_FOUND or UNAVAILABLE as the protocol says.
        """

    def is_model_serving(self, name: str) -> bool | None:
        """Return whether that model's latest version takes inferences, by what is known without asking it; None for a model
        that isn't known.
        """

    def leads_to_one(self, name: str, version: str) -> bool:
        """Return whether each inference of that model is answered by the same loaded version and copied to no other."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change of what `is_ready`, `is_model_serving` or `leads_to_one` may say, and of which
        version answers, as long as the server lives.

        It may be called for nothing, and must return at once.
        """

    def is_decoupled(self, name: str, version: str) -> bool:
        """Return whether a model may give any number of responses to a request."""

    def server_metadata(self) -> ServerMetadata:
        """Return the server's name, version and extensions."""

    def model_metadata(self, name: str, version: str) -> ModelMetadata:
        """Return a model's inputs and outputs."""

    def model_config(self, name: str, version: str) -> Mapping[str, Any]:
        """Return the completed ModelConfig in its JSON form: names as in the .proto file, every plain field present."""

    async def statistics(self, name: str, version: str) -> list[dict[str, Any]]:
        """Return the statistics in their JSON form, of every ready version of every model when `name` is "". Those of one model
        are of one moment, those of many are not.
        """

    def tried_models(self) -> list[IndexEntry]:
        """Return every model version that is loaded or was to be, and its state, without a look at the repositories."""

    async def repository_index(self, is_ready_only: bool) -> list[IndexEntry]:
        """Return every known model version and its state, and the names of what else is in the repositories."""

    async def load_model(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Load or reload a model; returns when it is ready, and goes on when the caller is cancelled.

        `parameters` are `config`, a ModelConfig as JSON text in place of the file's, and the model's files by names
        `file:<version>/<name>`. Raises UNAVAILABLE where the control mode forbids it, INVALID_ARGUMENT with the reason when it
        can't be loaded (a copy that serves goes on), INTERNAL when it isn't in the repositories, UNIMPLEMENTED for files where
        the operator doesn't allow them.
        """

    async def unload_model(self, name: str, is_unload_dependents: bool) -> None:
        """Begin to unload a model; does nothing for one that isn't known. UNAVAILABLE where the control mode forbids it."""

    def traffic(self, name: str) -> dict[str, Any]:
        """Return how requests that name no version of a model go to its versions, in the form of the HTTP API.

        Raises NOT_FOUND for a model that isn't known, as the two below do.
        """

    def set_traffic(self, name: str, settings: Mapping[str, Any]) -> None:
        """Let that be as `settings` say from now on. Raises INVALID_ARGUMENT with every mistake; nothing changes then."""

    def reset_traffic(self, name: str) -> None:
        """Let that be as the model's configuration says."""

    def log_settings(self) -> dict[str, Any]:
        """Return the log settings as the logging extension names them."""

    def update_log_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Change log settings (members that are None stay) and return all of them."""

    def check_regions_allowed(self) -> None:
        """Raise UNIMPLEMENTED where the operator doesn't allow clients to register memory: a codec asks before it reads."""

    def register_system_region(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Know `byte_size` bytes from `offset` in the POSIX shared memory object `key` as the region `name`.

        Raises UNIMPLEMENTED where the operator doesn't allow it, ALREADY_EXISTS for a name in use, INVALID_ARGUMENT for a key,
        offset or size that can't be, INTERNAL for an object that can't be opened.
        """

    def unregister_system_region(self, name: str) -> None:
        """Forget that region, if there is one, or all for ""; requests that use it go on. UNIMPLEMENTED where not allowed."""

    def system_regions(self, name: str) -> list[SystemRegion]:
        """Return that region, or all for "". Raises NOT_FOUND for a name that isn't registered."""

    async def register_cuda_region(self, name: str, raw_handle: bytes, device_id: int, byte_size: int) -> None:
        """Know the first `byte_size` bytes of what another process has exported as `raw_handle`, an IPC handle of 64 bytes,
        from the GPU `device_id` as the region `name`; returns when it is open.

        Raises UNIMPLEMENTED where the operator doesn't allow it, ALREADY_EXISTS for a name in use, INVALID_ARGUMENT for a
        handle, GPU or size that can't be and where there is no GPU, INTERNAL for a handle that can't be opened.
        """

    def unregister_cuda_region(self, name: str) -> None:
        """Forget that region, if there is one, or all for ""; requests that use it go on. UNIMPLEMENTED where not allowed."""

    def cuda_regions(self, name: str) -> list[CudaRegion]:
        """Return that region, or all for "". Raises NOT_FOUND for a name that isn't registered."""
