"""`naiad version`: which Naiad and which Python this is."""

from __future__ import annotations

import platform

import click

from naiad import __version__


def version_command() -> click.Command:
    """Return the command that prints one line: version, Python, machine."""
    return click.Command("version", callback=_print_version, help="Print the version of Naiad and of Python.")


def _print_version() -> None:
    click.echo(f"naiad {__version__} (Python {platform.python_version()}, {platform.system()} {platform.machine()})")
