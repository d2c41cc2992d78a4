"""The `naiad` command: the group that its commands hang on, and the process's exit code.

Owns neither: each command is a module of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from naiad import __version__
from naiad.cli.check import check_command
from naiad.cli.config import config_group
from naiad.cli.serve import serve_command
from naiad.cli.version import version_command
from naiad.errors import InferenceServerError

_INTERRUPTED = 130
"""What a shell reports for a process that SIGINT has ended."""


def command_group() -> click.Group:
    """Return the `naiad` command with all its commands."""
    group = click.Group(
        "naiad",
        commands=[serve_command(), check_command(), config_group(), version_command()],
        help="A model inference server in pure Python, wire-compatible with NVIDIA Triton Inference Server.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    return click.version_option(__version__, prog_name="naiad", message="%(prog)s %(version)s")(group)


def run(argv: Sequence[str]) -> int:
    """Run the command that `argv` (without the program's name) asks for; return its exit code.

    A command line or a server that can't be used is one line on stderr and code 1, as scripts written for Triton expect.
    """
    try:
        return int(command_group().main(list(argv), prog_name="naiad", standalone_mode=False) or 0)
    except InferenceServerError as error:
        click.echo(f"naiad: error: {error.message}", err=True)
    except click.UsageError as error:
        error.show()
    except click.Abort:
        return _INTERRUPTED
    return 1


def main() -> None:
    """Run the command line of this process and exit; the console script `naiad` starts here."""
    sys.exit(run(sys.argv[1:]))
