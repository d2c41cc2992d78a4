"""The table finds backends by name, and says what to do when it can't."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
import toy_backend_package

from naiad.backends.base import ModelFiles, WorkerProgram
from naiad.backends.identity.backend import IdentityBackend
from naiad.backends.onnx.backend import OnnxRuntimeBackend
from naiad.backends.python.backend import PythonBackend
from naiad.backends.table import ENTRY_POINT_GROUP, BackendTable
from naiad.errors import Code, InferenceServerError


def _entry_point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, ENTRY_POINT_GROUP)


def test_built_in_backends_are_found_by_their_own_names():
    table = BackendTable([])
    names = ("identity", "onnxruntime", "python")
    assert [IdentityBackend, OnnxRuntimeBackend, PythonBackend] == [table.find(name) for name in names]


def test_no_engine_is_imported_before_its_backend_is_asked_for():
    script = (
        "import sys; from naiad.backends.table import BackendTable; table = BackendTable(); table.names();"
        "table.find('identity'); assert 'onnxruntime' not in sys.modules;"
        "table.find('onnxruntime'); assert 'onnxruntime' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_missing_engine_says_which_extra_to_install(monkeypatch: pytest.MonkeyPatch):
    for module in [name for name in sys.modules if name.startswith("naiad.backends.onnx.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InferenceServerError, match=r"pip install 'naiad\[onnx\]'") as caught:
        BackendTable([]).find("onnxruntime")
    assert caught.value.code is Code.UNAVAILABLE


def test_an_unknown_name_is_an_invalid_argument_that_lists_the_known_ones():
    with pytest.raises(InferenceServerError) as caught:
        BackendTable([_entry_point("other", "a:B")]).find("nope")
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert "unable to find backend library for backend 'nope'" in caught.value.message
    assert "identity, onnxruntime, other" in caught.value.message


@pytest.mark.parametrize("name", ["", "Identity", "identity ", "naiad.backends.identity"])
def test_names_match_exactly(name: str):
    with pytest.raises(InferenceServerError, match="unable to find backend library"):
        BackendTable([]).find(name)


def test_an_installed_package_with_an_entry_point_is_found(monkeypatch: pytest.MonkeyPatch):
    toy_backend_package.install(monkeypatch)
    assert "toy" in BackendTable().names()
    assert BackendTable().find("toy").name == "toy"


def test_a_broken_package_fails_alone():
    table = BackendTable([_entry_point("broken", "no_such_module:Backend"), _entry_point("fine", _path_of(_Fine))])
    assert [_Fine, IdentityBackend] == [table.find("fine"), table.find("identity")]
    with pytest.raises(InferenceServerError, match=r"ModuleNotFoundError.*no_such_module") as caught:
        table.find("broken")
    assert caught.value.code is Code.UNAVAILABLE


def test_a_package_cannot_replace_a_built_in_backend():
    assert IdentityBackend is BackendTable([_entry_point("identity", _path_of(_Fine))]).find("identity")


def test_two_packages_with_one_name_are_refused():
    table = BackendTable([_entry_point("fine", "a:A"), _entry_point("fine", "b:B")])
    with pytest.raises(InferenceServerError, match="more than one package: 'a:A', 'b:B'"):
        table.find("fine")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("naiad.backends.table:BUILT_IN", "lacks name, releases_gil, default_instance_count, signature, load"),
        ("naiad.backends.table:BackendTable", "lacks name"),
        ("naiad.backends.identity.backend:IdentityBackend", "calls itself 'identity'"),
    ],
)
def test_what_is_no_backend_is_refused(value: str, reason: str):
    with pytest.raises(InferenceServerError, match=reason):
        BackendTable([_entry_point("odd", value)]).find("odd")


def test_a_backend_in_worker_processes_needs_no_more_than_its_program():
    assert _Isolated is BackendTable([_entry_point("isolated", _path_of(_Isolated))]).find("isolated")


def test_a_backend_in_worker_processes_that_lacks_its_program_is_refused():
    with pytest.raises(InferenceServerError, match="lacks program"):
        BackendTable([_entry_point("empty", _path_of(_WithoutProgram))]).find("empty")


class _Isolated:
    name = "isolated"
    is_isolated = True
    default_instance_count = 1

    @classmethod
    def program(cls, files: ModelFiles) -> WorkerProgram:
        raise NotImplementedError


class _WithoutProgram:
    name = "empty"
    is_isolated = True
    default_instance_count = 1


class _Fine(IdentityBackend):
    name = "fine"


def _path_of(thing: type) -> str:
    return f"{thing.__module__}:{thing.__name__}"
