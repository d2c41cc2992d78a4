"""ONNX models get requests of different lengths in one execution, told where each lies."""

from __future__ import annotations

import numpy as np
import onnx_models
import pytest
from model_folders import write_model
from onnx import helper, numpy_helper
from python_models.batched import ask_at_once, tensor

CONFIG = """
backend: "onnxruntime"
max_batch_size: 16
input [{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "END" data_type: TYPE_INT32 dims: [ 1 ] }]
batch_input [{
  kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ENDS" data_type: TYPE_INT32 source_input: "X"
}]
batch_output [{ target_name: "Y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "X" }]
dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 2000000 }
"""
LENGTHS = [3, 5, 3, 8]


@pytest.fixture
def server(tmp_path, serve):
    folder = write_model(tmp_path, "ragged", CONFIG)
    nodes = [helper.make_node("Add", ["X", "X"], ["Y"]), helper.make_node("Unsqueeze", ["ENDS", "axis"], ["END"])]
    made = onnx_models.model(
        nodes,
        [onnx_models.value("X", "FP32", ["n"]), onnx_models.value("ENDS", "INT32", ["b"])],
        [onnx_models.value("Y", "FP32", ["n"]), onnx_models.value("END", "INT32", ["b", 1])],
        [numpy_helper.from_array(np.array([1], np.int64), "axis")],
    )
    onnx_models.save(made, folder / "1" / "model.onnx")
    return serve(tmp_path)


def test_requests_of_different_lengths_run_together_and_get_their_own(server):
    requests = [[tensor("X", "FP32", (1, length), *[index + 1] * length)] for index, length in enumerate(LENGTHS)]
    found = ask_at_once(server, "ragged", *requests)
    assert [status for status, _ in found] == [200] * 4, found
    assert [outputs["Y"] for _, outputs in found] == [[2 * (index + 1)] * length for index, length in enumerate(LENGTHS)]
    assert server.metric("nv_inference_exec_count", model="ragged") == 1
    ends = sorted(outputs["END"][0] for _, outputs in found)
    assert ends[-1] == sum(LENGTHS)
    assert sorted(np.diff([0, *ends]).tolist()) == sorted(LENGTHS)
