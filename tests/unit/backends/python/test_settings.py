"""The settings of environments come from flags and from --backend-config."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.backends.python.settings import EnvironmentSettings, with_environment_flags
from naiad.config.options import ServerOptions
from naiad.errors import InferenceServerError


def test_the_cache_is_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "naiad" / "environments" == EnvironmentSettings.of({}).cache_directory


@pytest.mark.parametrize("value", ["", "relative"])
def test_without_such_a_folder_it_is_under_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str):
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path / ".cache" / "naiad" / "environments" == EnvironmentSettings.of({}).cache_directory


def test_flags_reach_every_backend_below_what_is_said_of_one(tmp_path: Path):
    options = ServerOptions(
        backend_config={"": {"a": "1"}, "x": {"allow-model-requirements": "false"}},
        allow_model_requirements=True,
        environment_cache_directory=tmp_path,
    )
    settings = with_environment_flags(options)
    assert settings["x"] == {"allow-model-requirements": "false"}
    assert settings[""] == {"a": "1", "allow-model-requirements": "true", "environment-cache-directory": str(tmp_path)}
    read = EnvironmentSettings.of(settings[""])
    assert (tmp_path, True) == (read.cache_directory, read.allows_requirements)


def test_without_flags_nothing_is_installed():
    settings = with_environment_flags(ServerOptions())
    assert settings == {"": {"allow-model-requirements": "false"}}
    assert not EnvironmentSettings.of(settings[""]).allows_requirements


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "", "x", "9" * 10])
def test_a_wrong_timeout_is_refused(value: str):
    with pytest.raises(InferenceServerError, match=r"environment-timeout-secs is '.*', must be a whole number of seconds"):
        EnvironmentSettings.of({"environment-timeout-secs": value})


def test_a_wrong_permission_is_refused():
    with pytest.raises(InferenceServerError, match="allow-model-requirements is 'maybe', must be true or false"):
        EnvironmentSettings.of({"allow-model-requirements": "maybe"})
