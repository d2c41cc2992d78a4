"""Puts the toy backend's package where installed packages are found."""

from __future__ import annotations

from pathlib import Path

import pytest


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the package `naiad-toy-backend`, with its entry point, be installed until the end of the test."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "toy_backend"))
