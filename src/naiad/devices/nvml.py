"""NVIDIA's management library, by way of the package nvidia-ml-py: which GPUs there are, and how they are used.

Owns every call of it, and which of the machine's GPUs this process sees. The package is imported only when it is asked for;
where it or the driver is missing there are no GPUs. All functions block for milliseconds, the first for longer.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from naiad.devices.inventory import Gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"

_log = logging.getLogger("naiad.devices")


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The use of one GPU, None for what it doesn't tell. `utilization` is 0..1, `energy_joules` is since the driver's start."""

    uuid: str
    utilization: float | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules: float | None = None


class Nvml:
    """The library, begun. `open_nvml` makes one; safe on several threads."""

    def __init__(self, library: Any, environment: Mapping[str, str]) -> None:
        """Begin; raises the library's NVMLError where there is no driver."""
        self._library = library
        self._environment = environment
        library.nvmlInit()

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs that CUDA in this process sees, by index. Raises NVMLError."""
        library = self._library
        found = []
        for index in range(library.nvmlDeviceGetCount()):
            try:
                found.append(self._gpu(index))
            except library.NVMLError as error:  # noqa: PERF203 - one that fails mustn't hide the others
                _log.warning("GPU %d isn't used, it can't be asked what it is: %s", index, error)
        return visible(found, self._environment.get(VISIBLE))

    def _gpu(self, index: int) -> Gpu:
        library = self._library
        handle = library.nvmlDeviceGetHandleByIndex(index)
        memory = library.nvmlDeviceGetMemoryInfo(handle)
        major, minor = library.nvmlDeviceGetCudaComputeCapability(handle)
        uuid, name = _text(library.nvmlDeviceGetUUID(handle)), _text(library.nvmlDeviceGetName(handle))
        return Gpu(index, uuid, name, int(memory.total), int(memory.free), (int(major), int(minor)))

    def readings(self, uuids: Iterable[str]) -> tuple[GpuReading, ...]:
        """Return the use of the GPUs with these ids. What one doesn't tell is None."""
        return tuple(self._reading(uuid) for uuid in uuids)

    def _reading(self, uuid: str) -> GpuReading:
        library = self._library
        try:
            handle = library.nvmlDeviceGetHandleByUUID(uuid)
        except library.NVMLError as error:
            _log.debug("GPU %s isn't there any more: %s", uuid, error)
            return GpuReading(uuid)

        def read(call: Callable[[Any], Any], value: Callable[[Any], Any]) -> Any:
            try:
                return value(call(handle))
            except library.NVMLError as error:
                _log.debug("GPU %s doesn't tell %s: %s", uuid, call, error)
                return None

        return GpuReading(
            uuid,
            read(library.nvmlDeviceGetUtilizationRates, lambda rates: rates.gpu / 100),
            read(library.nvmlDeviceGetMemoryInfo, lambda memory: int(memory.total)),
            read(library.nvmlDeviceGetMemoryInfo, lambda memory: int(memory.used)),
            read(library.nvmlDeviceGetPowerUsage, lambda milliwatts: milliwatts / 1000),
            read(library.nvmlDeviceGetEnforcedPowerLimit, lambda milliwatts: milliwatts / 1000),
            read(library.nvmlDeviceGetTotalEnergyConsumption, lambda millijoules: millijoules / 1000),
        )


def open_nvml(load: Callable[[str], Any] = import_module, environment: Mapping[str, str] = os.environ) -> Nvml | None:
    """Return the library, None without the package or a driver, which isn't an error: most machines have no GPU."""
    try:
        library = load("pynvml")
    except ImportError:
        return None
    try:
        return Nvml(library, environment)
    except library.NVMLError as error:
        _log.info("GPUs can't be asked for: %s", error)
        return None


def visible(gpus: Sequence[Gpu], wanted: str | None) -> tuple[Gpu, ...]:
    """Return `gpus` as CUDA counts them by CUDA_VISIBLE_DEVICES: numbers or beginnings of ids; what follows one that isn't
    there is hidden too. None is no restriction.
    """
    if wanted is None:
        return tuple(gpus)
    chosen: list[Gpu] = []
    for part in (part.strip() for part in wanted.split(",")):
        gpu = _named(gpus, part)
        if gpu is None or any(gpu.uuid == other.uuid for other in chosen):
            break
        chosen.append(replace(gpu, index=len(chosen)))
    return tuple(chosen)


def _named(gpus: Sequence[Gpu], part: str) -> Gpu | None:
    if part.isascii() and part.isdigit():
        return next((gpu for gpu in gpus if gpu.index == int(part)), None)
    found = [gpu for gpu in gpus if part.startswith("GPU-") and gpu.uuid.startswith(part)]
    return found[0] if len(found) == 1 else None


def _text(value: str | bytes) -> str:
    """Old versions of the package give bytes."""
    return value.decode() if isinstance(value, bytes) else value
