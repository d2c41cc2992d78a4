"""Environments of Python models as tests make them: venvs with the tests' own numpy, archives, wheels without a registry."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pytest

PYENV_VERSIONS = Path("~/.pyenv/versions").expanduser()
_ROOT = Path(__file__).parent.parent.parent


def make_venv(folder: Path, *, has_numpy: bool = True, interpreter: str | Path = sys.executable) -> Path:
    """Make a venv without pip, in a fraction of a second. `has_numpy`: with the tests' own numpy, for the same version only."""
    subprocess.run([str(interpreter), "-I", "-m", "venv", "--without-pip", str(folder)], check=True)
    if has_numpy:
        link_numpy(site_packages(folder))
    return folder


def make_foreign_venv(folder: Path, version: str) -> Path:
    """Make a venv of another Python with the numpy of the project's environment for it; skip the test without them."""
    interpreters = sorted(PYENV_VERSIONS.glob(f"{version}.*/bin/python"))
    packages = _ROOT / f".venv-{version}" / "lib" / f"python{version}" / "site-packages"
    if not interpreters or not (packages / "numpy").is_dir():
        pytest.skip(f"no Python {version} under {PYENV_VERSIONS}, or no numpy for it in {packages}")
    venv = make_venv(folder, has_numpy=False, interpreter=interpreters[-1])
    link_numpy(site_packages(venv), packages)
    return venv


def site_packages(venv: Path) -> Path:
    return next((venv / "lib").glob("python*/site-packages"))


def link_numpy(folder: Path, packages: Path | None = None) -> None:
    """Let an interpreter find the numpy of `packages` (None: the tests' own) in `folder`, and nothing else of them."""
    for path in (packages or Path(np.__file__).parent.parent).glob("numpy*"):
        (folder / path.name).symlink_to(path)


def add_module(venv: Path, name: str, source: str) -> None:
    (site_packages(venv) / f"{name}.py").write_text(source)


def make_wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    """Write a pure wheel with these files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    members = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in members.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in (*members, f"{info}/RECORD")))
    return wheel


def make_numpy_wheel(folder: Path) -> Path:
    """Pack the tests' own numpy into a wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    numpy_files = distribution("numpy")
    tag = next(line for line in numpy_files.read_text("WHEEL").splitlines() if line.startswith("Tag: ")).removeprefix("Tag: ")
    wheel = folder / f"numpy-{numpy_files.version}-{tag}.whl"
    base = Path(np.__file__).parent.parent
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in numpy_files.files:
            name = str(file)
            if not name.startswith("..") and "/tests/" not in name and "__pycache__" not in name:
                archive.write(base / name, name)
    return wheel


def fake_numpy_wheel(folder: Path) -> Path:
    """Write a wheel which says that it is numpy: enough for what is only asked for its version."""
    return make_wheel(folder, "numpy", "9.9", {"numpy/__init__.py": "__version__ = '9.9'\n"})


def pack(folder: Path, archive: Path) -> Path:
    """Write what `folder` holds as a tar.gz, links as links."""
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, ".")
    return archive


def archive_of(path: Path, members: Iterable[tarfile.TarInfo | tuple[str, str]]) -> Path:
    """Write a tar.gz of members: those given as (name, text) are executable files."""
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            name, text = member
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text.encode()), 0o755
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def link(name: str, target: str, *, is_hard: bool = False) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = tarfile.LNKTYPE if is_hard else tarfile.SYMTYPE
    info.linkname = target
    return info


def wrapper_script(numpy_folder: Path | None = None) -> str:
    """Return a script that is an interpreter: it runs the tests' own one, so that an archive can hold it as a plain file."""
    path = "" if numpy_folder is None else f"PYTHONPATH='{numpy_folder}' "
    return f"#!/bin/sh\n{path}exec '{shutil.which(sys.executable)}' \"$@\"\n"
