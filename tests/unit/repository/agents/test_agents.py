"""Agents look at a model before its backend does: they let it pass, refuse it, or hand over another folder."""

from __future__ import annotations

import hashlib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest
from model_folders import identity

from naiad.backends.table import BackendTable
from naiad.errors import InferenceServerError
from naiad.repository.agents import table
from naiad.repository.agents.base import RepositoryAgent
from naiad.repository.agents.table import AgentTable
from naiad.repository.check.steps import CheckSettings, check_source
from naiad.repository.layout import scan
from naiad.repository.loader import Loader, LoadSettings

CONTENT = b"weights"
MD5 = hashlib.md5(CONTENT).hexdigest()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Strict(RepositoryAgent):
    def load(self, model):
        raise ValueError("not this one")


def agent(name: str, **parameters: str) -> str:
    rows = "".join(f' parameters {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items())
    return f'model_repository_agents {{ agents {{ name: "{name}"{rows} }} }}'


def prepared(path: Path, more: str, **own: type[RepositoryAgent]):
    folder = identity(path, "m", more=more)
    (folder / "1" / "w.bin").write_bytes(CONTENT)
    loader = Loader(BackendTable(), LoadSettings(True, {}), SimpleNamespace(), AgentTable(own))
    return loader.prepare(scan((path,), ()).sources["m"])


@pytest.mark.parametrize(
    "parameters", [{"MD5:1/w.bin": MD5}, {"MD5:1/w.bin": MD5.upper()}, {"SHA256:1/w.bin": SHA256, "MD5:1/w.bin": MD5}, {}]
)
def test_a_model_whose_files_have_the_digests_is_loaded(tmp_path, parameters):
    assert prepared(tmp_path, agent("checksum", **parameters)).versions == (1,)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"MD5:1/w.bin": "00"}, f"the MD5 of '1/w.bin' is {MD5}, must be '00' as the config says"),
        ({"SHA256:1/w.bin": MD5}, f"the SHA256 of '1/w.bin' is {SHA256}, must be '{MD5}' as the config says"),
        ({"SHA1:1/w.bin": MD5}, "parameter 'SHA1:1/w.bin' must be MD5:<path> or SHA256:<path>"),
        ({"MD5": MD5}, "parameter 'MD5' must be MD5:<path> or SHA256:<path>"),
        ({"MD5:": MD5}, "parameter 'MD5:' must be MD5:<path> or SHA256:<path>"),
        ({"MD5:1/none": MD5}, "parameter 'MD5:1/none': '1/none' can't be read: No such file or directory"),
        ({"MD5:1": MD5}, "parameter 'MD5:1': '1' can't be read: Is a directory"),
        ({"MD5:../w": MD5}, "parameter 'MD5:../w': the path must be in the model's folder, without '..'"),
        ({"MD5:/etc/passwd": MD5}, "parameter 'MD5:/etc/passwd': the path must be in the model's folder, without '..'"),
    ],
)
def test_a_digest_that_differs_and_a_parameter_that_is_none_fail_the_load(tmp_path, parameters, said):
    with pytest.raises(InferenceServerError) as caught:
        prepared(tmp_path, agent("checksum", **parameters))
    assert f"model 'm': repository agent 'checksum': {said}" in caught.value.message


def test_an_unknown_agent_is_named_with_those_that_are_known(tmp_path):
    with pytest.raises(InferenceServerError, match="repository agent 'none': there is no such agent; known are checksum"):
        prepared(tmp_path, agent("none"))


def test_what_an_agent_raises_is_the_reason(tmp_path):
    class Broken(RepositoryAgent):
        def load(self, model):
            raise OSError("no key for " + model.name)

    with pytest.raises(InferenceServerError, match="repository agent 'broken': OSError: no key for m"):
        prepared(tmp_path, agent("broken"), broken=Broken)


def test_an_agent_may_hand_over_another_folder_with_a_config_of_its_own(tmp_path):
    other = identity(
        tmp_path / "other", "m", more='version_policy { all {} } parameters { key: "from" value { string_value: "o" } }'
    )
    (other / "2").mkdir()

    class Mover(RepositoryAgent):
        def load(self, model):
            return Path(self.parameters["to"])

    found = prepared(tmp_path / "models", agent("mover", to=str(other)), mover=Mover)
    assert (found.source.directory, found.versions) == (other, (1, 2))
    assert found.config.parameters["from"].string_value == "o"


@pytest.mark.parametrize("returned", ["text", Path("/nowhere-at-all")])
def test_what_is_no_folder_is_refused(tmp_path, returned):
    class Wrong(RepositoryAgent):
        def load(self, model):
            return returned

    with pytest.raises(InferenceServerError, match="must be None or the path of a folder"):
        prepared(tmp_path, agent("wrong"), wrong=Wrong)


def test_a_check_without_serving_says_what_an_agent_says(tmp_path):
    identity(tmp_path, "m", more=agent("checksum", **{"MD5:config.pbtxt": "00"}))
    checked = check_source(scan((tmp_path,), ()).sources["m"], CheckSettings(BackendTable(), LoadSettings(True, {})))
    assert ["model 'm': repository agent 'checksum': the MD5 of 'config.pbtxt'" in error.text for error in checked.errors] == [
        True
    ]


def test_agents_of_other_packages_come_by_entry_points(tmp_path, monkeypatch):
    offer = EntryPoint("strict", f"{__name__}:Strict", table.ENTRY_POINT_GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: Strict)
    monkeypatch.setattr(table, "entry_points", lambda group: [offer])
    with pytest.raises(InferenceServerError, match="repository agent 'strict': ValueError: not this one"):
        prepared(tmp_path, agent("strict"))


def test_an_entry_point_that_is_no_agent_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "entry_points", lambda group: [EntryPoint("odd", "builtins:dict", table.ENTRY_POINT_GROUP)])
    with pytest.raises(InferenceServerError, match="builtins:dict must be a subclass of naiad"):
        prepared(tmp_path, agent("odd"))
