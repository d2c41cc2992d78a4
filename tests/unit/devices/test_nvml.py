"""GPUs are those that CUDA in this process sees, and what can't be asked for is absent."""

import pytest
from fake_nvml import GIB, FakeGpu, FakeNvml

from naiad.devices.inventory import Gpu, Inventory, UsableGpus
from naiad.devices.nvml import GpuReading, Nvml, open_nvml, visible

GPUS = tuple(Gpu(index, f"GPU-{name}", name, 1, 1, (8, 0)) for index, name in enumerate(("aa", "ab", "b")))


def missing(_: str):
    raise ImportError("no package")


def test_without_the_package_there_is_nothing_to_ask():
    assert open_nvml(missing) is None


def test_without_a_driver_there_is_nothing_to_ask():
    assert open_nvml(lambda _: FakeNvml(has_driver=False)) is None


def test_a_gpu_is_told_whole():
    nvml = open_nvml(lambda _: FakeNvml(FakeGpu("GPU-a", free_bytes=GIB, capability=(9, 0))), {})
    assert nvml is not None
    assert nvml.gpus() == (Gpu(0, "GPU-a", "Fake GPU-a", 24 * GIB, GIB, (9, 0)),)


def test_a_gpu_that_can_not_be_asked_does_not_hide_the_others():
    nvml = Nvml(FakeNvml(FakeGpu("GPU-a", is_lost=True), FakeGpu("GPU-b")), {})
    assert [gpu.uuid for gpu in nvml.gpus()] == ["GPU-b"]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (None, ["aa", "ab", "b"]),
        ("", []),
        ("2,0", ["b", "aa"]),
        ("-1", []),
        ("1,7,0", ["ab"]),
        ("0,0", ["aa"]),
        ("GPU-b, GPU-ab", ["b", "ab"]),
        ("GPU-a", []),
        ("none", []),
        ("²", []),
    ],
)
def test_cuda_visible_devices_chooses_and_numbers_them(wanted, names):
    found = visible(GPUS, wanted)
    assert [(gpu.index, gpu.name) for gpu in found] == list(enumerate(names))


def test_a_reading_is_in_the_units_of_its_names():
    reading = Nvml(FakeNvml(FakeGpu("GPU-a")), {}).readings(["GPU-a"])
    assert reading == (GpuReading("GPU-a", 0.25, 24 * GIB, 8 * GIB, 70.5, 700.0, 12.345),)


def test_what_a_gpu_does_not_tell_is_none():
    nvml = Nvml(FakeNvml(FakeGpu("GPU-a", has_power=False), FakeGpu("GPU-b", is_lost=True)), {})
    first, second = nvml.readings(["GPU-a", "GPU-b"])
    assert (first.power_watts, first.power_limit_watts) == (None, 700.0)
    assert second == GpuReading("GPU-b")


def test_gpus_below_the_least_capability_are_not_usable():
    gpus = tuple(Gpu(index, "", "", 1, 1, capability) for index, capability in enumerate([(5, 2), (6, 0), (10, 0)]))
    assert Inventory(gpus).usable_gpus((6, 0)) == UsableGpus((1, 2), True, (6, 0))


def test_no_gpus_and_no_way_to_ask_are_told_apart():
    assert (Inventory(()).usable_gpus().is_supported, Inventory(None).usable_gpus().is_supported) == (True, False)
