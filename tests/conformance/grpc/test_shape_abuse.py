"""Shapes, sizes and numbers of requests over gRPC that are none: refused by arithmetic, at once, with the field's name."""

from __future__ import annotations

import time
from typing import Any

import grpc
import pytest
from grpc_server import GrpcServer, stub
from http_models import Pair, write_identity
from process_facts import facts
from tritonclient.grpc import service_pb2 as pb

MAY_GROW_BYTES = 20 << 20
LARGEST, SMALLEST = 2**63 - 1, -(2**63)
BAD_SHAPES: list[list[int]] = [
    [-1], [-2], [SMALLEST], [LARGEST], [2**32, 2**32], [2**62, 2], [2, 2**62], [4, 2**61], [2, -1], [-1, -2], [-1, LARGEST],
    [0, LARGEST], [0], [1], [3], [1, 2], [], [1] * 10_000, [2] * 64, [LARGEST] * 100,
]  # fmt: skip
# datatype → two elements in raw form, the typed field and its values.
FORMS: dict[str, tuple[bytes, str, list[Any]]] = {
    "FP32": (bytes(8), "fp32_contents", [1.0, 2.0]),
    "INT8": (bytes(2), "int_contents", [1, 2]),
    "BOOL": (bytes(2), "bool_contents", [True, False]),
    "BYTES": (bytes(8), "bytes_contents", [b"", b"a"]),
}
FP16_RAW = bytes(4)


@pytest.fixture(scope="module")
def shared(tmp_path_factory, serve_for_module) -> GrpcServer:
    repository = tmp_path_factory.mktemp("models")
    for datatype in (*FORMS, "FP16"):
        for batch in (0, 8):
            write_identity(repository, f"echo{batch}_{datatype.lower()}", Pair(datatype=datatype), max_batch_size=batch)
    return GrpcServer(serve_for_module(repository, "--allow-client-shm=true"))


@pytest.fixture
def server(shared) -> GrpcServer:
    before = facts(shared.process.pid)
    yield shared
    assert ask(shared, request(Pair(), "raw", [2])) == ("OK", "")
    after = facts(shared.process.pid)
    assert after.resident_bytes - before.resident_bytes < MAY_GROW_BYTES
    assert after.children == before.children
    assert "Traceback" not in shared.process.log()


def request(pair: Pair, form: str, shape: list[int], batch: int = 0) -> pb.ModelInferRequest:
    """Return a request with two elements, whatever its shape says."""
    made = pb.ModelInferRequest(model_name=f"echo{batch}_{pair.datatype.lower()}")
    made.inputs.add(name="X", datatype=pair.datatype, shape=shape)
    raw, field, values = FORMS.get(pair.datatype, (FP16_RAW, "", []))
    if form == "raw":
        made.raw_input_contents.append(raw)
    else:
        getattr(made.inputs[0].contents, field).extend(values)
    return made


def ask(server: GrpcServer, request: pb.ModelInferRequest) -> tuple[str, str]:
    """Return status and text of the answer; fail when it takes longer than a second."""
    began = time.monotonic()
    with server.channel() as channel:
        try:
            stub(channel).ModelInfer(request, timeout=5)
        except grpc.RpcError as error:
            assert time.monotonic() - began < 1
            return error.code().name, error.details()
    return "OK", ""


@pytest.mark.parametrize("shape", BAD_SHAPES, ids=[str(shape)[:24] for shape in BAD_SHAPES])
@pytest.mark.parametrize(
    ("datatype", "form"), [*((name, form) for name in FORMS for form in ("raw", "typed")), ("FP16", "raw")]
)
def test_what_is_no_shape_of_two_elements_is_refused_and_names_the_input(server, datatype, form, shape):
    status, text = ask(server, request(Pair(datatype=datatype), form, shape))
    assert (status, "'X'" in text) == ("INVALID_ARGUMENT", True), text
    assert len(text) < 1000


@pytest.mark.parametrize(
    "shape", [[1, LARGEST], [LARGEST, 1], [8, 2**60], [-1, 2], [1, -1], [0, 2], [9, 1], [2], [1, 2, 1], []]
)
@pytest.mark.parametrize("form", ["raw", "typed"])
def test_with_a_batch_dimension_too(server, form, shape):
    status, text = ask(server, request(Pair(), form, shape, 8))
    assert (status, "'X'" in text or "echo8_fp32" in text) == ("INVALID_ARGUMENT", True), text


NUMBERS = [-1, SMALLEST, LARGEST, 2**32, 2**31]


@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize("key", ["shared_memory_byte_size", "shared_memory_offset"])
def test_sizes_and_offsets_of_regions_reach_no_memory(server, key, value):
    made = request(Pair(), "raw", [2])
    del made.raw_input_contents[:]
    parameters = made.inputs[0].parameters
    parameters["shared_memory_region"].string_param = "nobody's"
    parameters["shared_memory_byte_size"].int64_param = 8
    parameters[key].int64_param = value
    status, text = ask(server, made)
    assert (status, "nobody's" in text or key in text) in (("INVALID_ARGUMENT", True), ("NOT_FOUND", True)), text


@pytest.mark.parametrize("value", [-1, 0, SMALLEST, LARGEST, 2**32])
def test_numbers_of_classes_out_of_range_are_refused_or_all_there_are(server, value):
    made = request(Pair(), "raw", [2])
    made.outputs.add(name="Y").parameters["classification"].int64_param = value
    status, text = ask(server, made)
    assert (status, "classification" in text) in (("INVALID_ARGUMENT", True), ("OK", False)), text
    assert (status == "OK") == (value == 2**31)


@pytest.mark.parametrize("key", ["priority", "timeout"])
@pytest.mark.parametrize("value", NUMBERS)
def test_priorities_and_timeouts_out_of_range_harm_nobody(server, key, value):
    made = request(Pair(), "raw", [2])
    made.parameters[key].int64_param = value
    status, text = ask(server, made)
    assert (status, key in text) in (("INVALID_ARGUMENT", True), ("OK", False)), text
    assert (status == "OK") == (value >= 0)


@pytest.mark.parametrize("size", [0, LARGEST, 2**64 - 1])
def test_registrations_of_impossible_sizes_are_refused(server, size):
    with server.channel() as channel, pytest.raises(grpc.RpcError) as raised:
        stub(channel).SystemSharedMemoryRegister(
            pb.SystemSharedMemoryRegisterRequest(name="r", key="/naiad-none", offset=size, byte_size=size), timeout=5
        )
    assert raised.value.code().name in ("INVALID_ARGUMENT", "INTERNAL")
