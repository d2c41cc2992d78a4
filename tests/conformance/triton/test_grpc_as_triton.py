"""The same gRPC calls and streams to Naiad and to the real C++ Triton: equal statuses, answers and texts but for a list.

Naiad's text of an error may say more than Triton's. Not part of `make test`: `make conformance-triton` brings Triton onto the
machine when it isn't there.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.message import Message
from grpc_server import ANY_SIZE
from real_triton import serving_triton
from triton_grpc import ASKS, STREAMS, Ask, Said, X, ask, infer, stream, write_for_naiad, write_for_triton
from tritonclient.grpc import service_pb2 as pb

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

# name → status of Triton, of Naiad.
OTHER_STATUS = {
    # A version is a number above 0: what can't be one is a fault of the request.
    "version 0": ("NOT_FOUND", "INVALID_ARGUMENT"),
    # Later releases of Triton answer so, too.
    "model ready unknown": ("OK", "NOT_FOUND"),
    "model ready version": ("OK", "NOT_FOUND"),
    # A key that can't be one isn't looked for.
    "system register nothing": ("INTERNAL", "INVALID_ARGUMENT"),
    # A misspelt setting is no success.
    "log settings unknown": ("OK", "INVALID_ARGUMENT"),
}
OWN_WORDS = {
    # The field names its datatypes, not only the widest.
    *(f"int_contents for {datatype}" for datatype in ("UINT32", "INT64", "BOOL", "FP16", "FP32", "BYTES")),
    *(f"uint_contents for {datatype}" for datatype in ("INT8", "INT64", "BOOL", "FP16", "FP32", "BYTES")),
    "two fields",
    # One text for every version that is none.
    "version text", "version negative", "version too large", "model ready bad version", "metadata of a bad version",
    # What was sent, and advice on this case.
    "too many inputs", "datatype unknown", "datatype empty", "rank", "dimension", "batch of 0", "batches differ",
    "negative shape", "negative dimension", "few typed", "many typed", "strings cut off", "strings too few", "strings too many",
    "index of a repository", "load in a repository", "unload in a repository", "cuda register",
    # Field, value or kind, and what is allowed: one form for all parameters and settings.
    "region and typed", "region without size", "size without region", "region of a number", "region and classes",
    "classes of 0", "classes of -1", "classes as text", "classes of booleans", "reserved parameter", "unsigned parameter",
    "parameter without value", "priority negative", "priority as text",
    "timeout as text", "timeout unsigned", "sequence id unsigned",
    "sequence start as number", "load with a number for config", "load with text for a file", "log settings type",
    "log settings file", "log settings format",
    "stream: bad version", "stream: reserved parameter",
}  # fmt: skip
# What Naiad hasn't built yet isn't among its extensions.
UNBUILT_EXTENSIONS = {"trace"}
_UNKNOWN_ID = "[request id: <id_unknown>] "


@pytest.fixture(scope="module")
def triton(tmp_path_factory) -> Iterator[grpc.Channel]:
    with serving_triton(tmp_path_factory.mktemp("triton"), write_for_triton) as server:
        address = f"{server.grpc_address.host}:{server.grpc_address.port}"
        with grpc.insecure_channel(address, options=ANY_SIZE) as channel:
            yield channel


@pytest.fixture(scope="module")
def naiad(tmp_path_factory, serve_for_module) -> Iterator[grpc.Channel]:
    server = serve_for_module(write_for_naiad(tmp_path_factory.mktemp("naiad")), "--allow-client-shm=true")
    with grpc.insecure_channel(server.grpc, options=ANY_SIZE) as channel:
        yield channel


def check_text(name: str, theirs: str, ours: str) -> None:
    says_it = theirs.replace(_UNKNOWN_ID, "").rstrip(". ") in ours
    assert says_it == (name not in OWN_WORDS), (theirs, ours)
    assert bool(theirs) == bool(ours), (theirs, ours)


def comparable(message: Message) -> Message:
    """Return a message without what tells the two servers and their backends apart."""
    made = type(message)()
    made.CopyFrom(message)
    if isinstance(made, pb.ModelMetadataResponse):
        made.platform = made.platform.replace("identity", "python")
    elif isinstance(made, pb.ServerMetadataResponse):
        made.version = ""
        kept = [name for name in made.extensions if name not in UNBUILT_EXTENSIONS]
        del made.extensions[:]
        made.extensions.extend(kept)
    elif isinstance(made, pb.ModelConfigResponse):
        made.config.backend = made.config.backend.replace("identity", "python")
        made.config.default_model_filename = "model.py"
    elif isinstance(made, pb.RepositoryIndexResponse):
        models = sorted(made.models, key=lambda model: model.name)
        del made.models[:]
        made.models.extend(models)
    return made


@pytest.mark.parametrize("name", ASKS)
def test_a_call_is_answered_as_by_triton(triton, naiad, name):
    theirs, ours = ask(triton, ASKS[name]), ask(naiad, ASKS[name])
    if name in OTHER_STATUS:
        assert (theirs.status, ours.status) == OTHER_STATUS[name]
        return
    assert ours.status == theirs.status, (theirs.text, ours.text)
    check_text(name, theirs.text, ours.text)
    assert list(map(comparable, ours.messages)) == list(map(comparable, theirs.messages))


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_answered_as_by_triton(triton, naiad, name):
    theirs, ours = stream(triton, STREAMS[name]), stream(naiad, STREAMS[name])
    assert ours.status == theirs.status, (theirs.text, ours.text)
    assert ours.text == theirs.text
    for our, their in zip(ours.messages, theirs.messages, strict=True):
        assert bool(our.error_message) == bool(their.error_message)
        if their.error_message:
            check_text(f"stream: {name}", their.error_message, our.error_message)
        assert our.infer_response == their.infer_response


def test_statistics_count_as_triton_s_do(triton, naiad):
    def counted(channel: grpc.Channel) -> list[object]:
        for request in (infer("counted", X), infer("counted", X), infer("counted", X, outputs=["Z"])):
            ask(channel, Ask("ModelInfer", request))
        said: Said = ask(channel, Ask("ModelStatistics", pb.ModelStatisticsRequest(name="counted")))
        (found,) = said.messages[0].model_stats
        stats = found.inference_stats
        numbers = (found.inference_count, found.execution_count, stats.success.count, stats.queue.count)
        return [found.name, found.version, *numbers, [each.batch_size for each in found.batch_stats]]

    assert counted(naiad) == counted(triton)
