"""Each Python model sees its own modules and files, whatever others have under the same names."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from asking_models import ask, write
from server_process import ServerProcess

_IMPORTS = "import utils\nfrom helpers import f\nfrom helpers.deep import g"
_BOTH_VERSIONS = "version_policy { all {} }"


def _helpers(folder: Path, name: str) -> None:
    (folder / "utils.py").write_text(f"NAME = '{name}'\n")
    (folder / "helpers").mkdir()
    (folder / "helpers" / "__init__.py").write_text(f"def f(): return 'f of {name}'\n")
    (folder / "helpers" / "deep.py").write_text(f"def g(): return 'g of {name}'\n")


def _repository(folder: Path) -> None:
    for name, version in (("a", 1), ("a", 2), ("b", 1)):
        _helpers(write(folder, name, _IMPORTS, version=version, config=_BOTH_VERSIONS), f"{name}{version}")
    c = write(folder, "c", "from . import utils\nimport json as j")
    (c / "utils.py").write_text("NAME = 'c1'\n")
    (c / "json.py").write_text("raise AssertionError('this is not the one of the standard library')\n")
    d = write(folder, "d", "import os, pathlib")
    (d / "data.txt").write_text("data of d")
    (write(folder, "my model.v2", "import utils", config='backend: "python"') / "utils.py").write_text("NAME = 'spaced'\n")
    write(
        folder,
        "f",
        "import dataclasses, pickle",
        "@dataclasses.dataclass\nclass Point:\n    x: int\n\n\ndef again():\n    return pickle.loads(pickle.dumps(Point(7))).x",
    )
    write(
        folder,
        "g",
        "import multiprocessing, os\nfrom concurrent.futures import ProcessPoolExecutor",
        "def double(x):\n    return 2 * x\n\n\n"
        "def spawned():\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    with context.Pool(1) as pool:\n"
        "        return pool.map(double, [1, 2])\n\n\n"
        "def executed(context):\n"
        "    with ProcessPoolExecutor(1, context and multiprocessing.get_context(context)) as pool:\n"
        "        return list(pool.map(double, [3, 4]))\n",
    )
    shared = write(folder, "h", "import of_the_model, of_the_version, of_everyone")
    (shared / "of_the_version.py").write_text("NAME = 'version'\n")
    (shared.parent / "of_the_model.py").write_text("NAME = 'model'\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve_for_module: Callable[..., ServerProcess]) -> ServerProcess:
    folder = tmp_path_factory.mktemp("modules")
    _repository(folder / "models")
    (folder / "shared").mkdir()
    (folder / "shared" / "of_everyone.py").write_text("NAME = 'everyone'\n")
    python_path = os.pathsep.join(filter(None, (str(folder / "shared"), os.environ.get("PYTHONPATH", ""))))
    return serve_for_module(folder / "models", environment={"PYTHONPATH": python_path})


@pytest.mark.parametrize(("model", "version"), [("a", 1), ("a", 2), ("b", 1)])
def test_each_version_sees_its_own_modules(server: ServerProcess, model: str, version: int):
    own = f"{model}{version}"
    assert ask(server, model, "[utils.NAME, f(), g()]", version) == [own, f"f of {own}", f"g of {own}"]


def test_a_relative_import_finds_the_module_beside_the_model(server: ServerProcess):
    assert ask(server, "c", "utils.NAME") == "c1"


def test_a_file_named_as_a_module_of_the_standard_library_hides_nothing(server: ServerProcess):
    assert ask(server, "c", "j.__file__") == json.__file__
    assert ask(server, "c", "j.dumps([1])") == "[1]"


@pytest.mark.parametrize(
    "path",
    [
        "os.path.join(args['model_repository'], args['model_version'], 'data.txt')",
        "pathlib.Path(__file__).with_name('data.txt')",
    ],
)
def test_a_models_data_is_found_by_path(server: ServerProcess, path: str):
    assert ask(server, "d", f"open({path}).read()") == "data of d"


def test_a_folder_with_a_space_and_a_dot_in_its_name_works(server: ServerProcess):
    assert ask(server, "my%20model.v2", "utils.NAME") == "spaced"


def test_a_class_of_the_model_can_be_pickled(server: ServerProcess):
    assert ask(server, "f", "again()") == 7


@pytest.mark.parametrize("expression", ["spawned()", "executed('spawn')", "executed('forkserver')", "executed(None)"])
def test_processes_that_a_model_starts_import_its_module_and_no_second_server(server: ServerProcess, expression: str):
    before = {child.pid for child in psutil.Process(server.pid).children()}
    assert ask(server, "g", expression) == ([2, 4] if expression == "spawned()" else [6, 8])
    assert before == {child.pid for child in psutil.Process(server.pid).children()}


def test_modules_are_found_in_the_version_the_model_and_the_operators_path(server: ServerProcess):
    names = ask(server, "h", "[of_the_version.NAME, of_the_model.NAME, of_everyone.NAME]")
    assert names == ["version", "model", "everyone"]


def test_models_have_processes_of_their_own_that_are_not_the_servers(server: ServerProcess):
    pids = [ask(server, model, "__import__('os').getpid()", version) for model, version in (("a", 1), ("a", 2), ("b", 1))]
    assert len({server.pid, *pids}) == 4


def test_what_a_model_changes_of_its_process_no_other_sees(server: ServerProcess):
    changes = (
        "[os.chdir('/'), os.environ.update(OF_D='1'), __import__('random').seed(1), __import__('sys').path.append('/of-d'),"
        " __import__('sys').modules.update(of_d=os)] and 1"
    )
    assert ask(server, "d", changes) == 1
    seen = "[__import__('os').environ.get('OF_D'), '/of-d' in __import__('sys').path, 'of_d' in __import__('sys').modules]"
    assert ask(server, "d", seen) == ["1", True, True]
    assert ask(server, "b", seen) == [None, False, False]
    assert ask(server, "b", "__import__('os').getcwd()") == str(Path.cwd())


def test_a_restarted_server_runs_the_changed_module(tmp_path: Path, serve: Callable[..., ServerProcess]):
    folder = write(tmp_path, "m", "import utils")
    # Of one size and, where the clock is coarse, of one time: stale bytecode would pass for fresh.
    for name in ("one", "two"):
        (folder / "utils.py").write_text(f"NAME = '{name}'\n")
        os.utime(folder / "utils.py", ns=(0, 0))
        server = serve(tmp_path)
        assert ask(server, "m", "utils.NAME") == name
        server.stop()
    assert not list(folder.rglob("__pycache__"))


def test_a_read_only_repository_is_enough(tmp_path: Path, serve: Callable[..., ServerProcess]):
    folder = write(tmp_path, "m", "import utils")
    (folder / "utils.py").write_text("NAME = 'read'\n")
    for path in (folder, folder.parent):
        path.chmod(0o555)
    try:
        assert ask(serve(tmp_path), "m", "utils.NAME") == "read"
    finally:
        for path in (folder, folder.parent):
            path.chmod(0o755)


@pytest.mark.parametrize("flag", ["--disable-auto-complete-config", "--log-info=true"])
def test_a_version_folder_without_its_file_fails_the_load_with_the_path(tmp_path: Path, flag: str):
    folder = write(tmp_path, "m", version=1, config='backend: "python" version_policy { all {} }')
    (folder.parent / "2").mkdir()
    server = ServerProcess(tmp_path, flag)
    assert server.wait() == 1
    assert f"there is no model file '{tmp_path}/m/2/model.py'" in server.log()


def test_a_missing_module_is_named_with_where_it_is_imported(tmp_path: Path):
    write(tmp_path, "m", "import no_such_module")
    server = ServerProcess(tmp_path)
    assert server.wait() == 1
    assert "No module named 'no_such_module'" in server.log()
    assert f"{tmp_path}/m/1/model.py" in server.log()


def test_a_relative_import_of_a_missing_module_shows_what_was_looked_for(tmp_path: Path):
    write(tmp_path, "m", "from . import missing")
    server = ServerProcess(tmp_path)
    assert server.wait() == 1
    assert "cannot import name 'missing'" in server.log()


def test_a_copy_of_a_model_under_another_name_is_independent(tmp_path: Path, serve: Callable[..., ServerProcess]):
    _helpers(write(tmp_path, "first", _IMPORTS), "first")
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    (tmp_path / "second" / "1" / "utils.py").write_text("NAME = 'second'\n")
    server = serve(tmp_path)
    assert [ask(server, name, "utils.NAME") for name in ("first", "second")] == ["first", "second"]
