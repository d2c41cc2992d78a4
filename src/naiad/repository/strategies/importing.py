"""Makes a model's batch strategy of its file: runs the file, checks the class, makes the one object of this load.

Owns that mistakes are told with file and line, and that nothing of it stays behind in the interpreter. Blocking: it runs on a
loading thread, in the server's process.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable
from copy import deepcopy
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from itertools import count
from pathlib import Path
from typing import Any, cast

from naiad.config.plain_file import read_plain_file
from naiad.config.plan import ModelPlan
from naiad.errors import InferenceServerError, invalid_argument
from naiad.repository.strategies.files import strategy_file
from naiad.schedulers.custom.policy import BatchStrategy

CLASS_NAME = "BatchStrategy"
_MOST_BYTES = 1 << 20
_METHODS = (("begin", ()), ("include", ("batch", "request")))
_numbers = count(1)


class _FileLoader(SourceLoader):
    """Runs what was read of a file: it leaves no compiled file in the model's folder, and never takes an old one."""

    def __init__(self, path: str, code: bytes) -> None:
        self._path = path
        self._code = code

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str | bytes) -> bytes:
        return self._code


def load_strategy(plan: ModelPlan) -> tuple[BatchStrategy, str] | None:
    """Return the strategy of a model version and its file's path, None when the model has none.

    Raises INVALID_ARGUMENT with file and line for what is wrong in it.
    """
    path = strategy_file(plan)
    if path is None:
        return None
    name = f"naiad_batch_strategy_{next(_numbers)}"
    loader = _FileLoader(str(path), read_plain_file(path, _MOST_BYTES))
    module = module_from_spec(ModuleSpec(name, loader, origin=str(path)))
    # Dataclasses and typing look their module up there while they make a class.
    sys.modules[name] = module
    try:
        _guarded(plan, path, lambda: loader.exec_module(module))
        made = getattr(module, CLASS_NAME, None)
        if not isinstance(made, type):
            raise _mistake(plan, path, f"has no class {CLASS_NAME}")
        _check_call(plan, path, made, "__init__", ("config",))
        strategy = _guarded(plan, path, lambda: made(deepcopy(dict(plan.config))))
    finally:
        del sys.modules[name]
    _check_methods(plan, path, strategy)
    return cast("BatchStrategy", strategy), str(path)


def _guarded(plan: ModelPlan, path: Path, run: Callable[[], Any]) -> Any:
    """Return what `run` returns. Raises INVALID_ARGUMENT for whatever it raises, with the line in `path`."""
    try:
        return run()
    except BaseException as error:  # User code: neither SystemExit nor anything else may end a thread of the server.
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            line, text = error.lineno, error.msg
        else:
            line, text = lines[-1] if lines else None, str(error)
        raise _mistake(plan, path, f"{type(error).__name__}: {text}", line) from error


def _check_methods(plan: ModelPlan, path: Path, strategy: Any) -> None:
    for name, parameters in _METHODS:
        wanted = _signature(name, parameters)
        method = getattr(strategy, name, None)
        if not callable(method):
            raise _mistake(plan, path, f"class {CLASS_NAME} has no method {wanted}", _line_of(type(strategy)))
        line = _line_of(method)
        if inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
            raise _mistake(plan, path, f"{name} must be a plain method {wanted}, no coroutine and no generator", line)
        _check_call(plan, path, method, name, parameters)


def _check_call(plan: ModelPlan, path: Path, method: Callable[..., Any], name: str, parameters: tuple[str, ...]) -> None:
    try:
        inspect.signature(method).bind(*parameters)
    except TypeError as error:
        text = f"{name} must take what {_signature(name, parameters)} takes: {error}"
        raise _mistake(plan, path, text, _line_of(method)) from error


def _signature(name: str, parameters: tuple[str, ...]) -> str:
    return f"{name}({', '.join(('self', *parameters))})"


def _line_of(thing: Any) -> int | None:
    """Return the line where a function, or the constructor of a class, begins; None when it says none."""
    function = getattr(thing, "__init__", thing) if isinstance(thing, type) else thing
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return None if code is None else int(code.co_firstlineno)


def _mistake(plan: ModelPlan, path: Path, text: str, line: int | None = None) -> InferenceServerError:
    place = str(path) if line is None else f"{path}, line {line}"
    return invalid_argument(f"model '{plan.name}' version {plan.version}: batch strategy {place}: {text}")
