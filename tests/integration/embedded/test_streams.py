"""Models that answer any number of times, called by the server's own program: in order, at its pace, until it leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from model_folders import write_model
from waiting import wait_until

import naiad
from naiad import InferenceServerError
from naiad.errors import Code

CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
input [{ name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "INDEX" data_type: TYPE_INT32 dims: [ 1 ] }]
instance_group [{ kind: KIND_CPU }]
"""

# Answers COUNT times, and fails afterwards when COUNT is odd. The file beside it tells what it has done.
MODEL = """
from pathlib import Path
import numpy as np
import triton_python_backend_utils as pb_utils

PROGRESS = Path(__file__).parent / "progress"

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            count = int(request.inputs()[0].as_numpy()[0])
            for index in range(count):
                if request.is_cancelled():
                    PROGRESS.write_text("cancelled")
                    break
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("INDEX", np.array([index], np.int32))]))
                PROGRESS.write_text(str(index + 1))
            else:
                if count % 2:
                    error = pb_utils.TritonError("an odd number")
                    sender.send(pb_utils.InferenceResponse(error=error))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@pytest.fixture(scope="module")
def progress(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models") / "count" / "1" / "progress"


@pytest.fixture(scope="module")
def model(progress):
    folder = write_model(progress.parents[2], "count", CONFIG)
    (folder / "1" / "model.py").write_text(MODEL)
    with naiad.Server(http=False, model_repository=folder) as server:
        yield server.models["count"]


def counting(count: int) -> dict[str, np.ndarray]:
    return {"COUNT": np.array([count], np.int32)}


async def collect(responses) -> list[int]:
    return [int(response["INDEX"][0]) async for response in responses]


@pytest.mark.parametrize("count", [0, 2, 100])
def test_every_response_comes_in_order(model, count):
    expected = list(range(count))
    assert [int(response["INDEX"][0]) for response in model.stream(counting(count))] == expected
    assert asyncio.run(collect(model.stream_async(counting(count)))) == expected


def test_an_error_comes_after_the_responses_before_it(model):
    responses = model.stream(counting(3))
    assert [int(next(responses)["INDEX"][0]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(InferenceServerError, match="an odd number"):
        next(responses)


def test_a_model_waits_for_a_program_that_reads_slowly(model, progress):
    responses = model.stream(counting(1000))
    assert next(responses)["INDEX"].tolist() == [0]
    wait_until(lambda: progress.read_text() not in ("", "1"))
    # Whatever is asked of the worker now is answered behind what it has sent: it stands still.
    assert model.is_ready()
    assert int(progress.read_text() or 0) < 200
    assert [int(response["INDEX"][0]) for response in responses] == list(range(1, 1000))


def test_a_stream_that_is_closed_early_cancels_the_request(model, progress):
    responses = model.stream(counting(100_000))
    assert next(responses)["INDEX"].tolist() == [0]
    responses.close()
    wait_until(lambda: progress.read_text() == "cancelled", what="the model to see that nobody reads")


def test_a_task_that_is_cancelled_cancels_the_request(model, progress):
    async def main() -> None:
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in model.stream_async(counting(100_000)):
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    progress.write_text("")
    asyncio.run(main())
    wait_until(lambda: progress.read_text() == "cancelled", what="the model to see that nobody reads")


def test_a_single_answer_can_not_be_asked_of_such_a_model(model):
    with pytest.raises(InferenceServerError, match="decoupled") as raised:
        model.infer(counting(1))
    assert raised.value.code is Code.UNIMPLEMENTED


def test_the_server_ends_while_a_stream_is_read(progress):
    write_model(progress.parents[2], "count", CONFIG)
    with naiad.Server(http=False, model_repository=progress.parents[1], exit_timeout_secs=0) as server:
        responses = server.models["count"].stream(counting(100_000))
        assert next(responses)["INDEX"].tolist() == [0]
    with pytest.raises(InferenceServerError, match="exit timeout"):
        list(responses)
