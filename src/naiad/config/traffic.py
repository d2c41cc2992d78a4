"""How a model's requests are spread over its versions: the settings and what is wrong with them.

Owns the form that a configuration's parameter `naiad_traffic` and the HTTP API share. What is done with them is
`core.traffic`'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from naiad.errors import InferenceServerError, invalid_argument

TRAFFIC_PARAMETER = "naiad_traffic"

DEFAULT_SHADOW_IN_FLIGHT = 16

_MOST_SHADOW_IN_FLIGHT = 10_000
_MOST_VERSIONS = 100
_MOST_WEIGHT = 1_000_000_000
_LONGEST_VERSION = 18
_LONGEST_SHOWN = 60
_MOST_SHOWN = 10
_MEMBERS = ("weights", "shadow", "max_shadow_in_flight")


@dataclass(frozen=True, slots=True)
class TrafficSettings:
    """Where requests go that name no version.

    `weights` are by version, in any unit, those of 0 left out; without any the latest version answers. `shadow` has the share
    of the requests (0 to 1) that a version gets a copy of; `max_shadow_in_flight` bounds the copies of the model that haven't
    ended.
    """

    weights: Mapping[int, float]
    shadow: Mapping[int, float]
    max_shadow_in_flight: int = DEFAULT_SHADOW_IN_FLIGHT

    @property
    def is_empty(self) -> bool:
        """Whether they say nothing: the latest version answers all, and nothing is copied."""
        return not (self.weights or self.shadow)

    def to_json(self) -> dict[str, Any]:
        """Return the form that `read_traffic` reads."""
        return {
            "weights": {str(version): weight for version, weight in self.weights.items()},
            "shadow": {str(version): share for version, share in self.shadow.items()},
            "max_shadow_in_flight": self.max_shadow_in_flight,
        }


NO_TRAFFIC = TrafficSettings({}, {})


def traffic_of(parameters: Mapping[str, str]) -> TrafficSettings | None:
    """Return what a configuration's parameters say, None when nothing. Raises INVALID_ARGUMENT with every mistake."""
    text = parameters.get(TRAFFIC_PARAMETER)
    return None if text is None else read_traffic(_parsed(text))


def read_traffic(value: Any) -> TrafficSettings:
    """Return the settings that a JSON value holds. Raises INVALID_ARGUMENT with every mistake."""
    mistakes = list(_mistakes(value))
    if mistakes:
        more = f"; {len(mistakes) - _MOST_SHOWN} more mistakes" if len(mistakes) > _MOST_SHOWN else ""
        raise invalid_argument("; ".join(mistakes[:_MOST_SHOWN]) + more)
    return TrafficSettings(
        _by_version(value.get("weights", {})),
        _by_version(value.get("shadow", {})),
        value.get("max_shadow_in_flight", DEFAULT_SHADOW_IN_FLIGHT),
    )


def traffic_mistakes(text: str) -> list[str]:
    """Return what is wrong with the text of a configuration's parameter."""
    try:
        read_traffic(_parsed(text))
    except InferenceServerError as error:
        return [error.message]
    return []


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid_argument(f"it isn't JSON: {error}, got {text[:100]!r}") from error


def _by_version(shares: Mapping[str, float]) -> dict[int, float]:
    """Return the shares above 0, by ascending version."""
    return {int(version): shares[version] for version in sorted(shares, key=int) if shares[version]}


def _mistakes(value: Any) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"it must be a JSON object with 'weights', 'shadow' or both, got {_shown(value)}"
        return
    for name in value:
        if name not in _MEMBERS:
            yield f"unknown member {_shown(name)}, allowed are {', '.join(map(repr, _MEMBERS))}"
    if "weights" not in value and "shadow" not in value:
        yield "it must have 'weights', 'shadow' or both"
    weights, shadow = value.get("weights", {}), value.get("shadow", {})
    mistakes = [
        *_share_mistakes("weights", weights, _MOST_WEIGHT),
        *_share_mistakes("shadow", shadow, 1),
    ]
    yield from mistakes
    if not mistakes:
        yield from _joint_mistakes(weights, shadow)
    limit = value.get("max_shadow_in_flight", DEFAULT_SHADOW_IN_FLIGHT)
    if type(limit) is not int or not 1 <= limit <= _MOST_SHADOW_IN_FLIGHT:
        yield f"'max_shadow_in_flight' is {_shown(limit)}, must be an integer from 1 to {_MOST_SHADOW_IN_FLIGHT}"


def _share_mistakes(member: str, shares: Any, most: float) -> Iterator[str]:
    if not isinstance(shares, dict):
        yield f"'{member}' is {_shown(shares)}, must be an object with a number for each version"
        return
    if len(shares) > _MOST_VERSIONS:
        yield f"'{member}' has {len(shares)} versions, at most {_MOST_VERSIONS} are allowed"
        return
    for version, share in shares.items():
        if not _is_version(version):
            yield f"'{member}' has the version {_shown(version)}, must be the name of a version's folder, like \"1\""
        if type(share) not in (int, float) or not 0 <= share <= most:
            yield f"'{member}' of version {_shown(version)} is {_shown(share)}, must be a number from 0 to {most}"


def _joint_mistakes(weights: Mapping[str, float], shadow: Mapping[str, float]) -> Iterator[str]:
    if weights and not any(weights.values()):
        yield "'weights' are all 0, one must be more; leave 'weights' empty for the latest version"
    for version in shadow:
        if shadow[version] and weights.get(version):
            yield f"version {version} is in 'weights' and in 'shadow', it can be in one of them only"


def _is_version(text: str) -> bool:
    is_number = text.isascii() and text.isdigit() and len(text) <= _LONGEST_VERSION
    return is_number and str(int(text)) == text


def _shown(value: Any) -> str:
    """Return a value as JSON has it, or its beginning."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    text = json.dumps(value[:_LONGEST_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
