"""The table of backends: a name to the class that loads such models, imported when it is first asked for.

Owns the names of the built-in backends, the search among installed packages (entry points in the group `naiad.backends`) and
the order of the places where a name is looked up. No engine is imported before `find`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from naiad.backends.base import Backend, WorkerBackend
from naiad.backends.python.search import find_by_runtime, find_python_based, native_library
from naiad.errors import InferenceServerError, invalid_argument, unavailable

ENTRY_POINT_GROUP = "naiad.backends"

AnyBackend = type[Backend] | type[WorkerBackend]

_REQUIRED = ("name", "releases_gil", "default_instance_count", "signature", "load", "must_run_in_place")
_REQUIRED_WHEN_ISOLATED = ("name", "default_instance_count", "program")


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A backend that naiad brings: where its class is, and the extra that installs its engine ("" when it needs none)."""

    module: str
    class_name: str
    extra: str = ""


BUILT_IN = {
    "identity": BuiltIn("naiad.backends.identity.backend", "IdentityBackend"),
    "onnxruntime": BuiltIn("naiad.backends.onnx.backend", "OnnxRuntimeBackend", "onnx"),
    "python": BuiltIn("naiad.backends.python.backend", "PythonBackend"),
}


class BackendTable:
    """Finds backends by name; safe on several threads at once.

    A built-in name always means the built-in backend. `others` are entry points of other packages; by default those installed.
    They are looked at only when a name isn't built in, and only the one asked for is imported: a broken one harms no other.
    `own` are classes made for one server. `backend_directory` has a folder for each Python-based backend: they are the last to
    be looked at.
    """

    def __init__(
        self,
        others: Iterable[EntryPoint] | None = None,
        own: Mapping[str, AnyBackend] | None = None,
        backend_directory: Path | None = None,
    ) -> None:
        self._others = None if others is None else tuple(others)
        self._own = own or {}
        self._backend_directory = backend_directory

    def names(self) -> list[str]:
        """Return every name that needs no folder, sorted."""
        return sorted({*BUILT_IN, *self._own, *(entry_point.name for entry_point in self._entry_points())})

    def is_own(self, name: str) -> bool:
        """Return whether a backend is a class of this server only, which other processes don't have."""
        return name in self._own

    def find(self, name: str, runtime: str = "") -> AnyBackend:
        """Return the backend class called `name`, importing its engine; blocking.

        `runtime` is the config's: "model.py" makes a Python-based backend of any name. The native library of a backend that
        is known under its name here stands for that one. Raises INVALID_ARGUMENT for an unknown or ambiguous name and for a
        class that is no backend, UNAVAILABLE when its engine isn't installed or can't be imported, UNIMPLEMENTED for a native
        library.
        """
        if runtime and name != "python" and not (runtime == f"libtriton_{name}.so" and name in self.names()):
            return find_by_runtime(name, runtime, self._backend_directory)
        if name in self._own:
            return self._own[name]
        built_in = BUILT_IN.get(name)
        if built_in is not None:
            return _checked(name, _import_built_in(name, built_in))
        offers = [entry_point for entry_point in self._entry_points() if entry_point.name == name]
        if not offers:
            return find_python_based(name, self._backend_directory, self.names())
        if len({offer.value for offer in offers}) > 1:
            packages = ", ".join(sorted(_origin(offer) for offer in offers))
            raise invalid_argument(f"backend '{name}' is offered by more than one package: {packages}; uninstall all but one")
        return _checked(name, _import_other(offers[0]))

    def find_for(self, name: str, runtime: str, folders: Iterable[Path]) -> AnyBackend:
        """As `find`, for a model with these `folders`, whose own native library goes before what else has the name.

        Raises UNIMPLEMENTED for such a library; one of a backend that is known here stands for that.
        """
        file = f"libtriton_{name}.so"
        if runtime in ("", file) and name not in self.names():
            for library in (folder / file for folder in folders):
                if library.is_file():
                    raise native_library(str(library))
        return self.find(name, runtime)

    def _entry_points(self) -> tuple[EntryPoint, ...]:
        return tuple(entry_points(group=ENTRY_POINT_GROUP)) if self._others is None else self._others


def _import_built_in(name: str, built_in: BuiltIn) -> object:
    try:
        module = import_module(built_in.module)
    except ImportError as error:
        if not built_in.extra:
            raise
        raise unavailable(
            f"backend '{name}' needs a package that can't be imported ({error}): pip install 'naiad[{built_in.extra}]'"
        ) from error
    return getattr(module, built_in.class_name)


def _import_other(entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except Exception as error:
        # Any code may run in a foreign import; what it raises must not look like a fault of the server.
        raise unavailable(
            f"backend '{entry_point.name}' of {_origin(entry_point)} can't be imported: {type(error).__name__}: {error}"
        ) from error


def _origin(entry_point: EntryPoint) -> str:
    package = entry_point.dist
    return f"'{entry_point.value}'" if package is None else f"package {package.name} {package.version} ('{entry_point.value}')"


def _checked(name: str, found: object) -> AnyBackend:
    required = _REQUIRED_WHEN_ISOLATED if getattr(found, "is_isolated", False) is True else _REQUIRED
    missing = [attribute for attribute in required if not hasattr(found, attribute)]
    if not isinstance(found, type) or missing:
        raise _not_a_backend(name, found, missing)
    if found.name != name:  # type: ignore[attr-defined]
        raise invalid_argument(f"backend '{name}' is found under that name but calls itself {found.name!r}")  # type: ignore[attr-defined]
    return found


def _not_a_backend(name: str, found: object, missing: list[str]) -> InferenceServerError:
    what = f"lacks {', '.join(missing)}" if missing else "isn't a class"
    return invalid_argument(f"backend '{name}' is no backend: {found!r} {what}")
