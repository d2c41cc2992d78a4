"""The statistics of one model version: what each event adds, and the JSON form clients read."""

import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.errors import FailureReason, unavailable
from naiad.observability.statistics import MAX_RESPONSE_INDEX, ModelStatistics


def entry(statistics: ModelStatistics) -> dict:
    return statistics.to_json("m", "3")


def test_a_new_model_has_every_member_in_the_order_of_the_protocol_and_all_zero() -> None:
    zero = {"count": 0, "ns": 0}
    expected = {
        "name": "m",
        "version": "3",
        "last_inference": 0,
        "inference_count": 0,
        "execution_count": 0,
        "inference_stats": {
            "success": zero,
            "fail": zero,
            "queue": zero,
            "compute_input": zero,
            "compute_infer": zero,
            "compute_output": zero,
            "cache_hit": zero,
            "cache_miss": zero,
        },
        "response_stats": {},
        "batch_stats": [],
        "memory_usage": [],
    }
    assert orjson.dumps(entry(ModelStatistics())) == orjson.dumps(expected)


def test_each_successful_request_adds_the_whole_batch_and_the_batch_size_adds_it_once() -> None:
    statistics = ModelStatistics()
    for request_ns in (100, 200, 300):
        statistics.record_success(request_ns)
    statistics.record_execution(8, 3, 60, 10, 20, 30)
    assert entry(statistics)["inference_stats"] == {
        "success": {"count": 3, "ns": 600},
        "fail": {"count": 0, "ns": 0},
        "queue": {"count": 3, "ns": 60},
        "compute_input": {"count": 3, "ns": 30},
        "compute_infer": {"count": 3, "ns": 60},
        "compute_output": {"count": 3, "ns": 90},
        "cache_hit": {"count": 0, "ns": 0},
        "cache_miss": {"count": 0, "ns": 0},
    }
    assert entry(statistics)["batch_stats"] == [
        {
            "batch_size": 8,
            "compute_input": {"count": 1, "ns": 10},
            "compute_infer": {"count": 1, "ns": 20},
            "compute_output": {"count": 1, "ns": 30},
        }
    ]


def test_a_batch_of_n_is_n_inferences_and_one_execution() -> None:
    statistics = ModelStatistics()
    statistics.record_execution(5, 2, 0, 0, 0, 0)
    statistics.record_execution(1, 1, 0, 0, 0, 0)
    assert (entry(statistics)["inference_count"], entry(statistics)["execution_count"]) == (6, 2)


def test_failures_of_every_reason_make_one_fail_count() -> None:
    statistics = ModelStatistics()
    for reason in FailureReason:
        statistics.record_failure(reason, 10)
    statistics.record_failure(FailureReason.BACKEND, 5)
    assert entry(statistics)["inference_stats"]["fail"] == {"count": 5, "ns": 45}
    assert statistics.failure_counts == {reason: 1 + (reason is FailureReason.BACKEND) for reason in FailureReason}


def test_last_inference_is_the_time_of_the_last_execution_in_milliseconds_since_1970() -> None:
    statistics = ModelStatistics()
    before_ms = time.time_ns() // 1_000_000
    statistics.record_execution(1, 1, 0, 0, 0, 0)
    assert before_ms <= entry(statistics)["last_inference"] <= time.time_ns() // 1_000_000


def test_a_request_that_fails_before_it_runs_is_no_inference() -> None:
    statistics = ModelStatistics()
    statistics.record_failure(FailureReason.REJECTED, 10)
    assert (entry(statistics)["inference_count"], entry(statistics)["last_inference"]) == (0, 0)


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(0, 10**12)), max_size=30))
def test_batch_sizes_ascend_and_together_hold_every_execution(batches: list[tuple[int, int]]) -> None:
    statistics = ModelStatistics()
    for size, infer_ns in batches:
        statistics.record_execution(size, 1, 0, 0, infer_ns, 0)
    rows = entry(statistics)["batch_stats"]
    assert [row["batch_size"] for row in rows] == sorted({size for size, _ in batches})
    assert sum(row["compute_infer"]["count"] for row in rows) == entry(statistics)["execution_count"] == len(batches)
    assert sum(row["compute_infer"]["ns"] for row in rows) == sum(infer_ns for _, infer_ns in batches)
    assert sum(row["batch_size"] * row["compute_infer"]["count"] for row in rows) == entry(statistics)["inference_count"]


def test_a_refused_request_is_counted_but_neither_a_failure_nor_in_the_protocols_statistics() -> None:
    statistics = ModelStatistics()
    statistics.record_refusal(unavailable("the queue is full"))
    assert statistics.refused_count == 1
    assert entry(statistics) == entry(ModelStatistics())


def test_a_counter_that_was_never_declared_cannot_be_set() -> None:
    with pytest.raises(AttributeError):
        ModelStatistics().sucess_count = 1  # type: ignore[attr-defined]


def test_responses_of_a_decoupled_model_count_by_their_index():
    statistics = ModelStatistics()
    for _ in range(2):
        statistics.record_response(0, has_succeeded=True, compute_infer_ns=10, compute_output_ns=1)
        statistics.record_response(1, has_succeeded=False, compute_infer_ns=20, compute_output_ns=2)
    statistics.record_empty_response(2, 30)
    statistics.record_cancelled_response(10, 40)
    stats = statistics.to_json("m", "1")["response_stats"]
    assert list(stats) == ["0", "1", "2", "10"]
    assert list(stats["0"]) == ["compute_infer", "compute_output", "success", "fail", "empty_response", "cancel"]
    assert stats["0"]["compute_infer"] == {"count": 2, "ns": 20}
    assert stats["0"]["compute_output"] == {"count": 2, "ns": 2}
    assert stats["0"]["success"] == {"count": 2, "ns": 22}
    assert stats["1"]["success"] == stats["0"]["fail"] == {"count": 0, "ns": 0}
    assert stats["1"]["fail"] == {"count": 2, "ns": 44}
    assert stats["2"]["empty_response"] == {"count": 1, "ns": 30}
    assert stats["2"]["compute_infer"] == {"count": 0, "ns": 0}
    assert stats["10"]["cancel"] == {"count": 1, "ns": 40}


def test_a_stream_without_end_takes_no_more_memory():
    statistics = ModelStatistics()
    for index in range(MAX_RESPONSE_INDEX + 10):
        statistics.record_response(index, has_succeeded=True, compute_infer_ns=1, compute_output_ns=1)
    assert len(statistics.to_json("m", "1")["response_stats"]) == MAX_RESPONSE_INDEX
