"""What lies where a model's files should be, and names that lead elsewhere: each is named and costs its own model only."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest
import requests
from controlled_models import CONFIG, http_ask
from model_folders import identity, write_model
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException
from waiting import wait_until

EXPLICIT = "--model-control-mode=explicit"


def load(server, name: str, **parameters) -> requests.Response:
    url = f"{server.url}/v2/repository/models/{requests.utils.quote(name, safe='')}/load"
    return requests.post(url, json={"parameters": parameters}, timeout=15)


def odd_config(models: Path, name: str, make) -> None:
    (models / name / "1").mkdir(parents=True)
    make(models / name / "config.pbtxt")


@pytest.fixture
def models(tmp_path) -> Path:
    """A repository with `echo` and models that can't be loaded, each for a reason of its own."""
    models = tmp_path / "models"
    identity(models)
    identity(models, "with space")
    identity(models, "日本語")
    odd_config(models, "fifo", os.mkfifo)
    odd_config(models, "folder", os.mkdir)
    odd_config(models, "circle", lambda path: path.symlink_to(path))
    odd_config(models, "dangling", lambda path: path.symlink_to("nowhere"))
    odd_config(models, "memory", lambda path: path.symlink_to("/proc/self/mem"))
    odd_config(models, "device", lambda path: path.symlink_to("/dev/zero"))
    odd_config(models, "huge", lambda path: (path.touch(), os.truncate(path, 100 << 20)))
    odd_config(models, "nested", lambda path: path.write_text("input {" * 50_000))
    write_model(models, "fifo_onnx", 'backend: "onnxruntime"')
    os.mkfifo(models / "fifo_onnx" / "1" / "model.onnx")
    write_model(models, "folder_onnx", 'backend: "onnxruntime"')
    (models / "folder_onnx" / "1" / "model.onnx").mkdir()
    write_model(models, "fifo_python", CONFIG)
    os.mkfifo(models / "fifo_python" / "1" / "model.py")
    identity(models, "fifo_labels")
    config = (models / "fifo_labels" / "config.pbtxt").read_text()
    (models / "fifo_labels" / "config.pbtxt").write_text(config.replace('name: "Y"', 'name: "Y" label_filename: "labels.txt"'))
    os.mkfifo(models / "fifo_labels" / "labels.txt")
    (models / os.fsdecode(b"not-utf8-\xff")).mkdir()
    (models / "broken_link").symlink_to("nowhere")
    return models


SAID = {
    "fifo": "fifo/config.pbtxt: is a FIFO, must be a plain file",
    "folder": "folder/config.pbtxt: is a folder, must be a plain file",
    "circle": "circle/config.pbtxt: can't be read: Too many levels of symbolic links",
    "dangling": "dangling/config.pbtxt: can't be read: No such file or directory",
    "memory": "memory/config.pbtxt: can't be read: Input/output error",
    "device": "device/config.pbtxt: is a device, must be a plain file",
    "huge": "huge/config.pbtxt: has 104857600 bytes, at most 4194304 are read",
    "nested": "nested/config.pbtxt:1:",
    "fifo_onnx": "fifo_onnx/1/model.onnx: is a FIFO, must be a plain file",
    "folder_onnx": "folder_onnx/1/model.onnx",
    "fifo_python": "fifo_python/1/model.py: is a FIFO, must be a plain file",
    "fifo_labels": "fifo_labels/labels.txt: is a FIFO, must be a plain file",
    "broken_link": "there is no such model",
    "nowhere": "there is no such model",
    "../models/echo": "may not be '.' or '..' nor have '/' or control characters",
    "/etc": "may not be '.' or '..' nor have '/' or control characters",
    "a\0b": "may not be '.' or '..' nor have '/' or control characters",
    "a\nb": "may not be '.' or '..' nor have '/' or control characters",
    "x" * 300: "at most 255 bytes",
    "ü" * 128: "at most 255 bytes",
}


def test_each_is_named_and_the_server_lives(models, serve):
    server = serve(models, EXPLICIT, "--load-model=echo")
    for name, said in SAID.items():
        answer = load(server, name)
        assert 400 <= answer.status_code <= 500, (name, answer.text)
        assert said in answer.json()["error"], name
    for name in ("with space", "日本語"):
        assert load(server, name).status_code == 200
        assert http_ask(server, name)() == 1
    shown = {entry["name"] for entry in requests.post(f"{server.url}/v2/repository/index", timeout=10).json()}
    assert {"echo", "with space", "日本語", "fifo", "huge"} <= shown
    assert not any(name.startswith("not-utf8") or name == "broken_link" for name in shown)
    assert http_ask(server, "echo")() == 1
    assert not any("Traceback" in line for line in server.errors)


@pytest.mark.parametrize("file", ["../../echo/config.pbtxt", "/etc/passwd", "a/../../x", "a\0b"])
def test_a_configuration_of_a_client_reaches_no_files_of_others(models, serve, file):
    server = serve(models, EXPLICIT, "--load-model=echo")
    config = json.dumps({"backend": "onnxruntime", "default_model_filename": file})
    answer = load(server, "folder_onnx", config=config)
    assert answer.status_code == 400
    assert "must be a path inside the version's folder, without '..'" in answer.json()["error"]


@pytest.mark.parametrize("name", ["../models/echo", "/etc", "a\0b", "..", "", "a\nb", "x" * 300])
def test_names_over_grpc_lead_nowhere_else(models, serve, name):
    server = serve(models, EXPLICIT, "--load-model=echo")
    client = server.clients.enter_context(InferenceServerClient(server.grpc))
    with pytest.raises(InferenceServerException, match=r"(?s)model name '.*' must"):
        client.load_model(name)
    assert http_ask(server, "echo")() == 1


def test_a_start_goes_on_without_what_cannot_be_loaded(models, serve):
    server = serve(models, "--exit-on-error=false")
    reasons = {entry["name"]: entry.get("reason", "") for entry in requests.post(f"{server.url}/v2/repository/index").json()}
    for name in ("fifo", "folder", "circle", "dangling", "memory", "device", "huge", "nested", "fifo_onnx", "fifo_python"):
        assert SAID[name] in reasons[name], name
    assert http_ask(server, "echo")() == 1


def test_polling_goes_on_beside_them(models, serve):
    server = serve(models, "--exit-on-error=false", "--model-control-mode=poll", "--repository-poll-secs=1")
    identity(models.parent / "made", "late")
    (models.parent / "made" / "late").rename(models / "late")
    ask = lambda: requests.get(f"{server.url}/v2/models/late/ready", timeout=5).status_code == 200  # noqa: E731
    wait_until(ask)
    assert http_ask(server, "echo")() == 1


def test_a_full_disk_refuses_an_upload_and_leaves_nothing(tmp_path, serve, full_disk):
    identity(tmp_path / "models")
    flags = (EXPLICIT, "--load-model=echo", "--allow-model-upload=true")
    server = serve(tmp_path / "models", *flags, environment={"TMPDIR": str(full_disk)})
    config = json.dumps({"backend": "python"})
    content = base64.b64encode(b"x" * (4 << 20)).decode()
    answer = load(server, "sent", config=config, **{"file:1/model.py": content})
    assert (answer.status_code, "No space left on device" in answer.text) == (500, True), answer.text
    assert [path.name for path in full_disk.iterdir() if path.name.startswith("naiad-model-")] == []
    assert http_ask(server, "echo")() == 1
