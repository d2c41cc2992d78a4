"""With namespaces, equal names in several repositories are several models: which of them a name stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from model_folders import identity

from naiad.errors import Code, InferenceServerError
from naiad.repository.control.places import Places
from naiad.repository.layout import Naming, key_of, name_of, scan
from naiad.repository.states import UNLOADED, Entry, ModelTable, State, Version

NAMESPACED = Naming(is_namespaced=True)


@pytest.fixture
def repositories(tmp_path) -> tuple[Path, Path]:
    first, second = tmp_path / "a", tmp_path / "b"
    for repository in (first, second):
        identity(repository, "same")
    identity(second, "only")
    return first, second


def entry(state: State, reason: str = "") -> Entry:
    return Entry(State.READY, versions={1: Version(state, reason)})


def table(**entries: Entry) -> ModelTable:
    """A table of entries by the letter of their repository: the model is `m` in each."""
    made = ModelTable()
    made.is_namespaced = True
    made._entries.update({key_of(f"/{letter}", "m"): found for letter, found in entries.items()})
    return made


def test_a_key_tells_the_name_and_no_two_places_have_the_same():
    assert (key_of("", "m"), key_of("/r/x", "m")) == ("m", "/r/x/m")
    assert {name_of(key) for key in ("m", "/r/x/m")} == {"m"}


def test_a_scan_has_the_models_of_all_repositories(repositories):
    first, second = repositories
    found = scan(repositories, (), NAMESPACED)
    assert sorted(found.sources) == [f"{first}/same", f"{second}/only", f"{second}/same"]
    assert found.duplicates == {}
    assert {(source.namespace, source.name) for source in found.sources.values()} == {
        (str(first), "same"),
        (str(second), "same"),
        (str(second), "only"),
    }


def test_the_same_place_by_two_ways_is_a_duplicate_with_namespaces_too(repositories):
    first, _ = repositories
    assert list(scan([first, first / "same"], (), NAMESPACED).duplicates) == [f"{first}/same"]


def test_a_client_means_all_models_of_a_name(repositories):
    first, second = repositories
    places = Places(repositories, (), naming=NAMESPACED)
    assert places.keys_of("same") == [f"{first}/same", f"{second}/same"]
    assert places.keys_of("only") == [f"{second}/only"]
    assert places.find(f"{second}/same").directory == second / "same"
    assert places.keys() == dict.fromkeys(scan(repositories, (), NAMESPACED).sources, 1)
    with pytest.raises(InferenceServerError, match="failed to load 'none', failed to poll") as caught:
        places.keys_of("none")
    assert caught.value.code is Code.INTERNAL
    assert Places(repositories, ()).keys_of("none") == ["none"]


def test_a_name_of_two_models_stands_for_neither():
    with pytest.raises(InferenceServerError, match="There are 2 identifiers of model 'm' in global map") as caught:
        table(a=entry(State.READY), b=entry(State.READY)).key_for("m")
    assert caught.value.code is Code.INVALID_ARGUMENT
    failed_load = entry(State.UNAVAILABLE, "no memory")
    with pytest.raises(InferenceServerError, match="There are 2 identifiers"):
        table(a=entry(State.READY), b=failed_load).find("m", "")


@pytest.mark.parametrize(
    "other", [entry(State.UNAVAILABLE, UNLOADED), entry(State.UNLOADING), Entry(State.UNAVAILABLE, "syntax")]
)
def test_what_is_unloaded_or_can_not_be_read_doesnt_claim_the_name(other):
    assert table(a=other, b=entry(State.READY)).key_for("m") == "/b/m"


def test_the_own_namespace_goes_before_others_and_then_the_only_one():
    both = table(a=entry(State.READY), b=entry(State.READY))
    assert both.key_for("m", "/b") == "/b/m"
    with pytest.raises(InferenceServerError, match="ambiguity"):
        both.key_for("m", "/c")
    assert table(a=entry(State.READY)).key_for("m", "/c") == "/a/m"


def test_a_key_is_no_name():
    known = table(a=entry(State.READY))
    with pytest.raises(InferenceServerError, match="Request for unknown model: '/a/m' is not found"):
        known.look_up("/a/m", "")


def test_an_ambiguous_model_is_not_serving_and_an_unknown_one_unknown():
    known = table(a=entry(State.READY), b=entry(State.READY))
    assert (known.is_serving("m"), known.is_serving("other")) == (False, None)
    assert [(line.name, line.version) for line in known.index(is_ready_only=True)] == [("m", "1"), ("m", "1")]
