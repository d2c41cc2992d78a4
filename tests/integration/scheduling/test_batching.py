"""Which requests run together, in which order they are answered, and that each of a batch ends for itself."""

from __future__ import annotations

import pytest
from asking import Asker
from scripted_models import ENVIRONMENT, ScriptedModel
from waiting import wait_until

BATCHING = "dynamic_batching { }"
TWO_INSTANCES = "instance_group [{ count: 2 kind: KIND_CPU }]"


class Bench:
    """A server with the models of these tests."""

    def __init__(self, repository, serve) -> None:
        self.models = {
            model.name: model
            for model in (
                ScriptedModel(repository, "plain"),
                ScriptedModel(repository, "batching", BATCHING, fail_on="13"),
                ScriptedModel(repository, "preferred", "dynamic_batching { preferred_batch_size: [ 4 ] }"),
                ScriptedModel(repository, "delayed", "dynamic_batching { max_queue_delay_microseconds: 30000000 }", 4),
                ScriptedModel(repository, "two", TWO_INSTANCES),
                ScriptedModel(repository, "two_batching", f"{BATCHING} {TWO_INSTANCES}"),
                ScriptedModel(repository, "ordered", f"dynamic_batching {{ preserve_ordering: true }} {TWO_INSTANCES}", 1),
                ScriptedModel(repository, "priorities", "dynamic_batching { priority_levels: 3 default_priority_level: 2 }", 1),
                *(ScriptedModel(repository, wrong, BATCHING, returns=wrong) for wrong in WRONG),
            )
        }
        self.server = serve(repository, environment=ENVIRONMENT)

    def __getitem__(self, name: str) -> Asker:
        return Asker(self.server, self.models[name])


WRONG = ("a_row_too_few", "a_row_too_many", "none", "another_dtype", "another_rank", "a_list", "a_scalar")


@pytest.fixture(scope="module")
def bench(tmp_path_factory, serve_for_module) -> Bench:
    return Bench(tmp_path_factory.mktemp("models"), serve_for_module)


@pytest.fixture(autouse=True)
def _release_all(bench):
    yield
    for model in bench.models.values():
        model.release()


def run_behind(asker: Asker, first: float, *values: float) -> list[list[float]]:
    """Let `values` queue up behind `first`, then run all; return the executions."""
    occupied = asker.occupy(first)
    waiting = asker.queue(*values)
    before = len(asker.model.executions()) - 1
    asker.model.release(first)
    assert [asked.answer() for asked in [occupied, *waiting]] == [(200, [float(value)]) for value in (first, *values)]
    return asker.model.executions()[before:]


def test_without_dynamic_batching_each_request_is_an_execution(bench):
    assert run_behind(bench["plain"], 1, 2, 3) == [[1], [2], [3]]
    assert bench["plain"].metric("nv_inference_exec_count") == 3


def test_requests_that_wait_run_as_one_batch(bench):
    asker = bench["batching"]
    executions = asker.metric("nv_inference_exec_count")
    assert run_behind(asker, 100, *range(101, 109)) == [[100], list(range(101, 109))]
    assert asker.metric("nv_inference_exec_count") == executions + 2


def test_a_preferred_size_is_taken_while_there_is_enough_for_it(bench):
    assert run_behind(bench["preferred"], 0, *range(1, 10)) == [[0], [1, 2, 3, 4], [5, 6, 7, 8], [9]]


def test_metrics_tell_how_large_batches_were_and_why_no_larger(bench):
    asker = bench["preferred"]

    def counts() -> list[float]:
        sizes = [asker.metric("naiad_batch_size_bucket", le=bound) for bound in ("1", "2", "4", "8", "+Inf")]
        totals = [asker.metric("naiad_batch_size_count"), asker.metric("naiad_batch_size_sum")]
        return (
            sizes + totals + [asker.metric("naiad_batches_total", reason=reason) for reason in ("preferred", "instance_free")]
        )

    before = counts()
    run_behind(asker, 20, *range(21, 30))
    assert [after - count for after, count in zip(counts(), before)] == [2, 2, 4, 4, 4, 4, 10, 2, 2]


def test_a_request_counts_with_its_batch_size_and_is_never_split(bench):
    asker = bench["batching"]
    occupied = asker.occupy(200)
    waiting = [asker.ask(*values) for values in ([201, 202, 203], [204, 205, 206], [207, 208, 209])]
    wait_until(lambda: asker.pending() == 3)
    asker.model.release(200)
    assert [len(asked.answer()[1]) for asked in [occupied, *waiting]] == [1, 3, 3, 3]
    assert sorted(map(len, asker.model.executions()[-2:])) == [3, 6]


def test_a_full_batch_goes_at_once_however_long_the_delay(bench):
    asked = [bench["delayed"].ask(value) for value in range(4)]
    assert [item.answer() for item in asked] == [(200, [value]) for value in range(4)]
    assert [sorted(values) for values in bench["delayed"].model.executions()] == [[0, 1, 2, 3]]


@pytest.mark.parametrize("name", ["two", "two_batching"])
def test_a_free_instance_takes_what_waits_while_another_is_busy(bench, name):
    asker = bench[name]
    occupied = asker.occupy(1)
    assert [asker.ask(value).answer() for value in (2, 3)] == [(200, [2]), (200, [3])]
    assert asker.metric("naiad_running_requests") == 1
    asker.model.release(1)
    assert occupied.answer() == (200, [1])


def test_as_many_executions_run_at_once_as_there_are_instances(bench):
    asker = bench["two"]
    occupied = [asker.occupy(11), asker.occupy(12)]
    waiting = asker.queue(13)
    assert not asker.model.ran(13)
    assert asker.metric("naiad_running_requests") == 2
    asker.model.release(12)
    assert waiting[0].answer() == (200, [13])
    asker.model.release()
    assert [asked.answer()[0] for asked in occupied] == [200, 200]


def test_with_preserve_ordering_answers_keep_the_order_of_requests(bench):
    asker = bench["ordered"]
    first = asker.occupy(1)
    second = asker.ask(2)
    wait_until(lambda: asker.metric("nv_inference_exec_count") == 1, what="the end of the second's execution")
    assert not second.connection.has_data_nowait()
    asker.model.release(1)
    assert [first.answer(), second.answer()] == [(200, [1]), (200, [2])]


def test_a_higher_priority_is_served_first_and_none_is_the_default(bench):
    asker = bench["priorities"]
    occupied = asker.occupy(0)
    low = asker.queue(30, priority=3)
    default = asker.queue(20)
    high = asker.queue(10, priority=1)
    asker.model.release(0)
    assert [asked.answer()[0] for asked in [occupied, *low, *default, *high]] == [200] * 4
    assert asker.model.executions() == [[0], [10], [20], [30]]


def test_a_member_that_hung_up_before_its_batch_ran_is_not_in_it(bench):
    asker = bench["batching"]
    occupied = asker.occupy(300)
    gone, *others = asker.queue(301, 302, 303)
    gone.hang_up()
    wait_until(lambda: asker.pending() == 2)
    asker.model.release(300)
    assert [asked.answer() for asked in [occupied, *others]] == [(200, [300]), (200, [302]), (200, [303])]
    assert not asker.model.ran(301)


def test_a_member_that_hangs_up_while_its_batch_runs_leaves_the_others_alone(bench):
    asker = bench["batching"]
    occupied = asker.occupy(310)
    gone, *others = asker.queue(311, 312, 313)
    asker.model.hold(312)
    asker.model.release(310)
    wait_until(lambda: asker.model.ran(312))
    cancelled = asker.metric("nv_inference_request_failure", reason="CANCELED")
    gone.hang_up()
    wait_until(lambda: asker.metric("nv_inference_request_failure", reason="CANCELED") == cancelled + 1)
    asker.model.release(312)
    assert [asked.answer() for asked in [occupied, *others]] == [(200, [310]), (200, [312]), (200, [313])]
    asker.wait_idle()


def test_a_member_that_makes_the_model_fail_fails_alone(bench):
    asker = bench["batching"]
    failures = asker.metric("nv_inference_request_failure", reason="BACKEND")
    occupied = asker.occupy(400)
    good, bad, last = asker.queue(401, 13, 403)
    asker.model.release(400)
    assert [occupied.answer(), good.answer(), last.answer()] == [(200, [400]), (200, [401]), (200, [403])]
    status, text = bad.answer()
    assert (status, "ValueError: X has 13" in text, "model 'batching'" in text) == (500, True, True)
    assert [401, 13, 403] in asker.model.executions()
    assert asker.metric("nv_inference_request_failure", reason="BACKEND") == failures + 1


@pytest.mark.parametrize("wrong", WRONG)
def test_outputs_that_break_the_contract_are_an_error_that_names_the_output(bench, wrong):
    asker = bench[wrong]
    occupied = asker.occupy(1)
    waiting = asker.queue(2, 3)
    asker.model.release(1)
    for asked in [occupied, *waiting]:
        status, text = asked.answer()
        assert (status, f"model '{wrong}'" in text) == (500, True)
        assert "returned a wrong" in text
        assert "'Y'" in text or "NoneType" in text
    asker.wait_idle()
    assert bench["plain"].ask(5).answer() == (200, [5])
