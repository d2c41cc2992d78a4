"""The example of Python models works as its README says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from server_process import ServerProcess

EXAMPLE = Path(__file__).parents[2] / "examples" / "python_model"


@pytest.fixture(scope="module")
def server(serve_for_module: Callable[..., ServerProcess]) -> ServerProcess:
    return serve_for_module(EXAMPLE / "models")


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


def test_the_client_gets_the_right_answers(server: ServerProcess) -> None:
    run(sys.executable, EXAMPLE / "client.py", server.http)


def test_the_curl_command_of_the_readme_gets_a_response_a_word(server: ServerProcess) -> None:
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    [command] = re.findall(r"^curl (.*)$", readme, re.MULTILINE)
    output = run("curl", "--fail", "--silent", *shlex.split(command.replace("localhost:8000", server.http)))
    assert re.findall(r'"WORD":"(\w+)"', output) == ["one", "response", "a", "word"]


def test_the_models_leave_their_metric_and_their_line_in_the_log(server: ServerProcess) -> None:
    run(sys.executable, EXAMPLE / "client.py", server.http)
    assert server.metric("texts_scored_total") >= 3
    assert "[features features_0] features_0 is ready" in server.log()
