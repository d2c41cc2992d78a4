"""System programs that some tests need and pip doesn't install."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test for want of something, or fail it where NAIAD_REQUIRE_PROGRAMS=1."""
    if os.environ.get("NAIAD_REQUIRE_PROGRAMS") == "1":
        pytest.fail(f"{what}, and NAIAD_REQUIRE_PROGRAMS=1")
    pytest.skip(what)


def need_program(name: str) -> str:
    """Return the path of a program; without it skip the test, or fail it where NAIAD_REQUIRE_PROGRAMS=1."""
    path = shutil.which(name)
    if path is None:
        missing(f"the program {name} isn't on PATH")
    return path
