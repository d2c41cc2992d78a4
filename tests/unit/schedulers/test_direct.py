"""The default scheduler: one request an execution, in order; short ones are handed over in runs."""

from fake_execution import FakeInstance, Probe
from manual_clock import ManualClock

from naiad.schedulers.direct.scheduler import DirectScheduler


def enqueue(scheduler: DirectScheduler, count: int) -> list[Probe]:
    probes = [Probe() for _ in range(count)]
    for probe in probes:
        scheduler.enqueue(probe.request)
    return probes


def test_a_batch_is_one_request_whatever_waits():
    clock, instance = ManualClock(), FakeInstance()
    scheduler = DirectScheduler([instance], clock)
    enqueue(scheduler, 5)
    clock.settle()
    assert instance.sizes == [1]
    assert (scheduler.pending_count(), scheduler.running_count()) == (4, 1)


def test_an_instance_that_takes_runs_gets_as_many_as_it_takes_in_order():
    clock, instance = ManualClock(), FakeInstance(run_length=4)
    scheduler = DirectScheduler([instance], clock)
    probes = enqueue(scheduler, 6)
    clock.settle()
    assert instance.runs == [4]
    assert [batch.requests[0] for batch in instance.batches] == [probe.request for probe in probes[:4]]
    assert (scheduler.pending_count(), scheduler.running_count()) == (2, 4)
    instance.finish()
    clock.settle()
    assert instance.runs == [4, 2]


def test_idle_instances_share_what_waits():
    clock, instances = ManualClock(), [FakeInstance("a", 8), FakeInstance("b", 8)]
    scheduler = DirectScheduler(instances, clock)
    enqueue(scheduler, 5)
    clock.settle()
    assert sorted(instance.runs for instance in instances) == [[2], [3]]
