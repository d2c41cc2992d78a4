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
from naiad.config.plan import ModelPlan
from naiad.errors import InferenceServerError, invalid_argument

INTRA_OP_THREADS = "intra_op_thread_count"
INTER_OP_THREADS = "inter_op_thread_count"
EXECUTION_MODE = "execution_mode"
MEM_ARENA = "enable_mem_arena"
MEM_PATTERN = "enable_mem_pattern"
ARENA_SHRINKAGE = "memory.enable_memory_arena_shrinkage"
GLOBAL_POOL = "enable-global-threadpool"
SESSION_PREFIX = "session."

GRAPH_LEVELS = {0: "all", -1: "basic", 1: "extended", 2: "none"}
"""`optimization.graph.level` to how far the engine optimises the graph."""

_FLAGS = {"1": True, "0": False, "true": True, "false": False}
_NO_SPINNING = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """How to open a session. Thread counts of 0 mean one for each core.

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
    entries: Mapping[str, str] = field(default_factory=dict)
    run_entries: Mapping[str, str] | None = None


def session_config(plan: ModelPlan, files: ModelFiles) -> SessionConfig:
    """Return the settings for `plan`. Raises INVALID_ARGUMENT with the setting's name, its value and what is allowed."""
    options = Options(files)
    pool = _pool_config(files)
    is_parallel = options.choice(EXECUTION_MODE, {"0": False, "1": True}, default=False)
    shrinkage = options.text(ARENA_SHRINKAGE)
    return replace(
        pool,
        intra_op_threads=pool.intra_op_threads if pool.uses_global_pool else options.whole(INTRA_OP_THREADS, 1),
        # Parallel execution exists to use the cores.
        inter_op_threads=pool.inter_op_threads
        if pool.uses_global_pool
        else options.whole(INTER_OP_THREADS, int(not is_parallel)),
        is_parallel=is_parallel,
        has_mem_arena=options.choice(MEM_ARENA, _FLAGS, default=True),
        has_mem_pattern=options.choice(MEM_PATTERN, _FLAGS, default=True),
        graph_level=_graph_level(plan),
        entries={**_NO_SPINNING, **options.with_prefix(SESSION_PREFIX)},
        run_entries={ARENA_SHRINKAGE: shrinkage} if shrinkage else None,
    )


def peek_config(files: ModelFiles) -> SessionConfig:
    """Return the settings for reading a model's signature: the engine parses the file and infers shapes, but prepares nothing
    for running.
    """
    return replace(
        _pool_config(files),
        has_mem_arena=False,
        has_mem_pattern=False,
        graph_level="none",
        entries={"session.disable_prepacking": "1"},
    )


def _pool_config(files: ModelFiles) -> SessionConfig:
    """Return what the command line says of the shared pool. The engine has one or none in a process: no model has a say."""
    settings = Options(replace(files, parameters={}))
    if not settings.choice(GLOBAL_POOL, _FLAGS, default=False):
        return SessionConfig()
    return SessionConfig(
        intra_op_threads=settings.whole(INTRA_OP_THREADS, 0),
        inter_op_threads=settings.whole(INTER_OP_THREADS, 1),
        uses_global_pool=True,
    )


class Options:
    """The parameters of a model above the settings of its backend, read one by one."""

    def __init__(self, files: ModelFiles) -> None:
        self._files = files

    def text(self, key: str) -> str | None:
        """Return the value as it was written, None where there is none."""
        return self._files.parameters.get(key, self._files.settings.get(key))

    def whole(self, key: str, default: int) -> int:
        """Return a whole number >= 0."""
        text = self.text(key)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit()):
            raise self.refusal(key, text, "a whole number >= 0 (0: one for each core)")
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
