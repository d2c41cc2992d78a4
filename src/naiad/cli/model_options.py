"""What the commands on configurations share: the server's flags that change a configuration, and the search for models.

Owns the choice of those flags. Their meaning and checks are `config.options`'s, as in `naiad serve`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from naiad.config.options import Flag, ServerOptions, flag_table
from naiad.config.options.parse import options_from_texts
from naiad.errors import InferenceServerError

if TYPE_CHECKING:
    from naiad.backends.table import BackendTable
    from naiad.repository.layout import Naming
    from naiad.repository.loader import LoadSettings

_NAMES = (
    "disable-auto-complete-config",
    "model-config-name",
    "model-namespacing",
    "backend-config",
    "backend-directory",
    "host-policy",
    "min-supported-compute-capability",
)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What a command needs to look at models as `naiad serve` with the same flags would."""

    options: ServerOptions
    paths: tuple[Path, ...]
    backends: BackendTable
    settings: LoadSettings
    suffixes: tuple[str, ...]
    naming: Naming


def model_parameters(argument: str, *, is_one: bool) -> list[click.Parameter]:
    """Return the flags, and the argument for one or more paths."""
    paths = click.Argument(["paths"], nargs=1 if is_one else -1, required=True, metavar=argument)
    return [*(_option(flag) for flag in flag_table() if flag.name in _NAMES), paths]


def model_options(texts: Mapping[str, Any]) -> ModelOptions:
    """Return what the texts of `model_parameters` stand for. Raises click.UsageError."""
    given = dict(texts)
    if isinstance(given["paths"], str):
        given["paths"] = (given["paths"],)
    try:
        # A path is one, whatever it looks like: no function is served here.
        options = options_from_texts({**given, "paths": (), "model_repository": given["paths"]})
    except InferenceServerError as error:
        raise click.UsageError(error.message, click.get_current_context()) from error
    paths = tuple(place for place in options.model_repository if isinstance(place, Path))
    remote = [str(place) for place in options.model_repository if not isinstance(place, Path)]
    if remote:
        text = f"'{remote[0]}' is a URL: this command reads folders of this machine only, copy the models first"
        raise click.UsageError(text, click.get_current_context())
    from naiad.backends.python.settings import with_environment_flags  # noqa: PLC0415 - help doesn't need it
    from naiad.backends.table import BackendTable  # noqa: PLC0415
    from naiad.devices.machine import open_devices  # noqa: PLC0415
    from naiad.repository.loader import LoadSettings  # noqa: PLC0415
    from naiad.server.assembly import SINGLE_FILE_SUFFIXES, naming_of  # noqa: PLC0415

    try:
        devices, _ = open_devices(options.host_policy, options.min_supported_compute_capability)
    except InferenceServerError as error:
        raise click.UsageError(error.message, click.get_current_context()) from error
    settings = LoadSettings(not options.disable_auto_complete_config, with_environment_flags(options), devices)
    backends = BackendTable(backend_directory=options.backend_directory)
    return ModelOptions(options, paths, backends, settings, SINGLE_FILE_SUFFIXES, naming_of(options))


def _option(flag: Flag) -> click.Option:
    names = [*flag.spellings, flag.field_name]
    if not flag.kind.metavar:
        return click.Option(names, is_flag=True, default=False, help=flag.help)
    return click.Option(names, multiple=True, metavar=flag.kind.metavar, help=flag.help)
