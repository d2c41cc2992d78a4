"""From a program to a worker whose model is ready: process, import, completion of the config, `initialize`.

Owns that order, the same at load and at each restart, and what a worker may ask while its model starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from naiad.backends.base import WorkerProgram
from naiad.config.plan import InstancePlan, ModelPlan
from naiad.devices.devices import CpuShare, Devices
from naiad.errors import InferenceServerError
from naiad.execution.process.context import WorkerHost
from naiad.execution.process.life.process import WorkerHooks, WorkerIdentity, WorkerProcess
from naiad.execution.process.queries import WorkerQueries
from naiad.worker.frames import Kind


@dataclass(frozen=True, slots=True)
class StartedWorker:
    """A worker whose model is ready. `has_is_ready`: the model can be asked whether it is."""

    process: WorkerProcess
    queries: WorkerQueries
    has_is_ready: bool


@dataclass(frozen=True, slots=True)
class ImportedWorker:
    """A worker that has imported its model's file and not yet made the model."""

    process: WorkerProcess
    queries: WorkerQueries


async def import_model(host: WorkerHost, program: WorkerProgram, identity: WorkerIdentity, share: CpuShare) -> ImportedWorker:
    """Start a worker and let it import the model. Raises InferenceServerError, with nothing left of the process."""
    queries = WorkerQueries(host, identity)
    process = await WorkerProcess.start(program, host.settings, identity, WorkerHooks(on_frame=queries.take), share)
    queries.attach(process)
    message = {
        "name": identity.model,
        "version": identity.version,
        "model_file": str(program.model_file),
        "model_directory": str(program.model_directory),
        "version_directory": str(program.version_directory),
        "backend_directory": "" if program.backend_directory is None else str(program.backend_directory),
    }
    worker = ImportedWorker(process, queries)
    await _ask(worker, Kind.LOAD, message, f"failed to import the Python model '{identity.model}'")
    return worker


def share_of(devices: Devices, instances: Sequence[InstancePlan], instance: InstancePlan) -> CpuShare:
    """Return what the worker of `instance` gets of the machine's CPUs: the model's instances on the same CPUs share them."""
    cpus = devices.cpus_of(instance.host_policy)
    sharers = sum(devices.cpus_of(other.host_policy) == cpus for other in instances)
    return devices.share_of(instance.host_policy, sharers)


async def complete_config(worker: ImportedWorker, config: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return the config as the model's `auto_complete_config` leaves it.

    Raises InferenceServerError; the worker is gone then.
    """
    answer = await _ask(worker, Kind.COMPLETE_CONFIG, {"config": config}, f"auto_complete_config of model '{model}' failed")
    completed: dict[str, Any] = answer["config"]
    return completed


async def initialize(worker: ImportedWorker, plan: ModelPlan, instance: InstancePlan) -> StartedWorker:
    """Make the model and run its `initialize`. Raises InferenceServerError; the worker is gone then."""
    message = {
        "args": {
            "model_config": orjson.dumps(plan.config).decode(),
            "model_instance_kind": instance.kind,
            "model_instance_name": instance.name,
            "model_instance_device_id": str(max(instance.device_id, 0)),
            "model_repository": str(plan.directory),
            "model_version": str(plan.version),
            "model_name": plan.name,
        },
        "is_decoupled": plan.is_decoupled,
        "is_iterative": plan.sequence_batching is not None and plan.sequence_batching.is_iterative,
        "outputs": [tensor.name for tensor in plan.outputs],
        "progress": worker.process.watch_progress(),
    }
    answer = await _ask(worker, Kind.INITIALIZE, message, f"failed to initialize model '{plan.name}'")
    return StartedWorker(worker.process, worker.queries, bool(answer.get("has_is_ready")))


async def end(worker: ImportedWorker | StartedWorker, timeout_s: float) -> None:
    """Let a worker finalize and end, or kill it after `timeout_s` seconds; its metrics go with it."""
    try:
        await worker.process.stop(timeout_s)
    finally:
        worker.queries.close()


async def _ask(worker: ImportedWorker, kind: Kind, message: Mapping[str, Any], what: str) -> dict[str, Any]:
    try:
        return await worker.process.ask(kind, dict(message))
    except InferenceServerError as error:
        await end(worker, 0)
        raise InferenceServerError(error.code, f"{what}: {error.message}") from None
    except BaseException:
        await end(worker, 0)
        raise
