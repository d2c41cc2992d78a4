"""ModelInferRequest and ModelInferResponse: our bytes and protobuf's agree, and each rule of the messages has its error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from naiad.errors import Code, InferenceServerError
from naiad.request.call import RegionSlice
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor.datatype import BY_NAME
from naiad.wire.proto.fields import split_request
from naiad.wire.proto.infer_request import ProtoTemplates, decode_infer, request_id
from naiad.wire.proto.infer_response import ProtoResponseTemplates, encode_infer
from naiad.wire.proto.stream_response import encode_stream_end, encode_stream_error, encode_stream_response


def request(**fields: Any) -> service_pb2.ModelInferRequest:
    return service_pb2.ModelInferRequest(model_name="m", **fields)


def with_input(datatype: str = "FP32", shape: tuple[int, ...] = (2,), **contents: Any) -> service_pb2.ModelInferRequest:
    message = request()
    item = message.inputs.add(name="X", datatype=datatype, shape=shape)
    for field, values in contents.items():
        getattr(item.contents, field).extend(values)
    return message


def refusal(message: service_pb2.ModelInferRequest) -> str:
    with pytest.raises(InferenceServerError) as raised:
        decode_infer(message.SerializeToString())
    assert raised.value.code is Code.INVALID_ARGUMENT
    return raised.value.message


names = st.text(max_size=8)
raw_inputs = st.lists(st.tuples(names, st.lists(st.integers(0, 2**62), max_size=3), st.binary(max_size=300)), max_size=3)


@given(names, names, raw_inputs, st.lists(names, max_size=2), st.booleans())
def test_any_request_reads_as_protobuf_reads_it_with_and_without_memory(name, call_id, inputs, outputs, has_unknown) -> None:
    message = service_pb2.ModelInferRequest(model_name=name, id=call_id)
    for input_name, shape, raw in inputs:
        message.inputs.add(name=input_name, datatype="INT8", shape=shape)
        message.raw_input_contents.append(raw)
    for output in outputs:
        message.outputs.add(name=output)
    data = message.SerializeToString()
    if has_unknown:
        data = b"\xf8\x3f\x07" + data + b"\xfa\x3f\x03abc"
    templates = ProtoTemplates()
    for _ in range(2):
        call, _ = decode_infer(data, templates)
        assert (name, call_id) == (call.model_name, call.id)
        assert [(item.name, item.shape, bytes(item.buffer)) for item in call.inputs] == inputs
        assert [output.name for output in call.outputs] == outputs
    assert call.template is not None or len(message.SerializeToString()) > 2048
    assert request_id(data) == call_id


def test_raw_contents_are_views_of_the_message() -> None:
    message = with_input()
    message.raw_input_contents.append(b"12345678")
    data = message.SerializeToString()
    call, _ = decode_infer(data)
    assert isinstance(call.inputs[0].buffer, memoryview)
    assert call.inputs[0].buffer.obj is data


def test_fields_that_only_protobuf_can_skip_are_left_to_it() -> None:
    message = with_input()
    message.raw_input_contents.append(b"12345678")
    group = b"\xfb\x3f\x08\x01\xfc\x3f"
    assert split_request(message.SerializeToString() + group) is None
    call, _ = decode_infer(message.SerializeToString() + group)
    assert bytes(call.inputs[0].buffer or b"") == b"12345678"


def test_a_message_of_countless_fields_is_left_to_protobuf() -> None:
    message = with_input()
    message.raw_input_contents.append(b"12345678")
    data = b"\xf8\x3f\x07" * 5000 + message.SerializeToString()
    assert split_request(data) is None
    call, _ = decode_infer(data)
    assert bytes(call.inputs[0].buffer or b"") == b"12345678"


def test_the_same_head_with_other_sizes_isnt_the_same_call() -> None:
    templates = ProtoTemplates()
    for size in (8, 4):
        message = with_input(shape=(2,))
        message.raw_input_contents.append(b"x" * size)
        call, _ = decode_infer(message.SerializeToString(), templates)
        assert len(call.inputs[0].buffer or b"") == size


@pytest.mark.parametrize(
    ("datatype", "field", "values", "expected"),
    [
        ("BOOL", "bool_contents", [True, False], [True, False]),
        ("INT8", "int_contents", [-1, 300], [-1, 44]),
        ("INT16", "int_contents", [1, -70000], [1, -4464]),
        ("INT32", "int_contents", [1, -2], [1, -2]),
        ("INT64", "int64_contents", [2**62, -2], [2**62, -2]),
        ("UINT8", "uint_contents", [255, 256], [255, 0]),
        ("UINT16", "uint_contents", [1, 2], [1, 2]),
        ("UINT32", "uint_contents", [1, 2**32 - 1], [1, 2**32 - 1]),
        ("UINT64", "uint64_contents", [1, 2**64 - 1], [1, 2**64 - 1]),
        ("FP32", "fp32_contents", [1.5, -2.5], [1.5, -2.5]),
        ("FP64", "fp64_contents", [0.1, 2.0], [0.1, 2.0]),
        ("BYTES", "bytes_contents", [b"a", b""], [b"a", b""]),
    ],
)
def test_typed_contents(datatype, field, values, expected) -> None:
    call, _ = decode_infer(with_input(datatype, **{field: values}).SerializeToString())
    array = call.inputs[0].array
    assert array is not None
    assert array.dtype == BY_NAME[datatype].numpy
    assert array.tolist() == expected


INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.one_of(
    st.tuples(st.just("BOOL"), st.just("bool_contents"), st.lists(st.booleans())),
    st.tuples(st.just("INT32"), st.just("int_contents"), st.lists(INT32)),
    st.tuples(st.just("INT64"), st.just("int64_contents"), st.lists(INT64)),
    st.tuples(st.just("UINT32"), st.just("uint_contents"), st.lists(st.integers(0, 2**32 - 1))),
    st.tuples(st.just("UINT64"), st.just("uint64_contents"), st.lists(st.integers(0, 2**64 - 1))),
    st.tuples(st.just("FP32"), st.just("fp32_contents"), st.lists(st.floats(width=32, allow_nan=False))),
    st.tuples(st.just("FP64"), st.just("fp64_contents"), st.lists(st.floats(allow_nan=False))),
)


@given(NUMBERS, st.integers(1, 60))
def test_any_numbers_in_contents_are_those_that_protobuf_reads(numbers, times) -> None:
    datatype, field, values = numbers
    message = with_input(datatype, **{field: values * times})
    message.inputs[0].contents.SetInParent()
    (item,) = decode_infer(message.SerializeToString())[0].inputs
    assert item.array is not None
    assert item.array.tolist() == list(getattr(message.inputs[0].contents, field))


def test_what_is_wrong_with_contents_is_named() -> None:
    assert "of type 'INT64', expected datatype 'FP32'" in refusal(with_input(int64_contents=[1, 2]))
    assert "raw_input_contents only" in refusal(with_input("FP16", fp32_contents=[1, 2]))
    assert "'FP99' is none of" in refusal(with_input("FP99", fp32_contents=[1]))
    both = with_input(fp32_contents=[1, 2])
    both.raw_input_contents.append(b"12345678")
    assert "contents field must not be specified when using raw_input_contents" in refusal(both)
    region = with_input(fp32_contents=[1, 2])
    region.inputs[0].parameters["shared_memory_region"].string_param = "r"
    assert "shared memory" in refusal(region)
    assert "unable to find data for input tensor 'X' for model 'm' in request." in refusal(with_input())
    assert "got -1 as dimension 0" in refusal(with_input(shape=(-1,), fp32_contents=[1]))


def test_surplus_raw_contents_are_ignored_and_regions_take_none() -> None:
    message = request()
    message.inputs.add(name="A", datatype="INT8", shape=[1]).parameters["shared_memory_region"].string_param = "r"
    message.inputs[0].parameters["shared_memory_byte_size"].int64_param = 1
    message.inputs[0].parameters["shared_memory_offset"].int64_param = 3
    message.inputs.add(name="B", datatype="INT8", shape=[1])
    message.raw_input_contents.extend([b"b", b"surplus"])
    call, _ = decode_infer(message.SerializeToString(), ProtoTemplates())
    assert (RegionSlice("r", 3, 1), None) == (call.inputs[0].region, call.inputs[0].buffer)
    assert bytes(call.inputs[1].buffer or b"") == b"b"


def test_parameters_with_a_meaning_and_custom_ones() -> None:
    message = request()
    parameters = message.parameters
    parameters["sequence_id"].int64_param = -1
    parameters["sequence_start"].bool_param = True
    parameters["priority"].uint64_param = 3
    parameters["timeout"].int64_param = 500
    parameters["triton_enable_empty_final_response"].bool_param = True
    parameters["own"].double_param = 0.5
    call, wants_empty_final = decode_infer(message.SerializeToString())
    assert (call.sequence_id, call.is_sequence_start, call.priority, call.timeout_us) == (2**64 - 1, True, 3, 500)
    assert call.parameters == {"own": 0.5}
    assert wants_empty_final


@pytest.mark.parametrize(
    ("key", "field", "value", "text"),
    [
        ("sequence_id", "uint64_param", 1, "'sequence_id' has invalid type uint64_param"),
        ("priority", "int64_param", -1, "'priority' must be at least 0, got -1"),
        ("timeout", "string_param", "1", "'timeout' has invalid type string_param"),
        ("triton_x", "bool_param", True, "keys that begin with 'triton_' are reserved"),
        ("own", "uint64_param", 1, "'own' has invalid type uint64_param"),
    ],
)
def test_parameters_of_a_wrong_kind(key, field, value, text) -> None:
    message = request()
    setattr(message.parameters[key], field, value)
    assert text in refusal(message)


def test_outputs_parameters() -> None:
    message = request()
    message.outputs.add(name="Y").parameters["classification"].int64_param = 3
    call, _ = decode_infer(message.SerializeToString())
    assert call.outputs[0].classification == 3
    message.outputs[0].parameters["classification"].int64_param = 0
    assert "'classification' of output 'Y' must be from 1" in refusal(message)
    message.outputs[0].parameters["classification"].int64_param = 2
    message.outputs[0].parameters["shared_memory_region"].string_param = "r"
    assert "output 'Y' is in shared memory region 'r': 'shared_memory_byte_size' is missing" in refusal(message)
    message.outputs[0].parameters["shared_memory_byte_size"].int64_param = 8
    assert "set only one of them" in refusal(message)
    del message.outputs[0].parameters["shared_memory_region"]
    assert "'shared_memory_byte_size' of output 'Y' is there without 'shared_memory_region'" in refusal(message)


@pytest.mark.parametrize("version", ["1a", "0", "-1", "1.5", " 1"])
def test_a_version_that_is_no_number(version) -> None:
    assert f"version string '{version}'" in refusal(request(model_version=version))


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05ab", b"\x3a\xff\xff\xff\xff\x7f", b"\x0a\x02\xff\xfe", b"\x0b"])
def test_garbage_is_refused(data) -> None:
    with pytest.raises(InferenceServerError, match=r"no inference\.ModelInferRequest") as raised:
        decode_infer(data)
    assert raised.value.code is Code.INVALID_ARGUMENT


def response(**fields: Any) -> InferResponse:
    outputs = [
        OutputTensor("A", BY_NAME["FP32"], np.arange(6, dtype=np.float32).reshape(2, 3)),
        OutputTensor("E", BY_NAME["INT8"], np.empty((0, 2), np.int8)),
        OutputTensor("S", BY_NAME["BYTES"], np.array([b"ab", b""], object)),
        OutputTensor("R", BY_NAME["INT8"], np.zeros(4, np.int8), RegionSlice("r", 8, 4)),
    ]
    return InferResponse("m", "3", "id7", outputs, **fields)


def parsed(buffers: Any, kind: Any = service_pb2.ModelInferResponse) -> Any:
    return kind.FromString(b"".join(map(bytes, buffers)))


def test_a_response_reads_as_protobuf_reads_it() -> None:
    message = parsed(encode_infer(response(parameters={"t": "x", "i": 5, "b": True, "f": 0.5}), ProtoResponseTemplates()))
    assert (message.model_name, message.model_version, message.id) == ("m", "3", "id7")
    shown = [(output.name, output.datatype, list(output.shape)) for output in message.outputs]
    assert shown == [("A", "FP32", [2, 3]), ("E", "INT8", [0, 2]), ("S", "BYTES", [2]), ("R", "INT8", [4])]
    expected = [np.arange(6, dtype=np.float32).tobytes(), b"", b"\2\0\0\0ab\0\0\0\0", b""]
    assert expected == list(message.raw_output_contents)
    parameters = message.parameters
    assert (
        parameters["t"].string_param,
        parameters["i"].int64_param,
        parameters["b"].bool_param,
        parameters["f"].double_param,
    ) == ("x", 5, True, 0.5)
    assert all(not output.parameters for output in message.outputs)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([(1,), (2, 2)]), st.text(max_size=3)), max_size=6))
def test_responses_are_the_same_with_and_without_memory(asked) -> None:
    templates = ProtoResponseTemplates()
    for name, shape, call_id in asked:
        one = InferResponse("m", "1", call_id, [OutputTensor(name, BY_NAME["FP32"], np.ones(shape, np.float32))])
        assert parsed(encode_infer(one)) == parsed(encode_infer(one, templates))


def test_tensors_of_a_response_arent_copied() -> None:
    array = np.zeros(1000, np.float32)
    buffers = encode_infer(InferResponse("m", "1", "", [OutputTensor("Y", BY_NAME["FP32"], array)]))
    assert np.shares_memory(np.frombuffer(buffers[-1], np.uint8), array)


@pytest.mark.parametrize(("key", "value"), [("x", 2**70), ("x", None), ("x", "\ud800"), ("\ud800", 1)])
def test_a_parameter_that_protobuf_cant_hold_is_the_models_fault(key, value) -> None:
    with pytest.raises(InferenceServerError, match="response parameter") as raised:
        encode_infer(response(parameters={key: value}))
    assert raised.value.code is Code.INTERNAL


@pytest.mark.parametrize("is_final", [True, False])
def test_stream_responses(is_final) -> None:
    message = parsed(encode_stream_response(response(), is_final), service_pb2.ModelStreamInferResponse)
    assert message.infer_response.parameters["triton_final_response"].bool_param is is_final
    assert (message.error_message, message.infer_response.id, len(message.infer_response.raw_output_contents)) == ("", "id7", 4)


def test_the_end_and_the_error_of_a_request() -> None:
    end = parsed(encode_stream_end("i", "m", ""), service_pb2.ModelStreamInferResponse).infer_response
    assert (
        end.id,
        end.model_name,
        end.model_version,
        end.parameters["triton_final_response"].bool_param,
    ) == ("i", "m", "", True)
    error = parsed(encode_stream_error("bad", "i"), service_pb2.ModelStreamInferResponse)
    assert (
        error.error_message,
        error.infer_response.id,
        error.infer_response.model_name,
        len(error.infer_response.parameters),
    ) == ("bad", "i", "", 0)
