"""The generate extension: one flat JSON object in, one out, or one for each response as server-sent events."""

from __future__ import annotations

import json

import pytest

ENDS = ["generate", "generate_stream"]


@pytest.fixture
def generate(ask):
    """Post to the model `gen`; with an `end` of generate_stream the answer is the one event's."""

    def send(document, end="generate", model="gen"):
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return ask("POST", f"/v2/models/{model}/{end}", data=body)

    return send


@pytest.fixture
def answer(generate):
    def send(document, end="generate"):
        response = generate(document, end)
        assert response.status_code == 200, response.text
        return response.json() if end == "generate" else event(response)

    return send


def event(response):
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["transfer-encoding"] == "chunked"
    assert response.text.startswith("data: ")
    assert response.text.endswith("\n\n")
    assert response.text.count("\n") == 2
    return json.loads(response.text[6:])


@pytest.mark.parametrize("end", ENDS)
def test_the_answer_holds_model_version_and_outputs_and_nothing_more(answer, end):
    assert answer({"text_input": "hi"}, end) == {"model_name": "gen", "model_version": "1", "text_output": "hi"}


@pytest.mark.parametrize("end", ENDS)
def test_the_id_comes_back(answer, end):
    assert answer({"id": "7", "text_input": "hi"}, end)["id"] == "7"


def test_the_answer_is_json_with_its_keys_in_alphabetical_order(generate):
    response = generate({"text_input": "hi", "n": 3, "id": "7"})
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["id", "model_name", "model_version", "n_seen", "text_output"]


@pytest.mark.parametrize("value", ["hi", ["hi"], [["hi"]]])
def test_a_scalar_and_its_lists_are_the_same(answer, value):
    assert answer({"text_input": value})["text_output"] == "hi"


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({"stop_words": ["a", "b", "\u00e9"]}, {"stop_words_seen": ["a", "b", "\u00e9"]}),
        ({"stop_words": "a"}, {"stop_words_seen": "a"}),
        ({"stop_words": []}, {}),
        ({"bias": [1, 2, 3, 4]}, {"bias_seen": [1.0, 2.0, 3.0, 4.0]}),
        ({"bias": [[1, 2], [3, 4]]}, {"bias_seen": [1.0, 2.0, 3.0, 4.0]}),
        ({"bias": [1, 2]}, {"bias_seen": [1.0, 2.0]}),
        ({"n": 3}, {"n_seen": 3}),
        ({"parameters": {"n": 3}}, {"n_seen": 3}),
        ({"parameters": {"n": 3, "temperature": 0.5}}, {"n_seen": 3}),
        ({"max_tokens": 7, "stream": False, "temperature": 0.5, "user": "u"}, {}),
        ({"parameters": {}}, {}),
    ],
)
def test_lists_arrive_whole_and_keys_that_are_no_inputs_are_parameters(answer, given, seen):
    expected = {"model_name": "gen", "model_version": "1", "text_output": "hi", **seen}
    assert answer({"text_input": "hi", **given}) == expected


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"text_input": "hi", "bias": [1, 2, 3]}, "can not convert input 'bias' to tensor with proper shape"),
        ({"text_input": "hi", "bias": [[1, 2, 3]]}, "can not convert input 'bias'"),
        ({"text_input": "hi", "bias": [[1, 2], [3]]}, "can not convert input 'bias'"),
        ({"text_input": "hi", "n": [1, 2]}, "n"),
        ({"text_input": None}, "'text_input' is null"),
        ({"text_input": 7}, "element 0 of the data of input 'text_input' is number 7"),
        ({"text_input": {"a": 1}}, "input 'text_input'"),
        ({"text_input": "hi", "n": "3"}, "element 0 of the data of input 'n' is string '3'"),
        ({"text_input": "hi", "n": 2.5}, "input 'n'"),
        ({"text_input": "hi", "half": 1.0}, "FP16"),
        ({"text_input": "hi", "mine": [1]}, "'mine'"),
        ({"text_input": "hi", "mine": {}}, "'mine'"),
        ({"text_input": "hi", "mine": None}, "'mine' is null"),
        ({"text_input": "hi", "parameters": {"mine": None}}, "'mine' is null"),
        ({"text_input": "hi", "parameters": 7}, "'parameters' must be an object"),
        ({"text_input": "hi", "parameters": {"text_input": "ho"}}, "'text_input' is given twice"),
        ({"text_input": "hi", "id": 7}, "'id' must be a string"),
        ({}, "missing required input(s) ['text_input']"),
        ({"text_input": []}, "missing required input(s) ['text_input']"),
        (b"", "failed to parse the request JSON buffer"),
        (b"{", "failed to parse the request JSON buffer"),
        (b"[]", "must be a JSON object"),
    ],
)
def test_what_can_not_be_mapped_is_a_plain_400_that_names_it(generate, error, document, words, end):
    assert words in error(generate(document, end))


def test_more_texts_than_the_model_takes_are_refused_or_all_are_run(generate, error):
    response = generate({"text_input": ["a", "b"]})
    if response.status_code == 200:
        assert response.json()["text_output"] == ["a", "b"]
    else:
        assert "'text_input'" in error(response)


@pytest.mark.parametrize("key", ["sequence_id", "priority", "timeout", "triton_x"])
def test_keys_of_inference_have_no_meaning_here(answer, key):
    assert answer({"text_input": "hi", key: 1})["text_output"] == "hi"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.5])
def test_floats_come_back_also_when_they_are_not_finite(generate, value):
    response = generate({"text_input": "hi", "bias": [value, 1.0]})
    assert json.dumps(response.json()["bias_seen"]) == json.dumps([value, 1.0])


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ";;;"])
@pytest.mark.parametrize("end", ENDS)
def test_the_content_type_is_ignored(ask, content_type, end):
    body, headers = b'{"text_input": "a=b&c"}', {"Content-Type": content_type}
    response = ask("POST", f"/v2/models/gen/{end}", data=body, headers=headers)
    assert '"text_output":"a=b&c"' in response.text


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_load_report_without_its_metrics_is_no_header(ask, form):
    headers = {"endpoint-load-metrics-format": form}
    response = ask("POST", "/v2/models/gen/generate", data=b'{"text_input": "hi"}', headers=headers)
    assert response.status_code == 200
    assert "endpoint-load-metrics" not in response.headers


def test_a_version_may_be_named(ask):
    response = ask("POST", "/v2/models/gen/versions/1/generate", data=b'{"text_input": "hi"}')
    assert response.json()["model_version"] == "1"
