"""Client programs of other languages that a test needs: installed once, outside the tree, at pinned versions.

Owns where they are and how they get there. A program that can't be installed skips the test, or fails it where
NAIAD_REQUIRE_PROGRAMS=1.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from programs import missing, need_program

_INSTALL_TIMEOUT_S = 300


def node_modules(package: Path) -> tuple[str, Path]:
    """Return node's path, and the folder with what package.json and package-lock.json of the folder `package` name."""
    node, npm = need_program("node"), need_program("npm")
    locks = [package / "package.json", package / "package-lock.json"]

    def install(folder: Path) -> None:
        for lock in locks:
            shutil.copy(lock, folder)
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder])

    return node, _once("node", locks, install) / "node_modules"


def pip_folder(requirements: Path) -> Path:
    """Return a folder with the packages of a file of requirements with hashes; their dependencies aren't installed."""

    def install(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        _run([*pip, "--no-deps", "--require-hashes", "--target", folder, "-r", requirements])

    return _once("pip", [requirements], install)


def _once(kind: str, locks: Sequence[Path], install: Callable[[Path], None]) -> Path:
    """Return the folder of what the files `locks` name; of several that install it at once, the first one's stays."""
    named = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()[:16]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "naiad-tests"
    home = root / f"{kind}-{named}"
    if home.exists():
        return home
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        folder = Path(scratch) / "made"
        folder.mkdir()
        try:
            install(folder)
        except (subprocess.SubprocessError, OSError) as error:
            missing(f"what {locks[0].name} names can't be installed: {getattr(error, 'stderr', None) or error}")
        try:
            folder.rename(home)
        except OSError:
            # Another test was quicker.
            assert home.exists()
    return home


def _run(command: Sequence[str | Path]) -> None:
    subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S)
