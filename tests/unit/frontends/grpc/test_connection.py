"""A gRPC connection from its bytes to its RPCs and back: heads, bodies, ends, back-pressure, deadlines, pings."""

from __future__ import annotations

import gzip
import random
import zlib

import ngh2
import pytest
from fake_transport import FakeTransport
from grpc_pair import GrpcPair, framed

from naiad.config.options import RestrictedGroup
from naiad.errors import InferenceServerError, unavailable
from naiad.frontends.grpc.call import MAX_UNREAD_BYTES
from naiad.frontends.grpc.connection.connection import GrpcConnection
from naiad.frontends.grpc.options import GrpcOptions, KeepAlive

FIELDS = [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"a"), (b"content-type", b"application/grpc")]


def test_a_call_is_answered_with_head_message_and_trailers() -> None:
    pair = GrpcPair()
    call = pair.call(body=framed(b"hello"))
    assert framed(b"hello") == pair.body(call)
    fields = pair.fields(call)
    assert (fields[b":status"], fields[b"content-type"], fields[b"grpc-status"]) == (b"200", b"application/grpc", b"0")
    assert fields[b"grpc-accept-encoding"] == b"identity,deflate,gzip"
    assert pair.connection.streams == {}


def test_an_unknown_path_is_unimplemented() -> None:
    pair = GrpcPair()
    call = pair.call(b"/t.T/None", framed(b""))
    assert pair.status(call) == 12
    assert b"/t.T/None" in pair.fields(call)[b"grpc-message"]


def test_what_is_no_grpc_call_gets_a_status_of_http() -> None:
    pair = GrpcPair()
    assert pair.fields(pair.call(body=framed(b""), content_type=b"text/plain"))[b":status"] == b"415"
    assert pair.fields(pair.call(method=b"GET"))[b":status"] == b"405"


@pytest.mark.parametrize(("coding", "pack"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)])
def test_packed_requests_are_unpacked(coding, pack) -> None:
    pair = GrpcPair()
    call = pair.call(body=framed(pack(b"x" * 1000), 1), grpc_encoding=coding)
    assert framed(b"x" * 1000) == pair.body(call)


def test_a_packed_message_without_a_coding_and_one_that_is_broken_are_refused() -> None:
    pair = GrpcPair()
    assert pair.status(pair.call(body=framed(b"abc", 1))) == 13
    assert pair.status(pair.call(body=framed(b"abc", 1), grpc_encoding=b"gzip")) == 3
    assert pair.status(pair.call(body=framed(b"good"))) == 0


class LaterCodec:
    """Unpacks when it is told to."""

    def __init__(self) -> None:
        self.work: list = []

    def submit(self, work, done) -> None:
        self.work.append((work, done))

    def run(self) -> None:
        work, done = self.work.pop(0)
        try:
            done(work())
        except InferenceServerError as error:
            done(error)


def packed(size: int) -> bytes:
    """Return a message that is large also when it is packed."""
    return framed(gzip.compress(random.Random(size).randbytes(size)), 1)


def test_large_packed_messages_are_unpacked_elsewhere_and_keep_their_order() -> None:
    pair = GrpcPair()
    codec = pair.site.codec_thread = LaterCodec()  # type: ignore[assignment]
    body = packed(20_000) + framed(b"second") + packed(30_000) + framed(b"fourth")
    pair.call(b"/t.T/Wait", body, grpc_encoding=b"gzip")
    rpc = pair.rpcs[0]
    assert (rpc.messages, rpc.is_half_closed) == ([], False)
    codec.run()
    assert list(map(len, rpc.messages)) == [20_000, 6]
    codec.run()
    assert list(map(len, rpc.messages)) == [20_000, 6, 30_000, 6]
    assert rpc.is_half_closed


def test_what_comes_while_a_message_is_unpacked_uses_up_the_clients_window() -> None:
    pair = GrpcPair()
    codec = pair.site.codec_thread = LaterCodec()  # type: ignore[assignment]
    call = pair.call(b"/t.T/Wait", packed(20_000), is_end=False, grpc_encoding=b"gzip")
    pair.client.send_data(call, framed(b"a" * 3_000_000))
    pair.pump()
    assert pair.client.queued_body_size(call) > 1_500_000
    codec.run()
    pair.pump()
    assert list(map(len, pair.rpcs[0].messages)) == [20_000, 3_000_000]


def test_a_call_may_end_while_its_message_is_unpacked() -> None:
    pair = GrpcPair()
    codec = pair.site.codec_thread = LaterCodec()  # type: ignore[assignment]
    call = pair.call(b"/t.T/Wait", packed(20_000), grpc_encoding=b"gzip")
    pair.client.reset_stream(call, 8)
    pair.pump()
    assert pair.rpcs[0].cancels == [None]
    codec.run()
    assert pair.rpcs[0].messages == []
    broken = pair.call(b"/t.T/Wait", framed(b"x" * 5000, 1), grpc_encoding=b"gzip")
    codec.run()
    pair.pump()
    assert pair.status(broken) == 3


def test_responses_of_inference_are_packed_where_the_flag_says_so_and_the_client_takes_it() -> None:
    pair = GrpcPair(GrpcOptions(response_compression_level=6))
    call = pair.call(body=framed(b"y" * 5000), grpc_accept_encoding=b"identity, gzip")
    assert pair.fields(call)[b"grpc-encoding"] == b"gzip"
    body = pair.body(call)
    assert body[0] == 1
    assert gzip.decompress(body[5:]) == b"y" * 5000
    plain = pair.call(body=framed(b"y" * 5000))
    assert b"grpc-encoding" not in pair.fields(plain)
    assert framed(b"y" * 5000) == pair.body(plain)


def test_a_client_that_takes_deflate_only_gets_deflate() -> None:
    pair = GrpcPair(GrpcOptions(response_compression_level=6))
    call = pair.call(body=framed(b"y" * 5000), grpc_accept_encoding=b"identity,deflate")
    assert pair.fields(call)[b"grpc-encoding"] == b"deflate"
    assert pair.body(call)[0] == 1
    assert zlib.decompress(pair.body(call)[5:]) == b"y" * 5000


def unpacked(body: bytes) -> list[bytes]:
    """Return the messages of a body, each unpacked."""
    messages = []
    while body:
        assert body[0] == 1
        end = 5 + int.from_bytes(body[1:5], "big")
        messages.append(gzip.decompress(body[5:end]))
        body = body[end:]
    return messages


def packing_call() -> tuple[GrpcPair, LaterCodec, int]:
    pair = GrpcPair(GrpcOptions(response_compression_level=1))
    codec = pair.site.codec_thread = LaterCodec()  # type: ignore[assignment]
    call = pair.call(b"/t.T/Many", framed(b"x"), grpc_accept_encoding=b"gzip")
    return pair, codec, call


def test_large_responses_are_packed_elsewhere_and_keep_their_order() -> None:
    pair, codec, call = packing_call()
    transport = pair.rpcs[0].transport
    messages = [b"a" * 50_000, b"small", b"b" * 50_000]
    reused = bytearray(messages[0])
    for message in (reused, *messages[1:]):
        transport.send([message])
    reused[:] = b"?" * 50_000
    transport.finish()
    transport.send([b"after the end"])
    assert not transport.when_writable(lambda: None)
    for _ in messages:
        assert pair.status(call) == -1
        assert pair.connection.is_answering
        codec.run()
        pair.pump()
    assert (unpacked(pair.body(call)), pair.status(call), codec.work) == (messages, 0, [])
    assert not pair.connection.is_answering


def test_who_waits_to_send_goes_on_when_all_is_packed() -> None:
    pair, codec, _ = packing_call()
    transport = pair.rpcs[0].transport
    transport.send([b"a" * 50_000])
    told: list[bool] = []
    assert not transport.when_writable(lambda: told.append(True))
    codec.run()
    assert told == [True]


def test_a_call_may_end_while_its_response_is_packed() -> None:
    pair, codec, call = packing_call()
    pair.rpcs[0].transport.send([b"a" * 50_000])
    pair.rpcs[0].transport.finish()
    pair.client.reset_stream(call, 8)
    pair.pump()
    codec.run()
    pair.pump()
    assert (pair.body(call), pair.connection.streams) == (b"", {})


def test_a_deadline_ends_a_call_whose_response_is_still_packed() -> None:
    pair = GrpcPair(GrpcOptions(response_compression_level=1))
    codec = pair.site.codec_thread = LaterCodec()  # type: ignore[assignment]
    call = pair.call(b"/t.T/Many", framed(b"x"), grpc_accept_encoding=b"gzip", grpc_timeout=b"1S")
    pair.rpcs[0].transport.send([b"a" * 50_000])
    pair.rpcs[0].transport.finish()
    pair.loop.advance(1.1)
    pair.pump()
    assert pair.status(call) == 4
    codec.run()
    pair.pump()
    assert pair.body(call) == b""


def test_a_response_that_nobody_has_time_to_pack_is_an_error() -> None:
    pair, _, call = packing_call()

    class Full:
        def submit(self, work, done) -> None:
            raise unavailable("too much waits")

    pair.site.codec_thread = Full()  # type: ignore[assignment]
    pair.rpcs[0].transport.send([b"a" * 50_000])
    pair.pump()
    assert pair.status(call) == 14


def test_a_body_that_is_shorter_than_its_message_is_an_error() -> None:
    pair = GrpcPair()
    call = pair.call(body=b"\0\0\0\0\x10abc")
    assert pair.status(call) == 13
    assert b"ended within a message" in pair.fields(call)[b"grpc-message"]
    assert len(pair.rpcs[0].cancels) == 1


def test_an_answer_before_the_clients_end_tells_it_to_stop_sending() -> None:
    pair = GrpcPair()
    call = pair.call(b"/t.T/None", b"\0\0\0\xff\xff", is_end=False)
    assert pair.status(call) == 12
    assert any(isinstance(event, ngh2.StreamReset) and event.error_code == 0 for event in pair.events)
    assert pair.connection.streams == {}


def test_a_reset_cancels_the_rpc() -> None:
    pair = GrpcPair()
    call = pair.call(b"/t.T/Wait", framed(b"x"))
    pair.client.reset_stream(call, 8)
    pair.pump()
    assert pair.rpcs[0].cancels == [None]
    assert pair.connection.streams == {}


def test_a_lost_connection_cancels_every_rpc() -> None:
    pair = GrpcPair()
    for _ in range(3):
        pair.call(b"/t.T/Wait", framed(b"x"))
    pair.connection.connection_lost(None)
    assert [rpc.cancels for rpc in pair.rpcs] == [[None]] * 3
    assert pair.site.connections == set()
    assert pair.loop.open_timers == 0


def test_a_deadline_ends_the_call_and_its_rpc() -> None:
    pair = GrpcPair()
    call = pair.call(b"/t.T/Wait", framed(b"x"), grpc_timeout=b"200m")
    pair.loop.advance(0.19)
    pair.pump()
    assert pair.status(call) == -1
    pair.loop.advance(0.02)
    pair.pump()
    assert pair.status(call) == 4
    assert len(pair.rpcs[0].cancels) == 1


def test_a_deadline_that_has_passed_starts_nothing() -> None:
    pair = GrpcPair()
    assert pair.status(pair.call(b"/t.T/Wait", framed(b"x"), grpc_timeout=b"1u")) == 4
    assert pair.rpcs == []


def test_an_ended_call_leaves_no_timer() -> None:
    pair = GrpcPair()
    before = pair.loop.open_timers
    pair.call(body=framed(b"x"), grpc_timeout=b"10S")
    assert before == pair.loop.open_timers


def test_a_slow_reader_makes_the_sender_wait() -> None:
    pair = GrpcPair(auto_window_update=False)
    call = pair.call(b"/t.T/Wait", framed(b"x"))
    rpc = pair.rpcs[0]
    written = []
    while rpc.transport.when_writable(lambda: written.append(1)):
        rpc.transport.send([b"z" * 100_000])
        pair.pump()
        assert pair.connection.engine.queued_bytes() < MAX_UNREAD_BYTES + 200_000
    assert written == []
    while not written:
        pair.client.acknowledge_received_data(len(pair.events.pop().data), call)
        pair.pump()
        pair.events = [event for event in pair.events if isinstance(event, ngh2.DataReceived)]
    assert written == [1]


def test_the_socket_that_is_full_makes_senders_wait() -> None:
    pair = GrpcPair()
    pair.call(b"/t.T/Wait", framed(b"x"))
    transport = pair.rpcs[0].transport
    pair.connection.pause_writing()
    woken = []
    assert not transport.when_writable(lambda: woken.append(1))
    transport.send([b"held"])
    pair.loop.turn()
    assert pair.transport.written == b""
    pair.connection.resume_writing()
    assert woken == [1]
    assert b"held" in pair.transport.written


def test_held_requests_use_up_the_clients_window_and_no_more() -> None:
    pair = GrpcPair()
    call = pair.call(b"/t.T/Wait", b"", is_end=False)
    transport = pair.rpcs[0].transport
    transport.hold_requests(True)
    pair.client.send_data(call, framed(b"a" * 3_000_000))
    pair.pump()
    assert pair.rpcs[0].messages == []
    left = pair.client.queued_body_size(call)
    assert left > 1_500_000
    transport.hold_requests(False)
    pair.pump()
    assert list(map(len, pair.rpcs[0].messages)) == [3_000_000]


def test_cancelled_uploads_give_the_connections_window_back() -> None:
    pair = GrpcPair()
    for _ in range(40):
        call = pair.call(b"/t.T/Wait", b"", is_end=False)
        pair.rpcs[-1].transport.hold_requests(True)
        pair.client.send_data(call, framed(b"a" * 2_000_000))
        pair.pump()
        pair.client.reset_stream(call, 8)
        pair.pump()
    last = pair.call(body=framed(b"b" * 3_000_000))
    assert pair.status(last) == 0


def test_a_message_in_too_many_tiny_frames_is_refused() -> None:
    pair = GrpcPair()
    call = pair.call(b"/t.T/Wait", b"", is_end=False)
    pair.connection.on_data(call, framed(b"x" * 200_000)[:6], False)
    for _ in range(70_000):
        pair.connection.on_data(call, b"y", False)
    pair.pump()
    assert pair.status(call) == 8


def test_restricted_rpcs_want_their_header() -> None:
    pair = GrpcPair(GrpcOptions(restricted=(RestrictedGroup(frozenset({"inference"}), "admin-key", "secret"),)))
    refused = pair.call(body=framed(b"x"))
    assert pair.status(refused) == 14
    assert b"expecting header 'triton-grpc-protocol-admin-key'" in pair.fields(refused)[b"grpc-message"]
    assert pair.status(pair.call(body=framed(b"x"), triton_grpc_protocol_admin_key=b"wrong")) == 14
    assert pair.status(pair.call(body=framed(b"x"), triton_grpc_protocol_admin_key=b"secret")) == 0


def test_a_fault_of_the_server_ends_one_call_only(caplog) -> None:
    pair = GrpcPair()
    bad = pair.call(b"/t.T/Wait", b"", is_end=False)
    pair.rpcs[0]._answer = lambda rpc, message: 1 / 0
    pair.client.send_data(bad, framed(b"x"))
    pair.pump()
    assert pair.status(bad) == 13
    assert b"division" not in pair.fields(bad)[b"grpc-message"]
    assert "ZeroDivisionError" in caplog.text
    assert pair.status(pair.call(body=framed(b"x"))) == 0


def test_a_client_that_pings_too_much_is_sent_away() -> None:
    pair = GrpcPair()
    pair.call(b"/t.T/Wait", framed(b"x"))
    for _ in range(4):
        pair.client.ping(b"12345678")
        pair.pump()
    away = [event for event in pair.events if isinstance(event, ngh2.GoAwayReceived)]
    assert [(event.error_code, event.debug_data) for event in away][:1] == [(11, b"too_many_pings")]
    assert pair.transport.is_closed


def test_pings_between_answers_are_no_abuse() -> None:
    pair = GrpcPair()
    for _ in range(10):
        pair.client.ping(b"12345678")
        pair.call(body=framed(b"x"))
    assert not pair.transport.is_closed


def test_a_quiet_client_is_pinged_and_cut_off_when_it_doesnt_answer() -> None:
    pair = GrpcPair(GrpcOptions(keep_alive=KeepAlive(time_s=10, timeout_s=2)))
    pair.call(b"/t.T/Wait", framed(b"x"))
    pair.loop.advance(10.5)
    pair.pump()
    assert any(isinstance(event, ngh2.PingReceived) for event in pair.events)
    pair.loop.advance(3)
    assert not pair.transport.is_closed
    pair.loop.advance(20)
    assert pair.transport.is_closed


def test_an_old_connection_is_drained_and_ended_after_its_grace() -> None:
    pair = GrpcPair(GrpcOptions(keep_alive=KeepAlive(max_age_s=100, max_age_grace_s=50)))
    call = pair.call(b"/t.T/Wait", framed(b"x"))
    pair.loop.advance(111)
    pair.pump()
    assert any(isinstance(event, ngh2.GoAwayReceived) for event in pair.events)
    assert not pair.transport.is_closed
    pair.loop.advance(50)
    pair.pump()
    assert pair.transport.is_closed
    pair.connection.connection_lost(None)
    assert pair.rpcs[0].cancels == [None]
    assert pair.status(call) == -1


def test_a_drained_connection_ends_with_its_last_call() -> None:
    pair = GrpcPair()
    call = pair.call(b"/t.T/Wait", framed(b"x"))
    pair.connection.drain()
    pair.pump()
    assert not pair.transport.is_closed
    pair.rpcs[0].transport.send([b"last"])
    pair.rpcs[0].transport.finish()
    pair.pump()
    assert pair.status(call) == 0
    assert pair.transport.is_closed


@pytest.mark.parametrize("path", [b"/t.T/Wait", b"/t.T/Told"])
def test_a_stop_waits_for_unread_answers_but_not_for_those_that_end_by_themselves(path) -> None:
    pair = GrpcPair(settings={ngh2.Setting.INITIAL_WINDOW_SIZE: 0})
    pair.call(path, framed(b"x"))
    assert pair.connection.is_answering == (path == b"/t.T/Told")
    pair.rpcs[0].transport.send([b"unread"])
    pair.pump()
    assert pair.connection.is_answering
    pair.rpcs[0].transport.finish()
    pair.pump()
    assert pair.connection.is_answering == (path == b"/t.T/Wait")


def test_a_sender_that_waits_for_everything_to_be_read_goes_on_when_it_is() -> None:
    pair = GrpcPair(settings={ngh2.Setting.INITIAL_WINDOW_SIZE: 0})
    call = pair.call(b"/t.T/Told", framed(b"x"), is_end=False)
    transport, woken = pair.rpcs[0].transport, []
    assert transport.when_writable(lambda: woken.append(1))
    transport.send([b"first"])
    pair.pump()
    assert not transport.when_writable(lambda: woken.append(1))
    assert (pair.body(call), woken) == (b"", [])
    pair.client.update_settings({ngh2.Setting.INITIAL_WINDOW_SIZE: 1000})
    pair.pump()
    assert (pair.body(call), woken) == (framed(b"first"), [1])
    assert transport.when_writable(lambda: woken.append(2))


def test_a_client_that_says_nothing_is_cut_off() -> None:
    pair = GrpcPair()
    silent = FakeTransport(GrpcConnection(pair.site))
    slow = FakeTransport(GrpcConnection(pair.site))
    slow.feed(b"PRI * HTTP/2.0\r\n")
    pair.loop.advance(21)
    assert (silent.is_closed, slow.is_closed, pair.transport.is_closed) == (True, True, False)


def test_a_client_that_is_sent_away_and_doesnt_read_is_cut_off() -> None:
    pair = GrpcPair()
    pair.call(b"/t.T/Wait", framed(b"x"))
    aborted = []
    pair.transport.abort = lambda: aborted.append(1)  # type: ignore[method-assign]
    pair.connection.end(11, "away")
    pair.loop.advance(6)
    assert aborted == [1]


def test_uploads_that_are_refused_give_the_connections_window_back() -> None:
    pair = GrpcPair()
    for _ in range(40):
        call = pair.client.send_request([(b":path", b"/t.T/None"), *FIELDS])
        pair.client.send_data(call, framed(b"a" * 2_000_000))
        pair.pump()
        assert pair.status(call) == 12
    assert pair.status(pair.call(body=framed(b"b" * 3_000_000))) == 0


def test_bytes_that_are_no_http2_close_the_connection() -> None:
    transport = FakeTransport(GrpcConnection(GrpcPair().site))
    transport.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert transport.is_closed
