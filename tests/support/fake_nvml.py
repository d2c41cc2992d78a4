"""A stand-in for the package nvidia-ml-py: the functions that Naiad calls, over GPUs that a test makes up."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

GIB = 1 << 30


class NVMLError(Exception):
    """As the package's: what goes wrong."""


@dataclass
class FakeGpu:
    uuid: str
    free_bytes: int = 16 * GIB
    total_bytes: int = 24 * GIB
    capability: tuple[int, int] = (8, 0)
    has_power: bool = True
    is_lost: bool = False


class FakeNvml:
    """The module: one of these is what `import pynvml` would give."""

    NVMLError = NVMLError

    def __init__(self, *gpus: FakeGpu, has_driver: bool = True) -> None:
        self.gpus = list(gpus)
        self.has_driver = has_driver

    def nvmlInit(self) -> None:
        if not self.has_driver:
            raise NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        if self.gpus[index].is_lost:
            raise NVMLError("GPU is lost")
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        found = [gpu for gpu in self.gpus if gpu.uuid == uuid and not gpu.is_lost]
        if not found:
            raise NVMLError("Not Found")
        return found[0]

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> bytes:
        return gpu.uuid.encode()

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:
        return f"Fake {gpu.uuid}"

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> SimpleNamespace:
        used = gpu.total_bytes - gpu.free_bytes
        return SimpleNamespace(total=gpu.total_bytes, free=gpu.free_bytes, used=used)

    def nvmlDeviceGetCudaComputeCapability(self, gpu: FakeGpu) -> tuple[int, int]:
        return gpu.capability

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(gpu=25, memory=50)

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:
        if not gpu.has_power:
            raise NVMLError("Not Supported")
        return 70_500

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: FakeGpu) -> int:
        return 700_000

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: FakeGpu) -> int:
        return 12_345
