"""A model's requirements.txt becomes a venv: once for the same content, with pip's words when it fails."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import environments
import pytest

from naiad.backends.python.requirements import installed
from naiad.backends.python.settings import EnvironmentSettings
from naiad.errors import Code, InferenceServerError

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let pip take wheels from the test's own folder only."""
    environments.fake_numpy_wheel(tmp_path / "wheels")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))


@pytest.fixture
def settings(tmp_path: Path) -> EnvironmentSettings:
    return EnvironmentSettings(tmp_path / "cache", allows_requirements=True, timeout_s=100.0)


def _write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "requirements.txt").write_text(text)
    return folder / "requirements.txt"


def _value(venv: Path, expression: str) -> str:
    command = [str(venv / "bin" / "python"), "-I", "-c", f"print({expression})"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_venv_has_what_the_file_lists_and_numpy_and_nothing_of_the_server(tmp_path: Path, settings: EnvironmentSettings):
    environments.make_wheel(tmp_path / "wheels", "dep", "1.0", {"dep.py": "VALUE = 'one'\n"})
    venv = installed(_write(tmp_path / "m", "dep\n"), settings)
    assert _value(venv, "__import__('dep').VALUE, __import__('numpy').__version__") == "one 9.9"
    assert _value(venv, "__import__('importlib.util').util.find_spec('naiad')") == "None"


def test_a_local_wheel_is_found_from_the_files_folder(tmp_path: Path, settings: EnvironmentSettings):
    environments.make_wheel(tmp_path / "m" / "w", "dep", "1.0", {"dep.py": "VALUE = 1\n"})
    venv = installed(_write(tmp_path / "m", "./w/dep-1.0-py3-none-any.whl\n"), settings)
    assert _value(venv, "__import__('dep').VALUE") == "1"


def test_a_failure_shows_what_pip_said_in_error_and_log_and_leaves_nothing(
    tmp_path: Path, settings: EnvironmentSettings, caplog: pytest.LogCaptureFixture
):
    file = _write(tmp_path / "m", "no-such-package-at-all==7\n")
    with caplog.at_level(logging.INFO), pytest.raises(InferenceServerError) as caught:
        installed(file, settings)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert f"'{file}' can't be installed, pip failed:" in caught.value.message
    assert "No matching distribution found for no-such-package-at-all==7" in caught.value.message
    assert "No matching distribution found for no-such-package-at-all==7" in caplog.text
    assert not [path for path in settings.cache_directory.iterdir() if path.is_dir()]


def test_it_takes_no_longer_than_allowed(tmp_path: Path):
    settings = EnvironmentSettings(tmp_path / "cache", allows_requirements=True, timeout_s=0.001)
    with pytest.raises(InferenceServerError, match="it was ended after 0 s"):
        installed(_write(tmp_path / "m", ""), settings)


def test_settings_of_pip_for_the_server_do_not_lead_it_elsewhere(
    tmp_path: Path, settings: EnvironmentSettings, monkeypatch: pytest.MonkeyPatch
):
    for name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    assert _value(installed(_write(tmp_path / "m", ""), settings), "__import__('numpy').__version__") == "9.9"
    assert not (tmp_path / "elsewhere").exists()
