"""Path templates: how a raw path finds its endpoint, and how the names in it are decoded.

Owns the rules of paths. They match as a whole and as they were sent: a trailing slash, `..` or an encoded slash never leads to
another endpoint. Only the names of models, repositories and regions are percent-decoded, after the match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote_to_bytes

from naiad.errors import invalid_argument, not_found
from naiad.frontends.http.admin.endpoint import Endpoint

Names = Mapping[str, bytes]

_PARAMETER = re.compile(r"\{(\w+)\}")
_OPTIONAL = re.compile(r"\[([^\]]*)\]")
_UNNAMEABLE = re.compile(r"[/\x00-\x1f\x7f]")
# More digits than any version has; int() of a very long text would take long.
_MOST_VERSION_DIGITS = 18


class Router:
    """Finds the endpoint of a path: the first in the table that matches."""

    __slots__ = ("_patterns",)

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._patterns = [(_pattern(endpoint.path), endpoint) for endpoint in endpoints]

    def find(self, raw_path: bytes) -> tuple[Endpoint, Names] | None:
        """Return the endpoint and the raw names in its path, or None."""
        for pattern, endpoint in self._patterns:
            match = pattern.fullmatch(raw_path)
            if match is not None:
                return endpoint, {name: value for name, value in match.groupdict().items() if value is not None}
        return None


def variants(path: str) -> list[str]:
    """Return the templates without brackets that `path` stands for: without the optional part, then with it."""
    if _OPTIONAL.search(path) is None:
        return [path]
    return [_OPTIONAL.sub("", path), _OPTIONAL.sub(r"\1", path)]


def parameters(path: str) -> list[str]:
    """Return the names of a template's parameters in their order."""
    return _PARAMETER.findall(path)


def decode_name(kind: str, raw: bytes) -> str:
    """Return a percent-encoded name as text, "" for an empty one.

    Raises INVALID_ARGUMENT for a name that nothing can have: not UTF-8, with "/" or a control character, "." or "..".
    """
    decoded = unquote_to_bytes(raw)
    try:
        name = decoded.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid_argument(f"the {kind} name {decoded!r} in the path isn't valid UTF-8") from error
    if name in (".", "..") or _UNNAMEABLE.search(name):
        raise invalid_argument(
            f"{name!r} in the path can't be a {kind} name: it may not be '.' or '..' nor have '/' or control characters"
        )
    return name


def decode_version(model: str, raw: bytes) -> str:
    """Return a version's digits without leading zeros, "" for none. Raises NOT_FOUND for a number that no version has."""
    if len(raw) > _MOST_VERSION_DIGITS:
        raise not_found(f"Request for unknown model: '{model}' version {raw[:32].decode()} is not found")
    return str(int(raw)) if raw else ""


def _pattern(path: str) -> re.Pattern[bytes]:
    """Return the expression of a template, which holds nothing else that is special in one."""
    with_groups = _PARAMETER.sub(_group, _OPTIONAL.sub(r"(?:\1)?", path))
    return re.compile(with_groups.encode())


def _group(parameter: re.Match[str]) -> str:
    name = parameter[1]
    return f"(?P<{name}>{'[0-9]+' if name == 'version' else '[^/]+'})"
