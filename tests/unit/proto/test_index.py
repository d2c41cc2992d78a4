"""The index of the descriptor set: every name that a tool may ask for finds its file, with what that imports."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2

from naiad.proto import DescriptorIndex, descriptor_set


@pytest.fixture(scope="module")
def index() -> DescriptorIndex:
    return DescriptorIndex(descriptor_set())


def names(files: list[bytes] | None) -> list[str] | None:
    return None if files is None else [descriptor_pb2.FileDescriptorProto.FromString(file).name for file in files]


def test_the_services_are_sorted(index):
    assert index.services == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "inference.GRPCInferenceService",
    ]


def test_a_file_comes_first_and_behind_it_what_it_imports_each_once(index):
    assert names(index.file("inference.proto")) == ["inference.proto", "model_config.proto"]
    assert names(index.file("model_config.proto")) == ["model_config.proto"]
    assert index.file("nothing.proto") is None
    assert index.file("") is None


@pytest.mark.parametrize(
    ("symbol", "file"),
    [
        ("inference.GRPCInferenceService", "inference.proto"),
        ("inference.GRPCInferenceService.ModelInfer", "inference.proto"),
        ("inference.ModelInferRequest", "inference.proto"),
        ("inference.ModelInferRequest.InferInputTensor", "inference.proto"),
        ("inference.ModelInferRequest.raw_input_contents", "inference.proto"),
        ("inference.InferParameter.parameter_choice", "inference.proto"),
        ("inference.ModelConfig", "model_config.proto"),
        ("inference.DataType", "model_config.proto"),
        ("inference.TYPE_FP32", "model_config.proto"),
        ("inference.DataType.TYPE_FP32", "model_config.proto"),
        ("grpc.health.v1.HealthCheckResponse.ServingStatus", "health.proto"),
        ("grpc.health.v1.HealthCheckResponse.SERVING", "health.proto"),
        ("grpc.health.v1.Health.Watch", "health.proto"),
    ],
)
def test_a_symbol_of_every_kind_finds_its_file(index, symbol, file):
    found = names(index.file_with_symbol(symbol))
    assert found is not None
    assert found[0] == file


@pytest.mark.parametrize(
    "symbol", ["", ".", "inference", "inference.", ".inference.ModelConfig", "inference.Nope", "ModelConfig"]
)
def test_what_is_no_symbol_finds_nothing(index, symbol):
    assert index.file_with_symbol(symbol) is None


def test_a_message_without_extensions_has_none_and_an_unknown_one_isnt_known(index):
    assert index.extension_numbers("inference.ModelConfig") == []
    assert index.extension_numbers("inference.Nope") is None
    # A service has no extensions to have none of.
    assert index.extension_numbers("inference.GRPCInferenceService") is None
    assert index.file_with_extension("inference.ModelConfig", 100) is None


def test_extensions_are_found_by_message_and_number_wherever_they_are_declared():
    base = descriptor_pb2.FileDescriptorProto(name="base.proto", package="a")
    base.message_type.add(name="Open").extension_range.add(start=100, end=200)
    more = descriptor_pb2.FileDescriptorProto(name="more.proto", dependency=["base.proto"])
    more.extension.add(name="second", number=120, extendee=".a.Open")
    more.message_type.add(name="Scope").extension.add(name="first", number=101, extendee=".a.Open")
    index = DescriptorIndex(descriptor_pb2.FileDescriptorSet(file=[base, more]).SerializeToString())
    assert index.extension_numbers("a.Open") == [101, 120]
    for number in (101, 120):
        assert names(index.file_with_extension("a.Open", number)) == ["more.proto", "base.proto"]
    assert names(index.file_with_symbol("Scope.first")) == ["more.proto", "base.proto"]
    assert names(index.file_with_symbol("second")) == ["more.proto", "base.proto"]


def test_a_file_that_two_imports_lead_to_is_given_once():
    files = [descriptor_pb2.FileDescriptorProto(name=name, dependency=imports) for name, imports in DIAMOND]
    index = DescriptorIndex(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())
    assert names(index.file("top")) == ["top", "left", "right", "base"]


DIAMOND = [("base", []), ("left", ["base"]), ("right", ["base"]), ("top", ["left", "right"])]
