"""What the system tells of memory is read where it is, and is None where it isn't."""

import os
from pathlib import Path

import pytest

from naiad.execution.process.life.child.memory_use import oom_kill_count, resident_bytes


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_process_holds_its_resident_pages(tmp_path):
    write(tmp_path / "7" / "statm", "900 25 10 1 0 30 0\n")
    assert resident_bytes(7, tmp_path) == 25 * os.sysconf("SC_PAGE_SIZE")


def test_a_process_that_has_ended_holds_nothing_that_can_be_told(tmp_path):
    assert resident_bytes(7, tmp_path) is None


def test_this_process_holds_some_megabytes():
    size = resident_bytes(os.getpid())
    assert size is None or size > 1 << 20


@pytest.mark.parametrize(
    ("groups", "file"),
    [
        pytest.param("0::/a/b\n", "a/b/memory.events", id="version 2"),
        pytest.param("0::/a/b\n", "memory.events", id="version 2 in a container that sees its group as the root"),
        pytest.param("4:cpu,memory:/a\n0::/\n", "memory/a/memory.oom_control", id="version 1"),
        pytest.param("4:memory:/a\n", "memory/memory.oom_control", id="version 1 in a container"),
    ],
)
def test_the_control_group_counts_the_kills(tmp_path, groups, file):
    write(tmp_path / "proc" / "self" / "cgroup", groups)
    write(tmp_path / "proc" / "vmstat", "oom_kill 99\n")
    write(tmp_path / "cgroup" / file, "oom 5\noom_kill 3\noom_group_kill 1\n")
    assert oom_kill_count(tmp_path / "proc", tmp_path / "cgroup") == 3


def test_without_a_group_that_counts_the_machine_does(tmp_path):
    write(tmp_path / "proc" / "self" / "cgroup", "0::/\n")
    write(tmp_path / "proc" / "vmstat", "nr_free_pages 1\noom_kill 99\n")
    assert oom_kill_count(tmp_path / "proc", tmp_path / "cgroup") == 99


def test_a_system_without_these_files_doesnt_tell(tmp_path):
    assert oom_kill_count(tmp_path, tmp_path) is None
