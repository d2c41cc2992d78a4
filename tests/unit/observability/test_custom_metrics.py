"""The metrics that models make: their values, who holds them, what is refused, and how the page shows them."""

from __future__ import annotations

import asyncio
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import need_program
from prometheus_client.parser import text_string_to_metric_families

from naiad.errors import Code, InferenceServerError
from naiad.observability import custom_metrics
from naiad.observability.custom_metrics import CustomMetrics
from naiad.observability.metrics import MetricsRegistry


class Model:
    """One holder of metrics, with the operations of the model API."""

    def __init__(self, metrics: CustomMetrics) -> None:
        self.metrics = metrics

    def tell(self, operation: str, family: str = "my_x", **more) -> None:
        self.metrics.apply(self, {"operation": operation, "family": family, **more})

    def family(self, name: str = "my_x", kind: str = "counter", description: str = "about x") -> None:
        self.tell("family", name, kind=kind, description=description)

    def metric(self, name: str = "my_x", labels: dict[str, str] | None = None, buckets: tuple[float, ...] = ()) -> None:
        self.tell("metric", name, labels=labels or {}, buckets=list(buckets))

    def make(self, kind: str, *buckets: float) -> Model:
        self.family(kind=kind)
        self.metric(buckets=buckets)
        return self

    def change(self, operation: str, value: object) -> None:
        self.tell(operation, labels={}, value=value)


def page(metrics: CustomMetrics) -> list[str]:
    registry = MetricsRegistry(cpu_metrics=False)
    registry.add_families(metrics.families)
    return [line for line in asyncio.run(registry.render()).decode().splitlines() if "nv_" not in line]


@pytest.fixture
def metrics() -> CustomMetrics:
    return CustomMetrics()


@pytest.fixture
def model(metrics: CustomMetrics) -> Model:
    return Model(metrics)


def test_a_counter_appears_under_its_own_name_from_zero_on(metrics, model):
    model.make("counter")
    assert page(metrics) == ["# HELP my_x about x", "# TYPE my_x counter", "my_x 0.0"]
    model.change("increment", 2)
    model.change("increment", 0.5)
    assert page(metrics)[-1] == "my_x 2.5"
    assert metrics.value("my_x", {}) == 2.5


def test_a_gauge_is_set_and_moves_both_ways(metrics, model):
    model.make("gauge")
    model.change("set", 7)
    model.change("increment", -9.5)
    assert metrics.value("my_x", {}) == -2.5


def test_a_histogram_counts_up_to_each_bound_with_sum_and_count(metrics, model):
    model.make("histogram", 0.1, 1, 10)
    for value in (0.05, 0.1, 0.5, 5, 50):
        model.change("observe", value)
    assert page(metrics)[1:] == [
        "# TYPE my_x histogram",
        'my_x_bucket{le="0.1"} 2',
        'my_x_bucket{le="1"} 3',
        'my_x_bucket{le="10"} 4',
        'my_x_bucket{le="+Inf"} 5',
        "my_x_sum 55.65",
        "my_x_count 5",
    ]


@given(st.lists(st.floats(-1e6, 1e6)), st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9, unique=True).map(sorted))
def test_each_bucket_counts_what_is_not_above_its_bound(values, bounds):
    metrics = CustomMetrics()
    model = Model(metrics).make("histogram", *bounds)
    for value in values:
        model.change("observe", value)
    [family] = metrics.families()
    buckets = [sample.value for sample in family.samples if sample.suffix == "_bucket"]
    assert buckets == [*(sum(value <= bound for value in values) for bound in bounds), len(values)]


def test_labels_make_metrics_of_their_own_whatever_their_order(metrics, model):
    model.family()
    model.metric(labels={"a": "1", "b": '2"\n'})
    model.metric(labels={"a": "2", "b": "1"})
    model.tell("increment", labels={"b": '2"\n', "a": "1"}, value=3)
    assert page(metrics)[2:] == ['my_x{a="1",b="2\\"\\n"} 3.0', 'my_x{a="2",b="1"} 0.0']


def test_the_same_family_and_labels_of_two_models_are_one_metric(metrics, model):
    other = Model(metrics)
    for one in (model, other):
        one.make("counter")
        one.change("increment", 1)
    assert page(metrics)[2:] == ["my_x 2.0"]


def test_a_metric_leaves_the_page_with_its_last_holder(metrics, model):
    other = Model(metrics)
    for one in (model, model, other):
        one.make("counter")
    model.tell("delete", labels={})
    model.tell("delete", labels={})
    assert page(metrics)[2:] == ["my_x 0.0"]
    metrics.drop_owner(other)
    assert page(metrics) == []


def test_what_an_owner_leaves_behind_goes_at_once_and_makes_room_for_another_kind(metrics, model):
    model.make("counter")
    metrics.drop_owner(model)
    assert page(metrics) == []
    assert Model(metrics).make("gauge") is not None
    with pytest.raises(InferenceServerError, match="there is no metric 'my_x' with labels"):
        model.change("increment", 1)


def test_an_owner_without_metrics_can_be_dropped(metrics, model):
    metrics.drop_owner(model)
    assert list(metrics.families()) == []


def test_a_family_without_metrics_is_not_on_the_page(metrics, model):
    model.family()
    assert page(metrics) == []


@pytest.mark.parametrize(
    ("kind", "buckets", "operation", "value", "message"),
    [
        ("counter", (), "increment", -1, "counter 'my_x' can't be incremented by -1.0"),
        ("counter", (), "set", 1, "set isn't supported by metric 'my_x', a counter"),
        ("counter", (), "observe", 1, "observe isn't supported by metric 'my_x', a counter"),
        ("gauge", (), "observe", 1, "observe isn't supported by metric 'my_x', a gauge"),
        ("histogram", (1,), "increment", 1, "increment isn't supported by metric 'my_x', a histogram"),
        ("histogram", (1,), "set", 1, "set isn't supported by metric 'my_x', a histogram"),
        ("gauge", (), "set", float("nan"), "is nan, must be a finite number"),
        ("gauge", (), "set", "1", "is '1', must be a finite number"),
        ("gauge", (), "set", True, "is True, must be a finite number"),
    ],
)
def test_what_a_kind_does_not_do_is_refused_and_changes_nothing(metrics, model, kind, buckets, operation, value, message):
    model.make(kind, *buckets)
    before = page(metrics)
    with pytest.raises(InferenceServerError, match=message) as caught:
        model.change(operation, value)
    assert (caught.value.code, page(metrics)) == (Code.INVALID_ARGUMENT, before)


def test_a_histogram_has_no_single_value(metrics, model):
    model.make("histogram", 1)
    with pytest.raises(InferenceServerError, match="value isn't supported by metric 'my_x', a histogram"):
        metrics.value("my_x", {})


def test_the_value_of_an_unknown_metric_is_not_found(metrics, model):
    model.make("counter")
    for family, labels in (("my_y", {}), ("my_x", {"a": "b"})):
        with pytest.raises(InferenceServerError, match="there is no metric") as caught:
            metrics.value(family, labels)
        assert caught.value.code is Code.NOT_FOUND


def test_another_kind_of_a_name_is_refused_and_its_metrics_are_too(metrics, model):
    model.make("counter")
    other = Model(metrics)
    with pytest.raises(InferenceServerError, match="'my_x' is a counter already, it can't be a gauge too"):
        other.family(kind="gauge")
    with pytest.raises(InferenceServerError, match="there is no metric family 'my_x' of this model"):
        other.metric()
    assert page(metrics)[2:] == ["my_x 0.0"]


def test_the_first_description_of_a_family_stays(metrics, model):
    model.make("counter")
    Model(metrics).family(description="otherwise")
    assert page(metrics)[0] == "# HELP my_x about x"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nv_inference_count", "must not begin with nv_ or naiad_"),
        ("naiad_x", "must not begin with nv_ or naiad_"),
        ("no name", "metric name is 'no name', must match"),
        ("9x", "must match"),
        ("", "must match"),
        ("x\n", "must match"),
        ("my_x_sum", "'my_x_sum' is taken by the histogram 'my_x'"),
        (7, "must be a string"),
    ],
)
def test_a_name_that_can_not_be_shown_is_refused(model, name, message):
    model.make("histogram", 1)
    with pytest.raises(InferenceServerError, match=message):
        model.family(name)


def test_a_histogram_takes_no_names_of_others(model):
    model.family("my_y_count")
    with pytest.raises(InferenceServerError, match="histogram 'my_y' needs the name 'my_y_count'"):
        model.family("my_y", "histogram")


@pytest.mark.parametrize("labels", [{"no label": "x"}, {"le": "1"}, {"__name__": "x"}, {"": "x"}, {"a": 1}, {"a": None}])
def test_labels_that_can_not_be_shown_are_refused(metrics, model, labels):
    model.family()
    with pytest.raises(InferenceServerError, match="label"):
        model.metric(labels=labels)
    assert page(metrics) == []


@pytest.mark.parametrize(
    ("kind", "buckets"),
    [("counter", (1,)), ("histogram", ()), ("histogram", (2, 1)), ("histogram", (1, 1)), ("histogram", (float("inf"),))],
)
def test_buckets_that_can_not_be_are_refused(model, kind, buckets):
    model.family(kind=kind)
    with pytest.raises(InferenceServerError, match="my_x"):
        model.metric(buckets=buckets)


def test_a_histogram_keeps_its_buckets(model):
    model.make("histogram", 1, 2)
    with pytest.raises(InferenceServerError, match=r"has the buckets \[1.0, 2.0\] already"):
        model.metric(buckets=(1, 3))


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"operation": "explode", "family": "my_x"},
        {"operation": ["family"], "family": "my_x"},
        {"operation": "family"},
        {"operation": "family", "family": "my_y", "kind": "summary", "description": ""},
        {"operation": "metric", "family": "my_x", "labels": ["a"], "buckets": []},
        {"operation": "metric", "family": "my_x", "labels": {}, "buckets": 3},
        {"operation": "increment", "family": "my_x", "labels": {"a": ["b"]}, "value": 1},
        {"operation": "increment", "family": "my_x", "labels": {}},
    ],
)
def test_a_message_that_is_none_is_refused(metrics, model, message):
    model.make("counter")
    with pytest.raises(InferenceServerError) as caught:
        metrics.apply(model, message)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_metrics_are_bounded_and_those_that_go_make_room(metrics, model, monkeypatch):
    monkeypatch.setattr(custom_metrics, "MAX_METRICS", 2)
    monkeypatch.setattr(custom_metrics, "MAX_FAMILIES", 1)
    model.family()
    for value in ("1", "2"):
        model.metric(labels={"request": value})
    with pytest.raises(InferenceServerError, match="one too many: models may have 2 in all"):
        model.metric(labels={"request": "3"})
    with pytest.raises(InferenceServerError, match="one too many: models may have 1 families in all"):
        model.family("my_y")
    model.tell("delete", labels={"request": "1"})
    model.metric(labels={"request": "3"})
    assert len(page(metrics)) == 2 + 2


def full_page(metrics: CustomMetrics) -> str:
    model = Model(metrics)
    model.make("histogram", 0.5, 1e9)
    model.change("observe", 0.7)
    model.family("my_c_total", description="c\n\\")
    model.metric("my_c_total", labels={"a": 'x"y\\\n', "é_is_no_letter".replace("é", "e"): "é"})
    model.family("my_g", "gauge", "")
    model.metric("my_g")
    return "\n".join(page(metrics)) + "\n"


def test_another_parser_reads_the_page(metrics):
    parsed = {family.name: family for family in text_string_to_metric_families(full_page(metrics))}
    assert {name: family.type for name, family in parsed.items()} == {"my_x": "histogram", "my_c": "counter", "my_g": "gauge"}
    assert parsed["my_c"].samples[0].labels == {"a": 'x"y\\\n', "e_is_no_letter": "é"}
    assert parsed["my_g"].documentation == "my_g"


def test_promtool_accepts_the_page(metrics):
    done = subprocess.run(
        [need_program("promtool"), "check", "metrics"], check=False, input=full_page(metrics), text=True, capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
