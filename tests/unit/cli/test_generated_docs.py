"""Pages that are made from the code are up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from naiad.config.options import flag_table

ROOT = Path(__file__).parents[3]


def test_the_page_on_flags_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate_docs.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_on_flags_has_a_row_for_each() -> None:
    page = (ROOT / "docs" / "reference" / "flags.md").read_text(encoding="utf-8")
    assert [flag.name for flag in flag_table() if f"\n| `--{flag.name}`" not in page] == []
