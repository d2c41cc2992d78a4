"""The rules of HTTP/2 (RFC 9113) and HPACK (RFC 7541) as a client sees them break: the list that h2spec checks.

Each id is the section and the rule. A connection error may come as GOAWAY or as a closed connection; a stream error may be
made an error of the connection (5.4.2), and a malformed request (8.1.1) may be answered with a status of HTTP.

Left out: dependencies of streams (RFC 7540, 5.3), which RFC 9113 took back; the upgrade from HTTP/1 (3.2), taken back too;
what a server does that pushes (8.4), since this one never does; PRIORITY on stream 0 (6.3): libnghttp2 ignores every PRIORITY
frame, of which RFC 9113 keeps nothing but its form.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from grpc_echo import MAX_STREAMS, EchoProcess
from grpc_server import GrpcServer
from http2_frames import (
    ACK,
    CANCEL,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    LIVE,
    MAX_FRAME_SIZE,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    Frame,
    FrameConnection,
    block,
    call,
    call_fields,
    continuation,
    data,
    frame,
    goaway,
    headers,
    integer,
    literal,
    message,
    ping,
    priority,
    reset,
    settings,
    window_update,
)

MARK, SECOND_MARK = b"the mark", b"the last"
CALL = block(call_fields())
OPEN = headers(1, call_fields(STREAM))
ENDED = headers(1, call_fields(STREAM), END_HEADERS | END_STREAM)
CLOSED = OPEN + reset(1, CANCEL)
MOST = (1 << 31) - 1
WITHOUT_END = HEADERS, 0, 1, CALL


@dataclass(frozen=True)
class Rule:
    """`codes` are the error codes that may answer; `is_of_stream` lets the connection live on. No codes: nothing is wrong."""

    name: str
    sent: bytes
    codes: tuple[int, ...] = ()
    is_of_stream: bool = False


def answers(name: str, sent: bytes) -> Rule:
    return Rule(name, sent)


def ends_connection(name: str, sent: bytes, *codes: int) -> Rule:
    return Rule(name, sent, codes)


def ends_stream(name: str, sent: bytes, *codes: int) -> Rule:
    return Rule(name, sent, codes, is_of_stream=True)


def malformed(name: str, *fields: tuple[bytes, bytes]) -> Rule:
    return ends_stream(name, headers(1, fields, END_HEADERS | END_STREAM), PROTOCOL_ERROR)


def without(name: bytes) -> list[tuple[bytes, bytes]]:
    return [field for field in call_fields() if field[0] != name]


def hpack(name: str, fragment: bytes) -> Rule:
    sent = frame(HEADERS, END_HEADERS | END_STREAM, 1, fragment)
    return ends_connection(name, sent, COMPRESSION_ERROR)


FRAMES = [
    answers("4.1-unknown-type", frame(0x16, 0, 0, b"12345678")),
    answers("4.1-undefined-flags", ping(b"12345678", 0x16)),
    answers("4.1-reserved-bit", frame(PING, 0, 1 << 31, b"12345678")),
    answers("4.2-data-of-the-largest-size", OPEN + data(1, bytes(1 << 14))),
    ends_stream("4.2-data-too-large", OPEN + data(1, bytes((1 << 20) + 1)), FRAME_SIZE_ERROR),
    ends_connection("4.2-headers-too-large", frame(HEADERS, END_HEADERS, 1, bytes((1 << 20) + 1)), FRAME_SIZE_ERROR),
    ends_connection("4.3-bad-block", frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x40"), COMPRESSION_ERROR),
    ends_connection("4.3-priority-within-block", frame(*WITHOUT_END) + priority(1), PROTOCOL_ERROR),
    ends_connection("4.3-other-stream-within-block", frame(*WITHOUT_END) + headers(3, call_fields()), PROTOCOL_ERROR),
]

STREAMS = [
    ends_connection("5.1-idle-data", data(1, b"x", END_STREAM), PROTOCOL_ERROR, STREAM_CLOSED),
    ends_connection("5.1-idle-reset", reset(1), PROTOCOL_ERROR),
    ends_connection("5.1-idle-window-update", window_update(1, 100), PROTOCOL_ERROR),
    ends_connection("5.1-idle-continuation", continuation(1, CALL), PROTOCOL_ERROR),
    ends_stream("5.1-half-closed-data", ENDED + data(1, b"x", END_STREAM), STREAM_CLOSED),
    ends_stream(
        "5.1-half-closed-headers", ENDED + headers(1, call_fields(), END_HEADERS | END_STREAM), STREAM_CLOSED, PROTOCOL_ERROR
    ),
    ends_connection("5.1-half-closed-continuation", ENDED + continuation(1, CALL), STREAM_CLOSED, PROTOCOL_ERROR),
    ends_connection("5.1-closed-continuation", CLOSED + continuation(1, CALL), STREAM_CLOSED, PROTOCOL_ERROR),
    answers("5.1-closed-priority", CLOSED + priority(1)),
    answers("5.1-idle-priority", priority(1)),
    ends_connection("5.1.1-even-id", headers(2, call_fields(), END_HEADERS | END_STREAM), PROTOCOL_ERROR),
    ends_stream(
        "5.1.2-too-many-streams",
        b"".join(headers(1 + 2 * index, call_fields(STREAM)) for index in range(MAX_STREAMS + 1)),
        PROTOCOL_ERROR,
        REFUSED_STREAM,
    ),
    ends_connection("5.4.1-ping-of-six-bytes", ping(b"123456"), FRAME_SIZE_ERROR),
    answers("5.5-unknown-frame", frame(0xFF, 0, 1, b"extension")),
    ends_connection("5.5-unknown-frame-within-block", frame(*WITHOUT_END) + frame(0xFF, 0, 0, b"12345678"), PROTOCOL_ERROR),
]

FRAME_KINDS = [
    ends_connection("6.1-data-stream-0", data(0, b"x", END_STREAM), PROTOCOL_ERROR),
    ends_connection("6.1-data-padding-too-long", OPEN + data(1, b"\x06Hello", END_STREAM | PADDED), PROTOCOL_ERROR),
    answers("6.1-data-padded", OPEN + data(1, b"\x03" + bytes(3), PADDED)),
    ends_connection("6.2-headers-stream-0", headers(0, call_fields(), END_HEADERS | END_STREAM), PROTOCOL_ERROR),
    ends_connection(
        "6.2-headers-padding-too-long",
        frame(HEADERS, END_HEADERS | PADDED, 1, bytes([len(CALL) % 256]) + CALL[: len(CALL) % 256 - 1]),
        PROTOCOL_ERROR,
    ),
    ends_connection("6.2-headers-then-priority", frame(*WITHOUT_END) + frame(PRIORITY, 0, 1, bytes(5)), PROTOCOL_ERROR),
    ends_connection("6.2-headers-then-data", frame(*WITHOUT_END) + data(1, b"x"), PROTOCOL_ERROR),
    ends_stream("6.3-priority-of-four-bytes", OPEN + frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
    ends_connection("6.4-reset-stream-0", reset(0), PROTOCOL_ERROR),
    ends_connection("6.4-reset-of-three-bytes", OPEN + frame(RST_STREAM, 0, 1, bytes(3)), FRAME_SIZE_ERROR),
    ends_connection("6.5-settings-ack-with-payload", frame(SETTINGS, ACK, 0, bytes(6)), FRAME_SIZE_ERROR),
    ends_connection("6.5-settings-stream-1", frame(SETTINGS, 0, 1, struct.pack(">HI", 3, 100)), PROTOCOL_ERROR),
    ends_connection("6.5-settings-of-three-bytes", frame(SETTINGS, 0, 0, bytes(3)), FRAME_SIZE_ERROR),
    ends_connection("6.5.2-push-neither-0-nor-1", settings((ENABLE_PUSH, 2)), PROTOCOL_ERROR),
    ends_connection("6.5.2-initial-window-too-large", settings((INITIAL_WINDOW_SIZE, 1 << 31)), FLOW_CONTROL_ERROR),
    ends_connection("6.5.2-max-frame-too-small", settings((MAX_FRAME_SIZE, (1 << 14) - 1)), PROTOCOL_ERROR),
    ends_connection("6.5.2-max-frame-too-large", settings((MAX_FRAME_SIZE, 1 << 24)), PROTOCOL_ERROR),
    answers("6.5.2-unknown-setting", settings((0xFF, 1))),
    ends_connection(
        "6.6-push-promise-of-a-client", OPEN + frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4) + CALL), PROTOCOL_ERROR
    ),
    answers("6.7-ping-answer-unasked", ping(b"unasked ", ACK)),
    ends_connection("6.7-ping-stream-1", frame(PING, 0, 1, b"12345678"), PROTOCOL_ERROR),
    ends_connection("6.7-ping-too-short", ping(b"1234567"), FRAME_SIZE_ERROR),
    ends_connection("6.8-goaway-stream-1", goaway(stream_id=1), PROTOCOL_ERROR),
    ends_connection("6.9-window-update-0", window_update(0, 0), PROTOCOL_ERROR),
    ends_stream("6.9-window-update-0-of-stream", OPEN + window_update(1, 0), PROTOCOL_ERROR),
    ends_connection("6.9-window-update-of-three-bytes", frame(WINDOW_UPDATE, 0, 0, bytes(3)), FRAME_SIZE_ERROR),
    ends_connection("6.9.1-window-over-the-most", window_update(0, MOST) * 2, FLOW_CONTROL_ERROR),
    ends_stream("6.9.1-window-over-the-most-of-stream", OPEN + window_update(1, MOST) * 2, FLOW_CONTROL_ERROR),
    answers("6.10-many-continuations", frame(*WITHOUT_END) + continuation(1, b"", 0) * 3 + continuation(1, b"")),
    ends_connection("6.10-data-within-block", frame(*WITHOUT_END) + continuation(1, b"", 0) + data(1, b"x"), PROTOCOL_ERROR),
    ends_connection("6.10-continuation-stream-0", frame(*WITHOUT_END) + continuation(0, b""), PROTOCOL_ERROR),
    ends_connection("6.10-continuation-after-end", OPEN + continuation(1, b""), PROTOCOL_ERROR),
    ends_connection(
        "6.10-continuation-after-last", frame(*WITHOUT_END) + continuation(1, b"") + continuation(1, b""), PROTOCOL_ERROR
    ),
    ends_connection("6.10-continuation-after-data", OPEN + data(1, b"") + frame(CONTINUATION, 0, 1, b""), PROTOCOL_ERROR),
    answers("7-reset-with-unknown-code", OPEN + reset(1, 0xFF)),
]

MESSAGES = [
    ends_stream("8.1-second-head-goes-on", OPEN + headers(1, [(b"x-test", b"ok")]), PROTOCOL_ERROR),
    ends_stream("8.1-pseudo-in-trailers", OPEN + headers(1, [(b":method", b"POST")], END_HEADERS | END_STREAM), PROTOCOL_ERROR),
    malformed("8.2.1-upper-case-name", *call_fields(), (b"X-TEST", b"ok")),
    malformed("8.2.1-line-feed-in-value", *call_fields(), (b"x-test", b"a\nb")),
    malformed("8.2.1-nul-in-value", *call_fields(), (b"x-test", b"a\0b")),
    malformed("8.2.1-space-in-name", *call_fields(), (b"x test", b"ok")),
    malformed("8.2.1-empty-name", *call_fields(), (b"", b"ok")),
    malformed("8.2.2-connection-field", *call_fields(), (b"connection", b"keep-alive")),
    malformed("8.2.2-transfer-encoding", *call_fields(), (b"transfer-encoding", b"chunked")),
    malformed("8.2.2-te-other-than-trailers", *without(b"te"), (b"te", b"trailers, deflate;q=0.5")),
    malformed("8.3-unknown-pseudo", (b":test", b"ok"), *call_fields()),
    malformed("8.3-pseudo-of-responses", *call_fields()[:4], (b":status", b"200"), *call_fields()[4:]),
    malformed("8.3-pseudo-after-field", *without(b":path"), (b":path", LIVE)),
    malformed("8.3.1-empty-path", *[(name, b"" if name == b":path" else value) for name, value in call_fields()]),
    *(malformed(f"8.3.1-no-{name.decode()[1:]}", *without(name)) for name in (b":method", b":scheme", b":path")),
    *(malformed(f"8.3.1-two-{field[0].decode()[1:]}s", field, *call_fields()) for field in call_fields()[:3]),
    ends_stream(
        "8.1.1-content-length-too-large",
        headers(1, call_fields(STREAM, (b"content-length", b"9"))) + data(1, message(), END_STREAM),
        PROTOCOL_ERROR,
    ),
    ends_stream(
        "8.1.1-content-length-too-small",
        headers(1, call_fields(STREAM, (b"content-length", b"1"))) + data(1, message(), END_STREAM),
        PROTOCOL_ERROR,
    ),
]

HPACK = [
    hpack("hpack-2.3.3-index-beyond-tables", CALL + integer(70, 7, 0x80)),
    hpack("hpack-2.3.3-name-index-beyond-tables", CALL + integer(70, 4) + b"\x01a"),
    hpack("hpack-4.2-size-update-at-the-end", CALL + integer(1, 5, 0x20)),
    hpack("hpack-5.1-integer-too-long", CALL + b"\x00\x7f" + b"\xff" * 10 + b"\x01"),
    hpack("hpack-5.2-string-longer-than-block", CALL + b"\x00\x05x-te"),
    hpack("hpack-5.2-padding-longer-than-7-bits", literal(b":method", b"POST") + b"\x00\x01a\x82\x1f\xff"),
    hpack("hpack-5.2-padding-of-zeros", literal(b":method", b"POST") + b"\x00\x01a\x81\x18"),
    hpack("hpack-5.2-end-of-string-symbol", literal(b":method", b"POST") + b"\x00\x01a\x84\xff\xff\xff\xff"),
    hpack("hpack-6.1-index-0", CALL + b"\x80"),
    hpack("hpack-6.3-size-update-over-the-setting", integer(1 << 20, 5, 0x20) + CALL),
]

RULES = [*FRAMES, *STREAMS, *FRAME_KINDS, *MESSAGES, *HPACK]


@pytest.fixture(scope="module")
def server() -> Iterator[GrpcServer]:
    process = EchoProcess()
    try:
        yield GrpcServer(process)
    finally:
        assert process.log() == ""


@pytest.fixture(autouse=True)
def _still_served(server):
    yield
    server.check_serves()


def verdict_on(connection: FrameConnection, sent: bytes) -> Frame | None:
    """Return the error that answers `sent`, or the answer to a ping; None for a closed connection.

    Answers to pings overtake errors, so there are two: what was wrong before the first has been answered before the second.
    """
    connection.send_and_read_on(sent + ping(MARK)).read_until(is_verdict)
    connection.send(ping(SECOND_MARK))
    return connection.read_until(is_error_or_second_mark)


def is_error_or_second_mark(each: Frame) -> bool:
    return each.kind in (GOAWAY, RST_STREAM) or (each.kind == PING and each.payload == SECOND_MARK)


def is_verdict(each: Frame) -> bool:
    return each.kind in (GOAWAY, RST_STREAM) or (each.kind == PING and each.payload == MARK)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_held(server, rule):
    with FrameConnection(server.host_port) as connection:
        verdict = verdict_on(connection, rule.sent)
        if not rule.codes:
            assert verdict is not None
            assert verdict.payload == SECOND_MARK
            connection.send(call(101))
            assert connection.grpc_status(101) == 0
        elif verdict is not None:
            assert verdict.kind in (GOAWAY, RST_STREAM)
            assert verdict.error_code in rule.codes
            assert rule.is_of_stream or verdict.kind == GOAWAY


def test_5_1_1_a_smaller_stream_id_is_never_answered(server):
    # An error by the RFC; libnghttp2 takes it for a late frame of a stream that was reset (5.1), and ignores it.
    with FrameConnection(server.host_port) as connection:
        sent = headers(5, call_fields(STREAM)) + call(3)
        verdict = verdict_on(connection, sent)
        assert verdict is None or verdict.kind == PING or verdict.error_code in (STREAM_CLOSED, PROTOCOL_ERROR)
        assert [each for each in connection.frames if each.stream_id == 3 and each.kind in (HEADERS, DATA)] == []


@pytest.mark.parametrize("kind", [DATA, HEADERS])
def test_5_1_what_comes_on_a_closed_stream_does_nothing_or_is_an_error(server, kind):
    # 5.1: a frame may have been on its way when its stream was reset, so it may be ignored.
    sent = data(1, b"x", END_STREAM) if kind == DATA else headers(1, call_fields(), END_HEADERS | END_STREAM)
    with FrameConnection(server.host_port) as connection:
        verdict = verdict_on(connection, CLOSED + sent)
        assert verdict is None or verdict.kind == PING or verdict.error_code in (STREAM_CLOSED, PROTOCOL_ERROR)


def test_3_4_a_preface_that_is_none_closes(server):
    with FrameConnection(server.host_port, preface=b"") as connection:
        connection.send(b"INVALID CONNECTION PREFACE\r\n\r\n")
        assert connection.is_cut()


def test_3_4_a_preface_without_settings_is_a_protocol_error(server):
    with FrameConnection(server.host_port, preface=b"") as connection:
        found = connection.send(PREFACE + ping()).read_until(lambda each: each.kind == GOAWAY)
        assert found is None or found.error_code == PROTOCOL_ERROR


def test_6_5_3_settings_are_acknowledged(server):
    with FrameConnection(server.host_port) as connection:
        found = connection.read_until(lambda each: each.kind == SETTINGS and bool(each.flags & ACK))
        assert found is not None
        assert found.payload == b""


def test_6_7_a_ping_is_answered_with_its_payload(server):
    with FrameConnection(server.host_port) as connection:
        found = connection.send(ping(b"payload!")).read_until(lambda each: each.kind == PING)
        assert found is not None
        assert (found.flags & ACK, found.payload) == (ACK, b"payload!")


def sizes_of_data(connection: FrameConnection) -> list[int]:
    return [len(each.payload) for each in connection.frames if each.kind == DATA]


def test_6_9_1_data_keeps_to_a_window_of_one_byte(server):
    with FrameConnection(server.host_port, (INITIAL_WINDOW_SIZE, 1)) as connection:
        connection.send(call(1)).read_until(lambda each: each.kind == DATA)
        connection.send(ping(MARK)).read_until(is_verdict)
        assert sizes_of_data(connection) == [1]
        connection.send(window_update(1, 100))
        assert connection.grpc_status(1) == 0
        assert sum(sizes_of_data(connection)) == 7


def test_6_9_2_a_larger_initial_window_opens_those_of_open_streams(server):
    with FrameConnection(server.host_port, (INITIAL_WINDOW_SIZE, 0)) as connection:
        connection.send(call(1) + ping(MARK)).read_until(is_verdict)
        assert sizes_of_data(connection) == []
        connection.send(settings((INITIAL_WINDOW_SIZE, 1))).read_until(lambda each: each.kind == DATA)
        assert sizes_of_data(connection) == [1]


def test_6_9_2_a_window_may_become_negative(server):
    with FrameConnection(server.host_port, (INITIAL_WINDOW_SIZE, 3)) as connection:
        connection.send(call(1)).read_until(lambda each: each.kind == DATA)
        connection.send(settings((INITIAL_WINDOW_SIZE, 2)) + window_update(1, 1) + ping(MARK))
        connection.read_until(is_verdict)
        assert sizes_of_data(connection) == [3]
        connection.send(window_update(1, 1)).read_until(lambda each: each.kind == DATA and len(each.payload) == 1)
        assert sizes_of_data(connection) == [3, 1]


def test_6_9_2_of_several_values_of_one_setting_the_last_counts(server):
    with FrameConnection(server.host_port, (INITIAL_WINDOW_SIZE, 100), (INITIAL_WINDOW_SIZE, 1)) as connection:
        connection.send(call(1)).read_until(lambda each: each.kind == DATA)
        assert sizes_of_data(connection) == [1]


def test_6_9_2_an_initial_window_that_overflows_an_open_one_ends_the_connection(server):
    with FrameConnection(server.host_port) as connection:
        connection.send(OPEN + window_update(1, MOST - 65535) + settings((INITIAL_WINDOW_SIZE, MOST)))
        found = connection.read_until(lambda each: each.kind == GOAWAY)
        assert found is None or found.error_code == FLOW_CONTROL_ERROR


def test_8_1_trailers_of_a_request_end_it(server):
    with FrameConnection(server.host_port) as connection:
        trailers = headers(1, [(b"x-trailer", b"ok")], END_HEADERS | END_STREAM)
        connection.send(headers(1, call_fields()) + data(1, message()) + trailers)
        assert connection.grpc_status(1) == 0
