"""The page and the JSON of one benchmark run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench import report
from bench.machine import Machine, cpu_model
from bench.results import (
    Comparison,
    EngineSample,
    EngineShare,
    Footprint,
    FootprintSample,
    ManyModels,
    ManyModelsSample,
    OpenLoop,
    OpenSample,
    Results,
    Sample,
    median_sample,
)

NAIAD = Sample(requests_per_s=20_000, p50_us=700, p99_us=1_500, cpu_us=40.2)
TRITON = Sample(requests_per_s=10_000, p50_us=1_400, p99_us=3_000, cpu_us=205, batch_size=7.5)
SETTINGS = {"rounds": 3, "duration_s": 5, "quick": False}


def make_machine(*, is_dirty: bool = False) -> Machine:
    return Machine("2030-01-31", "abc1234", is_dirty, "python -m bench", "Some CPU", 2, "Linux", {"python": "3.11"}, 0.5)


def cells(table: str, line: int = -1) -> list[str]:
    return [cell.strip() for cell in table.splitlines()[line].strip("|").split("|")]


def test_the_median_is_taken_for_each_figure_by_itself() -> None:
    rounds = [Sample(1, 30, 5, 9), Sample(3, 10, 6, 7), Sample(2, 20, 4, 8)]
    assert median_sample(rounds) == Sample(2, 20, 5, 8)


def test_a_comparison_shows_both_servers_and_naiad_over_triton() -> None:
    table = report.comparison_table([Comparison("identity-c16", "in place", NAIAD, TRITON)])
    expected = ["identity-c16", "in place", "20,000", "10,000", "2.00", "0.70", "1.40", "1.50", "3.00", "0.50", "40.2", "205"]
    expected += ["1.0", "7.5"]
    assert cells(table) == expected
    assert len(cells(table, 0)) == len(cells(table, 1)) == len(expected)


def test_what_was_not_measured_is_shown_as_absent_without_a_ratio() -> None:
    table = report.comparison_table([Comparison("identity-c16", "", None, TRITON)])
    absent = "n/a"
    assert cells(table)[1:6] == [absent, absent, "10,000", absent, absent]
    assert cells(table)[9] == absent


def test_an_engine_row_shows_the_share_and_the_added_cpu_time() -> None:
    naiad = Sample(requests_per_s=90, p50_us=20_000, p99_us=30_000, cpu_us=11_050)
    row = EngineShare("magika", 8, 16, EngineSample(items_per_s=100, cpu_us=10_000), naiad)
    expected = ["magika", "8", "16", "100", "90.0", "90.0%", "20.00", "30.00", "10,000", "11,050", "1,050"]
    assert cells(report.engine_table([row])) == expected


def test_a_footprint_is_shown_in_seconds_and_mebibytes() -> None:
    table = report.footprint_table([Footprint("Naiad", FootprintSample(0.456, 50 * 2**20, 70 * 2**20))])
    assert cells(table) == ["Naiad", "0.46", "50", "70"]


def test_many_models_are_shown_with_what_each_costs() -> None:
    sample = ManyModelsSample(ready_s=7.6, index_s=0.05, stop_s=0.85, pss_bytes_per_model=97 * 1024, descriptors_per_model=0)
    table = report.many_models_table([ManyModels("Naiad", 2000, sample)])
    assert cells(table) == ["Naiad", "2000", "7.6", "50.0", "0.8", "97.0", "0.0"]
    assert len(cells(table, 0)) == 7


def test_an_overload_is_shown_with_its_share_of_the_subject_s_best_row_and_a_trace_of_adaptive_without() -> None:
    def row(scenario: str, server: str, goodput_per_s: float) -> OpenLoop:
        return OpenLoop(scenario, server, "2 ms", OpenSample(600, goodput_per_s, 20_000, 90_000, 0.25, 1_500, 7.5, 400))

    rows = [row("overload-1x", "Naiad", 400), row("overload-3x", "Naiad", 300), row("overload-1x", "Triton", 800)]
    table = report.open_loop_table([*rows, row("adaptive-poisson-50", "Naiad", 100)])
    shares = [cells(table, line)[5] for line in range(2, 6)]
    assert shares == ["100%", "75%", "100%", "n/a"]
    expected = ["overload-3x", "Naiad", "2 ms", "600", "300", "75%", "20.00", "90.00", "25%", "1.50", "7.5", "0.40"]
    assert cells(table, 3) == expected
    assert len(cells(table, 0)) == len(expected)


@pytest.mark.parametrize(("is_dirty", "name"), [(False, "2030-01-31-abc1234.md"), (True, "2030-01-31-abc1234-dirty.md")])
def test_the_page_is_named_by_date_and_commit_with_its_json_beside_it(tmp_path: Path, is_dirty: bool, name: str) -> None:
    results = Results(comparisons=(Comparison("identity-c16", "in place", NAIAD, TRITON, (1.0,), (2.0,)),))
    path = report.write(tmp_path / "new", make_machine(is_dirty=is_dirty), results, SETTINGS)
    assert path.name == name
    facts = json.loads(path.with_suffix(".json").read_text())
    assert facts["machine"]["is_dirty"] is is_dirty
    assert facts["settings"] == SETTINGS
    assert facts["results"]["comparisons"][0]["naiad"]["requests_per_s"] == 20_000
    assert facts["results"]["comparisons"][0]["triton_rounds"] == [2.0]


def test_the_page_has_only_sections_with_something_in_them_and_says_what_was_left_out() -> None:
    page = report.to_markdown(make_machine(), Results(left_out=("wrk: is not installed",)), SETTINGS)
    assert [line for line in page.splitlines() if line.startswith("## ")] == ["## Left out", "## Method"]
    assert "* wrk: is not installed" in page
    assert "`python -m bench`: rounds 3, duration_s 5, quick False" in page


def test_the_cpu_model_is_the_first_one_named() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: AMD EPYC: 9\nmodel name\t: other\n") == "AMD EPYC: 9"
