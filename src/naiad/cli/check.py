"""`naiad check`: what is wrong with the models of a repository, all at once, and the plan of each that is right.

Owns the command and its exit code. The checks are `repository.check`'s, the layout `check_report`'s.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import click

from naiad.cli.check_report import as_json, as_text
from naiad.cli.model_options import model_options, model_parameters

_HELP = (
    "Check all models of one or more repositories (or single models) without serving them: every mistake with its place in "
    "config.pbtxt, and the plan of each model that is right. Model files are opened as in the server; Python models "
    "run only with --run-models. Exits with 1 when a model can't be served."
)


def check_command() -> click.Command:
    """Return the command; its exit code is 0 when every model can be served, else 1."""
    form = click.Option(["--format", "form"], type=click.Choice(["text", "json"]), default="text", help="How to print it.")
    run = click.Option(
        ["--run-models"],
        is_flag=True,
        help="Run the auto_complete_config of Python models, as the server does: their code runs.",
    )
    parameters = [form, run, *model_parameters("REPOSITORY...", is_one=False)]
    return click.Command("check", params=parameters, callback=_check, help=_HELP)


def _check(form: str, run_models: bool, **texts: Any) -> int:
    options = model_options(texts)
    from naiad.repository.check import CheckSettings, check_repositories, worker_loader  # noqa: PLC0415 - help needs no numpy

    with worker_loader(options.options) if run_models else nullcontext() as workers:
        settings = CheckSettings(options.backends, options.settings, workers, options.naming)
        models = check_repositories(options.paths, options.suffixes, settings)
    click.echo(json.dumps(as_json(models), indent=2) if form == "json" else as_text(models))
    return int(any(model.errors for model in models))
