"""A small client beside one that floods, with a small server and a load generator that only says how it was called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from bench import report
from bench.contention.fairness import fairness
from bench.errors import Unavailable
from bench.measure import Setting
from bench.models.repository import Model
from bench.results import FairnessSample
from bench.servers import Launch, Server, serving
from bench.triton_setup import Program

# wrk's arguments in, its line of results out: as many requests as it has connections, 900 µs for the small client's p99.
GENERATOR = """#!{python}
import pathlib, sys
connections = next(int(text[2:]) for text in sys.argv if text.startswith("-c"))
client = "small" if connections == 1 else "flood"
assert f"x-client: {{client}}" in pathlib.Path(sys.argv[-1]).read_text().splitlines()
print('WRK_RESULT {{"requests": %d, "duration_us": 1000000, "p50_us": 500, "p99_us": 900, '
      '"connect": 0, "read": 0, "write": 0, "status": 0, "timeout": 0}}' % connections)
"""


def make_setting(tmp_path: Path, launch: Launch, generators: dict[str, Program]) -> Setting:
    def start(name: str, models: tuple[Model, ...], cores: Sequence[int]) -> AbstractContextManager[Server]:
        return serving(launch, tmp_path / f"{name}.log", cores)

    return Setting(1, 1, tmp_path, generators, None, start)


def test_both_clients_load_the_server_at_once_told_apart_by_a_header(tmp_path: Path, small_launch: Launch) -> None:
    generator = tmp_path / "wrk"
    generator.write_text(GENERATOR.format(python=sys.executable))
    generator.chmod(0o755)
    (row,) = fairness(make_setting(tmp_path, small_launch, {"wrk": Program(generator)}))
    assert row.sample == FairnessSample(flood_per_s=64, small_per_s=1, small_p50_us=500, small_p99_us=900)
    table = report.fairness_table([row])
    assert table.splitlines()[-1] == "| Small | n/a | 64.0 | 1.0 | 0.50 | 0.90 |"


def test_without_wrk_there_is_no_row(tmp_path: Path, small_launch: Launch) -> None:
    with pytest.raises(Unavailable, match="without wrk"):
        fairness(make_setting(tmp_path, small_launch, {}))
