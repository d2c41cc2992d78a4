"""The real C++ Triton, started for tests that compare with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench import servers, triton_setup
from bench.errors import Unavailable


@contextmanager
def serving_triton(folder: Path, write_models: Callable[[Path], Any]) -> Iterator[Any]:
    """Serve what `write_models` writes; skips by name where Triton can't be had, and fails with NAIAD_REQUIRE_PROGRAMS=1."""
    try:
        program = triton_setup.triton()
    except Unavailable as error:
        if os.environ.get("NAIAD_REQUIRE_PROGRAMS") == "1":
            pytest.fail(f"the C++ Triton can't be had: {error}")
        pytest.skip(f"the C++ Triton can't be had: {error}")
    launch = servers.triton_launch(program, write_models(folder / "models"))
    with servers.serving(launch, folder / "log") as server:
        yield server
