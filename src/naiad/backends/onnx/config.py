"""What a model's config and the command line say about an ONNX Runtime session.

Owns the names, values and defaults of the settings; applying them to the engine belongs to `session`. A model's own parameter
wins over `--backend-config=onnxruntime,<name>=<value>`.

By default a session has no threads of its own: it computes on the thread that runs its batch, so that thousands of models cost
no threads and parallel batches don't fight for cores. Threads that a config asks for sleep while they wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from naiad.backends.base import ModelFiles
from naiad.config.plan import InstancePlan, ModelPlan
from naiad.errors import InferenceServerError, invalid_argument

INTRA_OP_THREADS = "intra_op_thread_count"
INTER_OP_THREADS = "inter_op_thread_count"
EXECUTION_MODE = "execution_mode"
MEM_ARENA = "enable_mem_arena"
MEM_PATTERN = "enable_mem_pattern"
ARENA_SHRINKAGE = "memory.enable_memory_arena_shrinkage"
GLOBAL_POOL = "enable-global-threadpool"
SESSION_PREFIX = "session."
MOST_THREADS = 1024

GRAPH_LEVELS = {0: "all", -1: "basic", 1: "extended", 2: "none"}
"""`optimization.graph.level` to how far the engine optimises the graph."""

_FLAGS = {"1": True, "0": False, "true": True, "false": False}
_NO_SPINNING = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """How to open a session. Thread counts of 0 mean one for each CPU that the loading thread may use.

    `graph_level` is a value of `GRAPH_LEVELS`; `entries` are the engine's own `session.*` settings; `run_entries` are those of
    each run; `uses_global_pool`: all sessions of the process compute on one pool, whose size the thread counts are.
    """

    intra_op_threads: int = 1
    inter_op_threads: int = 1
    is_parallel: bool = False
    has_mem_arena: bool = True
    has_mem_pattern: bool = True
    graph_level: str = "all"
    uses_global_pool: bool = False
    logs_warnings: bool = True
    entries: Mapping[str, str] = field(default_factory=dict)
    run_entries: Mapping[str, str] = field(default_factory=dict)


def session_config(plan: ModelPlan, instance: InstancePlan, files: ModelFiles) -> SessionConfig:
    """Return the settings for `instance`. Raises INVALID_ARGUMENT with the setting's name, its value and what is allowed."""
    options = Options(files)
    has_mem_arena = options.choice(MEM_ARENA, _FLAGS, default=True)
    return replace(
        _threads(files),
        has_mem_arena=has_mem_arena,
        has_mem_pattern=options.choice(MEM_PATTERN, _FLAGS, default=True),
        graph_level=_graph_level(plan),
        entries={**_NO_SPINNING, **options.with_prefix(SESSION_PREFIX)},
        run_entries=_run_entries(options, instance, has_mem_arena=has_mem_arena),
    )


def peek_config(files: ModelFiles) -> SessionConfig:
    """Return the settings for reading a model's signature: the engine parses the file and infers shapes, but prepares nothing
    for running.
    """
    return replace(
        _threads(files),
        has_mem_arena=False,
        has_mem_pattern=False,
        graph_level="none",
        # Loading says the same again.
        logs_warnings=False,
        entries={**_NO_SPINNING, "session.disable_prepacking": "1"},
    )


def _threads(files: ModelFiles) -> SessionConfig:
    # The engine has one shared pool or none in a process, so a single model has no say in that.
    backend = Options(replace(files, parameters={}))
    options = Options(files)
    is_parallel = options.choice(EXECUTION_MODE, {"0": False, "1": True}, default=False)
    if backend.choice(GLOBAL_POOL, _FLAGS, default=False):
        return SessionConfig(
            backend.whole(INTRA_OP_THREADS, 0), backend.whole(INTER_OP_THREADS, 1), is_parallel, uses_global_pool=True
        )
    # Parallel execution exists to use the cores.
    return SessionConfig(
        options.whole(INTRA_OP_THREADS, 1), options.whole(INTER_OP_THREADS, 0 if is_parallel else 1), is_parallel
    )


def _run_entries(options: Options, instance: InstancePlan, *, has_mem_arena: bool) -> dict[str, str]:
    text = options.text(ARENA_SHRINKAGE)
    if not text:
        return {}
    # The engine would refuse every run that shrinks an arena which isn't there.
    arenas = ["cpu:0"] * has_mem_arena + [f"gpu:{instance.device_id}"] * (instance.kind == "GPU")
    if not set(text.split(";")) <= set(arenas):
        raise options.refusal(
            ARENA_SHRINKAGE, text, f"arenas that instance '{instance.name}' has: {';'.join(arenas) or 'none'}"
        )
    return {ARENA_SHRINKAGE: text}


class Options:
    """The parameters of a model above the settings of its backend, read one by one."""

    def __init__(self, files: ModelFiles) -> None:
        self._files = files

    def text(self, key: str) -> str | None:
        """Return the value as it was written, None where there is none."""
        return self._files.parameters.get(key, self._files.settings.get(key))

    def whole(self, key: str, default: int) -> int:
        """Return a number of threads."""
        text = self.text(key)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and int(text) <= MOST_THREADS):
            raise self.refusal(key, text, f"a whole number from 0 to {MOST_THREADS} (0: one for each CPU)")
        return int(text)

    def choice(self, key: str, values: Mapping[str, bool], *, default: bool) -> bool:
        """Return what the text stands for in `values`."""
        text = self.text(key)
        if text is None:
            return default
        if text.lower() not in values:
            raise self.refusal(key, text, f"one of {', '.join(values)}")
        return values[text.lower()]

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return everything whose name begins with `prefix`."""
        everything = {**self._files.settings, **self._files.parameters}
        return {key: text for key, text in everything.items() if key.startswith(prefix)}

    def refusal(self, key: str, text: str, allowed: str) -> InferenceServerError:
        """Return the error for a value that isn't allowed."""
        where = "parameter" if key in self._files.parameters else "--backend-config setting"
        return invalid_argument(f"model '{self._files.model_name}': {where} '{key}' is '{text}', must be {allowed}")


def _graph_level(plan: ModelPlan) -> str:
    level = plan.config.get("optimization", {}).get("graph", {}).get("level", 0)
    if level not in GRAPH_LEVELS:
        raise invalid_argument(
            f"model '{plan.name}': 'optimization.graph.level' is {level}, must be 0 (all), -1 (basic), 1 (extended) or 2 (none)"
        )
    return GRAPH_LEVELS[level]
