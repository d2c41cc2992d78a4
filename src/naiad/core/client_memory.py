"""Inferences with tensors in memory that clients share with the server, and what they may register.

Owns the rule whether they may, and the way of such an inference: inputs become buffers before the call is checked, and a sink
puts outputs where they are wanted (`core.region_sink`). Knows no GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from naiad.core.region_sink import Completion, RegionSink, RunOnThread
from naiad.errors import invalid_argument, not_found, unimplemented
from naiad.memory.client_regions.region import LARGE_BYTES, Region
from naiad.memory.client_regions.registry import RegionRegistry
from naiad.request.call import CallInput, CallOutput, InferCall
from naiad.request.responder import ResponseSink
from naiad.request.service import CudaRegion, InferHandle, SystemRegion

_CUDA_HANDLE_BYTES = 64

Accept = Callable[[InferCall, ResponseSink], InferHandle]


def uses_regions(call: InferCall) -> bool:
    """Return whether a tensor of `call` is in shared memory."""
    for item in call.inputs:
        if item.region is not None:
            return True
    for output in call.outputs:  # noqa: SIM110 - a generator takes three times as long, and every call gets here
        if output.region is not None:
            return True
    return False


class ClientMemory:
    """See the module, and `InferenceService` for what is registered. Loop thread only."""

    def __init__(self, is_allowed: bool, run_on_thread: RunOnThread) -> None:
        self._is_allowed = is_allowed
        self._run_on_thread = run_on_thread
        self._regions = RegionRegistry(self._discard)

    def infer(self, call: InferCall, sink: ResponseSink, accept: Accept) -> InferHandle:
        """Do as `accept`, which knows nothing of regions. They are in use from here until the request has ended.

        Raises NOT_FOUND for a region that isn't registered, INVALID_ARGUMENT for a piece that doesn't lie in it, and as
        `accept`.
        """
        region_sink = RegionSink(sink, self._run_on_thread)
        try:
            inputs = self._resolved_inputs(call.inputs)
            outputs = [self._resolved_output(output, region_sink) for output in call.outputs]
            return accept(replace(call, inputs=inputs, outputs=outputs), region_sink)
        except BaseException:
            region_sink.release()
            raise

    def check_allowed(self) -> None:
        """See `InferenceService.check_regions_allowed`."""
        if not self._is_allowed:
            raise unimplemented("Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.")

    def register_system_region(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """See `InferenceService.register_system_region`."""
        self.check_allowed()
        self._regions.register(name, key, offset, byte_size)

    def unregister_system_region(self, name: str) -> None:
        """See `InferenceService.unregister_system_region`."""
        self.check_allowed()
        if name:
            self._regions.unregister(name)
        else:
            self._regions.unregister_all()

    def system_regions(self, name: str) -> list[SystemRegion]:
        """See `InferenceService.system_regions`."""
        regions = [region for region in self._regions.all() if name in ("", region.name)]
        if name and not regions:
            raise not_found(f"Unable to find system shared memory region: '{name[:256]}'")
        return [SystemRegion(region.name, region.key, region.offset, region.size_bytes) for region in regions]

    def release_all(self) -> None:
        """Forget all regions, as at the end of the server."""
        self._regions.unregister_all()

    def register_cuda_region(self, name: str, raw_handle: bytes, device_id: int, byte_size: int) -> None:
        """See `InferenceService.register_cuda_region`."""
        self.check_allowed()
        if len(raw_handle) != _CUDA_HANDLE_BYTES:
            raise invalid_argument(
                f"failed to register CUDA shared memory region '{name}': 'raw_handle' must be base64 of {_CUDA_HANDLE_BYTES} "
                f"bytes, got {len(raw_handle)} bytes"
            )
        raise invalid_argument(f"failed to register CUDA shared memory region: '{name}', GPUs not supported")

    def unregister_cuda_region(self, name: str) -> None:
        """See `InferenceService.unregister_cuda_region`."""
        self.check_allowed()

    def cuda_regions(self, name: str) -> list[CudaRegion]:
        """See `InferenceService.cuda_regions`."""
        if name:
            is_system = any(region.name == name for region in self._regions.all())
            hint = ": a region of that name is registered as system shared memory" if is_system else ""
            raise not_found(f"Unable to find cuda shared memory region: '{name[:256]}'{hint}")
        return []

    def _discard(self, close: Callable[[], None]) -> None:
        def job() -> Completion:
            close()
            return _nothing

        self._run_on_thread(job)

    def _resolved_inputs(self, items: list[CallInput]) -> list[CallInput]:
        """Return the inputs with buffers: copies while they are small all together, then views of the clients' memory."""
        resolved: list[CallInput] = []
        left_to_copy = LARGE_BYTES
        for item in items:
            piece = item.region
            if piece is None:
                resolved.append(item)
                continue
            region = self._regions.find(piece.name)
            is_small = piece.size_bytes <= left_to_copy
            buffer = (region.read if is_small else region.view)(piece.offset, piece.size_bytes)
            left_to_copy -= len(buffer) if is_small else 0
            resolved.append(CallInput(item.name, item.datatype, item.shape, buffer))
        return resolved

    def _resolved_output(self, output: CallOutput, sink: RegionSink) -> CallOutput:
        piece = output.region
        if piece is None:
            return output
        region: Region = self._regions.find(piece.name)
        region.check_range(piece.offset, piece.size_bytes)
        sink.place(output.name, region, piece)
        return replace(output, region=None)


def _nothing() -> None:
    """Is to be done on the loop thread when a region has been closed."""
