"""The commands: what they print, how they exit, and that they import no more than they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from naiad import __version__
from naiad.cli.main import run
from naiad.config.options import Category, ServerOptions, flag_table
from naiad.errors import unavailable


class FakeServer:
    """Stands in for the server's process: remembers its options and ends as it is told to."""

    def __init__(self) -> None:
        self.options: ServerOptions | None = None
        self.exit_code = 0
        self.error: Exception | None = None

    def run(self, options: ServerOptions) -> int:
        self.options = options
        if self.error:
            raise self.error
        return self.exit_code


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    fake = FakeServer()
    module = ModuleType("naiad.server.process")
    module.run = fake.run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return fake


@pytest.mark.parametrize("code", [0, 1])
def test_serve_runs_the_server_and_exits_with_its_code(server: FakeServer, tmp_path: Path, code: int) -> None:
    server.exit_code = code
    assert code == run(["serve", str(tmp_path), "--http-port", "0"])
    assert ServerOptions(model_repository=(tmp_path,), http_port=0) == server.options


def test_a_server_that_cannot_start_exits_with_1_and_one_line(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.error = unavailable("Socket '127.0.0.1:8000' already in use")
    assert run(["serve", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "naiad: error: Socket '127.0.0.1:8000' already in use\n"


def test_an_interrupted_start_exits_as_shells_expect(server: FakeServer, tmp_path: Path) -> None:
    server.error = KeyboardInterrupt()  # type: ignore[assignment]
    assert run(["serve", str(tmp_path)]) == 130


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["serve"], "--model-repository must be specified"),
        (["serve", "--http-prt=1"], "did you mean --http-port?"),
        (["serve", "--vertex-ai-port=1"], "--vertex-ai-port: the Vertex AI endpoints aren't built yet"),
        (["serve", "--http-port"], "requires an argument"),
        (["srve"], "No such command"),
        (["--bogus"], "No such option"),
    ],
)
def test_a_usage_error_exits_with_1_and_shows_the_usage(
    server: FakeServer, argv: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 1
    printed = capsys.readouterr().err
    assert "Usage: naiad" in printed
    assert text in printed
    assert server.options is None


def test_notes_about_flags_without_effect_go_to_stderr(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", str(tmp_path), "--http-thread-count=2"]) == 0
    assert capsys.readouterr().err.startswith("naiad: note: --http-thread-count=2: ")
    assert server.options is not None


@pytest.mark.parametrize("argv", [["--version"], ["version"]])
def test_the_version_is_printed(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv) == 0
    assert capsys.readouterr().out.startswith(f"naiad {__version__}")


@pytest.mark.parametrize("columns", ["60", "200"])
def test_help_shows_every_flag_whole_under_its_category(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert run(["serve", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    starts = [line.split(" ")[0].rstrip(",") for line in lines]
    positions = [starts.index(f"--{flag.name}") for flag in flag_table()]
    assert positions == sorted(positions)
    assert [line for line in lines if line in {category.value for category in Category}] == [c.value for c in Category]
    assert max(map(len, lines)) <= int(columns)


@pytest.mark.parametrize(
    ("argv", "forbidden"),
    [
        (["--help"], {"numpy", "uvloop", "rich", "orjson", "uvicorn", "starlette"}),
        (["serve", "--help"], {"numpy", "uvloop", "orjson", "uvicorn", "starlette"}),
        (["version"], {"numpy", "uvloop", "rich", "orjson", "uvicorn", "starlette"}),
    ],
)
def test_help_and_version_import_nothing_heavy(argv: list[str], forbidden: set[str]) -> None:
    code = f"import sys; from naiad.cli.main import run; rc = run({argv!r}); print(*sys.modules, file=sys.stderr); sys.exit(rc)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set() == forbidden & set(done.stderr.split())


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import naiad; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, cwd="src")
    assert done.stdout.split() == ["naiad"]


def test_python_m_naiad_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "naiad", "--version"], capture_output=True, text=True, check=True)
    assert f"naiad {__version__}\n" == done.stdout
