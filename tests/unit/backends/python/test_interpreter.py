"""An environment's interpreter is asked what it is, once; one that workers can't run on is refused with the reason."""

from __future__ import annotations

import sys
from pathlib import Path

import environments
import numpy as np
import pytest

from naiad.backends.python.interpreter import check_interpreter, child_environment, interpreter_in, variables_of
from naiad.errors import Code, InferenceServerError

OWN = Path(sys.executable)


def _script(folder: Path, text: str) -> Path:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", ["python", "python3"])
def test_it_is_in_the_folder_bin(tmp_path: Path, name: str):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / name).touch(mode=0o755)
    assert tmp_path / "bin" / name == interpreter_in(tmp_path)


def test_what_cannot_be_executed_is_no_interpreter(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch(mode=0o644)
    (tmp_path / "bin" / "python3").mkdir()
    assert interpreter_in(tmp_path) is None
    assert interpreter_in(tmp_path / "nowhere") is None


def test_it_says_its_version_and_that_of_numpy():
    found = check_interpreter(OWN, {})
    assert (OWN, ".".join(map(str, sys.version_info[:3])), np.__version__) == (found.path, found.version, found.numpy)


def test_it_is_asked_once(tmp_path: Path):
    path = _script(tmp_path, f"echo x >> '{tmp_path}/asked'; exec '{OWN}' \"$@\"")
    assert check_interpreter(path, {}) == check_interpreter(path, {})
    assert (tmp_path / "asked").read_text() == "x\n"


def test_a_failure_is_not_remembered(tmp_path: Path):
    path = _script(tmp_path, f"test -e '{tmp_path}/mended' || exit 3; exec '{OWN}' \"$@\"")
    with pytest.raises(InferenceServerError, match="ended with 3"):
        check_interpreter(path, {})
    (tmp_path / "mended").touch()
    assert check_interpreter(path, {}).numpy == np.__version__


def test_what_start_files_print_does_no_harm(tmp_path: Path):
    assert check_interpreter(_script(tmp_path, f"echo hello; exec '{OWN}' \"$@\""), {}).numpy == np.__version__


def test_an_old_one_is_refused_with_its_version(tmp_path: Path):
    path = _script(tmp_path, """echo '{"version": [3, 9, 18], "numpy": null, "error": "gone"}'""")
    with pytest.raises(InferenceServerError, match=f"'{path}' is Python 3.9.18; Python models need 3.10 or newer") as caught:
        check_interpreter(path, {})
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7", "3.8", "3.9"])
def test_a_real_old_one_is_asked_and_refused(version: str):
    folders = sorted(environments.PYENV_VERSIONS.glob(f"{version}.*"))
    if not folders:
        pytest.skip(f"no Python {version} under {environments.PYENV_VERSIONS}")
    with pytest.raises(InferenceServerError, match=f"is Python {folders[0].name}; Python models need 3.10 or newer"):
        check_interpreter(folders[0] / "bin" / "python", {})


def test_one_without_numpy_is_refused_with_how_to_install_it(tmp_path: Path):
    venv = environments.make_venv(tmp_path / "venv", has_numpy=False)
    path = venv / "bin" / "python"
    with pytest.raises(InferenceServerError) as caught:
        check_interpreter(path, {})
    assert "can't import numpy, which Python models need (ModuleNotFoundError" in caught.value.message
    assert f"{path} -m pip install numpy" in caught.value.message


@pytest.mark.parametrize("version", ["1.21.6", "1.9.0", "0.1"])
def test_one_with_an_old_numpy_is_refused_with_its_version(tmp_path: Path, version: str):
    path = _script(tmp_path, f"""echo '{{"version": [3, 10, 1], "numpy": "{version}", "error": null}}'""")
    with pytest.raises(InferenceServerError, match=f"has numpy {version}; Python models need 1.23 or newer"):
        check_interpreter(path, {})


@pytest.mark.parametrize("version", ["1.23.0", "2.0.0rc1", "10.1", "from a fork"])
def test_newer_and_unknown_versions_of_numpy_are_taken(tmp_path: Path, version: str):
    path = _script(tmp_path, f"""echo '{{"version": [3, 10, 1], "numpy": "{version}", "error": null}}'""")
    assert check_interpreter(path, {}).numpy == version


@pytest.mark.parametrize("text", ["echo nonsense; exit 0", "exit 0", "echo some reason >&2; exit 1", "kill -9 $$"])
def test_a_program_that_is_no_python_is_refused_with_what_it_said(tmp_path: Path, text: str):
    with pytest.raises(InferenceServerError, match=r"doesn't work: .* said: (nonsense|nothing|some reason)"):
        check_interpreter(_script(tmp_path, text), {})


def test_one_that_cannot_start_is_refused(tmp_path: Path):
    path = tmp_path / "python"
    path.write_bytes(b"\x00\x01")
    path.chmod(0o755)
    with pytest.raises(InferenceServerError, match="can't be started: Exec format error"):
        check_interpreter(path, {})
    with pytest.raises(InferenceServerError, match="can't be read: No such file"):
        check_interpreter(tmp_path / "gone", {})


def test_a_venv_is_active_for_its_processes(tmp_path: Path):
    variables = variables_of(tmp_path)
    assert variables["PATH"].startswith(f"{tmp_path}/bin:")
    assert (str(tmp_path), "1") == (variables["VIRTUAL_ENV"], variables["PYTHONNOUSERSITE"])


def test_a_conda_environment_is_active_for_its_processes(tmp_path: Path):
    (tmp_path / "conda-meta").mkdir()
    assert str(tmp_path) == variables_of(tmp_path)["CONDA_PREFIX"]
    assert "VIRTUAL_ENV" not in variables_of(tmp_path)


def test_variables_of_the_servers_own_environment_are_not_passed_on(monkeypatch: pytest.MonkeyPatch):
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH"):
        monkeypatch.setenv(name, "server's")
    variables = child_environment({"CONDA_PREFIX": "model's"})
    assert (variables["CONDA_PREFIX"], variables["PYTHONPATH"]) == ("model's", "server's")
    assert {"VIRTUAL_ENV", "PYTHONHOME"}.isdisjoint(variables)
