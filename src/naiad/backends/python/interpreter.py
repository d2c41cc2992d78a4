"""The Python interpreter of an environment: where it is, and whether a worker can run on it.

Owns what is asked of an interpreter: its version and numpy.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from naiad.errors import InferenceServerError, invalid_argument, unavailable

OLDEST_VERSION = (3, 10)
OLDEST_NUMPY = (1, 23)
"""The first with `from_dlpack`."""

_PROBE_TIMEOUT_S = 120.0
# The variables that tie an interpreter to one environment. PYTHONPATH stays: operators share code by it.
_TYING = ("PYTHONHOME", "PYTHONPLATLIBDIR", "__PYVENV_LAUNCHER__", "VIRTUAL_ENV", "CONDA_PREFIX")
# Also runs on interpreters that are too old: it says how old.
_PROBE = """
import json, sys
facts = {"version": list(sys.version_info[:3]), "numpy": None, "error": None}
try:
    import numpy
    facts["numpy"] = numpy.__version__
except Exception as error:
    facts["error"] = "%s: %s" % (type(error).__name__, error)
sys.stdout.write("\\n" + json.dumps(facts) + "\\n")
"""

_log = logging.getLogger("naiad.backends.python")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter that workers can run on; `version` and `numpy` are as in "3.12.1"."""

    path: Path
    version: str
    numpy: str


def interpreter_in(folder: Path) -> Path | None:
    """Return the interpreter of an environment's folder, None when there is none."""
    candidates = (folder / "bin" / "python", folder / "bin" / "python3")
    return next((path for path in candidates if path.is_file() and os.access(path, os.X_OK)), None)


def variables_of(folder: Path) -> dict[str, str]:
    """Return what a process in the environment sees beside the server's variables: what activating it sets."""
    path = os.environ.get("PATH", os.defpath)
    kind = "CONDA_PREFIX" if (folder / "conda-meta").is_dir() else "VIRTUAL_ENV"
    # Packages that the user installed for himself may be the server's, of other versions.
    return {"PATH": f"{folder / 'bin'}{os.pathsep}{path}", kind: str(folder), "PYTHONNOUSERSITE": "1"}


def check_interpreter(path: Path, variables: Mapping[str, str]) -> Interpreter:
    """Return what the interpreter at `path` says of itself, run with `variables` beside the server's; blocking.

    An interpreter that was found good is not asked again while its file stays the same. Raises INVALID_ARGUMENT when a worker
    can't run on it, UNAVAILABLE when it can't be asked.
    """
    try:
        # That of the link too: a venv that was made anew has the same interpreter behind it.
        modified_ns = (path.lstat().st_mtime_ns, path.stat().st_mtime_ns)
    except OSError as error:
        raise invalid_argument(f"the interpreter '{path}' can't be read: {error.strerror}") from error
    return _ask(path, modified_ns, tuple(sorted(variables.items())))


def child_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the server's environment variables without those of its own environment, and `variables` above them."""
    return {**{name: value for name, value in os.environ.items() if name not in _TYING}, **variables}


@lru_cache(maxsize=256)
def _ask(path: Path, _modified_ns: tuple[int, int], variables: tuple[tuple[str, str], ...]) -> Interpreter:
    facts = _facts(path, _run(path, dict(variables)))
    version = ".".join(map(str, facts["version"]))
    if tuple(facts["version"][:2]) < OLDEST_VERSION:
        raise invalid_argument(
            f"the interpreter '{path}' is Python {version}; Python models need {_text(OLDEST_VERSION)} or newer"
        )
    if facts["numpy"] is None:
        raise invalid_argument(
            f"the interpreter '{path}' (Python {version}) can't import numpy, which Python models need ({facts['error']}); "
            f"install it there: {path} -m pip install numpy"
        )
    if _is_older(facts["numpy"], OLDEST_NUMPY):
        raise invalid_argument(
            f"the interpreter '{path}' (Python {version}) has numpy {facts['numpy']}; Python models need "
            f"{_text(OLDEST_NUMPY)} or newer: {path} -m pip install -U numpy"
        )
    _log.info("the interpreter '%s' is Python %s with numpy %s", path, version, facts["numpy"])
    return Interpreter(path, version, facts["numpy"])


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _is_older(version: str, oldest: tuple[int, int]) -> bool:
    """Return whether `version`, such as "1.26.4" or "2.0.0rc1", is before `oldest`; one in another form isn't judged."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and (int(match[1]), int(match[2])) < oldest


def _run(path: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [str(path), "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            env=child_environment(variables),
            cwd=path.parent,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise unavailable(f"the interpreter '{path}' didn't answer within {_PROBE_TIMEOUT_S:.0f} s") from error
    except OSError as error:
        raise invalid_argument(f"the interpreter '{path}' can't be started: {error.strerror}") from error


def _facts(path: Path, answer: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    lines = answer.stdout.strip().splitlines()
    if answer.returncode or not lines:
        raise _no_python(path, answer)
    try:
        facts: dict[str, Any] = json.loads(lines[-1])
    except ValueError as error:
        raise _no_python(path, answer) from error
    return facts


def _no_python(path: Path, answer: subprocess.CompletedProcess[str]) -> InferenceServerError:
    said = (answer.stderr or answer.stdout).strip()[-1000:] or "nothing"
    return invalid_argument(
        f"the interpreter '{path}' doesn't work: asked for its version it ended with {answer.returncode} and said: {said}"
    )
