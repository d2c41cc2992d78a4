"""Mistakes in an ensemble's wiring: each is told where it is made, all of them at once, with the nearest right name."""

import pytest

from naiad.config.pbtxt import parse_config
from naiad.config.validate.ensembles import ensemble_findings
from naiad.config.validate.wiring import KnownModels, circular_findings, wiring_findings

TENSORS = 'input { name: "X" data_type: TYPE_FP32 dims: 4 } output { name: "Y" data_type: TYPE_FP32 dims: 4 }'
ENSEMBLE = """
name: "e" platform: "ensemble" max_batch_size: 8
input { name: "in" data_type: TYPE_FP32 dims: 4 }
output { name: "ob" data_type: TYPE_FP32 dims: 4 }
output { name: "oc" data_type: TYPE_FP32 dims: 4 }
ensemble_scheduling {
  step { model_name: "A" model_version: -1 input_map { key: "X" value: "in" } output_map { key: "Y" value: "feats" } }
  step { model_name: "B" model_version: -1 input_map { key: "X" value: "feats" } output_map { key: "Y" value: "ob" } }
  step { model_name: "C" model_version: -1 input_map { key: "X" value: "feats" } output_map { key: "Y" value: "oc" } }
}
"""


def model(name, tensors=TENSORS, max_batch_size=8, more=""):
    return parse_config(f'name: "{name}" backend: "identity" max_batch_size: {max_batch_size} {tensors} {more}', "f")


def findings(text=ENSEMBLE, changed=(), failed=()):
    models = {name: model(name) for name in "ABC"} | {config.name: config for config in changed}
    for name in dict(failed):
        del models[name]
    config = parse_config(text, "f")
    known = KnownModels(models, dict(failed))
    return [finding.text for finding in (*ensemble_findings(config), *wiring_findings(config, known))]


def with_step(number, old, new):
    """The ensemble with a change in one of its steps."""
    lines = ENSEMBLE.splitlines()
    places = [index for index, line in enumerate(lines) if line.startswith("  step")]
    assert old in lines[places[number - 1]]
    lines[places[number - 1]] = lines[places[number - 1]].replace(old, new)
    return "\n".join(lines)


def test_a_right_ensemble_passes_and_a_tensor_may_be_read_twice():
    assert findings() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            with_step(2, '"feats"', '"feat"'),
            (
                "ensemble 'e', step 2 (model 'B') reads for its input 'X' tensor 'feat', which is not an input of the ensemble "
                "nor written by any step; did you mean 'feats'?"
            ),
        ),
        (
            with_step(3, 'key: "X"', 'key: "x"'),
            ("ensemble 'e', step 3 (model 'C'): input_map has key 'x', which is not an input of the model; did you mean 'X'?"),
        ),
        (
            with_step(3, 'key: "Y"', 'key: "y"'),
            (
                "ensemble 'e', step 3 (model 'C'): output_map has key 'y', which is not an output of the model; "
                "did you mean 'Y'?"
            ),
        ),
        (
            ENSEMBLE + 'output { name: "final" data_type: TYPE_FP32 dims: 4 }',
            ("ensemble 'e' has as output tensor 'final', which is not an input of the ensemble nor written by any step"),
        ),
        (
            ENSEMBLE + 'input { name: "Z" data_type: TYPE_FP32 dims: 4 }',
            "ensemble 'e': input 'Z' is not used by any step nor an output",
        ),
        (
            with_step(3, '"oc"', '"ob"'),
            (
                "ensemble 'e', step 3 (model 'C') writes tensor 'ob' from its output 'Y', but it is written by step 2 "
                "(model 'B') already"
            ),
        ),
        (
            ENSEMBLE.replace('name: "ob" data_type: TYPE_FP32', 'name: "ob" data_type: TYPE_INT32'),
            ("ensemble 'e': tensor 'ob' is TYPE_FP32 from output 'Y' of model 'B', but TYPE_INT32 as the ensemble's output"),
        ),
        (
            ENSEMBLE.replace('name: "ob" data_type: TYPE_FP32 dims: 4', 'name: "ob" data_type: TYPE_FP32 dims: 3'),
            ("ensemble 'e': tensor 'ob' has shape [-1,4] from output 'Y' of model 'B', but [-1,3] as the ensemble's output"),
        ),
        (
            ENSEMBLE.replace("max_batch_size: 8", "max_batch_size: 16"),
            "ensemble 'e', step 2 (model 'B') takes batches of 8 at most, the ensemble 16",
        ),
        (
            with_step(2, 'model_name: "B"', 'model_name: "BB"'),
            "ensemble e contains models that are not available or ambiguous: BB (step 2); did you mean 'B'?",
        ),
        (
            with_step(1, '"in"', '"oc"'),
            (
                "ensemble 'e' has a circle, so that its tensors are not written: steps 1 (model 'A'), 3 (model 'C') "
                "wait for each other"
            ),
        ),
    ],
)
def test_one_mistake_is_told_where_it_is_made(text, message):
    assert message in findings(text)


def test_a_required_input_that_is_not_mapped_is_named():
    two = TENSORS + ' input { name: "W" data_type: TYPE_FP32 dims: 4 }'
    expected = "ensemble 'e', step 2 (model 'B'): input 'W' of the model is not in input_map, and it is required"
    assert findings(changed=[model("B", two)]) == [expected]


def test_an_optional_input_need_not_be_mapped():
    two = TENSORS + ' input { name: "W" data_type: TYPE_FP32 dims: 4 optional: true }'
    assert findings(changed=[model("B", two)]) == []


def test_the_reason_of_a_model_that_failed_is_told():
    expected = (
        "ensemble 'e' depends on 'B' which has no loaded version. Model 'B' loading failed with error: no such file (step 2)"
    )
    assert findings(failed={"B": "no such file"}) == [expected]


def test_a_model_that_does_not_batch_may_have_the_batch_in_its_dims():
    inside = TENSORS.replace("dims: 4", "dims: [ -1, 4 ]")
    assert findings(changed=[model("B", inside, max_batch_size=0)]) == []


def test_two_mistakes_are_both_named():
    text = with_step(2, '"feats"', '"feat"') + 'input { name: "Z" data_type: TYPE_FP32 dims: 4 }'
    found = findings(text)
    assert [part for part in ("'feat'", "'Z'") if any(part in message for message in found)] == ["'feat'", "'Z'"]


def test_a_tensor_of_two_decoupled_models_can_not_be_joined():
    decoupled = "model_transaction_policy { decoupled: true }"
    two = TENSORS + ' input { name: "W" data_type: TYPE_FP32 dims: 4 }'
    text = ENSEMBLE + (
        'ensemble_scheduling { step { model_name: "D" input_map { key: "X" value: "ob" } input_map { key: "W" value: "oc" } '
        'output_map { key: "Y" value: "od" } } } output { name: "od" data_type: TYPE_FP32 dims: 4 }'
    )
    text = text.replace("}\n}\nensemble_scheduling {", "}\n").replace("\n}\nensemble_scheduling {", "\n")
    changed = [model("B", more=decoupled), model("C", more=decoupled), model("D", two)]
    expected = (
        "ensemble 'e', step 4 (model 'D') reads tensors of more than one decoupled model: step 2 (model 'B') and "
        "step 3 (model 'C')"
    )
    outputs = "ensemble 'e' has outputs of more than one decoupled model: step 2 (model 'B') and step 3 (model 'C')"
    assert findings(text, changed) == [expected, outputs]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("instance_group { count: 1 }", "ensemble 'e' must not specify 'instance_group': its steps' models do"),
        ("optimization { eager_batching: true }", "ensemble 'e' must not specify 'optimization': its steps' models do"),
        ('model_warmup { name: "w" }', "ensemble 'e' must not specify 'model_warmup': its steps' models do"),
    ],
)
def test_what_only_models_have_is_refused(text, message):
    assert findings(ENSEMBLE + text) == [message]


def test_an_ensemble_has_steps():
    found = [item.text for item in ensemble_findings(parse_config('name: "e" ensemble_scheduling { }', "f"))]
    assert found == ["ensemble 'e' must have at least one 'step'"]


@pytest.mark.parametrize("field", ["model_name", "input_map", "output_map"])
def test_a_step_has_a_model_and_both_maps(field):
    parts = {
        "model_name": 'model_name: "A"',
        "input_map": 'input_map { key: "X" value: "in" }',
        "output_map": 'output_map { key: "Y" value: "out" }',
    }
    step = " ".join(text for name, text in parts.items() if name != field)
    config = parse_config(f'name: "e" ensemble_scheduling {{ step {{ {step} }} }}', "f")
    model_name = "" if field == "model_name" else "A"
    expected = f"ensemble 'e', step 1 (model '{model_name}') must specify '{field}'"
    assert expected in [item.text for item in ensemble_findings(config)]


def test_ensembles_that_run_each_other_are_named_in_order():
    def ensemble(name, inner):
        return parse_config(f'name: "{name}" ensemble_scheduling {{ step {{ model_name: "{inner}" }} }}', "f")

    known = KnownModels({"a": ensemble("a", "b"), "b": ensemble("b", "a"), "outer": ensemble("outer", "a")}, {})
    found = {name: [item.text for item in circular_findings(config, known)] for name, config in known.configs.items()}
    assert found == {
        "a": ["circular dependency between ensembles: a -> b -> a"],
        "b": ["circular dependency between ensembles: b -> a -> b"],
        "outer": [],
    }
