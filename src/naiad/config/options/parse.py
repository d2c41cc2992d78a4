"""From a command line to checked `ServerOptions`.

Owns the spellings (`--x=value`, `--x value`, flags without a value, repeated ones), the refusal of what doesn't exist and the
checks that involve several flags. Doesn't own the flags (`server_options`, `unbuilt`) nor the reading of one value (`kinds`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from naiad.config.options.access_options import conflict
from naiad.config.options.flag import Flag
from naiad.config.options.repository_options import check_model_control
from naiad.config.options.scheduling_options import check_cache, check_fairness
from naiad.config.options.server_options import ServerOptions, flag_table, with_metrics_beside_http
from naiad.config.options.tls_options import unused_flags
from naiad.config.options.unbuilt import UnbuiltFlag, unbuilt_flags
from naiad.errors import InferenceServerError, invalid_argument

_PATHS = "paths"
_VISIBLE_KEY = "--api-key: other users may see it in the list of processes; --api-key-file keeps the keys to the server"
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def click_parameters() -> list[click.Parameter]:
    """Return the parameters of the click command that takes the flags: texts only, `options_from_texts` reads them.

    Flags of Triton that are refused are among them, hidden, so that they get their own answer and not "unknown flag".
    """
    shown = [_click_option(flag) for flag in flag_table()]
    hidden = [click.Option([f"--{name}"], multiple=True, hidden=True) for name in unbuilt_flags()]
    return [*shown, *hidden, click.Argument([_PATHS], nargs=-1, metavar="[PATH | MODULE:FUNCTION]...")]


def parse_options(argv: Sequence[str]) -> ServerOptions:
    """Return the options that the arguments behind `naiad serve` stand for.

    Raises InferenceServerError (INVALID_ARGUMENT) naming the flag, the value and what is allowed.
    """
    command = click.Command("serve", params=click_parameters(), add_help_option=False)
    try:
        context = command.make_context("naiad serve", list(argv))
    except click.UsageError as error:
        raise invalid_argument(usage_text(error)) from error
    return options_from_texts(context.params)


def usage_text(error: click.UsageError) -> str:
    """Return what is wrong with a command line that click couldn't take apart, with the nearest flag that exists."""
    if not isinstance(error, click.NoSuchOption):
        return error.format_message()
    nearest = get_close_matches(error.option_name, error.possibilities or (), n=1, cutoff=0.0)
    advice = f"did you mean {nearest[0]}?" if nearest else "`naiad serve --help` lists all"
    return f"there is no flag {error.option_name}; {advice}"


def options_from_texts(texts: Mapping[str, Any]) -> ServerOptions:
    """Return the options for texts by field name, as click gives them: a sequence each, a bool for flags without a value.

    Raises InferenceServerError (INVALID_ARGUMENT).
    """
    given = dict(texts)
    bare = given.get(_PATHS, ())
    functions = tuple(text for text in bare if _is_function(text))
    given["model_repository"] = (*given.get("model_repository", ()), *(text for text in bare if text not in functions))
    notes = [note for flag in unbuilt_flags().values() for note in _refuse_or_note(flag, given)]
    notes += [_VISIBLE_KEY] if given.get("api_key") else []
    given.update(_from_environment(given))
    values = {flag.field_name: _value(flag, given[flag.field_name]) for flag in flag_table() if given.get(flag.field_name)}
    options = ServerOptions(**values, functions=functions)
    notes += [*unused_flags(options, values), *_unused_places(options, values)]
    options = replace(options, notes=tuple(notes))
    if not values.get("metrics_address"):
        options = with_metrics_beside_http(options)
    _check_together(options)
    return options


def _unused_places(options: ServerOptions, given: Collection[str]) -> Iterator[str]:
    """Yield a note for each flag that is `given` and says where gRPC listens, when that is HTTP's place."""
    for name in ("grpc_address", "grpc_port", "reuse_grpc_port"):
        if options.one_port and name in given:
            yield f"--{name.replace('_', '-')}: gRPC listens where HTTP does, by --one-port, so the value isn't used"


def _from_environment(given: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the texts of flags that the environment gives instead of the command line; a variable that is empty is a text."""
    return {
        flag.field_name: os.environ[flag.environment].split() or [""]
        for flag in flag_table()
        if flag.environment in os.environ and not given.get(flag.field_name)
    }


def _is_function(text: str) -> bool:
    """Return whether a bare argument is a module:function; a path that exists is a path."""
    return _FUNCTION.fullmatch(text) is not None and not Path(text).exists()


def _click_option(flag: Flag) -> click.Option:
    names = [*flag.spellings, flag.field_name]
    if not flag.kind.metavar:
        return click.Option(names, is_flag=True, default=False, help=flag.help)
    return click.Option(names, multiple=True, metavar=flag.kind.metavar, help=flag.help)


def _value(flag: Flag, texts: Any) -> Any:
    """Return the option's value; `texts` is True for a flag without a value."""
    values = [_parse(flag, text) for text in ([str(texts)] if texts is True else texts)]
    try:
        return flag.collect(values)
    except ValueError as error:
        raise invalid_argument(f"--{flag.name}: {error}") from error


def _parse(flag: Flag, text: str) -> Any:
    try:
        return flag.kind.parse(text)
    except ValueError as error:
        raise _wrong_value(flag, text) from error


def _wrong_value(flag: Flag, text: str) -> InferenceServerError:
    if flag.is_secret:
        place = f"--{flag.name}, or {flag.environment} in the environment,"
        return invalid_argument(f"{place} must be {flag.kind.allowed}; what is given isn't shown here")
    return invalid_argument(f"--{flag.name} must be {flag.kind.allowed}; it is '{text}'")


def _refuse_or_note(flag: UnbuiltFlag, given: Mapping[str, Any]) -> list[str]:
    texts = given.get(flag.name.replace("-", "_"), ())
    refused = [text for text in texts if not flag.accepts(text)]
    if refused:
        raise _refusal(flag, refused[0])
    return [f"--{flag.name}={texts[-1]}: {flag.note}"] if texts and flag.note else []


def _refusal(flag: UnbuiltFlag, text: str) -> InferenceServerError:
    if flag.accepted is None:
        return invalid_argument(f"--{flag.name}: {flag.reason}")
    return invalid_argument(f"--{flag.name}={text}: {flag.reason}")


def _check_together(options: ServerOptions) -> None:
    if not (options.model_repository or options.functions):
        raise invalid_argument(
            "--model-repository must be specified: give at least one folder of models, model folder, model file or "
            "module:function"
        )
    check_model_control(options)
    check_cache(options)
    check_fairness(options, has_api_keys=options.has_api_keys)
    _check_places(options)
    problem = conflict(options, [group.header for group in options.http_restricted_api])
    if problem:
        raise invalid_argument(problem)


def _check_places(options: ServerOptions) -> None:
    """Raise unless something is served, each service at a place of its own."""
    services = (
        ("HTTP requests", options.allow_http, options.http_address, options.http_port),
        ("GRPC requests", options.allow_grpc and not options.one_port, options.grpc_address, options.grpc_port),
        ("metrics requests", options.allow_metrics, options.metrics_address, options.metrics_port),
    )
    if not any(is_wanted for _, is_wanted, _, _ in services):
        raise invalid_argument(
            "--allow-http=false, --allow-grpc=false and --allow-metrics=false together leave nothing to serve"
        )
    taken: dict[str, str] = {}
    for what, is_wanted, address, port in services:
        is_unix = address.startswith("unix:")
        if not is_wanted or not (port or is_unix):
            continue
        place = address if is_unix else f"{address}:{port}"
        other = taken.setdefault(place, what)
        if other != what:
            advice = "; --one-port serves HTTP and gRPC on one" if "metrics" not in what else ""
            raise invalid_argument(
                f"The server cannot listen to {other} and {what} at the same address and port {place}{advice}"
            )
