"""What `--host-policy` means: which CPUs, for whom by default, and what is refused."""

import pytest

from naiad.devices.devices import CpuShare, Devices
from naiad.devices.host_policy import HostPolicy, bound_cpus, default_policy, join_settings, parse_setting
from naiad.devices.inventory import Cpus, Gpu, Inventory
from naiad.devices.machine import devices_of
from naiad.devices.ranges import parse_ranges, ranges_text
from naiad.errors import InferenceServerError

CPUS = Cpus(frozenset(range(8)), {0: frozenset(range(4)), 1: frozenset(range(4, 12)), 2: frozenset({20})})


@pytest.mark.parametrize(("text", "numbers"), [("3", {3}), ("0-2,5", {0, 1, 2, 5}), (" 1 , 1-1 ", {1})])
def test_ranges_are_read(text, numbers):
    assert parse_ranges(text) == numbers


@pytest.mark.parametrize("text", ["", ",", "1,", "a", "3-1", "-1", "1-", "²", "0-65536", "1-9999999"])
def test_what_is_no_range_is_refused(text):
    with pytest.raises(ValueError):
        parse_ranges(text)


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([5, 0, 1, 2, 7, 8], "0-2,5,7-8")])
def test_ranges_are_written_short_and_read_back(numbers, text):
    assert ranges_text(numbers) == text
    assert not text or parse_ranges(text) == set(numbers)


def test_settings_of_one_name_are_joined_and_the_later_value_wins():
    texts = ["a,numa-node=0", "b,cpu-cores=1", "a,cpu-cores=0-1", "a,numa-node=1"]
    joined = join_settings([parse_setting(text) for text in texts])
    assert joined == (HostPolicy("a", 1, frozenset({0, 1})), HostPolicy("b", None, frozenset({1})))


@pytest.mark.parametrize("text", ["", "a", "a,", ",cpu-cores=1", "a,cpu-cores", "a,cpu-cores=", "a,numa-node=-1", "a,x=1"])
def test_what_is_no_setting_is_refused(text):
    with pytest.raises(ValueError):
        parse_setting(text)


@pytest.mark.parametrize(("kind", "device", "name"), [("CPU", -1, "cpu"), ("MODEL", -1, "model"), ("GPU", 2, "gpu_2")])
def test_each_kind_has_a_policy_of_its_own(kind, device, name):
    assert default_policy(kind, device) == name


@pytest.mark.parametrize(
    ("policy", "cpus"),
    [
        (HostPolicy("p", cpu_cores=frozenset({1, 7})), {1, 7}),
        (HostPolicy("p", 0), {0, 1, 2, 3}),
        (HostPolicy("p", 1), {4, 5, 6, 7}),
        (HostPolicy("p", 0, frozenset({7})), {7}),
    ],
)
def test_a_policy_is_its_cores_or_what_is_allowed_of_its_node(policy, cpus):
    assert bound_cpus([policy], CPUS) == {"p": cpus}


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            HostPolicy("p", cpu_cores=frozenset({7, 8, 9})),
            "cpu-cores of policy 'p' names CPUs 8-9, which this process may not use; it may use 0-7",
        ),
        (HostPolicy("p", 5), "numa-node of policy 'p' is 5, this machine's nodes are: 0-2"),
        (HostPolicy("p", 2), "numa-node of policy 'p' is 2, of whose CPUs this process may use none"),
    ],
)
def test_a_policy_that_can_not_be_is_refused(policy, message):
    with pytest.raises(InferenceServerError) as caught:
        bound_cpus([policy], CPUS)
    assert caught.value.message == f"--host-policy: {message}"


@pytest.mark.parametrize(
    ("policy", "instances", "quota", "share"),
    [
        ("cpu", 1, 0.0, CpuShare()),
        ("cpu", 3, 0.0, CpuShare(thread_count=2)),
        ("cpu", 100, 0.0, CpuShare(thread_count=1)),
        ("cpu", 1, 2.5, CpuShare(thread_count=3)),
        ("p", 1, 0.0, CpuShare(frozenset({1, 2}))),
        ("p", 2, 0.0, CpuShare(frozenset({1, 2}), 1)),
    ],
)
def test_instances_share_the_cpus_of_their_policy(policy, instances, quota, share):
    devices = Devices(cpus=Cpus(frozenset(range(8)), quota=quota), policies={"p": frozenset({1, 2})})
    assert devices.share_of(policy, instances) == share


def test_of_an_unknown_machine_libraries_are_told_nothing():
    assert Devices().share_of("cpu", 4) == CpuShare()


def test_the_flags_choose_among_what_the_machine_has():
    gpus = tuple(Gpu(index, "", "", 2, 1, (7, index)) for index in range(3))
    devices = devices_of([HostPolicy("gpu_1", 0)], (7, 1), Inventory(gpus, CPUS))
    assert devices.gpus.ids == (1, 2)
    assert devices.cpus_of("gpu_1") == {0, 1, 2, 3}
    assert devices.cpus_of("cpu") == frozenset()
