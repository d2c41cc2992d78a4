"""The example of a streaming model works as its README says: the server keeps each sequence's state, to the last bit."""

from __future__ import annotations

import queue
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import requests
import tritonclient.grpc
import tritonclient.http
from examples.speech.voice import no_voice, voice
from server_process import ServerProcess
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.timeout(180)  # the first run on a checkout fetches the real model

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "speech"
SIZES = {16000: (512, 64), 8000: (256, 32)}
"""By the samples a second: those of a chunk, and those of before in front of it."""


@pytest.fixture(scope="module")
def server(serve_for_module: Callable[..., ServerProcess]) -> ServerProcess:
    run(ROOT / "examples" / "prepare.py", "speech", timeout_s=120)
    return serve_for_module(EXAMPLE / "models")


@pytest.fixture(scope="module")
def session(server: ServerProcess) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    path = EXAMPLE / "models" / "speech_detector" / "1" / "model.onnx"
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(*command: str | Path, timeout_s: float = 30) -> str:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def chunks(sound: np.ndarray, rate: int = 16000) -> Iterator[np.ndarray]:
    size, context = SIZES[rate]
    before = np.zeros(context, np.float32)
    for start in range(0, len(sound) - size + 1, size):
        new = sound[start : start + size]
        yield np.concatenate([before, new])[None]
        before = new[-context:]


def by_hand(session: onnxruntime.InferenceSession, pieces: Sequence[np.ndarray], rate: int = 16000) -> list[float]:
    """What the model says of a sequence when its state is passed on by hand."""
    state = np.zeros((2, 1, 128), np.float32)
    found = []
    for piece in pieces:
        output, state = session.run(["output", "stateN"], {"input": piece, "state": state, "sr": np.array(rate)})
        found.append(output.item())
    return found


def inputs(triton, piece: np.ndarray, rate: int = 16000) -> list:
    sound = triton.InferInput("input", list(piece.shape), "FP32")
    sound.set_data_from_numpy(piece)
    samples = triton.InferInput("sr", [1], "INT64")
    samples.set_data_from_numpy(np.array([rate]))
    return [sound, samples]


def ask(client: tritonclient.http.InferenceServerClient, piece: np.ndarray, rate: int = 16000, **sequence) -> float:
    answer = client.infer("speech_detector", inputs(tritonclient.http, piece, rate), **sequence)
    return answer.as_numpy("output").item()


def ask_all(client, pieces: Sequence[np.ndarray], sequence_id: int, rate: int = 16000) -> list[float]:
    last = len(pieces) - 1
    flags = [{"sequence_start": number == 0, "sequence_end": number == last} for number in range(len(pieces))]
    return [ask(client, piece, rate, sequence_id=sequence_id, **flag) for piece, flag in zip(pieces, flags)]


@pytest.fixture
def http(server: ServerProcess) -> tritonclient.http.InferenceServerClient:
    return server.clients.enter_context(tritonclient.http.InferenceServerClient(server.http))


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_the_client_hears_the_voice_and_nothing_else(server: ServerProcess, protocol: str) -> None:
    output = run(EXAMPLE / "client.py", server.url if protocol == "http" else server.grpc)
    heard = dict(re.findall(r"^(.+): somebody speaks in (\d+)% of \d+ chunks$", output, re.MULTILINE))
    assert heard["no voice"] == "0"
    assert 50 < int(heard["voice"]) < 70


def test_clients_see_no_state(server: ServerProcess) -> None:
    metadata = requests.get(f"{server.url}/v2/models/speech_detector", timeout=10).json()
    shown = {tensor["name"]: tensor["shape"] for side in ("inputs", "outputs") for tensor in metadata[side]}
    assert shown == {"input": [1, -1], "sr": [1], "output": [1, 1]}


def test_interleaved_sequences_of_a_stream_get_what_the_engine_says_of_each(server, session) -> None:
    sounds = {"voice": list(chunks(voice("sasi seu"))), "none": list(chunks(no_voice()))}
    client = server.clients.enter_context(tritonclient.grpc.InferenceServerClient(server.grpc))
    answers: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    count = min(map(len, sounds.values()))
    for number in range(count):
        for name, pieces in sounds.items():
            flags = {"sequence_start": number == 0, "sequence_end": number == count - 1}
            tensors = inputs(tritonclient.grpc, pieces[number])
            client.async_stream_infer("speech_detector", tensors, sequence_id=name, request_id=name, **flags)
    found: dict[str, list[float]] = {name: [] for name in sounds}
    for _ in range(2 * count):
        result, error = answers.get(timeout=15)
        assert error is None
        found[result.get_response().id].append(result.as_numpy("output").item())
    assert found == {name: by_hand(session, pieces[:count]) for name, pieces in sounds.items()}
    assert max(found["voice"]) > 0.9
    assert max(found["none"]) < 0.5


def test_a_sequence_begins_as_if_nothing_had_been_heard(http, session) -> None:
    pieces = list(chunks(voice("sa")))[:16]
    first = ask_all(http, pieces, 7)
    assert first == by_hand(session, pieces)
    assert max(first) > 0.9
    # Of the same id, and after one that was left without an end.
    assert ask_all(http, pieces, 7) == first
    ask(http, pieces[9], sequence_id=7, sequence_start=True)
    assert ask_all(http, pieces, 7) == first
    # It is the state that does it: the same chunk at the beginning of a sequence says something else.
    assert by_hand(session, pieces[9:10]) != first[9:10]


def test_the_rate_is_a_scalar_of_the_model_that_clients_choose(http, session) -> None:
    pieces = list(chunks(voice("sasi", rate=8000), 8000))[:20]
    assert pieces[0].shape == (1, 288)
    found = ask_all(http, pieces, 9, 8000)
    assert found == by_hand(session, pieces, 8000)
    assert max(found) > 0.9


def test_a_chunk_that_the_model_refuses_disturbs_no_other_sequence(http, session) -> None:
    pieces = list(chunks(voice("sa")))[:12]
    found = [ask(http, pieces[0], sequence_id=11, sequence_start=True)]
    with pytest.raises(InferenceServerException, match="speech_detector"):
        ask(http, np.zeros((1, 3), np.float32), sequence_id=12, sequence_start=True, sequence_end=True)
    found += [ask(http, piece, sequence_id=11) for piece in pieces[1:-1]]
    found.append(ask(http, pieces[-1], sequence_id=11, sequence_end=True))
    assert found == by_hand(session, pieces)
