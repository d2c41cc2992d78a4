"""From the running model's config back to a config file: what the server derived, written out, loads again unchanged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import model_folders
import onnx_models
import pytest
import requests

from naiad.cli.main import run

EVERYTHING = """
version_policy { specific { versions: [ 1, 2 ] } }
instance_group [ { count: 2 kind: KIND_CPU rate_limiter { resources [ { name: "r" count: 2 } ] priority: 3 } } ]
dynamic_batching {
  preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 100 priority_levels: 2 default_priority_level: 1
  default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5000000 allow_timeout_override: true }
  priority_queue_policy { key: 2 value { max_queue_size: 7 } }
}
parameters { key: "free text" value { string_value: "line\\n\\"quoted\\" µ" } }
metric_tags { key: "team" value: "vision" }
response_cache { enable: true }
model_warmup { name: "w" batch_size: 1 inputs { key: "X" value { data_type: TYPE_FP32 dims: 3 random_data: true } } }
optimization { graph { level: -1 } eager_batching: true }
model_metrics {
  metric_control {
    metric_identifier { family: "nv_inference_first_response_histogram_ms" } histogram_options { buckets: [ 0.1, 2.5 ] }
  }
}
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    repository = tmp_path / "models"
    onnx_models.save(onnx_models.identity("FP32", ["n"]), repository / "derived/1/model.onnx")
    folder = model_folders.identity(repository, "full", more=EVERYTHING)
    (folder / "2").mkdir()
    model_folders.identity(repository, "plain")
    return repository


def config_of(server, name: str) -> dict:
    return requests.get(f"{server.url}/v2/models/{name}/config", timeout=5).json()


def test_an_exported_config_loads_without_auto_complete_and_shows_the_same(models, tmp_path, serve, capsys):
    names = ("derived", "full", "plain")
    first = serve(models)
    before = {name: config_of(first, name) for name in names}
    copy = tmp_path / "copy"
    shutil.copytree(models, copy)
    for name in names:
        capsys.readouterr()
        assert run(["config", "show", str(models / name)]) == 0
        (copy / name / "config.pbtxt").write_text(capsys.readouterr().out, encoding="utf-8")
    second = serve(copy, "--disable-auto-complete-config")
    assert {name: config_of(second, name) for name in names} == before


def test_the_json_that_is_shown_is_taken_as_an_override_and_a_partial_one_replaces_it(models, serve):
    server = serve(models, "--model-control-mode=explicit", "--load-model=*")
    before = config_of(server, "full")

    def load(config: dict) -> requests.Response:
        body = {"parameters": {"config": json.dumps(config)}}
        return requests.post(f"{server.url}/v2/repository/models/full/load", json=body, timeout=10)

    assert load(before).status_code == 200
    assert config_of(server, "full") == before
    answer = load({"backend": "identity", "instance_group": [{"count": 3, "kind": "KIND_CPU"}]})
    assert answer.status_code == 200
    after = config_of(server, "full")
    assert after["instance_group"][0]["count"] == 3
    assert (after["input"], after["max_batch_size"]) == ([], 0)
    answer = load({**before, "max_batchsize": 3})
    assert answer.status_code == 400
    assert "unknown field 'max_batchsize' in ModelConfig; did you mean 'max_batch_size'?" in answer.json()["error"]
    assert config_of(server, "full") == after
