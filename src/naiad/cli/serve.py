"""`naiad serve`: read the flags and run the server.

Owns the command, its usage errors and the notes about flags that change nothing. Doesn't own the flags (`config.options`) nor
the server, which is imported only when it runs, so that help is quick.
"""

from __future__ import annotations

from typing import Any

import click

from naiad.cli.flag_help import flag_help
from naiad.config.options.parse import click_parameters, options_from_texts, usage_text
from naiad.errors import InferenceServerError

_SUMMARY = "Serve the models of one or more repositories, and Python functions (module:function)."


class ServeCommand(click.Command):
    """The command whose parameters are the flag table."""

    def __init__(self) -> None:
        super().__init__("serve", params=click_parameters(), callback=_serve, help=_SUMMARY)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See `click.Command.parse_args`. A usage error says the nearest flag. Raises click.UsageError."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(usage_text(error), ctx) from error

    def get_help(self, ctx: click.Context) -> str:
        """Return the flags by category (see `click.Command.get_help`)."""
        return flag_help(self.get_usage(ctx), _SUMMARY)


def serve_command() -> click.Command:
    """Return the command that serves until it is told to stop; its exit code is the server's."""
    return ServeCommand()


def _serve(**texts: Any) -> int:
    try:
        options = options_from_texts(texts)
    except InferenceServerError as error:
        raise click.UsageError(error.message, click.get_current_context()) from error
    for note in options.notes:
        click.echo(f"naiad: note: {note}", err=True)
    from naiad.server.process import run  # noqa: PLC0415 - brings numpy and the event loop, which help doesn't need

    return run(options)
