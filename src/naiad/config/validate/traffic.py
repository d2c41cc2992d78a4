"""What is wrong with the parameter `naiad_traffic` of a configuration, and what of it does nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from naiad.config.findings import Finding
from naiad.config.traffic import TRAFFIC_PARAMETER, traffic_mistakes, traffic_of
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


def unserved_traffic(config: Message, served: Collection[int]) -> Iterator[Finding]:
    """Yield a text for each version that the settings, which are right, name and that isn't among those to be served."""
    settings = traffic_of({name: parameter.string_value for name, parameter in config.parameters.items()})
    if settings is None:
        return
    for version in (*settings.weights, *settings.shadow):
        if version not in served:
            yield Finding(
                f"parameter '{TRAFFIC_PARAMETER}' for {config.name} names version {version}, which isn't served: "
                f"version_policy and the model's folder select {', '.join(map(str, sorted(served)))}",
                ("parameters", TRAFFIC_PARAMETER, "string_value"),
                "version_policy { all {} } serves every version that has a folder",
            )
