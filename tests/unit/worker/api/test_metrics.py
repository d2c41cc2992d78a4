"""Custom metrics and the other things that a model says to the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import naiad.worker
from naiad.worker.api.control import Logger, is_model_ready, load_model, unload_model
from naiad.worker.api.errors import TritonModelException
from naiad.worker.api.metrics import MetricFamily
from naiad.worker.api.model_config import ModelConfig

SHIM = Path(naiad.worker.__file__).parent / "path"


def test_changes_carry_family_and_labels(server):
    metric = MetricFamily("m", "text", MetricFamily.GAUGE).Metric({"a": "b"})
    metric.set(2)
    metric.increment(-1)
    server.answer = 1.0
    assert metric.value() == 1
    del metric
    key = {"family": "m", "labels": {"a": "b"}}
    assert server.metrics == [
        {"operation": "family", "family": "m", "description": "text", "kind": "gauge"},
        {"operation": "metric", **key, "buckets": []},
        {"operation": "set", **key, "value": 2.0},
        {"operation": "increment", **key, "value": -1.0},
        {"operation": "delete", **key},
    ]


@pytest.mark.parametrize(
    ("kind", "operation", "value"),
    [
        (MetricFamily.COUNTER, "increment", -1), (MetricFamily.COUNTER, "set", 1), (MetricFamily.COUNTER, "observe", 1),
        (MetricFamily.GAUGE, "observe", 1), (MetricFamily.GAUGE, "set", "x"), (MetricFamily.GAUGE, "set", float("nan")),
        (MetricFamily.HISTOGRAM, "set", 1), (MetricFamily.HISTOGRAM, "increment", 1),
    ],
)  # fmt: skip
def test_what_a_kind_cannot_do_raises_in_the_model(server, kind, operation, value):
    metric = MetricFamily("m", "", kind).Metric(buckets=[1, 2] if kind is MetricFamily.HISTOGRAM else [])
    with pytest.raises(TritonModelException, match="'m'"):
        getattr(metric, operation)(value)


@pytest.mark.parametrize("arguments", [{"labels": {"a": 1}}, {"labels": {"0": "x"}}, {"labels": []}, {"buckets": [1]}], ids=str)
def test_wrong_labels_and_buckets_are_refused(server, arguments):
    family = MetricFamily("m", "", MetricFamily.COUNTER)
    if arguments == {"labels": []}:
        arguments = {"labels": ["a"]}
    with pytest.raises(TritonModelException, match="'m'"):
        family.Metric(**arguments)


def test_model_control_asks_the_server(server):
    server.answer = True
    load_model("m", files={"file:1/model.py": b"x"})
    unload_model("m", unload_dependents=True)
    assert is_model_ready("m", "2")
    assert server.questions == [
        ("load_model", {"model_name": "m", "config": "", "files": {"file:1/model.py": "eA=="}}),
        ("unload_model", {"model_name": "m", "unload_dependents": True}),
        ("is_model_ready", {"model_name": "m", "model_version": "2"}),
    ]


def test_lines_reach_the_log_with_their_level(server):
    Logger.log("a")
    Logger.log("b", Logger.VERBOSE)
    Logger.log_warn("c")
    assert server.lines == [("INFO", "a"), ("VERBOSE", "b"), ("WARNING", "c")]
    with pytest.raises(TritonModelException, match="log level"):
        Logger.log("d", "loud")


def test_model_config_fills_in_and_refuses_contradictions():
    config = ModelConfig({"name": "m", "max_batch_size": 4, "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}]})
    config.set_max_batch_size(8)
    config.set_dynamic_batching()
    config.set_model_transaction_policy({"decoupled": True})
    config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [1], "optional": True})
    config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [1]})
    as_dict = config.as_dict()
    assert (as_dict["max_batch_size"], as_dict["dynamic_batching"]) == (8, {})
    assert as_dict["input"] == [{"name": "X", "data_type": "TYPE_FP32", "dims": [1], "optional": True}]
    for contradiction in (
        lambda: config.set_max_batch_size(4),
        lambda: config.set_model_transaction_policy({"decoupled": False}),
        lambda: config.set_model_transaction_policy({"x": False}),
        lambda: config.add_input({"name": "X", "data_type": "TYPE_INT8", "dims": [1]}),
        lambda: config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [2]}),
        lambda: config.add_output({"name": "Z", "dims": [2]}),
        lambda: config.add_output({"name": "Z", "data_type": "TYPE_FP32", "dims": [2], "optional": True}),
        lambda: ModelConfig({"sequence_batching": {}}).set_dynamic_batching(),
    ):
        with pytest.raises(ValueError):
            contradiction()


def test_the_shim_offers_every_name_that_it_lists():
    code = "import triton_python_backend_utils as u; print(all(hasattr(u, n) for n in u.__all__))"
    source = Path(naiad.__file__).parent.parent
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {[str(SHIM), str(source)]}; {code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout == "True\n"
