"""From keyword arguments to checked `ServerOptions`, for a server inside a Python program.

Owns the step from Python values to what the flags' kinds read. Doesn't own the flags (`server_options`).
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from naiad.config.options.flag import Flag
from naiad.config.options.repository_options import check_model_control
from naiad.config.options.server_options import ServerOptions, flag_table, with_metrics_beside_http
from naiad.config.options.unbuilt import unbuilt_flags
from naiad.errors import InferenceServerError, invalid_argument


def options_from_keywords(values: Mapping[str, Any]) -> ServerOptions:
    """Return the options for values by the flags' names as Python names: `http_port=0` is `--http-port=0`.

    A value is a Python one or the text that the flag takes; a flag that can be given several times takes a list. Neither a
    repository nor a service is needed. Raises InferenceServerError (INVALID_ARGUMENT) naming the option, the value and what is
    allowed.
    """
    flags = {flag.field_name: flag for flag in flag_table()}
    for name in values:
        if name not in flags:
            raise _unknown(name, flags)
    options = ServerOptions(**{name: _value(flags[name], value) for name, value in values.items()})
    check_model_control(options)
    return options if "metrics_address" in values else with_metrics_beside_http(options)


def _value(flag: Flag, value: Any) -> Any:
    values = value if isinstance(value, list | tuple) else [value]
    parsed = [_parse(flag, item) for item in values]
    if not parsed:
        return flag.default
    try:
        return flag.collect(parsed)
    except ValueError as error:
        raise invalid_argument(f"{flag.field_name}: {error}") from error


def _parse(flag: Flag, value: Any) -> Any:
    if not flag.kind.metavar:
        return bool(value)
    try:
        return flag.kind.parse(str(value).lower() if isinstance(value, bool) else str(value))
    except ValueError:
        shown = "what is given isn't shown here" if flag.is_secret else f"it is {value!r}"
        raise invalid_argument(f"{flag.field_name} must be {flag.kind.allowed}; {shown}") from None


def _unknown(name: str, flags: Mapping[str, Flag]) -> InferenceServerError:
    unbuilt = unbuilt_flags().get(name.replace("_", "-"))
    if unbuilt is not None:
        return invalid_argument(f"{name}: {unbuilt.reason}")
    nearest = get_close_matches(name, flags, n=1, cutoff=0.0)[0]
    return invalid_argument(f"there is no option {name}; did you mean {nearest}?")
