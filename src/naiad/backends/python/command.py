"""Running a program that makes an environment: pip, venv, conda-unpack.

Owns that it ends in time with all that it has started, that it ends with the server, and that what it says is kept.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TAIL_LINES = 20
_TAIL_CHARACTERS = 4000
# Runs the command, and kills it with its children when the thread that waits for it ends: PR_SET_PDEATHSIG tells of that.
_LAUNCHER = """
import ctypes, os, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    sys.exit(subprocess.call(sys.argv[2:]) & 255)
"""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended; `output` is its stdout and stderr together."""

    is_success: bool
    output: str

    @property
    def tail(self) -> str:
        """The end of the output, where programs say what went wrong."""
        lines = [line for line in self.output.splitlines() if line.strip()]
        return "\n".join(lines[-_TAIL_LINES:])[-_TAIL_CHARACTERS:] or "it said nothing"


def run_command(command: Sequence[str], variables: Mapping[str, str], cwd: Path, timeout_s: float) -> CommandResult:
    """Run `command` and wait; after `timeout_s` seconds it is killed with its children."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", _LAUNCHER, str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env=dict(variables),
        cwd=cwd,
        start_new_session=True,
    )
    with process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            output, _ = process.communicate()
            return CommandResult(False, f"{output}\nit was ended after {timeout_s:.0f} s")
        except BaseException:
            _kill(process)
            raise
    return CommandResult(process.returncode == 0, output)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
