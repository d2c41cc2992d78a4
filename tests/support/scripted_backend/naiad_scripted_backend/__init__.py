"""A backend whose model does what a test says: Y is X, once it has noted, waited, slept or failed as files and parameters tell.

Config parameters:

* `control`: a folder. Each execution adds a line to `ran.jsonl` in it, the values of X as a JSON list, before anything else. An
  execution whose X has a value v waits while there is a file `hold-<v>`; loading waits while there is one `hold-load`.
* `fail_on`: an execution whose X has this value raises.
* `returns`: what is wrong with the outputs, a name of `_WRONG`.
* `refuse_load`: loading raises with this text.
* `at_load`: what loading does to the process it happens in, a name of `_AT_LOAD`. Before that it adds a line `<pid> <ppid>` to
  `loaded.txt` in the control folder.

Inputs: X FP32 and, optionally, MS INT32: the execution sleeps for the largest of the batch's, in milliseconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from naiad.backends.base import Array, BackendInstance, ModelFiles
from naiad.config.plan import InstancePlan, ModelPlan
from naiad.config.signature import ModelSignature
from naiad.errors import invalid_argument

LONGEST_HOLD_SECONDS = 12.0

_WRONG: dict[str, Callable[[Array], Any]] = {
    "a_row_too_few": lambda array: {"Y": array[:-1]},
    "a_row_too_many": lambda array: {"Y": np.concatenate([array, array[:1]])},
    "no_output": lambda _array: {},
    "none": lambda _array: None,
    "another_dtype": lambda array: {"Y": array.astype(np.int64)},
    "another_rank": lambda array: {"Y": array[..., None]},
    "a_list": lambda array: {"Y": array.tolist()},
    "a_scalar": lambda _array: {"Y": np.float32(1)},
}


def _exit() -> None:
    sys.stderr.write("the licence server said no\n")
    sys.stderr.flush()
    os._exit(3)


def _leave_a_child() -> None:
    # It has the process's pipes, and outlives it.
    if os.fork() == 0:
        time.sleep(3600)
    os._exit(3)


def _say_who() -> None:
    raise invalid_argument(f"oom_score_adj is {Path('/proc/self/oom_score_adj').read_text().strip()}")


_AT_LOAD: dict[str, Callable[[], Any]] = {
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "exit": _exit,
    "leave_a_child": _leave_a_child,
    "say_who": _say_who,
}


class ScriptedBackend:
    """See `naiad.backends.base.Backend`."""

    name: ClassVar[str] = "scripted"
    releases_gil: ClassVar[bool] = False
    default_instance_count: ClassVar[int] = 1

    @classmethod
    def signature(cls, files: ModelFiles) -> ModelSignature | None:
        """The config says everything."""
        return None

    @classmethod
    def load(cls, plan: ModelPlan, instance: InstancePlan, files: ModelFiles) -> BackendInstance:
        """Wait and fail as the parameters say."""
        made = _ScriptedInstance(plan.parameters)
        made.note_load()
        made.hold("load")
        if at_load := plan.parameters.get("at_load"):
            _AT_LOAD[at_load]()
        if text := plan.parameters.get("refuse_load"):
            raise invalid_argument(text)
        return made

    @classmethod
    def must_run_in_place(cls, plan: ModelPlan) -> bool:
        """It may wait for long."""
        return False


class _ScriptedInstance:
    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._control = Path(parameters["control"])
        self._fail_on = float(parameters.get("fail_on", "nan"))
        self._wrong = _WRONG[parameters["returns"]] if "returns" in parameters else None

    def execute(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Do what the values and the parameters say."""
        array = inputs["X"]
        values = [float(value) for value in array.flat]
        with (self._control / "ran.jsonl").open("a") as notes:
            notes.write(json.dumps(values) + "\n")
        for value in values:
            self.hold(f"{value:g}")
        if "MS" in inputs:
            time.sleep(float(inputs["MS"].max()) / 1000)
        if self._fail_on in values:
            raise ValueError(f"X has {self._fail_on:g}")
        return {"Y": array} if self._wrong is None else self._wrong(array)

    def note_load(self) -> None:
        """Say which process loads it, and whose child that is."""
        with (self._control / "loaded.txt").open("a") as notes:
            notes.write(f"{os.getpid()} {os.getppid()}\n")

    def hold(self, what: str) -> None:
        """Wait while the test holds `what`."""
        deadline = time.monotonic() + LONGEST_HOLD_SECONDS
        while (self._control / f"hold-{what}").exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"hold-{what} was never released")
            time.sleep(0.002)

    def close(self) -> None:
        """Nothing is held."""
