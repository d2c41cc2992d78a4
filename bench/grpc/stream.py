"""Times one call that is answered by many small responses: ModelStreamInfer on a decoupled model. Owns their check."""

from __future__ import annotations

import time
from contextlib import ExitStack

import numpy as np

from bench.errors import BenchError
from bench.grpc.http2 import Connection
from bench.grpc.infer import MODEL_STREAM_INFER, frame, make_message, read_frames, read_stream_outputs
from bench.measure import Setting
from bench.results import Stream, StreamSample, median_stream
from bench.scenarios import STREAM, STREAM_RESPONSES, repeat_model
from bench.servers import Server


def stream_rates(setting: Setting, responses: int = STREAM_RESPONSES) -> list[Stream]:
    """Measure the servers in alternating rounds, both up all the time; return a row for each that listens for gRPC.

    Raises BenchError when a response is missing or wrong.
    """
    model = repeat_model()
    with ExitStack() as stack:
        started = [
            stack.enter_context(starter("stream", (model,), ())) for starter in (setting.naiad, setting.triton) if starter
        ]
        servers = [server for server in started if server.grpc is not None]
        samples: dict[str, list[StreamSample]] = {server.name: [] for server in servers}
        for number in range(setting.rounds):
            for server in servers:
                print(f"{STREAM}, round {number + 1}: {server.name}", flush=True)
                _time(server, model.name, max(responses // 10, 1))  # warms up
                samples[server.name].append(_time(server, model.name, responses))
    return [Stream(name, responses, median_stream(taken)) for name, taken in samples.items()]


def _time(server: Server, model: str, responses: int) -> StreamSample:
    body = frame(make_message(model, {"COUNT": np.array([responses], np.int32)}))
    connection = Connection(server.grpc_address)
    try:
        cpu_s, started = server.cpu_s(), time.perf_counter()
        answer = connection.call(MODEL_STREAM_INFER, body)
        duration_s, cpu_s = time.perf_counter() - started, server.cpu_s() - cpu_s
    finally:
        connection.close()
    if answer.failure:
        raise BenchError(f"{server.name}: the stream ended with {answer.failure}")
    check_numbers(server.name, answer.body, responses)
    return StreamSample(responses / duration_s, cpu_s * 1e6 / responses)


def check_numbers(name: str, body: bytes | bytearray, responses: int) -> None:
    """Raise BenchError unless the body holds the numbers from 0 on, `responses` of them, in order."""
    numbers = [int(read_stream_outputs(message)["OUT"][0]) for message in read_frames(body)]
    if numbers != list(range(responses)):
        raise BenchError(f"{name}: {len(numbers)} responses came of {responses}, or in another order")
