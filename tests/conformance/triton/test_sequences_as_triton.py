"""The same requests of sequences in the real C++ Triton: its models are told what the table holds.

Not part of `make test`: `make conformance-triton` brings Triton onto the machine when it isn't there.
"""

from __future__ import annotations

import pytest
import said_of_sequences as said
import sequence_models
import tritonclient.grpc
from real_triton import serving_triton
from sequence_models import SequenceClient
from tritonclient.utils import InferenceServerException

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]


@pytest.mark.parametrize("strategy", said.EXPECTED)
def test_triton_tells_a_model_of_sequences_what_the_table_holds(tmp_path, strategy):
    with serving_triton(tmp_path, lambda folder: sequence_models.tell(folder, strategy).parent) as server:
        client = SequenceClient(tritonclient.grpc, f"{server.grpc.host}:{server.grpc.port}", "tell")
        with client.triton:
            assert said.ask_all(client) == said.EXPECTED[strategy]
            for asked, text in said.REFUSED.items():
                with pytest.raises(InferenceServerException, match=text):
                    client.ask(*asked)
            (model,) = client.triton.get_inference_statistics("tell").model_stats
            assert (model.inference_count, model.execution_count) == (len(said.ASKED), len(said.ASKED))
