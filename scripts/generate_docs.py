"""Write the pages that are made from the code: docs/reference/flags.md.

Run it after a change of the flag table; `--check` writes nothing and exits with 1 when a page is out of date.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from naiad.config.options import Flag, flag_table
from naiad.config.options.unbuilt import UnbuiltFlag, unbuilt_flags

FLAGS_PAGE = Path(__file__).parent.parent / "docs" / "reference" / "flags.md"

_HEAD = """# Flags of `naiad serve`

<!-- Made by scripts/generate_docs.py from src/naiad/config/options; don't edit. -->

Flags are written `--flag=value` or `--flag value`. A BOOL is `true`, `on`, `1` or `false`, `off`, `0`, in any case.
Of a flag given twice the later value counts, unless it is repeatable: then the values add up.
A bare path is a model repository; `module:function` is a Python function, run in a worker process.
Whatever is wrong with a command line ends the server with exit code 1 before it starts.

Flags marked *ours* are Naiad's own; the others are Triton's, with Triton's meaning.
"""

_UNBUILT_HEAD = """
## Triton's flags that aren't built yet

They are refused at the start, so that nothing is silently left out. Values that ask for nothing missing are accepted.

| flag | accepted values | otherwise |
|---|---|---|
"""


def flags_page() -> str:
    """Return the page on all flags, in Markdown."""
    parts = [_HEAD]
    for category, flags in groupby(flag_table(), key=lambda flag: flag.category):
        parts.append(f"\n## {category.value}\n\n| flag | default | meaning |\n|---|---|---|\n")
        parts.extend(_flag_row(flag) for flag in flags)
    parts.append(_UNBUILT_HEAD)
    parts.extend(_unbuilt_row(flag) for flag in sorted(unbuilt_flags().values(), key=lambda flag: flag.name))
    return "".join(parts)


def _flag_row(flag: Flag) -> str:
    spellings = ", ".join(f"`{spelling}`" for spelling in flag.spellings)
    metavar = f" {flag.kind.metavar}" if flag.kind.metavar else ""
    marks = ", ".join(mark for mark, is_set in (("repeatable", flag.is_repeatable), ("ours", flag.is_ours)) if is_set)
    left = _cell(f"{spellings}{metavar}") + (f" *({marks})*" if marks else "")
    default = f"{flag.shown_default} {flag.unit}".rstrip()
    return f"| {left} | {_cell(default)} | {_cell(f'{flag.help} Must be {flag.kind.allowed}.')} |\n"


def _unbuilt_row(flag: UnbuiltFlag) -> str:
    return f"| `--{flag.name}` | {_cell(_accepted(flag))} | {_cell(flag.reason)} |\n"


def _accepted(flag: UnbuiltFlag) -> str:
    if flag.accepted is None:
        return ""
    value = flag.accepted.allowed if flag.harmless is None else f"`{str(flag.harmless).lower()}`"
    return f"{value} ({flag.note})" if flag.note else value


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def main() -> int:
    """Write the pages, or compare them; return the exit code."""
    if "--check" not in sys.argv[1:]:
        FLAGS_PAGE.write_text(flags_page(), encoding="utf-8")
        return 0
    if FLAGS_PAGE.read_text(encoding="utf-8") == flags_page():
        return 0
    print(f"{FLAGS_PAGE} is out of date: run scripts/generate_docs.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
