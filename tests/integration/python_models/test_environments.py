"""Python models on interpreters and packages other than the server's."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import environments
import pytest
from asking_models import ask, send, source, write
from server_process import ServerProcess
from waiting import wait_until

pytestmark = pytest.mark.timeout(60)

_OF_THE_SERVER = ("orjson", "uvicorn", "google.protobuf", "naiad.core", "naiad.config")

_OWN_API = """
from naiad.model import Context, Model, ModelConfig, Request, Response


class Doubler(Model):
    @staticmethod
    def configure(config: ModelConfig) -> None:
        config.set_max_batch_size(0)
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]})

    def infer(self, requests: list[Request]) -> list[Response]:
        return [Response({"Y": request.inputs["X"] * 2}) for request in requests]
"""


def _config(path: str | Path, more: str = "") -> str:
    return f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }} {more}'


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """Make a venv with a module `of_env`."""
    venv = environments.make_venv(tmp_path / "venv")
    environments.add_module(venv, "of_env", "NAME = 'venv'\n")
    return venv


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def _refusal(models: Path, *arguments: str) -> str:
    """Return what a server logs that can't load its models."""
    server = ServerProcess(models, *arguments)
    assert server.wait() == 1
    return server.log()


def _imports(name: str) -> str:
    return f"__import__('importlib').import_module({name!r}).__name__"


def test_a_model_runs_in_a_venv_with_its_packages_beside_one_in_the_servers(models: Path, venv: Path, serve):
    write(models, "other", "import of_env", config=_config(venv))
    write(models, "own")
    server = serve(models)
    assert ask(server, "other", "[of_env.NAME, __import__('sys').prefix]") == ["venv", str(venv)]
    assert ask(server, "own", "__import__('sys').prefix") == sys.prefix


@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13"])
def test_a_model_runs_on_another_python(models: Path, tmp_path: Path, serve, version: str):
    venv = environments.make_foreign_venv(tmp_path / "venv", version)
    write(models, "m", config=_config(venv))
    server = serve(models)
    assert ask(server, "m", "'%d.%d' % __import__('sys').version_info[:2]") == version
    assert ask(server, "m", "float(np.ones(3).sum())") == 3.0


def test_a_model_in_an_environment_sees_no_packages_of_the_server(models: Path, venv: Path, serve):
    write(models, "m", config=_config(venv))
    server = serve(models)
    for name in _OF_THE_SERVER:
        response = send(server, "m", _imports(name))
        assert response.status_code == 500
        assert "ModuleNotFoundError" in response.json()["error"]


def test_a_model_of_our_own_api_runs_in_an_environment(models: Path, venv: Path, serve):
    version = models / "m" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(_OWN_API)
    (models / "m" / "config.pbtxt").write_text(_config(venv))
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0]}]}
    assert serve(models).infer("m", body).json()["outputs"][0]["data"] == [2.0, 4.0]


@pytest.mark.parametrize("version", [None, "3.10", "3.13"])
def test_processes_that_a_model_spawns_run_in_its_environment(models: Path, tmp_path: Path, serve, version: str | None):
    folder = tmp_path / "venv"
    venv = environments.make_venv(folder) if version is None else environments.make_foreign_venv(folder, version)
    definitions = (
        "def prefix(_):\n    return sys.prefix\n\n\n"
        "def spawned():\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n        return pool.map(prefix, [1])\n"
    )
    write(models, "m", "import multiprocessing, sys", definitions, config=_config(venv))
    assert ask(serve(models), "m", "spawned()") == [str(venv)]


def test_programs_of_the_environment_are_found_first(models: Path, venv: Path, serve):
    program = venv / "bin" / "of-env"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    write(models, "m", "import subprocess", config=_config(venv))
    assert ask(serve(models), "m", "subprocess.run(['of-env'], capture_output=True, text=True).stdout") == "found\n"


def test_an_environment_in_the_models_folder_is_found_by_placeholder(models: Path, venv: Path, serve):
    folder = write(models, "m", "import of_env", config=_config("$$TRITON_MODEL_DIRECTORY/env"))
    (folder.parent / "env").symlink_to(venv)
    assert ask(serve(models), "m", "of_env.NAME") == "venv"


def test_an_archive_is_unpacked_once_for_all_models_and_servers(models: Path, tmp_path: Path, serve):
    packed = tmp_path / "packed"
    (packed / "bin").mkdir(parents=True)
    (packed / "site").mkdir()
    (packed / "site" / "of_env.py").write_text("NAME = 'archive'\n")
    environments.link_numpy(tmp_path)
    script = packed / "bin" / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="${{0%/bin/python}}/site:{tmp_path}" exec \'{sys.executable}\' "$@"\n')
    script.chmod(0o755)
    environments.pack(packed, tmp_path / "env.tar.gz")
    for name in ("m1", "m2"):
        folder = write(models, name, "import of_env", config=_config("$$TRITON_MODEL_DIRECTORY/env.tar.gz"))
        shutil.copy(tmp_path / "env.tar.gz", folder.parent)
    cache = tmp_path / "cache"
    servers = [serve(models, f"--environment-cache-directory={cache}") for _ in range(2)]
    files = {ask(server, name, "of_env.__file__") for server in servers for name in ("m1", "m2")}
    assert len(files) == 1
    assert Path(files.pop()).is_relative_to(cache)
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1


def test_a_broken_archive_fails_its_model_with_the_path(models: Path, tmp_path: Path):
    folder = write(models, "m", config=_config("env.tar.gz"))
    (folder.parent / "env.tar.gz").write_bytes(b"\x1f\x8b broken")
    log = _refusal(models, f"--environment-cache-directory={tmp_path / 'cache'}")
    assert f"model 'm': the environment '{folder.parent}/env.tar.gz' is no archive that can be unpacked" in log


@pytest.mark.parametrize("version", ["3.8", "3.9"])
def test_an_older_python_is_refused_with_its_version(models: Path, tmp_path: Path, version: str):
    interpreters = sorted(environments.PYENV_VERSIONS.glob(f"{version}.*/bin/python"))
    if not interpreters:
        pytest.skip(f"no Python {version} under {environments.PYENV_VERSIONS}")
    venv = environments.make_venv(tmp_path / "venv", has_numpy=False, interpreter=interpreters[0])
    write(models, "m", config=_config(venv))
    assert f"model 'm': the interpreter '{venv}/bin/python' is Python {version}." in _refusal(models)


def test_an_environment_without_numpy_is_refused_with_how_to_install_it(models: Path, tmp_path: Path):
    venv = environments.make_venv(tmp_path / "venv", has_numpy=False)
    write(models, "m", config=_config(venv))
    assert f"{venv}/bin/python -m pip install numpy" in _refusal(models)


def test_a_restarted_worker_runs_in_the_same_environment(models: Path, venv: Path, serve):
    write(models, "m", "import of_env, os", config=_config(venv))
    server = serve(models)
    assert send(server, "m", "os._exit(3)").status_code == 503
    wait_until(lambda: send(server, "m", "1").status_code == 200, what="the restarted worker")
    assert ask(server, "m", "of_env.NAME") == "venv"


@pytest.fixture
def offline(tmp_path: Path) -> dict[str, str]:
    """Return the variables with which pip takes wheels from a folder of the test only: our numpy and a `dep`."""
    wheels = tmp_path / "wheels"
    environments.make_numpy_wheel(wheels)
    environments.make_wheel(wheels, "dep", "1.0", {"dep.py": "NAME = 'dep'\n"})
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull}


def test_requirements_are_installed_when_the_operator_allows_it(models: Path, tmp_path: Path, offline, serve):
    folder = write(models, "m", "import dep")
    (folder.parent / "requirements.txt").write_text("dep\n")
    cache = f"--environment-cache-directory={tmp_path / 'cache'}"
    server = serve(models, "--allow-model-requirements=true", cache, environment=offline)
    assert ask(server, "m", "[dep.NAME, float(np.ones(2).sum())]") == ["dep", 2.0]
    server.stop()
    # Made once: the next server has no use for wheels.
    shutil.rmtree(tmp_path / "wheels")
    assert ask(serve(models, "--allow-model-requirements=true", cache, environment=offline), "m", "dep.NAME") == "dep"


def test_requirements_that_cannot_be_installed_fail_the_model_with_what_pip_said(models: Path, tmp_path: Path, offline):
    folder = write(models, "m")
    (folder / "requirements.txt").write_text("no-such-package-at-all\n")
    server = ServerProcess(
        models,
        "--allow-model-requirements=true",
        f"--environment-cache-directory={tmp_path / 'cache'}",
        environment=offline,
    )
    assert server.wait(40) == 1
    assert "requirements.txt' can't be installed, pip failed:" in server.log()
    assert "No matching distribution found for no-such-package-at-all" in server.log()


def test_without_permission_a_model_loads_without_its_requirements_and_the_log_says_how(models: Path, serve):
    folder = write(models, "m")
    (folder / "requirements.txt").write_text("no-such-package-at-all\n")
    server = serve(models)
    assert ask(server, "m", "1") == 1
    assert f"{folder}/requirements.txt' isn't used; start the server with --allow-model-requirements" in server.log()


@pytest.fixture
def backends(tmp_path: Path) -> Path:
    (tmp_path / "backends" / "asker").mkdir(parents=True)
    return tmp_path / "backends"


def test_models_of_a_python_based_backend_share_its_file_and_keep_their_data(models: Path, backends: Path, serve):
    imports = "import os, beside"
    (backends / "asker" / "model.py").write_text(source(imports))
    (backends / "asker" / "beside.py").write_text("NAME = 'of the backend'\n")
    for name in ("a", "b"):
        (models / name / "1").mkdir(parents=True)
        (models / name / "config.pbtxt").write_text('backend: "asker"')
        (models / name / "1" / "data.txt").write_text(f"data of {name}")
    server = serve(models, f"--backend-directory={backends}")
    data = "open(os.path.join(args['model_repository'], args['model_version'], 'data.txt')).read()"
    assert [ask(server, name, f"[{data}, beside.NAME, args['model_name']]") for name in ("a", "b")] == [
        ["data of a", "of the backend", "a"],
        ["data of b", "of the backend", "b"],
    ]


def test_a_python_based_backend_runs_in_its_own_archive(models: Path, backends: Path, tmp_path: Path, serve):
    (backends / "asker" / "model.py").write_text(source())
    environments.link_numpy(tmp_path)
    environments.archive_of(
        backends / "asker" / "pb_exec_env_model.py.tar.gz", [("bin/python", environments.wrapper_script(tmp_path))]
    )
    (models / "m" / "1").mkdir(parents=True)
    (models / "m" / "config.pbtxt").write_text('backend: "asker"')
    server = serve(models, f"--backend-directory={backends}", f"--environment-cache-directory={tmp_path / 'cache'}")
    assert ask(server, "m", "__import__('os').environ['VIRTUAL_ENV']").startswith(str(tmp_path / "cache"))


def test_a_backend_that_is_nowhere_fails_its_model_with_where_it_was_looked_for(models: Path, backends: Path):
    (models / "m" / "1").mkdir(parents=True)
    (models / "m" / "config.pbtxt").write_text('backend: "nowhere"')
    log = _refusal(models, f"--backend-directory={backends}")
    assert "unable to find backend library for backend 'nowhere', try specifying runtime on the model configuration" in log
    assert f"{backends}/nowhere" in log


def test_the_runtime_model_py_runs_a_models_own_file_under_another_backends_name(
    models: Path, serve: Callable[..., ServerProcess]
):
    write(models, "m", config='backend: "pytorch" platform: "pytorch_libtorch" runtime: "model.py"')
    assert ask(serve(models), "m", "args['model_name']") == "m"
