"""What a backend is: a class that loads one kind of model file and runs a batch.

Owns the seam. A backend knows nothing of HTTP, queues, processes or other models. The contract that every backend passes is in
`tests/contracts`; how to add one from another package is in CONTRIBUTING.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from naiad.config.plan import InstancePlan, ModelPlan
from naiad.config.signature import ModelSignature

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where a model's files are and how the backend was configured on the command line.

    `path` is the model file (or folder) itself; `settings` are `--backend-config=<backend>,<key>=<value>` with the global ones
    below them; `parameters` are the config's.
    """

    model_name: str
    path: Path
    parameters: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    directory: Path = Path()
    """The model's folder."""
    shared: dict[str, Any] = field(default_factory=dict, compare=False)
    """What the copies of one model version share: a backend may keep here what one copy made for the next. They are loaded one
    after the other with the same `ModelFiles`, so it needs no lock, and it goes with the version.
    """


@dataclass(frozen=True, slots=True)
class WorkerProgram:
    """What a worker process runs: a Python model and the interpreter for it.

    `is_own_interpreter`: it is the server's, whose packages the model may import; another one gets to see nothing of them.
    `variables` are set in the worker's environment, beside the server's. `backend_directory` is the folder of a Python-based
    backend, whose `model.py` `model_file` then is.
    """

    interpreter: Path
    is_own_interpreter: bool
    variables: Mapping[str, str]
    model_file: Path
    model_directory: Path
    version_directory: Path
    backend_directory: Path | None = None


class BackendInstance(Protocol):
    """One loaded copy of a model."""

    def execute(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Run one batch: gathered arrays in, arrays out.

        Arrays have the plan's `backend_shape` (the first dim is the batch's size when the model batches) and the numpy dtype of
        the plan's datatype; they are C-contiguous and must not be written to. BF16 is uint16 bits, BYTES object arrays of
        `bytes`. `outputs` are the names wanted by any request of the batch: others may be left out. Called on one thread at a
        time, never the same instance twice at once. Raise InferenceServerError for an error with a code of its own; anything
        else reaches the client as INTERNAL with its text.
        """

    def close(self) -> None:
        """Give everything back; nothing runs any more. Called once, on any thread."""


@dataclass(frozen=True, slots=True)
class SingleRequest:
    """One request of a batch, for a model that takes requests one by one: arrays by input name, as `BackendInstance.execute`
    gets them but with this request's items only. `outputs` are the names that its client wants, `parameters` its custom ones.
    """

    inputs: Mapping[str, Array]
    outputs: tuple[str, ...] = ()
    parameters: Mapping[str, str | int | bool | float] = field(default_factory=dict)
    id: str = ""


@runtime_checkable
class RequestsInstance(Protocol):
    """A `BackendInstance` which wants the requests of a batch one by one: this is called in place of `execute`."""

    def execute_requests(self, requests: Sequence[SingleRequest], outputs: Sequence[str]) -> Sequence[Mapping[str, Array]]:
        """Run one batch; return arrays by output name for each request, in order. All else is as with `execute`."""


class Backend(Protocol):
    """One kind of model file. The class itself is in the table `backends.table`; it isn't instantiated before it is needed.

    A class may have `may_omit_outputs` True: a model then leaves out a wanted output by right. Otherwise that is an error.
    It may have a class method `takes_gpus() -> bool`: whether instances of KIND_AUTO go on GPUs where there are any. Without it
    they stay on the CPU.
    """

    name: ClassVar[str]
    releases_gil: ClassVar[bool]
    """Whether `execute` computes without the GIL: only such models may run in place on the event loop."""
    default_instance_count: ClassVar[int]
    """How many instances an `instance_group` of KIND_CPU without a count makes."""

    @classmethod
    def signature(cls, files: ModelFiles) -> ModelSignature | None:
        """Return what the model file tells of its tensors, or None when it can't; blocking. Raises InferenceServerError
        (INVALID_ARGUMENT) when the file is not a model.
        """

    @classmethod
    def load(cls, plan: ModelPlan, instance: InstancePlan, files: ModelFiles) -> BackendInstance:
        """Load one copy; blocking, on a thread that isn't the loop's. Raises InferenceServerError with the reason when the
        model can't be loaded or doesn't fit its config.
        """

    @classmethod
    def must_run_in_place(cls, plan: ModelPlan) -> bool:
        """Return whether the model does no more work than a copy, so that it always runs on the event loop."""


class WorkerBackend(Protocol):
    """A backend whose models are Python code of their users: its instances live in worker processes, never in the server's.

    The class has `is_isolated` True; the table knows it by that.
    """

    name: ClassVar[str]
    is_isolated: ClassVar[bool]
    default_instance_count: ClassVar[int]

    @classmethod
    def program(cls, files: ModelFiles) -> WorkerProgram:
        """Return what a worker of this model runs; blocking, on a thread that isn't the loop's: it may make an environment.

        Raises InferenceServerError when the model's file or environment can't be had.
        """
