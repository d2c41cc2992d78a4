"""GPUs are shown under Triton's names, from readings that are made off the event loop."""

from fake_nvml import GIB, FakeGpu, FakeNvml

from naiad.devices.nvml import GpuReading, Nvml
from naiad.server.gpu_metrics import GpuMetrics


class Bench:
    """Metrics whose threads are the test's: `jobs` are those that were submitted."""

    def __init__(self, *readings: tuple[GpuReading, ...] | Exception) -> None:
        self.now_ns = 0
        self.jobs = []
        self._answers = list(readings)
        self.metrics = GpuMetrics(self._read, self.jobs.append, 2000, lambda: self.now_ns)

    def _read(self):
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def shown(self, name: str) -> dict[str, float]:
        [family] = [family for family in self.metrics.families() if family.name == name]
        return {sample.labels["gpu_uuid"]: sample.value for sample in family.samples}


def test_every_family_of_triton_is_there_with_its_unit():
    nvml = Nvml(FakeNvml(FakeGpu("GPU-a")), {})
    metrics = GpuMetrics(lambda: nvml.readings(["GPU-a"]), lambda _: None, 2000)
    shown = {family.name: [sample.value for sample in family.samples] for family in metrics.families()}
    assert shown == {
        "nv_gpu_utilization": [0.25],
        "nv_gpu_memory_total_bytes": [24 * GIB],
        "nv_gpu_memory_used_bytes": [8 * GIB],
        "nv_gpu_power_usage": [70.5],
        "nv_gpu_power_limit": [700.0],
        "nv_energy_consumption": [0.0],
    }


def test_a_value_that_a_gpu_does_not_tell_is_left_out():
    bench = Bench((GpuReading("a", power_watts=1.0), GpuReading("b")))
    assert bench.shown("nv_gpu_power_usage") == {"a": 1.0}
    assert bench.shown("nv_energy_consumption") == {}


def test_a_scrape_shows_the_last_reading_and_has_one_made_when_that_is_old():
    bench = Bench((GpuReading("a", utilization=0.1, energy_joules=50),), (GpuReading("a", utilization=0.2, energy_joules=58),))
    bench.now_ns = 1_999_999_999
    assert bench.shown("nv_gpu_utilization") == {"a": 0.1}
    assert bench.jobs == []
    bench.now_ns += 1
    assert bench.shown("nv_gpu_utilization") == {"a": 0.1}
    assert bench.shown("nv_gpu_utilization") == {"a": 0.1}
    [job] = bench.jobs
    job()()
    assert bench.shown("nv_gpu_utilization") == {"a": 0.2}
    assert bench.shown("nv_energy_consumption") == {"a": 8}
    assert len(bench.jobs) == 1


def test_a_reading_that_fails_repeats_the_last_values_and_is_tried_again(caplog):
    bench = Bench((GpuReading("a", utilization=0.1),), RuntimeError("boom"), (GpuReading("a", utilization=0.3),))
    for expected in (0.1, 0.3):
        bench.now_ns += 2_000_000_000
        bench.shown("nv_gpu_utilization")
        bench.jobs.pop()()()
        assert bench.shown("nv_gpu_utilization") == {"a": expected}
    assert "boom" in caplog.text
