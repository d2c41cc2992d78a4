"""The documents say what is there: generated pages are up to date, links and file names lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from naiad.cli.check import check_command
from naiad.config.options import flag_table
from naiad.config.options.unbuilt import unbuilt_flags

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
MODULE = re.compile(r"`([a-z_/]+\.py)`")
PLACES = ("", "src/naiad", "src/naiad/frontends/grpc", "src/naiad/frontends/http", "src/naiad/execution/process")


def test_the_page_on_flags_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate_docs.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_on_flags_has_a_row_for_each() -> None:
    page = (ROOT / "docs" / "reference" / "flags.md").read_text(encoding="utf-8")
    assert [flag.name for flag in flag_table() if f"\n| `--{flag.name}`" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_to_a_file_leads_to_one(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_each_module_that_the_architecture_names_exists() -> None:
    names = MODULE.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert names
    assert [name for name in names if not any((ROOT / place / name).is_file() for place in PLACES)] == []


FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]+)")
OTHER_COMMANDS = {name.removeprefix("--") for option in check_command().params for name in option.opts}
PAGES_ON_SERVING = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "docs/migrating.md", *(ROOT / "docs/how-to").glob("*.md")]


@pytest.mark.parametrize("page", PAGES_ON_SERVING, ids=lambda page: page.name)
def test_each_flag_that_a_page_names_exists(page: Path) -> None:
    known = {flag.name for flag in flag_table()} | unbuilt_flags().keys() | {"help"} | OTHER_COMMANDS
    assert set(FLAG.findall(page.read_text(encoding="utf-8"))) - known == set()


def packages() -> dict[str, bool]:
    """Each package of the source, and whether there is anything in it."""
    folders = [folder for folder in (ROOT / "src/naiad").iterdir() if (folder / "__init__.py").exists()]
    return {folder.name: len(list(folder.rglob("*.py"))) > 1 for folder in folders}


def test_the_architecture_describes_each_package_that_is_not_empty() -> None:
    rows = re.findall(r"^\| (`.*`) \| .+ \|$", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert {name for name, is_built in packages().items() if is_built} - described == set()
    assert described & {name for name, is_built in packages().items() if not is_built} == set()


def test_the_architecture_fits_on_a_few_screens() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()) <= 120
