"""gRPC's side of the benchmark: messages in frames, h2load's figures, and answers that are checked before they count."""

from __future__ import annotations

import numpy as np
import pytest
from bench.errors import BenchError
from bench.grpc.h2load import parse_h2load, percentile
from bench.grpc.infer import frame, make_message, read_frames, read_outputs, read_stream_outputs
from bench.grpc.stream import check_numbers
from bench.models.repository import config_text
from bench.report import idle_table, stream_table, throughput_table
from bench.results import Comparison, Idle, IdleSample, Sample, Stream, StreamSample
from bench.scenarios import repeat_model
from bench.servers import listening_port
from tritonclient.grpc import service_pb2

ANSWER_BYTES = 100
LOG = "1\t200\t1000\n2\t200\t3000\n3\t200\t2000\n4\t200\t4000\n"


def h2load_output(*, succeeded: int = 4, ok: int = 4, data_bytes: int = 420, started: int = 5) -> str:
    return (
        "progress: 100% of clients started\n\nfinished in 500.00ms, 8.00 req/s, 1.04KB/s\n"
        f"requests: 4 total, {started} started, 4 done, {succeeded} succeeded, {4 - succeeded} failed, 0 errored, 0 timeout\n"
        f"status codes: {ok} 2xx, 0 3xx, 0 4xx, {4 - ok} 5xx\n"
        f"traffic: 1.04KB (1068) total, 96B (96) headers (space savings 84.62%), {data_bytes}B ({data_bytes}) data\n"
    )


def test_h2load_s_rate_is_calls_over_time_and_its_latencies_come_from_the_log() -> None:
    result = parse_h2load(h2load_output(), LOG, ANSWER_BYTES)
    assert (result.requests_per_s, result.p50_us, result.p99_us) == (8.0, 2000, 4000)


def test_a_call_that_was_cut_off_at_the_end_may_have_sent_a_part() -> None:
    assert parse_h2load(h2load_output(data_bytes=450), LOG, ANSWER_BYTES).requests_per_s == 8.0


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (h2load_output(succeeded=3), "of 4 calls 1 failed"),
        (h2load_output(ok=3), "1 have another status than 2xx"),
        (h2load_output(data_bytes=315), "grpc-status other than 0"),
        (h2load_output(data_bytes=530), "grpc-status other than 0"),
        ("could not resolve address", "printed no result"),
    ],
)
def test_one_failed_call_fails_the_run(output: str, error: str) -> None:
    with pytest.raises(BenchError, match=error):
        parse_h2load(output, LOG, ANSWER_BYTES)


def test_a_log_that_misses_calls_fails_the_run() -> None:
    with pytest.raises(BenchError, match="log has 1 calls of 4"):
        parse_h2load(h2load_output(), "1\t200\t1000\n", ANSWER_BYTES)


def test_a_percentile_is_the_value_that_so_many_do_not_exceed() -> None:
    assert percentile(range(1, 101), 99) == 99
    assert percentile([7], 50) == 7


def test_framed_messages_come_back_whole_and_in_order() -> None:
    assert read_frames(frame(b"a") + frame(b"") + frame(b"bcd")) == [b"a", b"", b"bcd"]


@pytest.mark.parametrize("body", [frame(b"abc")[:-1], b"\0\0", b"\1" + frame(b"abc")[1:]])
def test_a_message_that_is_cut_or_compressed_is_refused(body: bytes) -> None:
    with pytest.raises(BenchError, match="not whole, uncompressed"):
        read_frames(body)


def test_a_request_carries_raw_tensors_that_an_answer_gives_back() -> None:
    array = np.arange(6, dtype=np.float32).reshape(1, 6)
    request = service_pb2.ModelInferRequest.FromString(make_message("m", {"X": array}))
    answer = service_pb2.ModelInferResponse(raw_output_contents=request.raw_input_contents)
    answer.outputs.add(name="Y", datatype=request.inputs[0].datatype, shape=request.inputs[0].shape)
    np.testing.assert_array_equal(read_outputs(answer.SerializeToString())["Y"], array)


def test_what_is_no_answer_is_refused() -> None:
    with pytest.raises(BenchError, match="not a ModelInferResponse"):
        read_outputs(b"\xff\xff")
    failed = service_pb2.ModelStreamInferResponse(error_message="no such model")
    with pytest.raises(BenchError, match="the stream answers: no such model"):
        read_stream_outputs(failed.SerializeToString())


def stream_body(*numbers: int) -> bytes:
    body = b""
    for number in numbers:
        response = service_pb2.ModelStreamInferResponse()
        response.infer_response.outputs.add(name="OUT", datatype="INT32", shape=[1])
        response.infer_response.raw_output_contents.append(np.array([number], np.int32).tobytes())
        body += frame(response.SerializeToString())
    return body


def test_a_stream_counts_only_when_every_number_came_in_order() -> None:
    check_numbers("Small", stream_body(0, 1, 2), 3)
    for numbers in [(0, 1), (0, 2, 1), (0, 1, 2, 3)]:
        with pytest.raises(BenchError, match="responses came of 3"):
            check_numbers("Small", stream_body(*numbers), 3)


def test_the_streaming_model_is_decoupled() -> None:
    assert "model_transaction_policy { decoupled: true }" in config_text(repeat_model())


def test_the_port_of_grpc_is_read_from_the_same_line_and_may_be_absent() -> None:
    line = 'NAIAD_LISTENING {"http": "127.0.0.1:5", "grpc": "127.0.0.1:6"}\n'
    assert (listening_port(line), listening_port(line, "grpc")) == (5, 6)
    assert listening_port('NAIAD_LISTENING {"http": "127.0.0.1:5"}\n', "grpc") is None


def test_the_tables_show_megabytes_both_ways_and_growth_for_each_connection() -> None:
    row = Comparison("image", "in place", Sample(1000, 1, 1, 1), Sample(500, 1, 1, 1), tensor_bytes=600_000)
    assert throughput_table([row]).endswith("| image | in place | 600 | 1,200 | 600 | 2.00 |")
    idle = Idle("Naiad", 1024, IdleSample(2**26, 2**24))
    assert idle_table([idle]).endswith("| Naiad | 1024 | 64.0 | 16.0 | 16.0 |")
    assert stream_table([Stream("Naiad", 10_000, StreamSample(5000, 60))]).endswith("| Naiad | 10000 | 5,000 | 60.0 |")
