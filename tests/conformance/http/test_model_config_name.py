"""`--model-config-name`: configs/<name>.pbtxt counts where it is there, config.pbtxt elsewhere; and not without the flag."""

from __future__ import annotations

import pytest
import requests
from model_folders import identity
from server_process import failed_start

from naiad.cli.main import run

CUSTOM = """
backend: "identity"
max_batch_size: 3
input [{ name: "X" data_type: TYPE_INT64 dims: [ 1 ] }]
output [{ name: "Y" data_type: TYPE_INT64 dims: [ 1 ] }]
"""


@pytest.fixture
def models(tmp_path):
    for name in ("with_custom", "without"):
        identity(tmp_path, name)
    (tmp_path / "with_custom/configs").mkdir()
    (tmp_path / "with_custom/configs/h100.pbtxt").write_text(CUSTOM)
    return tmp_path


def batch_sizes(server) -> list[int]:
    configs = [requests.get(f"{server.url}/v2/models/{name}/config", timeout=5).json() for name in ("with_custom", "without")]
    return [config["max_batch_size"] for config in configs]


@pytest.mark.parametrize(("flags", "sizes"), [(["--model-config-name=h100"], [3, 8]), ([], [8, 8])])
def test_the_named_config_counts_where_it_is(models, serve, flags, sizes):
    assert batch_sizes(serve(models, *flags)) == sizes


def test_a_load_reads_the_named_config_again(models, serve):
    server = serve(models, "--model-config-name=h100", "--model-control-mode=explicit", "--load-model=*")
    (models / "with_custom/configs/h100.pbtxt").write_text(CUSTOM.replace("3", "5"))
    assert requests.post(f"{server.url}/v2/repository/models/with_custom/load", timeout=10).status_code == 200
    assert batch_sizes(server) == [5, 8]


def test_mistakes_are_those_of_the_named_config(models, capsys):
    file = models / "with_custom/configs/h100.pbtxt"
    file.write_text(CUSTOM.replace("3", "-1"))
    assert run(["check", str(models)]) == 0
    assert run(["check", "--model-config-name=h100", str(models)]) == 1
    assert f"{file}:3:17: error: 'max_batch_size' must be non-negative" in capsys.readouterr().out


def test_the_commands_on_one_config_show_the_named_one(models, capsys):
    assert run(["config", "show", "--model-config-name=h100", str(models / "with_custom")]) == 0
    assert "max_batch_size: 3" in capsys.readouterr().out
    assert run(["config", "explain", "--model-config-name=h100", str(models / "with_custom")]) == 0
    assert f"max_batch_size: 3    {models}/with_custom/configs/h100.pbtxt:3:17" in capsys.readouterr().out


def test_a_name_that_leads_elsewhere_is_refused(models):
    assert "--model-config-name must be the name of a file, without '/'; it is '../x'" in failed_start(
        models, "--model-config-name=../x"
    )
