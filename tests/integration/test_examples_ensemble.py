"""The example of an ensemble works as its README says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from server_process import ServerProcess

pytestmark = pytest.mark.timeout(180)  # the first run on a checkout fetches the real model

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ensemble"


@pytest.fixture(scope="module")
def server(serve_for_module: Callable[..., ServerProcess]) -> ServerProcess:
    run(ROOT / "examples" / "prepare.py", timeout_s=120)
    return serve_for_module(ROOT / "examples" / "models", EXAMPLE / "models")


def run(*command: str | Path, timeout_s: float = 30) -> str:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_client_gets_the_right_answer_of_itself(server: ServerProcess) -> None:
    assert "client.py: python, ahead of the next by" in run(EXAMPLE / "client.py", server.grpc)


def test_files_are_told_by_their_content(server: ServerProcess) -> None:
    files = ("README.md", "Makefile", "examples/prepare.py")
    kinds = [line.split(": ")[1].split(",")[0] for line in run(EXAMPLE / "client.py", server.grpc, *files).splitlines()]
    assert kinds == ["markdown", "makefile", "python"]
