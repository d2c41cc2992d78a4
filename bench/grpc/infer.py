"""Makes the body of an inference call over gRPC and reads the answer, with grpcio and the protobuf of tritonclient.

Owns the messages: the server's own codecs have no part in it, so that both servers are checked by the same outside reader.
Both packages are looked for when they are first needed: without them only the scenarios of gRPC fall out.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.errors import BenchError, Unavailable
from bench.http_infer import DATATYPES, DTYPES, Address, Array

SERVICE = "/inference.GRPCInferenceService"
MODEL_INFER = f"{SERVICE}/ModelInfer"
MODEL_STREAM_INFER = f"{SERVICE}/ModelStreamInfer"
SERVER_LIVE = f"{SERVICE}/ServerLive"
PREFIX_BYTES = 5  # before each message: a byte for compression and the length
TIMEOUT_S = 30.0


def find_modules() -> None:
    """Raise Unavailable when a package that these scenarios need isn't installed."""
    try:
        for name in ("grpc", "tritonclient.grpc.service_pb2"):
            importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(f"{error} (`make install`)") from error


def make_message(model: str, inputs: Mapping[str, Array]) -> bytes:
    """Return the serialised ModelInferRequest that sends `inputs` (FP32 or INT32, as raw bytes) and wants all outputs."""
    message = _messages().ModelInferRequest(model_name=model)
    for name, array in inputs.items():
        message.inputs.add(name=name, datatype=DATATYPES[array.dtype], shape=array.shape)
        message.raw_input_contents.append(array.tobytes())
    return bytes(message.SerializeToString())


def frame(message: bytes) -> bytes:
    """Return the message as it travels: not compressed, its length of 4 bytes in front."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def read_frames(body: bytes | bytearray) -> list[bytes]:
    """Return the messages of a body; raise BenchError when one is compressed or not whole."""
    messages, start = [], 0
    while start < len(body):
        end = start + PREFIX_BYTES + int.from_bytes(body[start + 1 : start + PREFIX_BYTES], "big")
        if body[start] or end > len(body):
            raise BenchError(f"not whole, uncompressed gRPC messages: {bytes(body[start : start + 100])!r}")
        messages.append(bytes(body[start + PREFIX_BYTES : end]))
        start = end
    return messages


def read_outputs(message: bytes) -> dict[str, Array]:
    """Return the tensors of a serialised ModelInferResponse by name; raise BenchError when it isn't one with raw tensors."""
    return _outputs(_parsed("ModelInferResponse", message))


def read_stream_outputs(message: bytes) -> dict[str, Array]:
    """Return the tensors of a serialised ModelStreamInferResponse by name; raise BenchError when it carries an error."""
    response = _parsed("ModelStreamInferResponse", message)
    if response.error_message:
        raise BenchError(f"the stream answers: {response.error_message}")
    return _outputs(response.infer_response)


def call(address: Address, path: str, message: bytes) -> bytes:
    """Call a unary method once on a channel of its own; return the answer; raise BenchError unless its status is OK."""
    grpc = importlib.import_module("grpc")
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(str(address), options=options) as channel:
        try:
            return bytes(channel.unary_unary(path)(message, timeout=TIMEOUT_S))
        except grpc.RpcError as error:
            raise BenchError(f"{address}{path} answers {error.code().name}: {error.details()}") from error


def check_answer(address: Address, message: bytes, expected: Mapping[str, Array]) -> int:
    """Call ModelInfer once and compare; return the answer's size in bytes.

    Raises BenchError when an output of `expected` hasn't the same shape and values.
    """
    answer = call(address, MODEL_INFER, message)
    outputs = read_outputs(answer)
    for name, array in expected.items():
        got = outputs.get(name)
        if got is None or got.shape != array.shape or not np.array_equal(got, array):
            raise BenchError(f"{address}{MODEL_INFER}: wrong answer in output '{name}': {got} instead of {array}")
    return len(answer)


def _outputs(response: Any) -> dict[str, Array]:
    tensors, contents = response.outputs, response.raw_output_contents
    if len(tensors) != len(contents):
        raise BenchError(f"{len(tensors)} outputs come with the bytes of {len(contents)}")
    try:
        arrays = [
            np.frombuffer(content, DTYPES[tensor.datatype]).reshape(tensor.shape) for tensor, content in zip(tensors, contents)
        ]
    except (ValueError, KeyError) as error:
        raise BenchError(f"not the outputs that were expected: {error}") from error
    return {tensor.name: array for tensor, array in zip(tensors, arrays)}


def _parsed(kind: str, message: bytes) -> Any:
    decode_error = importlib.import_module("google.protobuf.message").DecodeError
    try:
        return getattr(_messages(), kind).FromString(message)
    except decode_error as error:
        raise BenchError(f"not a {kind}: {message[:100]!r} ({error})") from error


def _messages() -> Any:
    return importlib.import_module("tritonclient.grpc.service_pb2")
