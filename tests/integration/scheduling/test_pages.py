"""The configurations and commands of the pages on warm-up, resources and priorities do what the pages say."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from model_folders import identity
from server_process import ServerProcess

PAGES = Path(__file__).parents[3] / "docs" / "how-to"
CONFIG = re.compile(r"^```\n# models/(\w+)/config.pbtxt\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def block(page: str, language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", (PAGES / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return found


def written(page: str, folder: Path, dims: str) -> list[str]:
    """Write the models of a page, which has the part of their configurations that matters; return their names."""
    parts = CONFIG.findall((PAGES / page).read_text("utf-8"))
    for name, more in parts:
        is_text = name == "texts"
        identity(folder / "models", name, "STRING" if is_text else "FP32", "1" if is_text else dims, more=more)
    return [name for name, _ in parts]


def test_the_samples_of_the_page_are_run(tmp_path, serve):
    assert written("warm-up.md", tmp_path, "4") == ["resnet", "texts"]
    subprocess.run([sys.executable, "-c", block("warm-up.md", "python")], cwd=tmp_path, check=True)
    server = serve(tmp_path / "models")
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    assert server.infer("resnet", body).status_code == 200


@pytest.fixture
def flags() -> list[str]:
    return shlex.split(block("share-resources.md", "sh"))[3:]


def test_the_models_of_the_page_share_resources(tmp_path, serve, flags):
    assert written("share-resources.md", tmp_path, "1") == ["detector", "segmenter"]
    server = serve(tmp_path / "models", *flags)
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
    assert [server.infer(name, body).status_code for name in ("detector", "segmenter") * 3] == [200] * 6


def test_less_than_an_instance_of_the_page_needs_fails_its_load(tmp_path, flags):
    written("share-resources.md", tmp_path, "1")
    server = ServerProcess(tmp_path / "models", *(flag.replace("memory:8", "memory:5") for flag in flags))
    assert server.wait() == 1
    assert 'Resource count for "memory" is limited to 5' in server.log()
    assert "the minimum required count is 6" in server.log()


def test_the_command_of_the_page_asks_with_priority_and_time_out(tmp_path, serve):
    assert written("priorities-and-time-outs.md", tmp_path, "2") == ["ranker"]
    server = serve(tmp_path / "models")
    command = block("priorities-and-time-outs.md", "sh").replace("localhost:8000", server.http)
    done = subprocess.run([*shlex.split(command), "--silent", "--fail"], capture_output=True, text=True, check=False)
    assert (done.returncode, '"data":[1.0,2.0]' in done.stdout) == (0, True), done
