"""How many threads can compute at once: affinity, NUMA nodes and the quotas of control groups."""

import os
from pathlib import Path

import pytest

from naiad.devices.cpus import read_cpus, read_quota, thread_cpu_count
from naiad.devices.inventory import Cpus


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_the_cpus_are_those_that_the_process_may_run_on():
    assert read_cpus().allowed == frozenset(os.sched_getaffinity(0))


def test_nodes_are_read_with_their_cpus(tmp_path):
    write(tmp_path, "sys/devices/system/node/node0/cpulist", "0-1,4\n")
    write(tmp_path, "sys/devices/system/node/node10/cpulist", "2-3\n")
    write(tmp_path, "sys/devices/system/node/node11/cpulist", "\n")
    assert read_cpus(tmp_path).nodes == {0: frozenset({0, 1, 4}), 10: frozenset({2, 3})}


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, 0.0),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 0.0),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "200000 100000\n"}, 2.0),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "300000 100000\n",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/m\n3:cpu,cpuacct:/g\n0::/\n",
                "sys/fs/cgroup/cpu/g/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu/g/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/g\n",
                "sys/fs/cgroup/cpu/g/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/g/cpu.cfs_period_us": "100000\n",
            },
            0.0,
        ),
        ({"proc/self/cgroup": "0::/../outside\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1.0),
    ],
)
def test_the_quota_is_the_least_on_the_way_up(tmp_path, files, quota):
    for path, text in files.items():
        write(tmp_path, path, text)
    assert read_quota(tmp_path) == quota


@pytest.mark.parametrize(("quota", "count"), [(0.0, 4), (0.5, 1), (1.5, 2), (64.0, 4)])
def test_a_quota_counts_as_whole_cpus(quota, count):
    assert Cpus(frozenset(range(4)), quota=quota).thread_count() == count


def test_a_policys_cpus_are_counted_and_not_the_machines():
    assert Cpus(frozenset(range(8))).thread_count({2, 3}) == 2


def test_a_thread_counts_its_own_cpus(tmp_path):
    assert thread_cpu_count(tmp_path) == len(os.sched_getaffinity(0))
