"""The one object that frontends hold: it checks a call, finds its model and queues it; and it answers what they ask.

Owns the way of an inference from a codec to a scheduler, and the answers about models and the server. Implements
`request.service.InferenceService`; knows no socket and no wire format.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from naiad.config.plan import TensorPlan
from naiad.core.classification import ClassifyingSink
from naiad.core.client_memory import ClientMemory
from naiad.core.route import Route, Traffic
from naiad.core.traffic.control import TrafficControl
from naiad.errors import DecoupledModelError, InferenceServerError, invalid_argument, unavailable
from naiad.repository.control.control import ModelControl
from naiad.repository.manager import RepositoryManager
from naiad.request.call import InferCall
from naiad.request.request import InferRequest, Sequence
from naiad.request.responder import Responder, ResponseSink
from naiad.request.service import (
    CudaRegion,
    IndexEntry,
    InferHandle,
    ModelMetadata,
    ServerMetadata,
    SystemRegion,
    TensorMetadata,
)

# In Triton's order. Only what is built: trace joins when it is.
EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "logging",
)

_now_ns = time.monotonic_ns

# The statistics of so many models take less than a millisecond.
_MODELS_PER_TURN = 32


class LogControl(Protocol):
    """The log settings that can change at run time."""

    def get(self) -> dict[str, Any]:
        """Return all settings as the logging extension names them."""

    def update(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Change those that are given and return all."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the server says of itself: `name` and `version` of its metadata."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Controls:
    """What can be changed at run time: which models there are, how their versions share requests, log settings."""

    models: ModelControl
    traffic: TrafficControl
    logs: LogControl


class InferenceServer:
    """See `InferenceService`. `begin_drain` and `wait_idle` are for the process that stops it."""

    def __init__(
        self,
        identity: Identity,
        repository: RepositoryManager,
        controls: Controls,
        client_memory: ClientMemory,
        is_strict_readiness: bool,
    ) -> None:
        self._identity = identity
        self._repository = repository
        self._control = controls.models
        self._traffic = controls.traffic
        self._logs = controls.logs
        self._client_memory = client_memory
        self._is_strict_readiness = is_strict_readiness
        self._routes: dict[tuple[str, str], Route] = {}
        self._near_routes: dict[tuple[str, str, str], Route] = {}
        self._is_loaded = False
        self._is_not_ready_wanted = False
        self._is_draining = False
        self._change_callbacks: list[Callable[[], None]] = []
        repository.on_change = self._on_change

    def infer(self, call: InferCall, sink: ResponseSink) -> InferHandle:
        """See `InferenceService.infer`."""
        if self._is_draining and not self._continues_sequence(call):
            raise unavailable("the server is shutting down and takes no new inference requests")
        return self.infer_at(None, None, call, sink)

    def infer_at(self, route: Route | None, traffic: Traffic | None, call: InferCall, sink: ResponseSink) -> InferHandle:
        """Do what `infer` does, also while the server drains: for what a request in flight asks of another model. `route` is
        that model's version and `traffic` what has chosen it, None where the call says it.
        """
        # A template never stands for a call with regions.
        if call.template is None and call.uses_regions:
            return self._client_memory.infer(call, sink, self.infer)
        received_ns = _now_ns()
        if route is None:
            route = self._routes.get((call.model_name, call.model_version)) or self._find_route(
                call.model_name, call.model_version
            )
            traffic = route.traffic
            if traffic is not None:
                route = traffic.choose(call)
        checked = route.check(call)
        model = route.model
        if model.plan.is_decoupled and not call.takes_many_responses:
            raise DecoupledModelError(call.model_name)
        for output in call.outputs:
            if output.classification:
                sink = ClassifyingSink(sink, model.plan, {output.name: output.classification for output in call.outputs})
                break
        request = InferRequest(
            checked.inputs,
            checked.outputs,
            checked.batch_size,
            Responder(sink, model.statistics, received_ns),
            received_ns,
        )
        request.id = call.id
        request.parameters = call.parameters
        request.priority = call.priority
        request.timeout_us = call.timeout_us
        request.is_uncached = call.is_uncached
        request.may_omit_outputs = call.may_omit_outputs
        request.client = call.client
        request.deadline_ns = call.deadline_ns
        if call.sequence_id:
            request.sequence = Sequence(call.sequence_id, call.is_sequence_start, call.is_sequence_end)
        try:
            (model.enqueue if call.is_uncached else route.enqueue)(request)
        except InferenceServerError as error:
            # Refused before it was accepted: the client gets the error, the failure counters stay as they are.
            request.responder.refuse()
            model.statistics.record_refusal(error)
            raise error from None
        if traffic is not None:
            traffic.accepted(call, checked, route)
        return request

    def is_live(self) -> bool:
        """See `InferenceService.is_live`."""
        return True

    def is_ready(self) -> bool:
        """See `InferenceService.is_ready`."""
        if self._is_draining or self._is_not_ready_wanted or not self._is_loaded:
            return False
        return self._repository.is_ready() if self._is_strict_readiness else True

    def is_draining(self) -> bool:
        """See `InferenceService.is_draining`."""
        return self._is_draining

    async def is_model_ready(self, name: str, version: str) -> bool:
        """See `InferenceService.is_model_ready`."""
        while True:
            model = self._repository.find(name, version)
            if model.unready_reason:
                raise unavailable(f"model '{name}' version {model.plan.version} is not ready: {model.unready_reason}")
            is_ready = await model.check_ready()
            if is_ready or self._is_draining or self._repository.find(name, version) is model:
                return is_ready and not self._is_draining
            # Another copy has taken its place meanwhile, and is the one that is asked about.

    def is_model_serving(self, name: str) -> bool | None:
        """See `InferenceService.is_model_serving`."""
        is_serving = self._repository.is_serving(name)
        return is_serving and not (self._is_draining or self._is_not_ready_wanted)

    def leads_to_one(self, name: str, version: str) -> bool:
        """See `InferenceService.leads_to_one`."""
        route = self._routes.get((name, version))
        return route is not None and route.traffic is None

    def on_change(self, callback: Callable[[], None]) -> None:
        """See `InferenceService.on_change`."""
        self._change_callbacks.append(callback)

    def is_decoupled(self, name: str, version: str) -> bool:
        """See `InferenceService.is_decoupled`."""
        route = self._routes.get((name, version))
        model = self._repository.find(name, version) if route is None else route.model
        return model.plan.is_decoupled

    def server_metadata(self) -> ServerMetadata:
        """See `InferenceService.server_metadata`."""
        return ServerMetadata(self._identity.name, self._identity.version, EXTENSIONS)

    def model_metadata(self, name: str, version: str) -> ModelMetadata:
        """See `InferenceService.model_metadata`."""
        plan = self._repository.look_up(name, version).plan
        return ModelMetadata(
            name=plan.name,
            versions=(str(plan.version),) if version else self._repository.ready_versions(name),
            platform=plan.platform or plan.backend,
            inputs=tuple(map(_tensor_metadata, plan.inputs)),
            outputs=tuple(map(_tensor_metadata, plan.outputs)),
            max_batch_size=plan.max_batch_size,
            is_decoupled=plan.is_decoupled,
        )

    def model_config(self, name: str, version: str) -> Mapping[str, Any]:
        """See `InferenceService.model_config`."""
        return self._repository.look_up(name, version).plan.config

    async def statistics(self, name: str, version: str) -> list[dict[str, Any]]:
        """See `InferenceService.statistics`."""
        if name:
            self._repository.key_for(name)
        models = [model for model in self._repository.models() if name in ("", model.plan.name)]
        if name and not models:
            raise invalid_argument(f"requested model '{name}' is not available")
        if version:
            models = [model for model in models if str(model.plan.version) == version]
            if not models:
                raise invalid_argument(f"requested model version is not available for model '{name}'")
        entries: list[dict[str, Any]] = []
        for start in range(0, len(models), _MODELS_PER_TURN):
            if start:
                await asyncio.sleep(0)
            part = models[start : start + _MODELS_PER_TURN]
            entries += [model.statistics.to_json(model.plan.name, str(model.plan.version)) for model in part]
        return entries

    def tried_models(self) -> list[IndexEntry]:
        """See `InferenceService.tried_models`."""
        return self._repository.index(is_ready_only=False)

    async def repository_index(self, is_ready_only: bool) -> list[IndexEntry]:
        """See `InferenceService.repository_index`."""
        return await self._control.index(is_ready_only)

    async def load_model(self, name: str, parameters: Mapping[str, Any]) -> None:
        """See `InferenceService.load_model`."""
        await self._control.load(name, parameters)

    async def unload_model(self, name: str, is_unload_dependents: bool) -> None:
        """See `InferenceService.unload_model`."""
        await self._control.unload(name, is_unload_dependents)

    def traffic(self, name: str) -> dict[str, Any]:
        """See `InferenceService.traffic`."""
        return self._traffic.show(name)

    def set_traffic(self, name: str, settings: Mapping[str, Any]) -> None:
        """See `InferenceService.set_traffic`."""
        self._traffic.set(name, settings)
        self._on_change()

    def reset_traffic(self, name: str) -> None:
        """See `InferenceService.reset_traffic`."""
        self._traffic.reset(name)
        self._on_change()

    def log_settings(self) -> dict[str, Any]:
        """See `InferenceService.log_settings`."""
        return self._logs.get()

    def update_log_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """See `InferenceService.update_log_settings`."""
        return self._logs.update(settings)

    def check_regions_allowed(self) -> None:
        """See `InferenceService.check_regions_allowed`."""
        self._client_memory.check_allowed()

    def register_system_region(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """See `InferenceService.register_system_region`."""
        self._client_memory.register_system_region(name, key, offset, byte_size)

    def unregister_system_region(self, name: str) -> None:
        """See `InferenceService.unregister_system_region`."""
        self._client_memory.unregister_system_region(name)

    def system_regions(self, name: str) -> list[SystemRegion]:
        """See `InferenceService.system_regions`."""
        return self._client_memory.system_regions(name)

    async def register_cuda_region(self, name: str, raw_handle: bytes, device_id: int, byte_size: int) -> None:
        """See `InferenceService.register_cuda_region`."""
        await self._client_memory.register_cuda_region(name, raw_handle, device_id, byte_size)

    def unregister_cuda_region(self, name: str) -> None:
        """See `InferenceService.unregister_cuda_region`."""
        self._client_memory.unregister_cuda_region(name)

    def cuda_regions(self, name: str) -> list[CudaRegion]:
        """See `InferenceService.cuda_regions`."""
        return self._client_memory.cuda_regions(name)

    def mark_loaded(self) -> None:
        """Say that all models of the start have been tried: from here on `ready` tells about the models."""
        self._is_loaded = True
        self._tell_change()

    def mark_not_ready(self) -> None:
        """Say 503 to `ready` and go on serving: load balancers take the server out before it drains."""
        self._is_not_ready_wanted = True
        self._tell_change()

    def begin_drain(self) -> None:
        """Refuse new inferences from now on, but those of sequences under way; what was accepted is answered."""
        self._is_draining = True
        for model in self._repository.all_models():
            model.finish_sequences()
        self._traffic.stop()
        self._control.stop()
        self._tell_change()

    def release_regions(self) -> None:
        """Close the memory that clients registered, which stays theirs."""
        self._client_memory.release_all()

    def on_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when no model has a request that is queued, runs or is still to be answered."""
        models = self._repository.all_models()
        left = len(models)

        def one_is_idle() -> None:
            nonlocal left
            left -= 1
            if not left:
                callback()

        for model in models:
            model.on_idle(one_is_idle)
        if not models:
            callback()

    def _continues_sequence(self, call: InferCall) -> bool:
        """Return whether `call` belongs to a sequence that has begun: it may go on while the server drains."""
        if not call.sequence_id or call.is_sequence_start:
            return False
        return self._knows_sequence("", call.model_name, call.model_version, call.sequence_id)

    def _knows_sequence(self, namespace: str, name: str, version: str, sequence_id: int | str) -> bool:
        """Return whether a sequence of this id is under way at a version that may answer, or at a step of one."""
        for model in self._repository.loaded(name, namespace):
            if version and version != str(model.plan.version):
                continue
            steps = () if model.plan.ensemble is None else model.plan.ensemble.steps
            if model.knows_sequence(sequence_id) or any(
                self._knows_sequence(model.namespace, step.model_name, step.version, sequence_id) for step in steps
            ):
                return True
        return False

    def _on_change(self) -> None:
        self._routes.clear()
        self._near_routes.clear()
        self._tell_change()

    def _tell_change(self) -> None:
        for callback in self._change_callbacks:
            callback()

    def route_from(self, namespace: str, name: str, version: str) -> Route:
        """Return where requests of an ensemble in `namespace` for a model go now. Raises what a look-up of it raises."""
        if not namespace:
            return self._routes.get((name, version)) or self._find_route(name, version)
        route = self._near_routes.get((namespace, name, version))
        if route is None:
            model = self._repository.find_from(namespace, name, version)
            is_only_one = model in self._repository.loaded(name)
            route = self._near_routes[namespace, name, version] = (
                self._find_route(name, version) if is_only_one else Route(model)
            )
        return route

    def _find_route(self, name: str, version: str) -> Route:
        shared = None if version else self._traffic.route(name, self._route_of)
        if shared is None:
            return self._route_of(name, version)
        self._routes[name, version] = shared
        return shared

    def _route_of(self, name: str, version: str) -> Route:
        """Return the route of a version, which is made but once, "" for the latest."""
        route = self._routes.get((name, version)) if version else None
        if route is None:
            route = self._routes[name, version] = Route(self._repository.find(name, version))
        return route


def _tensor_metadata(tensor: TensorPlan) -> TensorMetadata:
    return TensorMetadata(tensor.name, tensor.datatype.name, tensor.shape, tensor.is_optional)
