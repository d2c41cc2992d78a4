"""Starting a worker's interpreter.

Owns the command, the environment and the descriptors that the child gets, and that it gets no others. Doesn't own what is said
to it afterwards.
"""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import naiad.worker
from naiad.backends.base import WorkerProgram
from naiad.devices.devices import ANY_CPU, CpuShare
from naiad.devices.ranges import ranges_text
from naiad.memory.arena import ArenaLimits

_MAIN = Path(naiad.worker.__file__).with_name("__main__.py")
_ANY = "-"


@dataclass(frozen=True, slots=True)
class Launched:
    """A child that was just started, and the server's ends of what leads to it. All are closed by who takes it."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    descriptors: socket.socket
    stdout_fd: int
    stderr_fd: int

    def discard(self) -> None:
        """End the child and close everything: nobody takes it."""
        self.process.kill()
        self.process.wait()
        self.control.close()
        self.descriptors.close()
        os.close(self.stdout_fd)
        os.close(self.stderr_fd)


def launch(program: WorkerProgram, name: str, arena: ArenaLimits, share: CpuShare = ANY_CPU) -> Launched:
    """Start a worker, which takes a millisecond; `arena` holds for the worker's own one. Raises OSError.

    `name` is shown in the list of processes. The system ends the worker together with the thread that started it: call this on
    the loop's thread.
    """
    with ExitStack() as theirs, ExitStack() as ours:
        control, their_control = _socketpair(ours, theirs)
        descriptors, their_descriptors = _socketpair(ours, theirs)
        stdout_fd, their_stdout = _pipe(ours, theirs)
        stderr_fd, their_stderr = _pipe(ours, theirs)
        passed = (their_control.fileno(), their_descriptors.fileno())
        cpus = ranges_text(share.cpus) or _ANY
        sizes = (arena.first_bytes, arena.growth_bytes, arena.limit_bytes)
        process = subprocess.Popen(
            [str(program.interpreter), str(_MAIN), *map(str, (*passed, os.getpid(), *sizes)), cpus, name],
            stdin=subprocess.DEVNULL,
            stdout=their_stdout,
            stderr=their_stderr,
            pass_fds=passed,
            env=environment(program, share),
            # A session of its own: ^C in a terminal is the server's to handle, and what the model forks can be ended with it.
            start_new_session=True,
        )
        ours.pop_all()
    return Launched(process, control, descriptors, stdout_fd, stderr_fd)


def environment(program: WorkerProgram, share: CpuShare = ANY_CPU) -> dict[str, str]:
    """Return the variables of a worker: the server's, those that a worker needs, and the program's own above them."""
    variables = dict(os.environ)
    if not program.is_own_interpreter:
        # They name the standard library of the server's interpreter.
        for name in ("PYTHONHOME", "PYTHONPLATLIBDIR", "__PYVENV_LAUNCHER__"):
            variables.pop(name, None)
    # What a crash leaves on stderr is part of the report of a worker's death.
    variables.setdefault("PYTHONFAULTHANDLER", "1")
    variables["PYTHONUNBUFFERED"] = "1"
    # Python takes cached bytecode for fresh when the source has the same size and was written within the same second: a model
    # that is reloaded right after an edit would run its old code.
    variables["PYTHONDONTWRITEBYTECODE"] = "1"
    if share.thread_count:
        # OpenMP, and for want of a variable of their own also OpenBLAS, MKL and numexpr, read this one.
        variables.setdefault("OMP_NUM_THREADS", str(share.thread_count))
    variables.update(program.variables)
    return variables


def _socketpair(ours: ExitStack, theirs: ExitStack) -> tuple[socket.socket, socket.socket]:
    our_end, their_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.callback(our_end.close)
    theirs.callback(their_end.close)
    our_end.setblocking(False)
    return our_end, their_end


def _pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    reading, writing = os.pipe()
    ours.callback(os.close, reading)
    theirs.callback(os.close, writing)
    os.set_blocking(reading, False)
    return reading, writing
