"""Texts about a model's exceptions: what clients read is short and says where, what the log gets is whole, neither can fail."""

from __future__ import annotations

import builtins
import importlib

import pytest

from naiad.worker import faults
from naiad.worker.batches import as_json


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_the_short_text_has_type_text_and_place():
    text = faults.short(raised(ValueError("no")))
    assert text.startswith(f"ValueError: no\n\nAt:\n  {__file__}(")
    assert text.endswith("): raised\n")


def test_an_exception_that_was_never_raised_has_no_place():
    assert faults.short(ValueError("no")) == "ValueError: no"


def test_a_long_text_is_cut_and_says_by_how_much():
    text = faults.short(ValueError("é" * 5000))
    assert text == f"ValueError: {'é' * 2000}… (3000 characters more)"
    assert faults.cut("abc", 3) == "abc"


def test_a_long_traceback_is_cut():
    assert len(faults.whole(raised(ValueError("x" * 100_000)))) < 21_000


class _Silent(Exception):
    def __init__(self, instead: BaseException) -> None:
        self.instead = instead

    def __str__(self) -> str:
        raise self.instead


@pytest.mark.parametrize("instead", [ValueError("x"), SystemExit(1), KeyboardInterrupt(), RecursionError()])
def test_a_text_that_cannot_be_had_is_named(instead):
    error = raised(_Silent(instead))
    assert faults.short(error).startswith(f"_Silent: (its text can't be had: {type(instead).__name__})")
    assert "_Silent" in faults.whole(error)


@pytest.mark.parametrize("code", ["x = (", "import nosuchmodule_", "from os import nosuchname_"])
def test_a_fault_at_import_names_the_models_file_not_the_import_system(tmp_path, monkeypatch, code):
    (tmp_path / "faulty_model.py").write_text(f"\n{code}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((SyntaxError, ImportError)) as caught:
        importlib.import_module("faulty_model")
    text = faults.short(caught.value)
    assert "frozen" not in text
    assert f"\n\nAt:\n  {tmp_path}/faulty_model.py(2)" in text


def test_the_whole_text_shows_causes_and_hides_the_worker_itself():
    try:
        try:
            raise KeyError("why")
        except KeyError as cause:
            raise ValueError("no") from cause
    except ValueError as error:
        text = faults.whole(error)
    assert "KeyError: 'why'" in text
    assert text.rstrip().endswith("ValueError: no")
    assert "naiad/worker" not in text


def test_endless_recursion_has_a_text():
    def deeper():
        return deeper()

    with pytest.raises(RecursionError) as caught:
        deeper()
    assert faults.short(caught.value).startswith("RecursionError: maximum recursion depth exceeded")
    assert "deeper" in faults.whole(caught.value)


@pytest.mark.parametrize("text", ["é", "😀", "\ud83d", "a\udcffb", "\ud83d\ude00", "\0", "\u2028"])
def test_any_text_can_be_sent(text):
    """As strict UTF-8 and JSON; half a surrogate pair becomes a question mark."""
    tail = as_json({"message": faults.whole(raised(ValueError(text)))})
    assert (text if text.isprintable() else "") in tail.decode()
    assert b"\\ud" not in tail


@pytest.mark.skipif(not hasattr(builtins, "ExceptionGroup"), reason="groups of exceptions came with Python 3.11")
def test_groups_of_exceptions_are_shown_whole():
    text = faults.whole(raised(builtins.ExceptionGroup("several", [ValueError("a"), KeyError("b")])))
    assert "ValueError: a" in text
    assert "KeyError: 'b'" in text
