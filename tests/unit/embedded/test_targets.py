"""Functions on the command line: what is one, and the model that it becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.backends.base import ModelFiles
from naiad.config.options import parse_options
from naiad.errors import InferenceServerError
from naiad.repository.layout import ScanResult
from naiad.server.functions.targets import FunctionInWorkerBackend, function_sources


@pytest.mark.parametrize("text", ["m:f", "package.module:f", "m:object.method", "mödul:fünktion", "_m1:_f2"])
def test_a_module_and_a_function_are_a_function(text: str) -> None:
    options = parse_options([text])
    assert (options.functions, options.model_repository) == ((text,), ())


@pytest.mark.parametrize("text", ["models", "./m:f", "m:", ":f", "m:f:g", "1m:f", "m.:f", "a/m:f"])
def test_anything_else_is_a_path(text: str) -> None:
    options = parse_options([text])
    assert (options.functions, options.model_repository) == ((), (Path(text),))


def test_a_path_that_exists_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m:f").mkdir()
    assert parse_options(["m:f"]).functions == ()


def test_functions_stand_beside_repositories(tmp_path: Path) -> None:
    options = parse_options([str(tmp_path), "m:f", "m:g"])
    assert (options.model_repository, options.functions) == ((tmp_path,), ("m:f", "m:g"))


def test_the_model_is_called_as_the_function_and_knows_where_it_is(tmp_path: Path) -> None:
    sources = function_sources(["m:f", "m:f", "n:object.g"], tmp_path)
    assert list(sources) == ["f", "g"]
    config = sources["g"].config
    assert (config.name, config.backend) == ("g", "function")
    assert config.parameters["function"].string_value == "n:object.g"
    program = FunctionInWorkerBackend.program(ModelFiles("g", tmp_path, directory=tmp_path))
    assert program.model_file.is_file()
    assert program.is_own_interpreter
    assert program.model_directory == tmp_path


def test_two_functions_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InferenceServerError, match="n:f: there is a function 'f' already"):
        function_sources(["m:f", "n:f"], tmp_path)


def test_a_function_called_as_a_model_of_a_repository_is_refused(tmp_path: Path) -> None:
    sources = function_sources(["m:f"], tmp_path)
    with pytest.raises(InferenceServerError, match="model 'f' is a function and in a model repository, too"):
        ScanResult(sources, {}).with_sources(sources)
