"""An `InferenceService` without a core: one model `echo`, everything it was asked for written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from naiad.errors import invalid_argument, not_found
from naiad.request.call import InferCall
from naiad.request.responder import ResponseSink
from naiad.request.service import (
    CudaRegion,
    IndexEntry,
    InferHandle,
    ModelMetadata,
    ServerMetadata,
    SystemRegion,
    TensorMetadata,
)


class FakeService:
    """Attributes are the answers. `fault` is raised by every method but those of health."""

    def __init__(self) -> None:
        self.live = self.ready = self.model_ready = True
        self.draining = False
        self.traffic_settings: dict[str, Any] = {}
        self.fault: Exception | None = None
        self.index = [IndexEntry("echo", "1", "READY", ""), IndexEntry("broken", "", "UNAVAILABLE", "no file")]
        self.logs: dict[str, Any] = {"log_file": "", "log_info": True, "log_verbose_level": 0, "log_format": "default"}
        self.loaded: list[tuple[str, dict[str, Any]]] = []
        self.unloaded: list[tuple[str, bool]] = []
        self.asked: list[tuple[str, str]] = []
        self.index_filters: list[bool] = []
        self.regions: dict[str, SystemRegion] = {}
        self.serving: dict[str, bool] = {"echo": True, "broken": False}
        self.readiness_callbacks: list[Callable[[], None]] = []
        self.cuda_handles: list[tuple[str, bytes, int, int]] = []

    def infer(self, call: InferCall, sink: ResponseSink) -> InferHandle:
        raise AssertionError("the app never runs an inference")

    def is_live(self) -> bool:
        return self.live

    def is_ready(self) -> bool:
        return self.ready

    def is_draining(self) -> bool:
        return self.draining

    async def is_model_ready(self, name: str, version: str) -> bool:
        self._find(name, version)
        return self.model_ready

    def is_model_serving(self, name: str) -> bool | None:
        return self.serving.get(name)

    def leads_to_one(self, name: str, version: str) -> bool:
        return True

    def on_change(self, callback: Callable[[], None]) -> None:
        self.readiness_callbacks.append(callback)

    def tell_readiness(self) -> None:
        """Say that something has changed, as the server does."""
        for callback in self.readiness_callbacks:
            callback()

    def server_metadata(self) -> ServerMetadata:
        self._fail()
        return ServerMetadata("naiad", "1.2.3", ("classification", "logging"))

    def model_metadata(self, name: str, version: str) -> ModelMetadata:
        self._find(name, version)
        return ModelMetadata(
            name=name,
            versions=(version or "1",),
            platform="python",
            inputs=(TensorMetadata("X", "FP32", (-1, 16)), TensorMetadata("S", "BYTES", (-1, 1), is_optional=True)),
            outputs=(TensorMetadata("Y", "FP32", (-1, 16)),),
            max_batch_size=8,
            is_decoupled=False,
        )

    def model_config(self, name: str, version: str) -> Mapping[str, Any]:
        self._find(name, version)
        return {"name": name, "max_batch_size": 8, "input": [], "dynamic_batching": {"max_queue_delay_microseconds": 2**63}}

    async def statistics(self, name: str, version: str) -> list[dict[str, Any]]:
        self._fail()
        self.asked.append((name, version))
        return [{"name": name or "echo", "version": version or "1", "inference_count": 0}]

    def tried_models(self) -> list[IndexEntry]:
        return self.index

    async def repository_index(self, is_ready_only: bool) -> list[IndexEntry]:
        self._fail()
        self.index_filters.append(is_ready_only)
        return self.index

    async def load_model(self, name: str, parameters: Mapping[str, Any]) -> None:
        self._fail()
        self.loaded.append((name, dict(parameters)))

    async def unload_model(self, name: str, is_unload_dependents: bool) -> None:
        self._fail()
        self.unloaded.append((name, is_unload_dependents))

    def traffic(self, name: str) -> dict[str, Any]:
        self._find(name, "")
        return {"model": name, **self.traffic_settings}

    def set_traffic(self, name: str, settings: Mapping[str, Any]) -> None:
        self._find(name, "")
        self.traffic_settings = dict(settings)

    def reset_traffic(self, name: str) -> None:
        self._find(name, "")
        self.traffic_settings = {}

    def log_settings(self) -> dict[str, Any]:
        self._fail()
        return self.logs

    def update_log_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        self._fail()
        if not isinstance(settings.get("log_info", True), bool):
            raise invalid_argument("'log_info' must be true or false")
        self.logs = {**self.logs, **settings}
        return self.logs

    def check_regions_allowed(self) -> None:
        self._fail()

    def register_system_region(self, name: str, key: str, offset: int, byte_size: int) -> None:
        self._fail()
        self.regions[name] = SystemRegion(name, key, offset, byte_size)

    def unregister_system_region(self, name: str) -> None:
        self._fail()
        for known in [name] if name else list(self.regions):
            self.regions.pop(known, None)

    def system_regions(self, name: str) -> list[SystemRegion]:
        self._fail()
        return [region for region in self.regions.values() if name in ("", region.name)]

    async def register_cuda_region(self, name: str, raw_handle: bytes, device_id: int, byte_size: int) -> None:
        self._fail()
        self.cuda_handles.append((name, raw_handle, device_id, byte_size))

    def unregister_cuda_region(self, name: str) -> None:
        self._fail()

    def cuda_regions(self, name: str) -> list[CudaRegion]:
        self._fail()
        return []

    def _fail(self) -> None:
        if self.fault is not None:
            raise self.fault

    def _find(self, name: str, version: str) -> None:
        self._fail()
        self.asked.append((name, version))
        if name not in ("echo", "ü b"):
            raise not_found(f"Request for unknown model: '{name}' is not found")
