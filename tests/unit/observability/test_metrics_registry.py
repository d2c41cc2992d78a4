"""A scrape: its families, labels and values, when models come and go, and how long it holds the loop."""

import asyncio
import collections
import subprocess

import pytest
from programs import need_program
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as ParsedSample

from naiad.errors import FailureReason
from naiad.observability.metrics import MetricsRegistry, ModelMetricsSource
from naiad.observability.prometheus_text import Family, Kind, Sample
from naiad.observability.statistics import ModelStatistics

CORE_FAMILIES = {
    "nv_inference_request_success": "counter",
    "nv_inference_request_failure": "counter",
    "nv_inference_count": "counter",
    "nv_inference_exec_count": "counter",
    "nv_inference_pending_request_count": "gauge",
    "nv_model_load_duration_secs": "gauge",
    "nv_pinned_memory_pool_total_bytes": "gauge",
    "nv_pinned_memory_pool_used_bytes": "gauge",
}
CPU_FAMILIES = dict.fromkeys(["nv_cpu_utilization", "nv_cpu_memory_total_bytes", "nv_cpu_memory_used_bytes"], "gauge")
LATENCY_FAMILIES = dict.fromkeys(
    [
        "nv_inference_request_duration_us",
        "nv_inference_queue_duration_us",
        "nv_inference_compute_input_duration_us",
        "nv_inference_compute_infer_duration_us",
        "nv_inference_compute_output_duration_us",
    ],
    "counter",
)


def source(name="m", version="1", tags=None, statistics=None, pending=lambda: 0, load_seconds=0.5) -> ModelMetricsSource:
    return ModelMetricsSource(name, version, tags or {}, statistics or ModelStatistics(), pending, load_seconds)


def scrape(registry: MetricsRegistry) -> str:
    return asyncio.run(registry.render()).decode()


def lines_of(registry: MetricsRegistry, name: str) -> list[str]:
    return [line for line in scrape(registry).splitlines() if line.startswith((f"{name} ", f"{name}{{"))]


def parsed_samples(text: str) -> list[ParsedSample]:
    """Return what another parser reads; it adds to a counter's name the `_total` that Triton's names don't have."""
    families = text_string_to_metric_families(text)
    return [sample._replace(name=sample.name.removesuffix("_total")) for family in families for sample in family.samples]


def types_of(text: str) -> dict[str, str]:
    rows = [line.split() for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(rows) == len({row[2] for row in rows}), "a family is opened twice"
    return {row[2]: row[3] for row in rows}


def full_registry() -> MetricsRegistry:
    registry = MetricsRegistry()
    registry.add_model(source("a\\b", tags={"team": 'x"y\n'}))
    registry.add_model(source("m", "2"))
    registry.add_family(lambda: Family("naiad_runs", Kind.COUNTER, "Runs", [Sample(3, {"model": "m"})]))
    return registry


def test_the_families_and_their_types_are_exactly_these() -> None:
    assert types_of(scrape(MetricsRegistry())) == CORE_FAMILIES | LATENCY_FAMILIES | CPU_FAMILIES


def test_latency_counters_and_cpu_gauges_can_be_left_out() -> None:
    assert types_of(scrape(MetricsRegistry(counter_latencies=False, cpu_metrics=False))) == CORE_FAMILIES


def test_every_series_of_a_model_exists_before_its_first_request() -> None:
    registry = MetricsRegistry()
    registry.add_model(source())
    assert [line for line in scrape(registry).splitlines() if 'model="m"' in line] == [
        'nv_inference_request_success{model="m",version="1"} 0',
        'nv_inference_request_failure{model="m",reason="REJECTED",version="1"} 0',
        'nv_inference_request_failure{model="m",reason="CANCELED",version="1"} 0',
        'nv_inference_request_failure{model="m",reason="BACKEND",version="1"} 0',
        'nv_inference_request_failure{model="m",reason="OTHER",version="1"} 0',
        'nv_inference_count{model="m",version="1"} 0',
        'nv_inference_exec_count{model="m",version="1"} 0',
        'nv_inference_pending_request_count{model="m",version="1"} 0',
        'nv_model_load_duration_secs{model="m",version="1"} 0.5',
        'nv_inference_request_duration_us{model="m",version="1"} 0',
        'nv_inference_queue_duration_us{model="m",version="1"} 0',
        'nv_inference_compute_input_duration_us{model="m",version="1"} 0',
        'nv_inference_compute_infer_duration_us{model="m",version="1"} 0',
        'nv_inference_compute_output_duration_us{model="m",version="1"} 0',
    ]


def test_counters_follow_the_statistics_and_latencies_are_microseconds() -> None:
    statistics = ModelStatistics()
    statistics.record_success(7_000_999)
    statistics.record_failure(FailureReason.CANCELED, 5)
    statistics.record_execution(4, 1, 1_000_000, 2_000_000, 3_000_000, 4_000_000)
    registry = MetricsRegistry()
    registry.add_model(source(statistics=statistics))
    values = {
        (sample.name, sample.labels.get("reason")): sample.value
        for sample in parsed_samples(scrape(registry))
        if sample.value and "model" in sample.labels
    }
    assert values == {
        ("nv_inference_request_success", None): 1,
        ("nv_inference_request_failure", "CANCELED"): 1,
        ("nv_inference_count", None): 4,
        ("nv_inference_exec_count", None): 1,
        ("nv_model_load_duration_secs", None): 0.5,
        ("nv_inference_request_duration_us", None): 7000,
        ("nv_inference_queue_duration_us", None): 1000,
        ("nv_inference_compute_input_duration_us", None): 2000,
        ("nv_inference_compute_infer_duration_us", None): 3000,
        ("nv_inference_compute_output_duration_us", None): 4000,
    }


def test_the_pending_gauge_is_the_length_of_the_queue_at_each_scrape() -> None:
    queue = [1, 2, 3]
    registry = MetricsRegistry()
    registry.add_model(source(pending=lambda: len(queue)))
    assert lines_of(registry, "nv_inference_pending_request_count")[0].endswith(" 3")
    queue.clear()
    assert lines_of(registry, "nv_inference_pending_request_count")[0].endswith(" 0")


def test_metric_tags_are_labels_with_an_underscore_before_the_key_and_legal_names() -> None:
    registry = MetricsRegistry()
    registry.add_model(source(tags={"team": "x", "cost-centre": "7"}))
    assert lines_of(registry, "nv_inference_count") == [
        'nv_inference_count{_cost_centre="7",_team="x",model="m",version="1"} 0'
    ]


def test_of_two_tags_with_one_label_the_first_stays_and_the_other_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    registry = MetricsRegistry()
    registry.add_model(source(tags={"a_b": "2", "a-b": "1"}))
    assert lines_of(registry, "nv_inference_count") == ['nv_inference_count{_a_b="1",model="m",version="1"} 0']
    assert "metric tag 'a_b' is left out" in caplog.text


def test_the_series_of_an_unloaded_model_are_gone_and_those_of_others_stay() -> None:
    registry = MetricsRegistry()
    for version in "12":
        registry.add_model(source(version=version))
    registry.remove_model("m", "1")
    assert 'version="1"' not in scrape(registry)
    assert lines_of(registry, "nv_inference_count") == ['nv_inference_count{model="m",version="2"} 0']


@pytest.mark.parametrize("is_new_added_first", [True, False])
def test_a_reload_shows_the_new_model_whichever_of_add_and_remove_comes_first(is_new_added_first: bool) -> None:
    registry = MetricsRegistry()
    registry.add_model(source(load_seconds=1.0))
    if is_new_added_first:
        registry.add_model(source(load_seconds=2.0))
        assert lines_of(registry, "nv_model_load_duration_secs") == ['nv_model_load_duration_secs{model="m",version="1"} 2.0']
        registry.remove_model("m", "1")
    else:
        registry.remove_model("m", "1")
        registry.add_model(source(load_seconds=2.0))
    assert lines_of(registry, "nv_model_load_duration_secs") == ['nv_model_load_duration_secs{model="m",version="1"} 2.0']


def test_a_model_that_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(KeyError):
        MetricsRegistry().remove_model("m", "1")


def test_two_registries_in_one_process_do_not_meet() -> None:
    first, second = MetricsRegistry(), MetricsRegistry()
    for registry in (first, second):
        registry.add_model(source())
        registry.add_family(lambda: Family("naiad_x", Kind.GAUGE, "x", []))
    first.remove_model("m", "1")
    assert lines_of(second, "nv_inference_count") == ['nv_inference_count{model="m",version="1"} 0']


def test_a_family_of_our_own_is_asked_at_each_scrape() -> None:
    counts = iter([1, 2, 3])
    registry = MetricsRegistry()
    registry.add_family(lambda: Family("naiad_runs", Kind.COUNTER, "Runs", [Sample(next(counts), {"model": "m"})]))
    assert [lines_of(registry, "naiad_runs") for _ in range(2)] == [
        ['naiad_runs{model="m"} 2'],
        ['naiad_runs{model="m"} 3'],
    ]


def test_a_family_of_our_own_needs_our_prefix_and_a_name_of_its_own() -> None:
    registry = MetricsRegistry()
    with pytest.raises(ValueError, match="'nv_x', must begin with 'naiad_'"):
        registry.add_family(lambda: Family("nv_x", Kind.GAUGE, "x", []))
    registry.add_family(lambda: Family("naiad_x", Kind.GAUGE, "x", []))
    with pytest.raises(ValueError, match="'naiad_x' already"):
        registry.add_family(lambda: Family("naiad_x", Kind.GAUGE, "x", []))


def test_another_parser_reads_every_family_in_one_piece() -> None:
    parsed = list(text_string_to_metric_families(scrape(full_registry())))
    assert {family.name: family.type for family in parsed if family.samples} == (
        CORE_FAMILIES | LATENCY_FAMILIES | CPU_FAMILIES | {"naiad_runs": "counter"}
    )
    [success] = [family for family in parsed if family.name == "nv_inference_request_success"]
    assert [sample.labels for sample in success.samples] == [
        {"model": "a\\b", "version": "1", "_team": 'x"y\n'},
        {"model": "m", "version": "2"},
    ]


def test_promtool_accepts_a_scrape() -> None:
    done = subprocess.run(
        [need_program("promtool"), "check", "metrics"],
        check=False,
        input=scrape(full_registry()),
        text=True,
        capture_output=True,
    )
    # 3 is its opinion on names (counters without _total), which are Triton's.
    assert done.returncode in (0, 3), done.stderr


class Turns:
    """Counts the turns of the running loop, so that a test can say what happened in which."""

    def __init__(self) -> None:
        self.now = 0
        self._loop = asyncio.get_running_loop()
        self._is_running = True
        self._next()

    def _next(self) -> None:
        self.now += 1
        if self._is_running:
            self._loop.call_soon(self._next)

    def stop(self) -> None:
        self._is_running = False


def test_a_scrape_of_2000_models_handles_at_most_100_of_them_in_a_turn_of_the_loop() -> None:
    async def work_per_turn() -> collections.Counter[int]:
        registry, seen, turns = MetricsRegistry(), collections.Counter(), Turns()
        for number in range(2000):
            registry.add_model(source(f"m{number}", pending=lambda: seen.update([turns.now]) or 0))
        await registry.render()
        turns.stop()
        return seen

    seen = asyncio.run(work_per_turn())
    assert sum(seen.values()) == 2000
    assert max(seen.values()) <= 100


def test_a_turn_of_the_loop_makes_one_family_of_our_own_or_writes_500_of_its_lines() -> None:
    class Samples(collections.UserList):
        """A sequence that notes in which turn each of its values was taken."""

        def __iter__(self):
            for sample in self.data:
                written.update([turns.now])
                yield sample

    def add_family(registry: MetricsRegistry, name: str) -> None:
        samples = Samples(Sample(number, {}) for number in range(2000))

        def family() -> Family:
            made.append(turns.now)
            return Family(name, Kind.GAUGE, "x", samples)

        registry.add_family(family)

    async def render() -> None:
        nonlocal turns
        turns = Turns()
        registry = MetricsRegistry()
        add_family(registry, "naiad_x")
        add_family(registry, "naiad_y")
        made.clear()
        await registry.render()
        turns.stop()

    written: collections.Counter[int] = collections.Counter()
    made: list[int] = []
    turns: Turns
    asyncio.run(render())
    assert (len(made), sum(written.values())) == (2, 4000)
    assert made[0] != made[1]
    assert not set(made) & set(written)
    assert max(written.values()) <= 500


def test_all_values_of_one_model_are_of_one_moment_while_requests_go_on() -> None:
    async def render() -> bytes:
        statistics = [ModelStatistics() for _ in range(500)]
        registry = MetricsRegistry()
        for number, one in enumerate(statistics):
            registry.add_model(source(f"m{number}", statistics=one))

        def work() -> None:
            for one in statistics:
                one.record_success(1)
                one.record_execution(1, 1, 0, 0, 0, 0)
            timer.append(loop.call_soon(work))

        loop, timer = asyncio.get_running_loop(), []
        work()
        text = await registry.render()
        timer[-1].cancel()
        return text

    values = collections.defaultdict(dict)
    for sample in parsed_samples(asyncio.run(render()).decode()):
        if "model" in sample.labels:
            values[sample.labels["model"]][sample.name] = sample.value
    assert len({row["nv_inference_count"] for row in values.values()}) > 1, "nothing went on during the scrape"
    for row in values.values():
        assert row["nv_inference_request_success"] == row["nv_inference_count"] == row["nv_inference_exec_count"]


def test_models_may_come_and_go_during_a_scrape() -> None:
    async def render() -> bytes:
        registry = MetricsRegistry()
        for number in range(300):
            registry.add_model(source(f"m{number}"))

        def change() -> None:
            registry.remove_model("m299", "1")
            registry.add_model(source("late"))

        asyncio.get_running_loop().call_soon(change)
        return await registry.render()

    text = asyncio.run(render()).decode()
    assert text.count("nv_inference_count{") == 300
    assert 'model="late"' not in text
