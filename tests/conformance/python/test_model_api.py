"""The model API, name by name, as models of a real server see it: each probe says what the table holds.

`tests/conformance/triton/test_python_as_triton.py` puts the same probes to Triton.
"""

from __future__ import annotations

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from python_models import write_python_model
from python_models.asking import ask, fits
from python_models.repositories import AREAS, write_api_models
from python_models.said import EXPECTED
from server_process import ServerProcess
from waiting import wait_until

PROBES = [(area, probe) for area in AREAS for probe in EXPECTED[area]]


@pytest.fixture(scope="module")
def server(tmp_path_factory, serve_for_module) -> ServerProcess:
    return serve_for_module(write_api_models(tmp_path_factory.mktemp("models")), "--log-verbose=1")


@pytest.mark.parametrize(("area", "probe"), PROBES, ids=[f"{area}-{probe}" for area, probe in PROBES])
def test_a_probe_says_what_it_must(server, area, probe):
    said = ask(server.url, area, probe)
    assert fits(said, EXPECTED[area][probe]), said


def test_custom_metrics_are_on_the_metrics_page_with_their_kind_description_labels_and_buckets(server):
    for probe in ("counts", "gauges", "observes", "a_metric_goes"):
        ask(server.url, "metrics", probe)
    text = requests.get(f"http://{server.metrics}/metrics", timeout=5).text
    assert "# HELP my_requests Requests, counted\n# TYPE my_requests counter\n" in text
    assert 'my_requests{kind="a",model="metrics"}' in text
    assert "# HELP my_level A level\n# TYPE my_level gauge\n" in text
    assert server.metric("my_level") == 4.5
    assert "# TYPE my_times histogram\n" in text
    buckets = {bound: server.metric("my_times_bucket", le=bound, m="1") for bound in ("0.1", "1", "10", "+Inf")}
    count = server.metric("my_times_count", m="1")
    assert [buckets[bound] * 4 / count for bound in buckets] == [1, 2, 3, 4]
    assert server.metric("my_times_sum", m="1") == pytest.approx(55.55 * count / 4)
    assert "my_short_life" not in text
    assert list(text_string_to_metric_families(text))


def test_lines_of_logger_and_prints_are_in_the_servers_log_with_level_and_model(server):
    for probe in ("logs", "prints"):
        ask(server.url, "control", probe)
    wanted = {
        "plain words": "I", "words with a level": "W", "info words": "I", "warning words é": "W", "error words": "E",
        "verbose words": "I", "verbose by level": "I", "printed words": "I",
    }  # fmt: skip
    for words, level in wanted.items():
        wait_until(lambda words=words: any(words in line for line in server.errors), what=words)
        line = next(line for line in server.errors if words in line)
        assert (line[0], "[control control_0" in line) == (level, True), line


def test_finalize_runs_when_the_server_stops(tmp_path, serve):
    code = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def initialize(self, args):
        self.folder = args["model_repository"]
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(r, "X").as_numpy())])
                for r in requests]
    def finalize(self):
        open(self.folder + "/finalized", "w").write("yes")
"""
    folder = write_python_model(tmp_path / "models", "ending", code)
    server = serve(tmp_path / "models")
    assert server.stop() == 0
    assert (folder / "finalized").read_text() == "yes"
