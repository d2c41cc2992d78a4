"""`WorkerSettings`: how the server treats worker processes, the same for all models.

Owns the values and their making from the command line, with Triton's settings of its Python backend.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from naiad.backends.python.settings import ENVIRONMENT_SETTINGS
from naiad.config.options import ServerOptions
from naiad.errors import invalid_argument
from naiad.memory.arena import MEBIBYTE, ArenaLimits

_SETTINGS_OF = "python"
_FIRST, _GROWTH, _TIMEOUT = "shm-default-byte-size", "shm-growth-byte-size", "stub-timeout-seconds"
_WITHOUT_EFFECT = {
    "shm-region-prefix-name": "shared memory has no names here",
    "thread-pool-size": "no thread waits for a worker here",
}
# Read by the backend itself, or for every backend.
_OTHERS = frozenset(("default-max-batch-size", *ENVIRONMENT_SETTINGS))
_MAX_DIGITS = 18

_log = logging.getLogger("naiad.execution")

_HOW_TO_RAISE = "Raise --worker-arena-limit-mb, or send less at a time."


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Times in seconds. 0 for `load_timeout_s` is no limit.

    `start_timeout_s` is from the start of the interpreter to its first word, before anything of the model is imported;
    `load_timeout_s` is for each of import, `auto_complete_config` and `initialize`; `stop_timeout_s` for `finalize` and the
    end. `arena` holds for either side of a worker's connection.
    """

    start_timeout_s: float = 30.0
    load_timeout_s: float = 0.0
    stop_timeout_s: float = 30.0
    restart_delay_s: float = 0.1
    restart_max_delay_s: float = 30.0
    arena: ArenaLimits = field(default_factory=lambda: ArenaLimits(how_to_raise=_HOW_TO_RAISE))


def settings_of(options: ServerOptions) -> WorkerSettings:
    """Return the settings that a command line stands for; what it says under --backend-config=python goes before the flags.

    Logs which of those change nothing. Raises INVALID_ARGUMENT for a value that isn't allowed.
    """
    given = options.backend_config.get(_SETTINGS_OF, {})
    for key in given:
        if key in _WITHOUT_EFFECT:
            _log.info("--backend-config=%s,%s changes nothing: %s", _SETTINGS_OF, key, _WITHOUT_EFFECT[key])
        elif key not in (_FIRST, _GROWTH, _TIMEOUT, *_OTHERS):
            _log.warning("--backend-config=%s,%s isn't known and changes nothing", _SETTINGS_OF, key)
    values = {key: _number(key, given[key]) for key in (_FIRST, _GROWTH, _TIMEOUT) if key in given}
    limit_bytes = options.worker_arena_limit_mb * MEBIBYTE
    return WorkerSettings(
        start_timeout_s=float(values.get(_TIMEOUT, options.worker_start_timeout_secs)),
        load_timeout_s=options.worker_load_timeout_secs,
        stop_timeout_s=options.worker_stop_timeout_secs,
        restart_delay_s=options.worker_restart_delay_secs,
        restart_max_delay_s=options.worker_restart_max_delay_secs,
        arena=ArenaLimits(
            first_bytes=_within(limit_bytes, _FIRST, values),
            growth_bytes=_within(limit_bytes, _GROWTH, values),
            limit_bytes=limit_bytes,
            how_to_raise=_HOW_TO_RAISE,
        ),
    )


def _number(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text)):
        raise invalid_argument(f"--backend-config={_SETTINGS_OF},{key} must be a whole number of at least 1; it is '{text}'")
    return int(text)


def _within(limit_bytes: int, key: str, values: dict[str, int]) -> int:
    size = values.get(key, min(MEBIBYTE, limit_bytes))
    if size > limit_bytes:
        limit = f"--worker-arena-limit-mb={limit_bytes // MEBIBYTE}"
        raise invalid_argument(f"--backend-config={_SETTINGS_OF},{key}={size} is more than {limit} allows")
    return size
