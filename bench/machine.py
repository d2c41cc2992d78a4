"""Says what was measured and where: the commit, the machine, the versions, the load it was under. Runs git, changes nothing."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.triton_setup import PYTRITON, TRITON_VERSION, TRITONCLIENT

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts without which a figure means nothing. `load_average` is the one-minute mean just before the first round."""

    date: str
    commit: str
    is_dirty: bool
    command: str
    cpu_model: str
    cores: int
    system: str
    versions: dict[str, str]
    load_average: float


def describe(arguments: Sequence[str]) -> Machine:
    """Gather the facts; `arguments` are those of this run's command line."""
    return Machine(
        date=dt.datetime.now(dt.timezone.utc).date().isoformat(),
        commit=_git("rev-parse", "--short", "HEAD"),
        is_dirty=bool(_git("status", "--porcelain", "--", ".", ":!bench/results")),
        command=shlex.join(["python", "-m", "bench", *arguments]),
        cpu_model=cpu_model(Path("/proc/cpuinfo").read_text()),
        cores=len(os.sched_getaffinity(0)),
        system=platform.platform(),
        versions=_versions(),
        load_average=round(os.getloadavg()[0], 2),
    )


def cpu_model(cpuinfo: str) -> str:
    """Return the first `model name` of /proc/cpuinfo, or the architecture where there is none."""
    for line in cpuinfo.splitlines():
        name, _, text = line.partition(":")
        if name.strip() == "model name":
            return text.strip()
    return platform.machine()


def _versions() -> dict[str, str]:
    packages = ("naiad", "numpy", "uvloop", "httptools", "orjson", "uvicorn", "onnxruntime")
    found = {name: _version(name) for name in packages}
    return {
        "python": sys.version.split()[0],
        **found,
        "triton": f"{TRITON_VERSION} ({PYTRITON})",
        "perf_analyzer": TRITONCLIENT,
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
