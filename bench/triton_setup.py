"""Brings what is compared with onto this machine, once, below bench/.env/ (git ignores it).

Owns the installation of the C++ Triton, of perf_analyzer and of wrk, and where their files are. Runs
none of them. Each function returns at once when the part is there, and raises `Unavailable` when it can't be had.

The C++ server and its Python backend come inside the PyPI wheel nvidia-pytriton, the load generator inside an old tritonclient
wheel (the later ones need a newer libc than Debian 12 has). Neither needs a GPU or root.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.errors import Unavailable

ENVIRONMENT = Path(__file__).parent / ".env"
PYTRITON = "nvidia-pytriton==0.7.0"
TRITON_VERSION = "2.51.0"
TRITONCLIENT = "tritonclient==2.46.0"
CUDA_RUNTIME = "nvidia-cuda-runtime-cu12==12.6.77"
MARKER = "installed"


@dataclass(frozen=True, slots=True)
class Program:
    """An executable with the environment variables and the working directory that it needs."""

    path: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    arguments: tuple[str, ...] = ()


def run_step(command: Sequence[str | Path], cwd: Path | None = None) -> str:
    """Run one installation step and return what it printed; raise Unavailable with its last lines when it fails."""
    try:
        done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]} is not installed") from error
    if done.returncode != 0:
        tail = " / ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
        raise Unavailable(f"`{' '.join(str(part) for part in command)}` failed: {tail}")
    return done.stdout


def is_ready(home: Path, what: str) -> bool:
    """Return whether `home` holds exactly what was asked for, and its installation wasn't interrupted."""
    marker = home / MARKER
    return marker.exists() and marker.read_text() == what


def mark_ready(home: Path, what: str) -> None:
    """Note that the installation of `what` into `home` is complete."""
    (home / MARKER).write_text(what)


def only_file(home: Path, name: str) -> Path:
    """Return the one file of that name below `home`; raise Unavailable when there is none."""
    found = sorted(path for path in home.rglob(name) if path.is_file())
    if not found:
        raise Unavailable(f"{name} is not where it was expected, below {home}; remove that folder to install again")
    return found[0]


def triton(root: Path = ENVIRONMENT) -> Program:
    """Return the C++ Triton server, installed when it isn't yet (about a minute, 1 GB)."""
    _check_platform("the C++ Triton")
    home = root / "triton"
    site = _site_packages(home)
    server = site / "pytriton" / "tritonserver"
    if not is_ready(home, PYTRITON):
        _make_environment(home, [PYTRITON])
        _stage_python_backend(home, server, site)
        mark_ready(home, PYTRITON)
    libraries = f"{site / 'nvidia_pytriton.libs'}:{sysconfig.get_config_var('LIBDIR')}"
    flags = (f"--backend-directory={home / 'backends'}", f"--cache-directory={server / 'caches'}")
    return Program(
        server / "bin" / "tritonserver", {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": str(site)}, home / "cwd", flags
    )


def perf_analyzer(root: Path = ENVIRONMENT) -> Program:
    """Return the perf_analyzer load generator, installed when it isn't yet."""
    _check_platform("perf_analyzer")
    home = root / "perf_analyzer"
    if not is_ready(home, TRITONCLIENT):
        # Without dependencies: only the binary is wanted, and the wheel asks for an old protobuf.
        _make_environment(home, ["--no-deps", TRITONCLIENT, CUDA_RUNTIME])
        _unpack_debian(["libb64-0d"], home / "debian")
        mark_ready(home, TRITONCLIENT)
    cuda = _site_packages(home) / "nvidia" / "cuda_runtime" / "lib"
    libraries = f"{cuda}:{only_file(home, 'libb64.so.0d').parent}"
    return Program(only_file(home, "perf_analyzer"), {"LD_LIBRARY_PATH": libraries})


def wrk(root: Path = ENVIRONMENT) -> Program:
    """Return the wrk load generator: the machine's own, or else Debian's unpacked without installing it."""
    installed = shutil.which("wrk")
    if installed is not None:
        return Program(Path(installed))
    home = root / "wrk"
    if not is_ready(home, "wrk"):
        _unpack_debian(["wrk", "libluajit-5.1-2"], home)
        mark_ready(home, "wrk")
    libraries = str(only_file(home, "libluajit-5.1.so.2").parent)
    return Program(only_file(home, "wrk"), {"LD_LIBRARY_PATH": libraries})


def h2load(root: Path = ENVIRONMENT) -> Program:
    """Return the h2load load generator: the machine's own, or else Debian's unpacked without installing it."""
    installed = shutil.which("h2load")
    if installed is not None:
        return Program(Path(installed))
    home = root / "h2load"
    if not is_ready(home, "h2load"):
        _unpack_debian(["nghttp2-client", "libnghttp2-14", "libev4", "libjemalloc2"], home)
        mark_ready(home, "h2load")
    libraries = str(only_file(home, "libnghttp2.so.14").parent)
    return Program(only_file(home, "h2load"), {"LD_LIBRARY_PATH": libraries})


def _check_platform(what: str) -> None:
    here = (platform.system(), platform.machine())
    if here != ("Linux", "x86_64"):
        raise Unavailable(f"{what} is built for Linux on x86_64, this is {here[0]} on {here[1]}")


def _site_packages(home: Path) -> Path:
    return home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def _make_environment(home: Path, packages: Sequence[str]) -> None:
    print(f"installing {packages[-1] if len(packages) == 1 else ' '.join(packages)} into {home} …", flush=True)
    venv.create(home, with_pip=True, clear=True)
    run_step([home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])


def _stage_python_backend(home: Path, server: Path, site: Path) -> None:
    """Lay out the backend folder as the server wants it: the Python backend with this Python's stub beside it."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = server / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        raise Unavailable(f"{PYTRITON} has no Python backend for Python {version}")
    backend = home / "backends" / "python"
    backend.mkdir(parents=True)
    for file in [stub, *(server / "backends" / "python").iterdir()]:
        (backend / file.name).symlink_to(file)
    # The stub doesn't heed PYTHONPATH, but finds numpy in its working directory.
    (home / "cwd").mkdir()
    (home / "cwd" / "numpy").symlink_to(site / "numpy")
    for binary in (stub, server / "bin" / "tritonserver"):
        binary.chmod(0o755)


def _unpack_debian(packages: Sequence[str], target: Path) -> None:
    """Download Debian packages with apt-get and unpack them below `target`; nothing is installed, root isn't needed."""
    target.mkdir(parents=True, exist_ok=True)
    try:
        run_step(["apt-get", "download", "-qq", *packages], cwd=target)
    except Unavailable as error:
        raise Unavailable(f"{error} (are Debian's package lists fresh? `apt-get update`)") from error
    for package in target.glob("*.deb"):
        run_step(["dpkg", "-x", package, target])
