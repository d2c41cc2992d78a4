"""The order and the arithmetic of rounds, with a small server and a load generator that sends three requests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from bench.errors import BenchError
from bench.http_infer import Form
from bench.measure import Setting, Starter, compare, footprints
from bench.models.repository import Model
from bench.scenarios import IDENTITY, VARIANTS, Scenario
from bench.servers import Launch, Server, serving
from bench.triton_setup import Program

SCENARIO = Scenario("identity-json-c4", IDENTITY, Form.JSON, 4)

# Takes wrk's arguments, notes the model that it loads, and prints what the real script does.
GENERATOR = """#!{python}
import pathlib, sys, urllib.request
url = next(text for text in sys.argv if text.startswith("http://"))
assert "-c4" in sys.argv
with open({notes!r}, "a") as notes:
    notes.write(url.split("/")[5] + "\\n")
for _ in range(3):
    urllib.request.urlopen(urllib.request.Request(url, pathlib.Path(sys.argv[-2]).read_bytes())).read()
print('WRK_RESULT {{"requests": 3, "duration_us": 1000000, "p50_us": 5, "p99_us": 9, '
      '"connect": 0, "read": 0, "write": 0, "status": {failed}, "timeout": 0}}')
"""


def make_setting(
    tmp_path: Path, launch: Launch, *, failed: int = 0, has_triton: bool = True, has_naiad: bool = True
) -> Setting:
    generator = tmp_path / "wrk"
    generator.write_text(GENERATOR.format(python=sys.executable, notes=str(tmp_path / "notes"), failed=failed))
    generator.chmod(0o755)

    def start(name: str, models: tuple[Model, ...], cores: Sequence[int]) -> AbstractContextManager[Server]:
        return serving(launch, tmp_path / f"{name}-{models[0].name}.log", cores)

    starter: Starter = start
    servers = (starter if has_naiad else None, starter if has_triton else None)
    return Setting(2, 1, tmp_path, {"wrk": Program(generator)}, *servers)


def test_rounds_alternate_between_variants_and_servers_each_after_a_warm_up(tmp_path: Path, small_launch: Launch) -> None:
    rows = compare(make_setting(tmp_path, small_launch), [SCENARIO], VARIANTS[:2])
    one_round = ["identity_in_place"] * 2 + ["identity_thread"] * 2 + ["identity"] * 2
    assert (tmp_path / "notes").read_text().split() == one_round * 2
    assert [(row.scenario, row.variant) for row in rows] == [(SCENARIO.name, "in place"), (SCENARIO.name, "in a thread")]
    assert rows[0].naiad_rounds == rows[0].triton_rounds == (3.0, 3.0)
    assert rows[0].naiad is not None
    assert (rows[0].naiad.requests_per_s, rows[0].naiad.p50_us, rows[0].naiad.p99_us) == (3.0, 5, 9)
    assert rows[0].triton == rows[1].triton


def test_a_server_that_is_not_there_leaves_its_side_empty(tmp_path: Path, small_launch: Launch) -> None:
    (without_naiad,) = compare(make_setting(tmp_path, small_launch, has_naiad=False), [SCENARIO], VARIANTS[:1])
    (without_triton,) = compare(make_setting(tmp_path, small_launch, has_triton=False), [SCENARIO], VARIANTS[:1])
    assert without_naiad.naiad is None
    assert without_naiad.variant == ""
    assert without_naiad.triton is not None
    assert without_triton.triton is None
    assert without_triton.naiad is not None


def test_one_failed_request_fails_the_run(tmp_path: Path, small_launch: Launch) -> None:
    with pytest.raises(BenchError, match="'status': 1"):
        compare(make_setting(tmp_path, small_launch, failed=1), [SCENARIO], VARIANTS[:1])


def test_a_footprint_is_taken_of_each_server_there_is(tmp_path: Path, small_launch: Launch) -> None:
    (row,) = footprints(make_setting(tmp_path, small_launch, has_triton=False))
    assert row.server == "Naiad"
    assert row.sample.ready_s > 0
    assert 0 < row.sample.pss_bytes <= row.sample.rss_bytes
