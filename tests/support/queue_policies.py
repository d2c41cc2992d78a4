"""A queue with a deadline and a limit, as config.pbtxt has it, for tests over each protocol."""

from __future__ import annotations

TIMEOUT_S = 0.3
# How late an answer may be on a busy machine; the model stays busy much longer.
LATE_S = 0.25


def policy(action: str) -> str:
    """Return the field for REJECT or DELAY."""
    return f"""dynamic_batching {{ default_queue_policy {{
        timeout_action: {action} default_timeout_microseconds: {int(TIMEOUT_S * 1e6)}
        allow_timeout_override: true max_queue_size: 2
    }} }}"""
