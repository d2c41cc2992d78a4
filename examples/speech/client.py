"""Send sound to the model `speech_detector` chunk by chunk, as it comes from a microphone; show where somebody speaks.

    python examples/speech/client.py [ADDRESS [FILE.wav ...]]

ADDRESS is HOST:PORT of gRPC (one stream for all sounds), or http://HOST:PORT. Files are mono, 16 bits, 16,000 samples a second.
Without files it sends a synthetic voice and sounds that are none, both at the same time, and checks the answers.
"""

from __future__ import annotations

import queue
import sys
import uuid
import wave
from collections.abc import Iterator

import numpy as np
import tritonclient.grpc
import tritonclient.http
from voice import Sound, no_voice, voice

MODEL = "speech_detector"
RATE = 16000
CHUNK = 512
CONTEXT = 64


def chunks(sound: Sound) -> list[Sound]:
    """Cut a sound into FP32[1, 576]: each chunk of 512 samples has the 64 before it in front, the first one silence."""
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), sound, np.zeros(-len(sound) % CHUNK, np.float32)])
    return [padded[None, start : start + CONTEXT + CHUNK] for start in range(0, len(padded) - CONTEXT, CHUNK)]


def interleaved(sounds: dict[str, Sound]) -> Iterator[tuple[str, Sound, dict[str, object]]]:
    """Yield the chunks of all sounds in turn: whose it is, the chunk, and what tells the server of which sequence it is."""
    ids = {name: uuid.uuid4().hex for name in sounds}
    cut = {name: chunks(sound) for name, sound in sounds.items()}
    for number in range(max(map(len, cut.values()))):
        for name, pieces in cut.items():
            if number < len(pieces):
                begins, ends = number == 0, number == len(pieces) - 1
                yield name, pieces[number], {"sequence_id": ids[name], "sequence_start": begins, "sequence_end": ends}


def inputs(triton: object, chunk: Sound) -> list[object]:
    """Return the tensors of a request, for Triton's module of HTTP or gRPC."""
    sound = triton.InferInput("input", list(chunk.shape), "FP32")
    sound.set_data_from_numpy(chunk)
    rate = triton.InferInput("sr", [1], "INT64")
    rate.set_data_from_numpy(np.array([RATE]))
    return [sound, rate]


def ask_http(address: str, sounds: dict[str, Sound]) -> dict[str, list[float]]:
    """Return the probabilities of each sound's chunks: a request for each, one after the other."""
    found: dict[str, list[float]] = {name: [] for name in sounds}
    with tritonclient.http.InferenceServerClient(address) as client:
        for name, chunk, sequence in interleaved(sounds):
            answer = client.infer(MODEL, inputs(tritonclient.http, chunk), **sequence)
            found[name].append(answer.as_numpy("output").item())
    return found


def ask_grpc(address: str, sounds: dict[str, Sound]) -> dict[str, list[float]]:
    """Return the probabilities of each sound's chunks: all go out on one stream without waiting for answers."""
    found: dict[str, list[float]] = {name: [] for name in sounds}
    answers: queue.Queue = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        sent = 0
        for name, chunk, sequence in interleaved(sounds):
            client.async_stream_infer(MODEL, inputs(tritonclient.grpc, chunk), request_id=name, **sequence)
            sent += 1
        for _ in range(sent):
            result, error = answers.get(timeout=30)
            if error:
                raise error
            found[result.get_response().id].append(result.as_numpy("output").item())
    return found


def read(path: str) -> Sound:
    """Return the sound of a WAV file. Raises ValueError when it has another form than the model's."""
    with wave.open(path) as file:
        form = (file.getnchannels(), file.getsampwidth(), file.getframerate())
        if form != (1, 2, RATE):
            raise ValueError(f"{path}: channels, bytes a sample and samples a second are {form}, must be {(1, 2, RATE)}")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def main(address: str, paths: list[str]) -> int:
    """Print the probabilities; return the exit code: 1 when, without files, the voice isn't heard or something else is."""
    sounds = {path: read(path) for path in paths} or {"voice": voice(), "no voice": no_voice()}
    is_http = address.startswith("http://")
    found = ask_http(address[len("http://") :], sounds) if is_http else ask_grpc(address, sounds)
    for name, probabilities in found.items():
        print(f"{name}: somebody speaks in {np.mean(np.array(probabilities) > 0.5):.0%} of {len(probabilities)} chunks")
        for start in range(0, len(probabilities), 16):
            row = " ".join(f"{value:.2f}" for value in probabilities[start : start + 16])
            print(f"  {start * CHUNK / RATE:5.2f} s  {row}")
    if paths:
        return 0
    return 0 if max(found["voice"]) > 0.9 and max(found["no voice"]) < 0.5 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8001", sys.argv[2:]))
