"""The program of a worker process: `python …/worker/__main__.py CONTROL_FD DESCRIPTORS_FD PARENT FIRST GROWTH LIMIT CPUS NAME`.

The three sizes are those of its arena in bytes; CPUS are those that it may run on, such as 0-3,8, or - for any; the name is for
the list of processes only.

Owns the process: what it may import of naiad, its signals, its death with the server. Run by path, since the model's
interpreter may be one that has no naiad: then only what a worker needs of it can be imported. A child that the model spawns
with `multiprocessing` runs the top of this file too, so that it finds the same modules.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_WORKER_FOLDER = Path(__file__).resolve().parent
_PACKAGE_FOLDER = _WORKER_FOLDER.parent
_SHARED = ("errors", "tensor", "memory", "worker", "model")
_PR_SET_PDEATHSIG = 1
_HOW_TO_RAISE = "Raise --worker-arena-limit-mb, or answer with less at a time."


class _NaiadFinder:
    """Finds naiad's worker packages, and of naiad nothing else, in an interpreter that has no naiad or another one."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        parts = name.split(".")
        if parts[0] != "naiad":
            return None
        if len(parts) > 1 and parts[1] not in _SHARED:
            raise ModuleNotFoundError(f"{name} isn't part of what a model's own environment can import of naiad", name=name)
        base = _PACKAGE_FOLDER.joinpath(*parts[1:])
        file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        folders = [str(base)] if base.is_dir() else None
        return importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders) if file.exists() else None


def _prepare_imports() -> None:
    """Make naiad's worker packages and `triton_python_backend_utils` importable, and this folder's modules not."""
    own = str(_WORKER_FOLDER)
    sys.path[:] = [entry for entry in sys.path if entry != own]
    found = importlib.util.find_spec("naiad")
    if found is None or found.origin is None or Path(found.origin).resolve().parent != _PACKAGE_FOLDER:
        sys.meta_path.insert(0, _NaiadFinder())
    shim = str(_WORKER_FOLDER / "path")
    if shim not in sys.path:
        from naiad.worker.program import standard_library_end  # noqa: PLC0415 — not importable before this point

        sys.path.insert(standard_library_end(sys.path), shim)


def _die_with(parent: int) -> None:
    """Let the system kill this process when the server dies, whatever the model is doing then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _bind(cpus: str) -> None:
    """Run on these CPUs only. It comes before any import, since libraries count the CPUs and start threads when imported."""
    if cpus != "-":
        runs = [part.split("-") for part in cpus.split(",")]
        os.sched_setaffinity(0, {cpu for run in runs for cpu in range(int(run[0]), int(run[-1]) + 1)})


def _go_on(_number: int, _frame: object) -> None:
    """A service manager may signal the whole group; requests in flight are answered first."""


def _prepare_forks(abandon: Callable[[], None]) -> None:
    """Make processes that the model forks leave the worker's socket alone, and end by SIGTERM, as pools end theirs: also by one
    that comes while they begin. Those that run another program get the default by themselves.
    """

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))

    def begin_child() -> None:
        if signal.getsignal(signal.SIGTERM) is _go_on:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        abandon()
        unblock()

    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=begin_child)


def _main(control_fd: int, descriptors_fd: int, parent: int, first_bytes: int, growth_bytes: int, limit_bytes: int) -> None:
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _go_on)
    import numpy as np  # noqa: PLC0415 — as late as possible: dying with the server comes first

    from naiad.memory.arena import ArenaLimits  # noqa: PLC0415
    from naiad.worker.api import host  # noqa: PLC0415
    from naiad.worker.frames import VERSION, Kind  # noqa: PLC0415
    from naiad.worker.loop import ModelLoop  # noqa: PLC0415
    from naiad.worker.runtime import Runtime  # noqa: PLC0415

    control, descriptors = socket.socket(fileno=control_fd), socket.socket(fileno=descriptors_fd)
    for sock in (control, descriptors):
        sock.setblocking(True)
        os.set_inheritable(sock.fileno(), False)
    runtime = Runtime(control, descriptors, ArenaLimits(first_bytes, growth_bytes, limit_bytes, how_to_raise=_HOW_TO_RAISE))
    host.install(runtime)
    _prepare_forks(runtime.abandon)
    runtime.say(Kind.HELLO, VERSION, {"pid": os.getpid(), "python": sys.version.split()[0], "numpy": np.__version__})
    ModelLoop(runtime).run()


_prepare_imports()

if __name__ == "__main__":
    _bind(sys.argv[7])
    _main(*map(int, sys.argv[1:7]))
