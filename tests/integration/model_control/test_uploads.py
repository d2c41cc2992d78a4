"""Models whose files come with the load request: off by default, in a folder of their own, removed on unload."""

from __future__ import annotations

import pytest
from controlled_models import CONFIG, http_ask
from google.protobuf import text_format
from model_folders import identity
from tritonclient.utils import InferenceServerException
from waiting import wait_until

from naiad.config.json_form import to_json
from naiad.proto import message_class

EXPLICIT = "--model-control-mode=explicit"
UPLOAD = "--allow-model-upload=true"

_MODEL = b"""
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answer = np.full((1, 1), 7, np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", answer)]) for _ in requests]
"""


def config_json() -> str:
    import json

    config = message_class("inference.ModelConfig")()
    text_format.Parse(CONFIG, config)
    return json.dumps(to_json(config))


def test_files_are_refused_unless_the_operator_allows_them(tmp_path, serve, control):
    identity(tmp_path / "models", "echo")
    client = control(serve(tmp_path / "models", EXPLICIT))
    with pytest.raises(InferenceServerException, match="--allow-model-upload=true"):
        client.load("sent", config=config_json(), files={"file:1/model.py": _MODEL})
    assert client.index("sent") == []


def test_a_sent_model_serves_and_leaves_nothing(tmp_path, serve, control):
    folder = tmp_path / "temporary"
    folder.mkdir()
    identity(tmp_path / "models", "echo")
    server = serve(tmp_path / "models", EXPLICIT, UPLOAD, environment={"TMPDIR": str(folder)})
    client = control(server)
    for _ in range(2):
        client.load("sent", config=config_json(), files={"file:1/model.py": _MODEL})
        assert http_ask(server, "sent")() == 7
    uploaded = [path.name for path in folder.glob("naiad-model-*")]
    wait_until(lambda: len(list(folder.glob("naiad-model-*"))) == 1, what=f"one of {uploaded}")
    client.unload("sent")
    wait_until(lambda: not list(folder.glob("naiad-model-*")) and client.index("sent") == [])
    with pytest.raises(InferenceServerException, match="load failed"):
        client.load("sent", config=config_json(), files={"file:1/other.py": _MODEL})
    wait_until(lambda: not list(folder.glob("naiad-model-*")))


@pytest.mark.parametrize(
    "name",
    [
        "file:../model.py",
        "file:1/../model.py",
        "file:/etc/x",
        "file:1/a/b",
        "file:01/a",
        "file:1/..",
        "file:warmup/../x",
        "file:other/x",
    ],
)
def test_names_that_lead_elsewhere_are_refused(tmp_path, serve_for_module_upload, name):
    with pytest.raises(InferenceServerException, match="must be 'file:<version>/<name>'"):
        serve_for_module_upload.load_model("sent", config=config_json(), files={name: _MODEL})


def test_files_need_a_config(serve_for_module_upload):
    # Triton's client asks for one, too.
    import requests

    url = f"http://{serve_for_module_upload.address}/v2/repository/models/sent/load"
    answer = requests.post(url, json={"parameters": {"file:1/model.py": "YQ=="}}, timeout=5)
    assert (answer.status_code, "'config'" in answer.json()["error"]) == (400, True)


@pytest.fixture(scope="module")
def serve_for_module_upload(serve_for_module, tmp_path_factory):
    import tritonclient.http

    models = tmp_path_factory.mktemp("models")
    identity(models, "echo")
    server = serve_for_module(models, EXPLICIT, UPLOAD)
    client = server.clients.enter_context(tritonclient.http.InferenceServerClient(server.http))
    client.address = server.http
    return client
