"""What counts as in use: a stream that is open, a model that waits for the one it calls; and a stop while an engine loads."""

from __future__ import annotations

import numpy as np
import tritonclient.http
from asking import Asker
from controlled_models import http_ask
from limited_memory import TWO_OF_THREE, declared, demand_loads, evictions, resident, scripted_models, value_models
from model_folders import identity
from python_models import IO, Config, source, write_python_model
from python_models.repositories import ANY_ROW, ONE_NUMBER
from raw_http import Connection, infer, post
from scripted_models import ENVIRONMENT
from waiting import wait_until


def test_a_model_with_an_open_stream_stays_until_the_stream_ends(tmp_path, serve):
    models = tmp_path / "models"
    write_python_model(models, "a", source("patient"), Config(ANY_ROW, ONE_NUMBER, 0, declared(), is_decoupled=True))
    value_models(models, "b")
    server = serve(models, "--model-memory-limit=150MB")
    stream = Connection(server.host_port).send(post("/v2/models/a/generate_stream", b'{"X": [1]}'))
    wait_until(lambda: server.metric("naiad_running_requests", model="a") == 1)
    with Connection(server.host_port) as waiting:
        waiting.send(infer("b", [1], [1, 1]))
        wait_until(lambda: server.metric("nv_inference_pending_request_count", model="b") == 1)
        assert (resident(server, "a", "b"), evictions(server, "a")) == (["a"], [0])
        stream.close()
        assert waiting.response()[0] == 200
    assert resident(server, "a", "b") == ["b"]


def test_a_model_that_calls_one_out_of_memory_gets_its_answer(tmp_path, serve):
    models = tmp_path / "models"
    parameter = 'parameters { key: "way" value { string_value: "plain" } }'
    write_python_model(models, "caller", source("caller"), Config((IO("X"),), (IO("Y"),), 8, parameter + declared()))
    value_models(models, "other")
    write_python_model(models, "picky", source("failing"), Config(more=declared()))
    server = serve(models, TWO_OF_THREE)
    assert resident(server, "caller", "other", "picky") == ["caller", "other"]
    client = server.clients.enter_context(tritonclient.http.InferenceServerClient(server.http))
    tensor = tritonclient.http.InferInput("X", [1, 2], "FP32")
    tensor.set_data_from_numpy(np.float32([[1, 2]]))
    assert client.infer("caller", [tensor]).as_numpy("Y").shape == (1, 2)
    assert (resident(server, "caller", "other", "picky"), demand_loads(server, "picky")) == (["caller", "picky"], [1])


def test_an_answer_from_the_cache_needs_no_load(tmp_path, serve):
    models = tmp_path / "models"
    for name in ("a", "b"):
        identity(models, name, more="response_cache { enable: true }" + declared())
    server = serve(models, "--model-memory-limit=150MB", "--cache-config=local,size=1048576")
    asks = [http_ask(server, name) for name in ("a", "b")]
    assert [ask() for ask in asks] == [1, 1]
    assert resident(server, "a", "b") == ["b"]
    assert (asks[0](), resident(server, "a", "b"), demand_loads(server, "a")) == (1, ["b"], [0])


def test_a_stop_while_an_engine_loads_for_a_request_answers_it_and_ends(tmp_path, serve):
    models = scripted_models(tmp_path / "models", "a", "b", "c")
    server = serve(tmp_path / "models", TWO_OF_THREE, environment=ENVIRONMENT)
    models[2].hold("load")
    (waiting,) = Asker(server, models[2]).queue(1)
    wait_until(lambda: resident(server, "c"))
    server.process.terminate()
    wait_until(lambda: any("stopping:" in line for line in server.errors))
    models[2].release()
    assert waiting.answer() == (200, [1])
    assert (server.wait(), "Traceback" in server.log()) == (0, False)
