"""Inferences with tensors in memory that clients share with the server, and what they may register.

Owns the rule whether they may, and the way of such an inference: inputs become buffers before the call is checked, those of a
GPU's memory off the event loop (`core.device_inputs`), and a sink puts outputs where they are wanted (`core.region_sink`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from naiad.core.device_inputs import Accept, DeviceInputs
from naiad.core.region_sink import Completion, RegionSink, RunOnThread
from naiad.errors import not_found, unavailable, unimplemented
from naiad.memory.client_regions.device_memory import DeviceMemory
from naiad.memory.client_regions.device_region import DeviceRegion, check_handle, open_device_region
from naiad.memory.client_regions.region import LARGE_BYTES, Region
from naiad.memory.client_regions.registry import AnyRegion, RegionRegistry
from naiad.request.call import CallInput, CallOutput, InferCall
from naiad.request.responder import ResponseSink
from naiad.request.service import CudaRegion, InferHandle, SystemRegion

_KIND_NAMES: dict[type[AnyRegion], str] = {Region: "system", DeviceRegion: "cuda"}


class ClientMemory:
    """See the module, and `InferenceService` for what is registered. Loop thread only."""

    def __init__(self, is_allowed: bool, run_on_thread: RunOnThread, device_memory: DeviceMemory) -> None:
        self._is_allowed = is_allowed
        self._run_on_thread = run_on_thread
        self._device_memory = device_memory
        self._has_ended = False
        self._device_inputs = DeviceInputs(run_on_thread)
        self._regions = RegionRegistry(self._discard)

    def infer(self, call: InferCall, sink: ResponseSink, accept: Accept) -> InferHandle:
        """Do as `accept`, which knows nothing of regions. They are in use from here until the request has ended.

        Raises NOT_FOUND for a region that isn't registered, INVALID_ARGUMENT for a piece that doesn't lie in it, and as
        `accept`; with an input in a GPU's memory what `accept` raises goes to `sink`, as it is asked later.
        """
        region_sink = RegionSink(sink, self._run_on_thread)
        try:
            on_devices: dict[str, DeviceRegion] = {}
            inputs = self._resolved_inputs(call.inputs, on_devices)
            outputs = [self._resolved_output(output, region_sink) for output in call.outputs]
            # What isn't a copy can be changed by the client while it is answered, and would be kept as the answer to another.
            is_uncached = any(given.region and not isinstance(item.buffer, bytes) for given, item in zip(call.inputs, inputs))
            resolved = replace(call, inputs=inputs, outputs=outputs, is_uncached=is_uncached)
            if on_devices:
                return self._device_inputs.infer(resolved, region_sink, on_devices, accept)
            return accept(resolved, region_sink)
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
        self._unregister(name, Region)

    def system_regions(self, name: str) -> list[SystemRegion]:
        """See `InferenceService.system_regions`."""
        self._check_known(name, Region)
        return [
            SystemRegion(region.name, region.key, region.offset, region.size_bytes)
            for region in self._regions.all()
            if isinstance(region, Region) and name in ("", region.name)
        ]

    def release_all(self) -> None:
        """Forget all regions, at the end of the server: from here on they are closed where the last use ends."""
        self._has_ended = True
        self._regions.unregister_all()

    async def register_cuda_region(self, name: str, raw_handle: bytes, device_id: int, byte_size: int) -> None:
        """See `InferenceService.register_cuda_region`. Once begun it isn't given up: who asked may be gone when it is done."""
        self.check_allowed()
        check_handle(name, raw_handle)
        self._regions.reserve(name)
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def open_region() -> Completion:
            try:
                region = open_device_region(name, raw_handle, device_id, byte_size, self._device_memory)
            except Exception as error:
                refusal = error
                return lambda: self._end_opening(name, refusal, opened)
            return lambda: self._end_opening(name, region, opened)

        self._run_on_thread(open_region)
        await opened

    def unregister_cuda_region(self, name: str) -> None:
        """See `InferenceService.unregister_cuda_region`."""
        self._unregister(name, DeviceRegion)

    def cuda_regions(self, name: str) -> list[CudaRegion]:
        """See `InferenceService.cuda_regions`."""
        self._check_known(name, DeviceRegion)
        return [
            CudaRegion(region.name, region.device_id, region.size_bytes)
            for region in self._regions.all()
            if isinstance(region, DeviceRegion) and name in ("", region.name)
        ]

    def _end_opening(self, name: str, outcome: DeviceRegion | Exception, opened: asyncio.Future[None]) -> None:
        if self._has_ended and isinstance(outcome, DeviceRegion):
            outcome.release()
            outcome = unavailable("the server is shutting down and takes no new shared memory regions")
        if isinstance(outcome, DeviceRegion):
            outcome.close_by(self._discard)
            self._regions.add(outcome)
            if not opened.done():
                opened.set_result(None)
            return
        self._regions.give_up(name)
        if not opened.done():
            opened.set_exception(outcome)

    def _unregister(self, name: str, kind: type[AnyRegion]) -> None:
        self.check_allowed()
        if name:
            self._regions.unregister(name, kind)
        else:
            self._regions.unregister_all(kind)

    def _check_known(self, name: str, kind: type[AnyRegion]) -> None:
        """Raise NOT_FOUND for a name that no region of this kind has; a region of the other kind is named."""
        if not name:
            return
        found = [region for region in self._regions.all() if region.name == name]
        if found and isinstance(found[0], kind):
            return
        hint = f": a region of that name is registered as {_KIND_NAMES[type(found[0])]} shared memory" if found else ""
        raise not_found(f"Unable to find {_KIND_NAMES[kind]} shared memory region: '{name[:256]}'{hint}")

    def _discard(self, close: Callable[[], None]) -> None:
        if self._has_ended:
            close()
            return

        def job() -> Completion:
            close()
            return _nothing

        self._run_on_thread(job)

    def _resolved_inputs(self, items: list[CallInput], on_devices: dict[str, DeviceRegion]) -> list[CallInput]:
        """Return the inputs with buffers: copies while they are small all together, then views of the clients' memory. Those
        in a GPU's memory stay as they are, and their regions are put into `on_devices`.
        """
        resolved: list[CallInput] = []
        left_to_copy = LARGE_BYTES
        for item in items:
            piece = item.region
            if piece is None:
                resolved.append(item)
                continue
            region = self._regions.find(piece.name)
            if isinstance(region, DeviceRegion):
                region.check_range(piece.offset, piece.size_bytes)
                on_devices[piece.name] = region
                resolved.append(item)
                continue
            is_small = piece.size_bytes <= left_to_copy
            buffer = (region.read if is_small else region.view)(piece.offset, piece.size_bytes)
            left_to_copy -= len(buffer) if is_small else 0
            resolved.append(CallInput(item.name, item.datatype, item.shape, buffer))
        return resolved

    def _resolved_output(self, output: CallOutput, sink: RegionSink) -> CallOutput:
        piece = output.region
        if piece is None:
            return output
        region = self._regions.find(piece.name)
        region.check_range(piece.offset, piece.size_bytes)
        sink.place(output.name, region, piece)
        return replace(output, region=None)


def _nothing() -> None:
    """Is to be done on the loop thread when a region has been closed."""
