"""Python models get requests of different lengths in one batch where the config allows it; a counter tells of the others."""

from __future__ import annotations

import pytest
from python_models import IO, Config, source, write_python_model
from python_models.batched import ask_at_once, batching_of, tensor
from server_process import ServerProcess

OUTPUTS = tuple(IO(name, "INT32", "1") for name in ("N", "LENGTH", "SUM"))
LENGTHS = [3, 5, 3, 8]


@pytest.fixture(scope="module")
def server(tmp_path_factory, serve_for_module) -> ServerProcess:
    repository = tmp_path_factory.mktemp("models")
    ragged = (IO("X", more="allow_ragged_batch: true"),)
    half_a_second = "dynamic_batching { max_queue_delay_microseconds: 500000 }"
    write_python_model(repository, "ragged", source("lengths"), Config(ragged, OUTPUTS, 16, batching_of(4)))
    write_python_model(repository, "equal", source("lengths"), Config((IO("X"),), OUTPUTS, 16, half_a_second))
    return serve_for_module(repository)


def answers(server: ServerProcess, model: str) -> list[dict[str, list[int]]]:
    """Return the answers to requests of these lengths, sent at once; each is filled with a number of its own."""
    requests = [[tensor("X", "FP32", (1, length), *[index + 1] * length)] for index, length in enumerate(LENGTHS)]
    found = ask_at_once(server, model, *requests)
    assert [status for status, _ in found] == [200] * 4, found
    return [outputs for _, outputs in found]


def right(outputs: list[dict[str, list[int]]]) -> bool:
    return [(each["LENGTH"], each["SUM"]) for each in outputs] == [
        ([length], [(index + 1) * length]) for index, length in enumerate(LENGTHS)
    ]


def test_requests_of_different_lengths_run_together_where_the_input_is_ragged(server):
    outputs = answers(server, "ragged")
    assert [each["N"] for each in outputs] == [[4]] * 4
    assert right(outputs)


def test_requests_run_together_only_with_equal_shapes_otherwise_and_none_is_lost_or_mixed(server):
    outputs = answers(server, "equal")
    assert right(outputs)
    counts = [each["N"][0] for each in outputs]
    assert (counts[1], counts[3]) == (1, 1)
    assert counts[0] == counts[2] <= 2


def test_a_counter_tells_of_batches_that_stayed_small_for_unlike_shapes(server):
    def count(model: str) -> float:
        return server.metric("naiad_batches_total", model=model, reason="unlike")

    before = count("equal")
    answers(server, "equal")
    answers(server, "ragged")
    assert count("equal") > before
    assert count("ragged") == 0
