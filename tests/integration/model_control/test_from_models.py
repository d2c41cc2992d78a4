"""Models that load and unload others with pb_utils."""

from __future__ import annotations

from pathlib import Path

import pytest
from controlled_models import CONFIG, http_ask
from model_folders import identity
from tritonclient.utils import InferenceServerException
from waiting import wait_until

EXPLICIT = "--model-control-mode=explicit"

_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        INITIALIZE

    def execute(self, requests):
        EXECUTE
        answer = np.ones((1, 1), np.float32) * pb_utils.is_model_ready("echo")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", answer)]) for _ in requests]
"""


def write(models: Path, initialize: str = "pass", execute: str = "pass") -> None:
    folder = models / "asks" / "1"
    folder.mkdir(parents=True)
    (folder.parent / "config.pbtxt").write_text(CONFIG)
    (folder / "model.py").write_text(_MODEL.replace("INITIALIZE", initialize).replace("EXECUTE", execute))
    identity(models, "echo")


def test_a_model_loads_another_one_while_it_is_loaded(tmp_path, serve, http_control):
    write(tmp_path / "models", initialize='pb_utils.load_model("echo")')
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=asks")
    assert http_control(server).states("echo") == {"1": "READY"}
    assert http_ask(server, "asks")() == 1


def test_a_model_unloads_another_one_while_it_runs(tmp_path, serve, http_control):
    write(tmp_path / "models", execute='pb_utils.unload_model("echo")')
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=*")
    assert http_ask(server, "asks")() == 0
    wait_until(lambda: http_control(server).states("echo") == {"1": "UNAVAILABLE"})


def test_a_model_that_loads_itself_anew_answers_from_the_copy_that_was_asked(tmp_path, serve, http_control):
    write(tmp_path / "models", execute='pb_utils.load_model("asks")')
    server = serve(tmp_path / "models", EXPLICIT, "--load-model=*")
    assert http_ask(server, "asks")() == 1


def test_a_model_can_not_load_itself_while_it_is_loaded(tmp_path, serve, http_control):
    write(tmp_path / "models", initialize='pb_utils.load_model("asks")')
    client = http_control(serve(tmp_path / "models", EXPLICIT))
    with pytest.raises(InferenceServerException, match="can't load or unload itself while it is being loaded"):
        client.load("asks")
