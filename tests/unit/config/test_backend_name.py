"""Which backend a model gets: by platform, file name, file on disk, model name, in this order."""

import pytest

from naiad.config.backend_name import FILE_KINDS, infer_backend, platforms_of
from naiad.config.pbtxt import parse_config
from naiad.errors import Code, InferenceServerError


def infer(text, directory, name="m"):
    config = parse_config(text, "f")
    infer_backend(config, directory, name)
    return config.backend, config.platform, config.default_model_filename


@pytest.mark.parametrize("kind", FILE_KINDS, ids=lambda kind: kind.file_name)
def test_the_default_file_on_disk_tells_backend_platform_and_file(kind, tmp_path):
    (tmp_path / kind.file_name).touch()
    assert (kind.backend, kind.platform, kind.file_name) == infer("", tmp_path)


@pytest.mark.parametrize("kind", [kind for kind in FILE_KINDS if kind.platform], ids=lambda kind: kind.platform)
def test_the_platform_tells_backend_and_file(kind, tmp_path):
    assert (kind.backend, kind.platform, kind.file_name) == infer(f'platform: "{kind.platform}"', tmp_path)


def test_libtorch_is_another_name_of_a_platform(tmp_path):
    assert infer('platform: "libtorch"', tmp_path) == ("pytorch", "libtorch", "model.pt")


def test_the_ending_of_the_given_file_name_tells_the_backend(tmp_path):
    assert infer('default_model_filename: "resnet.onnx"', tmp_path) == ("onnxruntime", "onnxruntime_onnx", "resnet.onnx")


def test_a_given_platform_is_not_overruled_by_a_file_on_disk(tmp_path):
    (tmp_path / "model.plan").touch()
    assert infer('platform: "onnxruntime_onnx"', tmp_path)[0] == "onnxruntime"


def test_of_several_files_the_first_kind_in_the_order_wins(tmp_path):
    for name in ("model.py", "model.onnx"):
        (tmp_path / name).touch()
    assert infer("", tmp_path)[0] == "onnxruntime"


def test_a_given_backend_stays_and_its_platform_and_file_are_filled(tmp_path):
    assert infer('backend: "onnxruntime"', tmp_path) == ("onnxruntime", "onnxruntime_onnx", "model.onnx")


def test_a_given_backend_takes_the_kind_of_its_own_that_is_on_disk(tmp_path):
    for name in ("model.pt2", "model.onnx"):
        (tmp_path / name).touch()
    assert infer('backend: "pytorch"', tmp_path) == ("pytorch", "torch_aoti", "model.pt2")


def test_a_custom_backend_is_left_as_it_is(tmp_path):
    assert infer('backend: "identity"', tmp_path) == ("identity", "", "")


def test_the_model_name_after_its_first_dot_is_the_last_resort(tmp_path):
    assert infer("", tmp_path, "m.identity") == ("identity", "", "model.identity")


@pytest.mark.parametrize("name", ["m", "m."])
def test_nothing_to_go_by_is_refused(name, tmp_path):
    with pytest.raises(InferenceServerError) as caught:
        infer("", tmp_path, name)
    assert Code.INVALID_ARGUMENT is caught.value.code
    assert (
        f"Invalid model name: Could not determine backend for model '{name}' with no backend in model configuration. "
        "Expected model name of the form 'model.<backend_name>'." == caught.value.message
    )


def test_an_unknown_platform_is_left_for_validation(tmp_path):
    assert infer('platform: "abacus"', tmp_path, "m.identity") == ("", "abacus", "")


@pytest.mark.parametrize("text", ['platform: "ensemble"', "ensemble_scheduling { }"])
def test_an_ensemble_has_no_backend(text, tmp_path):
    (tmp_path / "model.onnx").touch()
    assert infer(text, tmp_path)[0] == ""


def test_backends_without_platform_take_any():
    assert frozenset() == platforms_of("python")
    assert frozenset({"pytorch_libtorch", "libtorch", "torch_aoti"}) == platforms_of("pytorch")
