"""From a file to its class: each model gets its own modules, real ones stay real, and a fault says what is wrong.

Each import runs in a process of its own, as in a worker: it changes what that process can import.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_IMPORT = """
import json, sys
from naiad.worker import __main__ as worker  # Prepares imports as the worker's own start does.
from naiad.worker import faults
from naiad.worker.program import import_model
try:
    model = import_model(json.loads(sys.argv[1]))
    print(json.dumps({"said": model.said() if hasattr(model, "said") else None, "module": model.__module__}))
except BaseException as error:
    print(json.dumps({"error": faults.short(error)}))
"""

MODEL = "class TritonPythonModel:\n    @staticmethod\n    def said():\n        return {}\n"


def model(said: str = "'here'", before: str = "") -> str:
    return f"{before}\n{MODEL.format(said)}"


def write(folder: Path, **files: str) -> None:
    """Write files, "__" in a name standing for "/"."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def load(folder: Path, file: str = "1/model.py", backend: str = "") -> dict[str, str]:
    """Import the model in `folder` and return what it said, or the error's text."""
    message = {
        "name": "m",
        "version": "1",
        "model_file": file if Path(file).is_absolute() else str(folder / file),
        "model_directory": str(folder),
        "version_directory": str(folder / "1"),
        "backend_directory": backend,
    }
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, json.dumps(message)], check=True, capture_output=True, text=True, timeout=20
    )
    return json.loads(done.stdout)


def test_the_class_of_the_models_file_is_found(tmp_path):
    write(tmp_path, **{"1__model": model()})
    assert load(tmp_path) == {"said": "here", "module": "1.model"}


def test_modules_beside_the_file_and_in_the_models_folder_are_found(tmp_path):
    write(tmp_path, **{"1__model": model("near.X + far.X", "import near, far"), "1__near": "X = 'n'", "far": "X = 'f'"})
    assert load(tmp_path)["said"] == "nf"


def test_relative_imports_work_without_and_with_an_init_file(tmp_path):
    write(tmp_path, **{"1__model": model("near.X", "from . import near"), "1__near": "X = 'n'"})
    assert load(tmp_path)["said"] == "n"
    write(tmp_path, **{"1____init__": "X = 'package'", "1__model": model("X", "from . import X")})
    (tmp_path / "1" / "__init__.py").write_text("X = 'package'")
    assert load(tmp_path)["said"] == "package"


def test_a_models_module_hides_an_installed_one_but_none_of_the_standard_library(tmp_path):
    said = "[json.loads('1'), yaml.X, hasattr(string, 'ascii_letters')]"
    write(tmp_path, **{"1__model": model(said, "import json, yaml, string"), "1__json": "", "yaml": "X = 2", "1__string": ""})
    assert load(tmp_path)["said"] == [1, 2, True]


def test_a_copy_of_tritons_utils_beside_the_model_does_not_hide_the_model_api(tmp_path):
    write(
        tmp_path,
        **{
            "1__model": model("pb_utils.Tensor.__name__", "import triton_python_backend_utils as pb_utils"),
            "1__triton_python_backend_utils": "",
            "triton_python_backend_utils": "",
        },
    )
    assert load(tmp_path)["said"] == "Tensor"


@pytest.mark.parametrize("name", ["my-model.py", "my.model.v2.py", "2nd model.py", "my-model.v2.py"])
@pytest.mark.parametrize("has_init", [False, True])
def test_a_file_may_have_any_name(tmp_path, name, has_init):
    write(tmp_path, **{"1__near": "X = 'n'"})
    (tmp_path / "1" / name).write_text(model("near.X", "from . import near"))
    if has_init:
        (tmp_path / "1" / "__init__.py").touch()
    assert load(tmp_path, f"1/{name}")["said"] == "n"


def test_the_model_of_a_backend_is_that_of_the_backends_folder(tmp_path):
    backend = tmp_path / "backends" / "own"
    write(backend, model=model("[near.X, data.X]", "import near, data"), near="X = 'b'")
    write(tmp_path / "m", **{"1__model": model("'wrong'"), "1__near": "X = 'wrong'", "1__data": "X = 'd'"})
    assert load(tmp_path / "m", str(backend / "model.py"), str(backend))["said"] == ["b", "d"]


OWN = "from naiad.model import Model\nclass Mine(Model):\n    def infer(self, requests):\n        return []\n"


def test_a_class_of_our_own_api_comes_adapted(tmp_path):
    write(tmp_path, **{"1__model": OWN})
    assert "error" not in load(tmp_path)
    write(tmp_path, **{"1__model": OWN.replace("Mine", "TritonPythonModel") + "    said = staticmethod(lambda: 1)\n"})
    assert load(tmp_path) == {"said": None, "module": "1.model"}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("", "1/model.py must define a class 'TritonPythonModel', or one subclass of naiad.model.Model"),
        ("TritonPythonModel = 3", "1/model.py is a int, must be a class"),
        ("def TritonPythonModel(): pass", "1/model.py is a function, must be a class"),
        ("from naiad.model import Model", "it defines of the latter: none"),
        (OWN + OWN.replace("Mine", "Other"), "it defines of the latter: Mine, Other"),
        ("class TritonPythonModel(:", "SyntaxError: "),
        ("import nosuchmodule_", "ModuleNotFoundError: No module named 'nosuchmodule_'\n\nAt:\n  "),
        ("from . import nosuchmodule_", "ImportError: cannot import name 'nosuchmodule_' from '1'"),
        ("raise ValueError('é')", "ValueError: é"),
        ("raise SystemExit('no')", "SystemExit: no"),
    ],
    ids=["no class", "a number", "a function", "no subclass", "two", "syntax", "no module", "no neighbour", "raises", "exits"],
)
def test_a_fault_says_what_is_wrong(tmp_path, code, text):
    write(tmp_path, **{"1__model": code})
    error = load(tmp_path)["error"]
    assert text in error
    assert "model.py" in error
    assert "frozen" not in error


def test_a_file_that_is_not_there_is_named(tmp_path):
    (tmp_path / "1").mkdir()
    assert "model" in load(tmp_path)["error"]
