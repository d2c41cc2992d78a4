"""What is wrong with the parameter `naiad_traffic` of a configuration."""

from __future__ import annotations

from collections.abc import Iterator

from naiad.config.findings import Finding
from naiad.config.traffic import TRAFFIC_PARAMETER, traffic_mistakes
from naiad.proto import Message


def traffic_findings(config: Message) -> Iterator[Finding]:
    """Yield a text for each mistake."""
    if TRAFFIC_PARAMETER not in config.parameters:
        return
    for mistake in traffic_mistakes(config.parameters[TRAFFIC_PARAMETER].string_value):
        yield Finding(
            f"parameter '{TRAFFIC_PARAMETER}' for {config.name}: {mistake}",
            ("parameters", TRAFFIC_PARAMETER, "string_value"),
            'for example {"weights": {"1": 90, "2": 10}, "shadow": {"3": 0.1}}',
        )
