"""The help of `naiad serve`: the flags by category, laid out for the terminal.

Owns the layout of the terminal. `scripts/generate_docs.py` lays out the same table as a page.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from naiad.config.options import Flag, flag_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_FORM = (
    "Flags are written --flag=value or --flag value; BOOL is true, on, 1 or false, off, 0. "
    "A flag marked + may be given several times; the default stands in brackets."
)
_LEFT_WIDTH = 31
"""Characters of the left column. A value that doesn't fit goes to a second line; a flag that doesn't has a line of its own."""


def flag_help(usage: str, summary: str) -> str:
    """Return usage, summary and one table of flags a category, as wide as the terminal and with its colours."""
    from rich.console import Console  # noqa: PLC0415 - only help needs it, and it takes longer to import than to use

    console = Console(highlight=False, markup=False)
    with console.capture() as capture:
        console.print(usage, summary, _FORM, sep="\n\n")
        for category, flags in groupby(flag_table(), key=lambda flag: flag.category):
            console.print()
            console.print(category.value, style="bold")
            _print_flags(console, list(flags))
    return capture.get().rstrip("\n")


def _print_flags(console: Console, flags: list[Flag]) -> None:
    from rich.padding import Padding  # noqa: PLC0415 - see flag_help

    for is_long, group in groupby(flags, key=lambda flag: len(flag.name) + 2 > _LEFT_WIDTH):
        if not is_long:
            console.print(_table(list(group)))
            continue
        for flag in group:
            console.print(_left(flag), soft_wrap=True)
            console.print(Padding(_right(flag), (0, 0, 0, _LEFT_WIDTH + 2)))


def _table(flags: list[Flag]) -> Table:
    from rich.table import Table  # noqa: PLC0415 - see flag_help

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=_LEFT_WIDTH, overflow="fold")
    table.add_column()
    for flag in flags:
        table.add_row(_left(flag), _right(flag))
    return table


def _left(flag: Flag) -> str:
    repeat = " +" if flag.is_repeatable else ""
    return f"{', '.join(flag.spellings)} {flag.kind.metavar}".rstrip() + repeat


def _right(flag: Flag) -> str:
    unit = f" {flag.unit}" if flag.unit and flag.shown_default else ""
    return f"{flag.help} [{flag.shown_default}{unit}]"
