"""Starting the server: what it takes, what it says, and one clear line when it can't."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from model_folders import identity, write_model
from onnx import TensorProto, helper, save
from server_process import ServerProcess
from waiting import wait_until


def onnx_model(path: Path) -> Path:
    """Write Y = X + X, FP32[batch, 3]."""
    shape = ["batch", 3]
    graph = helper.make_graph(
        [helper.make_node("Add", ["X", "X"], ["Y"])],
        "double",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, shape)],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def doubled(server: ServerProcess, model: str) -> list[float]:
    body = {"inputs": [{"name": "X", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
    answer = server.infer(model, body)
    assert answer.status_code == 200, answer.text
    return answer.json()["outputs"][0]["data"]


def fail_to_start(*arguments: str | Path) -> str:
    """Run a server that must not start; return its one line."""
    command = [
        sys.executable,
        "-m",
        "naiad",
        "serve",
        "--http-port=0",
        "--grpc-port=0",
        "--metrics-port=0",
        *map(str, arguments),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 1, ended
    lines = [line for line in ended.stderr.splitlines() if not re.match(r"[IWEV]\d{4} ", line)]
    assert "Traceback" not in ended.stderr
    assert lines, ended
    return "\n".join(lines)


def test_a_repository_a_model_folder_and_a_model_file_are_served(tmp_path, serve):
    identity(tmp_path / "repository", "echo")
    onnx_model(tmp_path / "folder" / "1" / "model.onnx")
    onnx_model(tmp_path / "files" / "net.onnx")
    server = serve(tmp_path / "repository", tmp_path / "folder", tmp_path / "files" / "net.onnx")
    index = requests.post(f"{server.url}/v2/repository/index", timeout=5).json()
    assert [(entry["name"], entry["version"], entry["state"]) for entry in index] == [
        ("echo", "1", "READY"),
        ("folder", "1", "READY"),
        ("net", "1", "READY"),
    ]
    assert doubled(server, "folder") == doubled(server, "net") == [2, 4, 6]


def test_it_says_what_was_loaded_where_it_listens_and_a_line_to_try(tmp_path, serve):
    identity(tmp_path, "echo")
    server = serve(tmp_path)
    wait_until(lambda: any("curl http://" in line for line in server.output))
    text = "\n".join(server.output)
    addresses = {"http": server.http, "grpc": server.grpc, "metrics": server.metrics}
    assert addresses == json.loads(re.search(r"NAIAD_LISTENING (.*)", text)[1])
    assert re.search(r"echo\s+1\s+READY", text)
    command = re.search(r"curl (http://\S+)", text)[1]
    assert requests.get(command, timeout=5).status_code == 200


def test_it_listens_on_this_machine_only(tmp_path, serve):
    identity(tmp_path, "echo")
    server = serve(tmp_path)
    assert server.http.startswith("127.0.0.1:")
    assert server.metrics.startswith("127.0.0.1:")


def test_an_ipv6_address_is_taken(tmp_path, serve):
    identity(tmp_path, "echo")
    server = serve(tmp_path, "--http-address=ipv6:[::1]")
    assert server.http.startswith("[::1]:")
    assert requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code == 200


def test_a_port_that_is_taken_is_named(tmp_path):
    identity(tmp_path, "echo")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"Socket '127.0.0.1:{port}' already in use" in fail_to_start(tmp_path, f"--http-port={port}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda root: root / "absent", "absent"),
        (lambda root: root, "nothing to load"),
    ],
    ids=["missing", "empty"],
)
def test_a_repository_without_models_is_one_clear_line(tmp_path, make, words):
    line = fail_to_start(make(tmp_path))
    assert words in line
    assert len(line.splitlines()) == 1


def test_a_typo_in_a_config_is_named_with_its_place(tmp_path):
    write_model(tmp_path, "typo", 'backend: "identity"\nmax_batch_sise: 4\n')
    line = fail_to_start(tmp_path)
    assert "config.pbtxt:2" in line
    assert "max_batch_sise" in line
    assert "max_batch_size" in line


def test_a_model_that_fails_is_in_the_index_and_the_others_serve(tmp_path, serve):
    identity(tmp_path, "echo")
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "model.onnx").write_bytes(b"this is no model")
    assert "broken" in fail_to_start(tmp_path)
    server = serve(tmp_path, "--exit-on-error=false")
    entries = {entry["name"]: entry for entry in requests.post(f"{server.url}/v2/repository/index", timeout=5).json()}
    assert entries["echo"]["state"] == "READY"
    assert entries["broken"]["state"] == "UNAVAILABLE"
    assert "model.onnx" in entries["broken"]["reason"]
    assert requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code == 400
    assert requests.get(f"{server.url}/v2/models/echo/ready", timeout=5).status_code == 200
    body = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
    assert server.infer("echo", body).status_code == 200


def test_readiness_that_is_not_strict_ignores_failed_models(tmp_path, serve):
    identity(tmp_path, "echo")
    write_model(tmp_path, "broken", "nonsense")
    server = serve(tmp_path, "--exit-on-error=false", "--strict-readiness=false")
    assert requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code == 200


def test_a_name_in_two_repositories_is_served_from_neither(tmp_path, serve):
    identity(tmp_path / "a", "echo")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    identity(tmp_path / "b", "other")
    server = serve(tmp_path / "a", tmp_path / "b", "--exit-on-error=false")
    entries = {entry["name"]: entry for entry in requests.post(f"{server.url}/v2/repository/index", timeout=5).json()}
    assert entries["echo"]["state"] == "UNAVAILABLE"
    assert entries["echo"]["reason"] == "model appears in two or more repositories"
    assert entries["other"]["state"] == "READY"


def test_a_stop_while_models_load_is_clean(tmp_path):
    for index in range(20):
        onnx_model(tmp_path / f"m{index}" / "1" / "model.onnx")
    server = ServerProcess(tmp_path).wait_listening()
    assert requests.get(f"{server.url}/v2/health/live", timeout=5).status_code == 200
    assert server.stop(signal.SIGTERM) == 0
    assert "Traceback" not in server.log()
    assert "was destroyed" not in server.log()


def test_many_models_need_few_threads(tmp_path, serve):
    for index in range(60):
        onnx_model(tmp_path / f"m{index}" / "1" / "model.onnx")
    server = serve(tmp_path)
    assert doubled(server, "m59") == [2, 4, 6]
    threads = len(list(Path(f"/proc/{server.pid}/task").iterdir()))
    assert threads < 20
