"""The parameter `naiad_early_refusal` of a configuration: whether a request that can't be in time is refused when it comes.

Owns its name and its form. Doesn't own the estimate (`schedulers.overload`).
"""

from __future__ import annotations

from collections.abc import Iterator

from naiad.config.findings import Finding
from naiad.proto import Message

EARLY_REFUSAL_PARAMETER = "naiad_early_refusal"
_VALUES = ("on", "off")


def refuses_early(config: Message) -> bool:
    """Return what a checked configuration says, True when it says nothing."""
    parameters = config.parameters
    return EARLY_REFUSAL_PARAMETER not in parameters or parameters[EARLY_REFUSAL_PARAMETER].string_value != "off"


def early_refusal_findings(config: Message) -> Iterator[Finding]:
    """Yield a text for a wrong value."""
    if EARLY_REFUSAL_PARAMETER not in config.parameters:
        return
    value = config.parameters[EARLY_REFUSAL_PARAMETER].string_value
    if value not in _VALUES:
        yield Finding(
            f"parameter '{EARLY_REFUSAL_PARAMETER}' for {config.name} is '{value}', must be on or off",
            ("parameters", EARLY_REFUSAL_PARAMETER, "string_value"),
        )
