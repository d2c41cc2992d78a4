"""`WorkerSettings`: how the server treats worker processes, the same for all models.

Owns the values and their making from the command line, with Triton's settings of its Python backend.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from naiad.memory.arena import ArenaLimits

_log = logging.getLogger("naiad.execution")

_HOW_TO_RAISE = "Raise --worker-arena-limit-mb, or send less at a time."


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Times in seconds. 0 for `load_timeout_s` is no limit.

    `start_timeout_s` is from the start of the interpreter to its first word, before anything of the model is imported;
    `load_timeout_s` is for each of import, `auto_complete_config` and `initialize`; `stop_timeout_s` for `finalize`. `arena`
    holds for either side of a worker's connection.
    """

    start_timeout_s: float = 30.0
    load_timeout_s: float = 0.0
    stop_timeout_s: float = 30.0
    restart_delay_s: float = 0.1
    restart_max_delay_s: float = 30.0
    arena: ArenaLimits = field(default_factory=lambda: ArenaLimits(how_to_raise=_HOW_TO_RAISE))
