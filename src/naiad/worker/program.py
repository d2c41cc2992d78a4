"""From a model's file to its class, in this interpreter.

Owns where the model's own modules are found: after the standard library, so that a `json.py` beside the model doesn't hide the
real one, and before installed packages, so that its `utils.py` isn't hidden by another's. A process loads one model.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from naiad.worker.messages import LoadMessage

_CLASS_NAME = "TritonPythonModel"
_API_FOLDER = Path(__file__).resolve().parent / "path"


def import_model(message: LoadMessage) -> type[Any]:
    """Import the model's file and return its class; a class of our own API comes adapted.

    Raises whatever the file raises, and ImportError when there is no such class in it.
    """
    file = Path(message["model_file"])
    _extend_path(message)
    package = "" if message["backend_directory"] else _version_package(message["version"], file.parent)
    return _model_class(_import_file(package, file), file)


def _import_file(package: str, file: Path) -> ModuleType:
    """Import `file` as a module of `package`, "" for none."""
    # A dot would name a module in a package.
    name = ".".join(filter(None, (package, file.stem.replace(".", "_"))))
    if "." not in file.stem:
        return importlib.import_module(name)
    if package:
        importlib.import_module(package)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _extend_path(message: LoadMessage) -> None:
    """Put the model's folders on the path: that of the version, that of the model, that of the backend."""
    names = ("version_directory", "model_directory", "backend_directory")
    wanted = [message[name] for name in names if message[name]]  # type: ignore[literal-required]
    model_parent = str(Path(message["model_file"]).parent)
    folders = list(dict.fromkeys([model_parent, *wanted]))
    position = standard_library_end(sys.path)
    sys.path[position:position] = folders
    importlib.invalidate_caches()


def standard_library_end(path: list[str]) -> int:
    """Return the index in `path` after the last entry of the standard library, 0 when it holds none.

    The folder of the model API's own name counts as one: a copy of Triton's `triton_python_backend_utils.py` beside a model
    must not hide it.
    """
    library = Path(sysconfig.get_path("stdlib"))
    last = 0
    for index, entry in enumerate(path, 1):
        folder = Path(entry)
        is_library = (
            folder in (library, _API_FOLDER)
            or folder.name == "lib-dynload"
            or (folder.suffix == ".zip" and "python" in folder.name)
        )
        if entry and is_library:
            last = index
    return last


def _version_package(version: str, folder: Path) -> str:
    """Make the version's folder a package, so that `from . import x` works in the model's file; return its name.

    A package made here sees this folder only: another folder `1` on the path doesn't mix in.
    """
    name = version
    if not (folder / "__init__.py").exists():
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        package.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        sys.modules[name] = package
    return name


def _model_class(module: ModuleType, file: Path) -> type[Any]:
    found = getattr(module, _CLASS_NAME, None)
    if found is None:
        return _own_class(module, file)
    if not isinstance(found, type):
        raise ImportError(f"'{_CLASS_NAME}' in {file} is a {type(found).__name__}, must be a class")
    if "naiad.model" in sys.modules and issubclass(found, sys.modules["naiad.model"].Model):
        return _adapted(found)
    return found


def _own_class(module: ModuleType, file: Path) -> type[Any]:
    """Return the adapted subclass of `naiad.model.Model` that `module` defines."""
    missing = f"{file} must define a class '{_CLASS_NAME}', or one subclass of naiad.model.Model"
    if "naiad.model" not in sys.modules:
        raise ImportError(missing)
    base = importlib.import_module("naiad.model").Model
    classes = [
        item
        for item in vars(module).values()
        if isinstance(item, type) and issubclass(item, base) and item is not base and item.__module__ == module.__name__
    ]
    if len(classes) != 1:
        names = ", ".join(item.__name__ for item in classes) or "none"
        raise ImportError(f"{missing}; it defines of the latter: {names}")
    return _adapted(classes[0])


def _adapted(own: type[Any]) -> type[Any]:
    """Return the class with Triton's contract for one of our own API's."""
    adapted: type[Any] = importlib.import_module("naiad.model.adapter").adapt(own)
    return adapted
