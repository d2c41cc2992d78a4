"""What this build can't do and mustn't ignore, since answers would be wrong or unsafe without it: the load is refused.

Fields that may be ignored with a warning are in `config.compile.unused`.
"""

from __future__ import annotations

from naiad.errors import unimplemented
from naiad.proto import Message


def refuse_unbuilt_scheduling(config: Message) -> None:
    """Raise UNIMPLEMENTED for a scheduler that isn't built yet."""
    choice = config.WhichOneof("scheduling_choice")
    if choice == "sequence_batching" and config.sequence_batching.iterative_sequence:
        name = "sequence_batching.iterative_sequence"
        raise unimplemented(f"model '{config.name}': {name} isn't built yet, the model can't be loaded")
