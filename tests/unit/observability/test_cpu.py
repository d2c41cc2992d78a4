"""Readings of /proc: what they mean and how often they are taken."""

from pathlib import Path

import pytest

from naiad.observability.cpu import CpuReading, CpuSampler

MS = 1_000_000


class Machine:
    """A /proc and a clock that the test moves."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.now_ns = 5
        self.set_ticks(0, 0)
        self.set_memory(1000, 400)

    def set_ticks(self, busy: int, idle: int, guest: int = 0) -> None:
        lines = f"cpu  {busy} 0 0 {idle} 0 0 0 0 {guest} 0\ncpu0 9 9 9 9 9 9 9 9 9 9\n"
        (self.proc / "stat").write_text(lines)

    def set_memory(self, total_kib: int, available_kib: int) -> None:
        text = f"MemTotal:   {total_kib} kB\nMemFree:   7 kB\nMemAvailable:   {available_kib} kB\nHugePages_Total:   0\n"
        (self.proc / "meminfo").write_text(text)

    def sampler(self) -> CpuSampler:
        return CpuSampler(2000, lambda: self.now_ns, self.proc)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_utilization_is_the_busy_share_since_the_reading_before(machine: Machine) -> None:
    machine.set_ticks(100, 100)
    sampler = machine.sampler()
    machine.set_ticks(130, 170)
    machine.now_ns += 2000 * MS
    assert sampler.read().utilization == pytest.approx(0.3)


def test_memory_in_use_is_what_is_not_available_in_bytes(machine: Machine) -> None:
    assert machine.sampler().read() == CpuReading(0.0, 1000 * 1024, 600 * 1024)


def test_time_of_guests_is_not_counted_twice(machine: Machine) -> None:
    sampler = machine.sampler()
    machine.set_ticks(50, 50, guest=50)
    machine.now_ns += 2000 * MS
    assert sampler.read().utilization == 0.5


def test_within_the_interval_the_last_reading_is_repeated(machine: Machine) -> None:
    sampler = machine.sampler()
    machine.set_ticks(1, 0)
    machine.set_memory(1000, 0)
    machine.now_ns += 2000 * MS - 1
    assert sampler.read().memory_used_bytes == 600 * 1024
    machine.now_ns += 1
    assert sampler.read() == CpuReading(1.0, 1000 * 1024, 1000 * 1024)


@pytest.mark.parametrize(("busy", "idle", "share"), [(100, 100, 0.0), (101, 99, 0.0), (99, 101, 0.0), (120, 95, 1.0)])
def test_utilization_stays_within_0_and_1_when_no_time_passed_or_idle_time_went_back(
    machine: Machine, busy: int, idle: int, share: float
) -> None:
    machine.set_ticks(100, 100)
    sampler = machine.sampler()
    machine.set_ticks(busy, idle)
    machine.now_ns += 2000 * MS
    assert sampler.read().utilization == share


def test_what_cannot_be_read_is_logged_and_the_last_values_stay(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    sampler = machine.sampler()
    before = sampler.read()
    (machine.proc / "stat").unlink()
    machine.now_ns += 2000 * MS
    assert sampler.read() == before
    assert "can't be read" in caplog.text


def test_a_machine_without_these_files_has_no_readings(tmp_path: Path) -> None:
    assert not CpuSampler.is_available(tmp_path)
