"""The models and programs of the pages on Python models and functions do what the pages say."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from server_process import ServerProcess

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "how-to"
FILE = re.compile(r"^```(?:python)?\n# models/(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (PAGES / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def files() -> dict[str, str]:
    return dict(FILE.findall((PAGES / "python-models.md").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve_for_module: Callable[..., ServerProcess]) -> ServerProcess:
    repository = tmp_path_factory.mktemp("models")
    written = files()
    # "with the same config.pbtxt", the page says.
    written["double_too/config.pbtxt"] = written["double/config.pbtxt"]
    for name, text in written.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return serve_for_module(repository)


def test_every_model_of_the_page_is_served(server: ServerProcess) -> None:
    names = {name.split("/")[0] for name in files()}
    assert names == {"double", "double_too", "double_batched", "count", "count_too", "quadruple"}


@pytest.mark.parametrize(("model", "factor"), [("double", 2), ("double_too", 2), ("double_batched", 2), ("quadruple", 4)])
def test_the_models_of_the_page_multiply(model: str, factor: int, server: ServerProcess) -> None:
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}]}
    answer = server.infer(model, body).json()
    assert answer["outputs"][0]["data"] == [factor * number for number in (1, 2, 3, 4, 5, 6)]


@pytest.mark.parametrize("model", ["double", "double_too"])
def test_both_ways_of_an_error_for_one_request_are_the_same_to_clients(model: str, server: ServerProcess) -> None:
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 0], "data": []}]}
    answer = server.infer(model, body)
    assert (answer.status_code, answer.json()) == (400, {"error": "X is empty"})


@pytest.mark.parametrize("model", ["count", "count_too"])
def test_the_streams_of_the_page_are_read_by_the_command_of_the_page(model: str, server: ServerProcess) -> None:
    [command] = [block for block in blocks("python-models.md", "sh") if block.startswith("curl")]
    command = command.replace("localhost:8000", server.http).replace("/count/", f"/{model}/")
    done = subprocess.run([*shlex.split(command), "--silent", "--fail"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r'"I":(\d+)', done.stdout) == ["0", "1", "2"]


def test_a_batched_model_is_tested_without_a_server_as_the_page_says() -> None:
    program = files()["double_batched/1/model.py"] + "\nimport numpy\n"
    program += 'print(Double().infer({"X": numpy.ones((3, 2), "f4")})["Y"].tolist())'
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[[2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]\n", "")


def test_the_function_of_the_page_is_served_in_a_program(tmp_path: Path) -> None:
    script, program, *_ = blocks("serve-a-function.md", "python")
    (tmp_path / "app.py").write_text(script, encoding="utf-8")
    program = f"from app import average\n{program}"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "[[3.]]"


def test_the_function_of_the_page_is_served_by_the_command_line(tmp_path: Path, serve: Callable[..., ServerProcess]) -> None:
    script = blocks("serve-a-function.md", "python")[0]
    (tmp_path / "app.py").write_text(script, encoding="utf-8")
    [command] = blocks("serve-a-function.md", "sh")
    server = serve(command.split()[2], directory=tmp_path)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 6]}]}
    assert server.infer("average", body).json()["outputs"][0]["data"] == [3]


def test_a_model_is_asked_without_a_socket_as_the_page_says(tmp_path: Path) -> None:
    for name in ("double/1/model.py", "double/config.pbtxt"):
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files()[name], encoding="utf-8")
    program = blocks("serve-a-function.md", "python")[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
