"""Python-based backends: a folder with a `model.py` that is shared by all models of the backend.

Owns the search in the backend directory and what is said when nothing is found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from naiad.backends.python.backend import MODEL_FILE, PythonBackend, python_based, python_by_runtime
from naiad.errors import InferenceServerError, invalid_argument, unimplemented

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


def find_python_based(name: str, backend_directory: Path | None, known: Sequence[str]) -> type[PythonBackend]:
    """Return the backend `name` of the backend directory (None: there is none).

    `known` are the backends that exist otherwise. Raises INVALID_ARGUMENT when the folder or its file isn't there,
    UNIMPLEMENTED when it holds a native library.
    """
    refuse_odd_name(name)
    if backend_directory is None:
        raise invalid_argument(
            f"{_not_found(name)} Known backends are: {', '.join(known)}; others come from packages with an entry point in the "
            "group 'naiad.backends', and from folders with a model.py in the folder that --backend-directory names"
        )
    folder = backend_directory / name
    if (folder / MODEL_FILE).is_file():
        return python_based(name, folder.absolute())
    library = folder / f"libtriton_{name}.so"
    if library.exists():
        raise native_library(str(library))
    if folder.is_dir():
        raise invalid_argument(f"{_not_found(name)} The folder '{folder}' has no {MODEL_FILE}")
    raise invalid_argument(f"{_not_found(name)} Known backends are: {', '.join(known)}; there is no folder '{folder}'")


def find_by_runtime(name: str, runtime: str, backend_directory: Path | None) -> type[PythonBackend]:
    """Return the backend of a model whose config names the file that runs it: `model.py`, in one of the model's folders or in
    the backend's. Raises INVALID_ARGUMENT for another file, UNIMPLEMENTED for a native library.
    """
    refuse_odd_name(name)
    if runtime == MODEL_FILE:
        return python_by_runtime(name, None if backend_directory is None else (backend_directory / name).absolute())
    if runtime.endswith(".so") and "/" not in runtime:
        raise native_library(runtime)
    raise invalid_argument(f"runtime '{runtime}' of backend '{name}' can't be used, '{MODEL_FILE}' is the only one that can")


def refuse_odd_name(name: str) -> None:
    """Raise INVALID_ARGUMENT for a name that can't be that of a folder in the backend directory."""
    if not _NAME.fullmatch(name):
        raise invalid_argument(
            f"{_not_found(name)} A backend's name is made of letters, digits and '_.+-', and begins with none of '.+-'"
        )


def native_library(library: str) -> InferenceServerError:
    """Return the error for a backend that is a shared library."""
    return unimplemented(f"'{library}' is a native backend, which Naiad can't load: its backends are Python packages and files")


def _not_found(name: str) -> str:
    return f"unable to find backend library for backend '{name}', try specifying runtime on the model configuration."
