"""What is built to be installed serves Python models: the wheel holds all that a worker process needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from server_process import ServerProcess

ROOT = Path(__file__).parents[2]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder for the import path with what the wheel of this checkout holds."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    return tmp_path / "site"


def test_the_wheel_serves_python_models_and_functions(installed: Path, serve: Callable[..., ServerProcess]) -> None:
    models = ROOT / "examples" / "python_model" / "models"
    server = serve(models, "serve:colors", environment={"PYTHONPATH": str(installed)}, directory=ROOT / "examples" / "function")
    body = {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["What a day!"]}]}
    assert server.infer("review", body).json()["outputs"][0]["data"] == [0.5]
    body = {"inputs": [{"name": "image", "datatype": "UINT8", "shape": [1, 1, 1, 3], "data": [255, 255, 255]}]}
    assert [output["data"] for output in server.infer("colors", body).json()["outputs"]] == [[1, 1, 1], [1]]
    workers = [child.cmdline()[1] for child in psutil.Process(server.pid).children()]
    assert set(workers) == {str(installed / "naiad" / "worker" / "__main__.py")}
