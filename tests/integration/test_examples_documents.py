"""What the documents tell a newcomer to type works: README's commands against a server, CONTRIBUTING's backend in one."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import model_folders
import pytest
from server_process import ServerProcess

pytestmark = pytest.mark.timeout(180)  # the first run on a checkout fetches the real model

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve_for_module: Callable[..., ServerProcess]) -> ServerProcess:
    """What README's examples talk to: `identity` as in examples/models, and `add_sub` with its real files."""
    repository = tmp_path_factory.mktemp("models")
    prepared = subprocess.run([sys.executable, ROOT / "examples" / "prepare.py"], check=False, capture_output=True)
    assert prepared.returncode == 0, prepared.stderr
    for name in ("identity", "add_sub"):
        (repository / name).symlink_to(ROOT / "examples" / "models" / name)
    return serve_for_module(repository)


def at(server: ServerProcess, text: str) -> str:
    return text.replace("localhost:8000", server.http).replace("localhost:8002", server.metrics)


def curls() -> list[str]:
    [block] = [block for block in blocks("README.md", "sh") if "curl" in block]
    return [f"curl{command}" for command in block.split("curl")[1:]]


@pytest.mark.parametrize("command", curls(), ids=lambda command: shlex.split(command)[-1][:40].split("{")[0] or "curl")
def test_the_curl_commands_of_the_readme_get_answers(command: str, server: ServerProcess) -> None:
    arguments = shlex.split(at(server, command))
    done = subprocess.run([*arguments, "--fail", "--silent", "--show-error"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if "/infer" in command:
        outputs = {output["name"]: output["data"] for output in json.loads(done.stdout)["outputs"]}
        assert outputs == {"SUM": [11, 22, 33, 44], "DIFFERENCE": [-9, -18, -27, -36]}


def test_the_python_client_of_the_readme_gets_its_answer(server: ServerProcess) -> None:
    [program] = blocks("README.md", "python")
    done = subprocess.run([sys.executable, "-c", at(server, program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    numbers = [float(number) for number in done.stdout.strip("[]\n ").split()]
    assert numbers == list(range(16))


def test_the_python_model_of_the_readme_shouts(tmp_path: Path, serve: Callable[..., ServerProcess]) -> None:
    [model] = blocks("README.md", "py")
    folder = tmp_path / "models" / "shout" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(model, encoding="utf-8")
    body = {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [2, 1], "data": ["a", "b"]}]}
    assert serve(tmp_path / "models").infer("shout", body).json()["outputs"][0]["data"] == ["A", "B"]


@pytest.fixture
def scale_package(tmp_path: Path) -> Path:
    """The folder of CONTRIBUTING's package, as pip would install it."""
    [module] = blocks("CONTRIBUTING.md", "python")
    [project] = blocks("CONTRIBUTING.md", "toml")
    group, entry = re.findall(r'^\[project\.entry-points\."(.+)"\]\n(\w+ = ".+")$', project, re.MULTILINE)[0]
    folder = tmp_path / "site"
    info = folder / "naiad_scale-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "naiad_scale.py").write_text(module, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: naiad-scale\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n".replace('"', ""), encoding="utf-8")
    return folder


def scale_model(repository: Path, name: str, factor: str) -> None:
    model_folders.write_model(
        repository,
        name,
        f"""
        backend: "scale"
        max_batch_size: 8
        input [{{ name: "X" data_type: TYPE_FP32 dims: [ 2 ] }}]
        output [{{ name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }}]
        parameters {{ key: "factor" value {{ string_value: "{factor}" }} }}
        """,
    )


def test_the_backend_of_the_contributing_page_works(
    tmp_path: Path, scale_package: Path, serve: Callable[..., ServerProcess]
) -> None:
    repository = tmp_path / "models"
    scale_model(repository, "good", "2.5")
    scale_model(repository, "bad", "many")
    server = serve(repository, "--exit-on-error=false", environment={"PYTHONPATH": str(scale_package)})
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [2, 4]}]}
    assert server.infer("good", body).json()["outputs"][0]["data"] == [5, 10]
    assert "parameter 'factor' must be a number" in server.log()


MAKE_TARGETS = re.compile(r"^([a-z-]+):", re.MULTILINE)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "examples/README.md", "docs/decisions.md"])
def test_each_make_target_that_a_page_names_exists(page: str) -> None:
    targets = set(MAKE_TARGETS.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))
    assert named - targets == set()
