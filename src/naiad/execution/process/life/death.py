"""Why a worker process is gone, as operators and clients get to read it.

Owns the reasons, which are labels of a metric, the text, and the exception for a worker that can't be trusted further. Kills
nothing and watches nothing.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

Reason = Literal["exit", "signal", "out_of_memory", "hang", "memory_limit", "protocol", "start_failed", "stopped"]
"""exit: it ended by itself, whatever its code. signal: a signal that wasn't the server's. out_of_memory: the kernel killed it.
The others are the server's own doing: `execute` took too long, it held too much memory, it sent what no worker sends, it didn't
start, it was no longer needed.
"""

_TAIL = "; the end of its stderr:\n"


class BrokenWorkerError(Exception):
    """The worker sent what no worker sends: it can't be trusted further."""


@dataclass(frozen=True, slots=True)
class Death:
    """The end of one worker. `text` is a sentence, followed by the end of what the worker wrote to stderr."""

    reason: Reason
    text: str

    @property
    def headline(self) -> str:
        """The sentence alone, for the log, which has had the lines of stderr already."""
        return self.text.partition(_TAIL)[0]


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Whose worker it is: a model, its version, and the instance that lives in it."""

    model: str
    version: str
    instance: str

    def __str__(self) -> str:
        return f"model '{self.model}' ({self.instance})"


@dataclass(frozen=True, slots=True)
class Kill:
    """That the server killed a worker, and why; `detail` completes "was killed: …"."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known of a process that has ended.

    `returncode` is the exit code, or the negative number of the signal. `kill` is set when the server killed it, `is_starved`
    when the kernel has killed for lack of memory since the worker started.
    """

    pid: int
    returncode: int
    kill: Kill | None
    is_starved: bool
    stderr_tail: str


def death_of(ending: Ending, identity: WorkerIdentity) -> Death:
    """Return the death that `ending` is."""
    reason, what = cause_of(ending)
    text = f"the worker process of {identity}, pid {ending.pid}, {what}"
    if ending.stderr_tail:
        text = f"{text}{_TAIL}{ending.stderr_tail}"
    return Death(reason, text)


def cause_of(ending: Ending) -> tuple[Reason, str]:
    """Return why a process has ended, and how a sentence about it goes on."""
    if ending.returncode >= 0:
        return "exit", f"exited with code {ending.returncode}"
    is_killed = ending.returncode == -signal.SIGKILL
    if is_killed and ending.kill is not None:
        return ending.kill.reason, f"was killed: {ending.kill.detail}"
    if is_killed and ending.is_starved:
        return "out_of_memory", "was killed by SIGKILL, most likely by the kernel for lack of memory"
    return "signal", f"was killed by {_signal_name(-ending.returncode)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
