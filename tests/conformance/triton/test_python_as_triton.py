"""The same Python models in the real C++ Triton: its model API says what the tables hold of it.

Not part of `make test`: `make conformance-triton` brings Triton onto the machine when it isn't there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
import requests
from bench import servers, triton_setup
from python_models.asking import ask, fits, send
from python_models.completing import LOADED, REFUSED, write_all
from python_models.repositories import AREAS, write_api_models
from python_models.said import EXPECTED, SENT, TRITONS, Sent
from real_triton import serving_triton

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

PROBES = [(area, probe) for area in AREAS for probe in EXPECTED[area] if TRITONS.get(area, {}).get(probe, "") is not None]
ANSWERED = [sent for sent in SENT if sent.tritons is not None]


@pytest.fixture(scope="module")
def triton(tmp_path_factory) -> Iterator[str]:
    """The URL of a C++ Triton."""
    with serving_triton(tmp_path_factory.mktemp("triton"), write_api_models) as server:
        yield f"http://{server.address.host}:{server.address.port}"


@pytest.mark.parametrize(("area", "probe"), PROBES, ids=[f"{area}-{probe}" for area, probe in PROBES])
def test_a_probe_says_what_the_table_holds_of_triton(triton, area, probe):
    said = ask(triton, area, probe)
    expected = TRITONS.get(area, {}).get(probe) or EXPECTED[area][probe]
    assert fits(said, expected), said


@pytest.mark.parametrize("sent", ANSWERED, ids=lambda sent: f"{sent.model}-{sent.way}")
def test_a_way_to_send_gives_what_the_table_holds_of_triton(triton, sent: Sent):
    got = send(triton, sent.model, sent.way)
    client = sent.tritons or sent.client
    assert (len(got), all(map(re.match, client, got))) == (len(client), True), got
    (told,) = send(triton, sent.model, "last")
    assert re.match(sent.told, told), told


def test_configs_are_completed_and_refused_in_triton_too(tmp_path):
    program = triton_setup.triton()
    loaded, refused = write_all(tmp_path / "models", LOADED), write_all(tmp_path / "models", REFUSED)
    launch = servers.triton_launch(program, tmp_path / "models")
    lenient = ("--exit-on-error=false", "--strict-readiness=false")
    with servers.serving(replace(launch, arguments=launch.arguments + lenient), tmp_path / "log") as server:
        index = requests.post(f"http://{server.address}/v2/repository/index", timeout=5).json()
    assert {model["name"] for model in index if model["state"] == "READY"} == set(loaded)
    reasons = {model["name"]: model["reason"] for model in index if model["state"] != "READY"}
    for name, completion in refused.items():
        assert re.search(completion.error, reasons[name]), reasons[name]
