"""`naiad config show|init|explain`: one model's completed configuration, a first one, and where each value comes from.

Owns the commands. Completion and checks are `repository.check`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from naiad.cli.check_report import remark_lines
from naiad.cli.model_options import ModelOptions, model_options, model_parameters
from naiad.errors import invalid_argument

if TYPE_CHECKING:
    from naiad.repository.check import CheckedModel

_SHOW = (
    "Print the completed configuration of a model, as a config.pbtxt that can be used in place of its own; comments on top say "
    "which values are derived. Exits with 1 when the model can't be served."
)
_INIT = "Write a first config.pbtxt from the model's file. One that is there is never overwritten."
_EXPLAIN = (
    "Print each value of a model's completed configuration and where it comes from: a line of the file, auto-complete, a "
    "default or the command line."
)
_SAMPLE = """# The model's file doesn't tell its tensors. Name them here, dims without the batch dimension:
# max_batch_size: 8
# input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
# output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def config_group() -> click.Group:
    """Return the group with its three commands."""
    commands = [("show", _show, _SHOW), ("init", _init, _INIT), ("explain", _explain, _EXPLAIN)]
    return click.Group(
        "config",
        commands=[
            click.Command(name, params=model_parameters("MODEL_DIR", is_one=True), callback=callback, help=text)
            for name, callback, text in commands
        ],
        help="Show, write or explain the configuration of one model.",
    )


def _show(**texts: Any) -> int:
    options = model_options(texts)
    model = _checked(options)
    if model.config is None:
        return _told(model)
    from naiad.config.pbtxt import write_config  # noqa: PLC0415 - see _checked

    derived = [f"# {each.field} {each.value}: {each.origin}" for each in _origins(model, options) if not each.is_written]
    click.echo("\n".join([*map(_one_line, derived), write_config(model.config)]), nl=False)
    return _told(model)


def _init(**texts: Any) -> int:
    options = model_options(texts)
    path = options.paths[0] / "config.pbtxt"
    if path.exists() or path.is_symlink():
        raise invalid_argument(f"'{path}' is there already; it isn't overwritten")
    model = _checked(options)
    if options.paths[0].is_file() or model.errors:
        _told(model)
        raise invalid_argument(f"'{path}' isn't written: there is no model folder that can be served without it")
    from naiad.config.pbtxt import write_config  # noqa: PLC0415 - see _checked

    # Defaults are left out: a first file says what is the model's own.
    config = model.stages[-2].config
    config.ClearField("version_policy")
    with path.open("x", encoding="utf-8") as file:
        file.write(write_config(config) + ("" if config.input else _SAMPLE))
    click.echo(f"wrote {path}")
    return 0


def _explain(**texts: Any) -> int:
    options = model_options(texts)
    model = _checked(options)
    if model.config is not None:
        for each in _origins(model, options):
            click.echo(_one_line(f"{each.field}: {each.value}    {each.origin}"))
    return _told(model)


def _origins(model: CheckedModel, options: ModelOptions) -> Any:
    from naiad.repository.check import origins  # noqa: PLC0415 - see _checked

    return origins(model, options.settings.of_backend(model.config.backend))


def _checked(options: ModelOptions) -> CheckedModel:
    from naiad.repository.check import CheckSettings, check_model_folder  # noqa: PLC0415 - brings numpy, which help doesn't need

    settings = CheckSettings(options.backends, options.settings, naming=options.naming)
    return check_model_folder(options.paths[0], options.suffixes, settings)


def _told(model: CheckedModel) -> int:
    """Print errors and warnings to stderr, since stdout may become a file; return the exit code."""
    for kind, remarks in (("error", model.errors), ("warning", model.warnings)):
        for remark in remarks:
            for line in remark_lines(kind, remark):
                click.echo(line, err=True)
    return int(bool(model.errors))


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")
