"""From this machine and the operator's flags to `Devices`. Owns that step, which blocks: the driver is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from naiad.devices import affinity
from naiad.devices.cpus import read_cpus
from naiad.devices.devices import Devices
from naiad.devices.host_policy import HostPolicy, bound_cpus
from naiad.devices.inventory import Capability, Inventory
from naiad.devices.nvml import Nvml, open_nvml
from naiad.errors import invalid_argument


def read_machine(nvml: Nvml | None) -> Inventory:
    """Return what this machine has; `nvml` tells of its GPUs."""
    return Inventory(None if nvml is None else nvml.gpus(), read_cpus())


def devices_of(policies: Sequence[HostPolicy], min_capability: Capability, inventory: Inventory) -> Devices:
    """Return the devices of `inventory` as the flags let models use them. Raises INVALID_ARGUMENT for an impossible policy."""
    if policies and not affinity.IS_AVAILABLE:
        raise invalid_argument("--host-policy: this system can't bind threads to CPUs; Linux can")

    return Devices(inventory.usable_gpus(min_capability), inventory.cpus, bound_cpus(policies, inventory.cpus))


def open_devices(policies: Sequence[HostPolicy], min_capability: Capability) -> tuple[Devices, Nvml | None]:
    """Return the devices of this machine, and the library that tells of its GPUs where there is one. Raises as `devices_of`."""
    nvml = open_nvml()
    devices = devices_of(policies, min_capability, read_machine(nvml))
    if nvml is None:
        return devices, None
    return replace(devices, free_gpu_memory=partial(_free_memory, nvml)), nvml


def _free_memory(nvml: Nvml) -> dict[int, int]:
    return {gpu.index: gpu.memory_free_bytes for gpu in nvml.gpus()}
