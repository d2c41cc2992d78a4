"""Flag values with parts of their own."""

from __future__ import annotations

import pytest

from naiad.config.options.composite import (
    BackendSetting,
    MetricsConfig,
    MetricsSetting,
    Origin,
    RestrictedApis,
    RestrictedGroup,
    backend_settings,
    metrics_config,
    restricted_groups,
)


def test_a_restricted_group_is_apis_header_and_value_and_the_value_may_hold_any_sign() -> None:
    group = RestrictedApis().parse("health, model-repository:admin-key=a=b:c,d")
    assert RestrictedGroup(frozenset({"health", "model-repository"}), "admin-key", "a=b:c,d") == group


@pytest.mark.parametrize(
    "text", ["health", "health:key", "nonsense:k=v", "health,:k=v", ":k=v", "health:=v", "health:a b=v", "health,health:k=v"]
)
def test_a_restricted_group_names_known_apis_once_and_a_header(text: str) -> None:
    with pytest.raises(ValueError):
        RestrictedApis().parse(text)


def test_an_api_is_in_one_restricted_group_only() -> None:
    groups = [RestrictedGroup(frozenset({"health", "trace"}), "k", "1"), RestrictedGroup(frozenset({"trace"}), "k", "2")]
    with pytest.raises(ValueError, match="'trace' is in more than one group"):
        restricted_groups(groups)


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("onnxruntime,threads=4", ("onnxruntime", "threads", "4")),
        ("default-max-batch-size=8", ("", "default-max-batch-size", "8")),
        ("tensorrt,plugins=a.so,b.so", ("tensorrt", "plugins", "a.so,b.so")),
        ("paths=a,b", ("", "paths", "a,b")),
        ("x,empty=", ("x", "empty", "")),
        ("x,url=a=b", ("x", "url", "a=b")),
    ],
)
def test_a_backend_setting_belongs_to_one_backend_or_to_all(text: str, setting: tuple[str, str, str]) -> None:
    assert setting == BackendSetting().parse(text)


@pytest.mark.parametrize(
    "text", ["", "key", "=v", ",k=v", "onnxruntime,=v", "default-max-batch-size=four", "x,default-max-batch-size=-1"]
)
def test_a_backend_setting_has_a_key_and_a_value(text: str) -> None:
    with pytest.raises(ValueError):
        BackendSetting().parse(text)


def test_the_later_of_two_values_of_a_backend_setting_wins() -> None:
    joined = backend_settings([("a", "k", "1"), ("", "k", "2"), ("a", "k", "3"), ("a", "l", "4")])
    assert {name: dict(values) for name, values in joined.items()} == {"a": {"k": "3", "l": "4"}, "": {"k": "2"}}


def test_latency_counters_can_be_left_out() -> None:
    assert MetricsConfig(counter_latencies=False) == metrics_config([MetricsSetting().parse("counter_latencies=False")])
    assert MetricsConfig(counter_latencies=True) == metrics_config([MetricsSetting().parse("summary_latencies=false")])


@pytest.mark.parametrize(
    "text", ["summary_latencies=true", "histogram_latencies=true", "summary_quantiles=0.5:0.1", "x=true", "counter_latencies"]
)
def test_metrics_that_are_not_built_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        MetricsSetting().parse(text)


@pytest.mark.parametrize("text", ["*", "https://app.example", "http://localhost:3000", "http://[::1]:8080"])
def test_an_origin_is_scheme_host_and_port(text: str) -> None:
    assert text == Origin().parse(text)


@pytest.mark.parametrize(
    "text", ["", "app.example", "https://app.example/", "https://app.example/x", "HTTPS://app.example", "null", "https://a b"]
)
def test_an_origin_that_no_browser_sends_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Origin().parse(text)
