"""Every field of ModelConfig does something or is warned about: none is ignored in silence.

A field that is new in the descriptor fails here until someone says which of these it is.
"""

import pytest

from naiad.config import schema
from naiad.config.compile.unused import UNUSED_FIELDS, unused_fields
from naiad.proto import message_class

DOES_SOMETHING = (
    "name",
    "platform",
    "backend",
    "version_policy.latest.num_versions",
    "version_policy.all",
    "version_policy.specific.versions",
    "max_batch_size",
    *(f"{side}.{field}" for side in ("input", "output") for field in ("name", "data_type", "dims", "reshape.shape")),
    "input.optional",
    "input.allow_ragged_batch",
    "output.label_filename",
    *(f"instance_group.{field}" for field in ("name", "count", "gpus", "kind", "passive", "host_policy")),
    "default_model_filename",
    "metric_tags",
    "parameters.string_value",
    *(
        f"dynamic_batching.{field}"
        for field in (
            "preferred_batch_size",
            "max_queue_delay_microseconds",
            "preserve_ordering",
            "priority_levels",
            "default_priority_level",
        )
    ),
    *(
        f"dynamic_batching.{policy}.{field}"
        for policy in ("default_queue_policy", "priority_queue_policy")
        for field in ("timeout_action", "default_timeout_microseconds", "allow_timeout_override", "max_queue_size")
    ),
    "sequence_batching.max_sequence_idle_microseconds",
    "sequence_batching.direct",
    "sequence_batching.iterative_sequence",
    "sequence_batching.oldest",
    "sequence_batching.control_input",
    *(f"sequence_batching.state.{field}" for field in ("input_name", "output_name", "data_type", "dims", "initial_state")),
    "model_transaction_policy.decoupled",
    *(f"ensemble_scheduling.step.{field}" for field in ("model_name", "model_version", "input_map", "output_map")),
    "ensemble_scheduling.max_inflight_requests",
    "model_repository_agents.agents.name",
    "model_repository_agents.agents.parameters",
    "response_cache.enable",
    "model_warmup",
    "instance_group.rate_limiter",
)
ONLY_INFORMS = (
    "input.format",
    "optimization.input_pinned_memory.enable",
    "optimization.output_pinned_memory.enable",
    "sequence_batching.state.use_same_buffer_for_input_output",
    "sequence_batching.state.use_growable_memory",
)
"""By right without effect: the layout of an image is for clients, pinned memory is a hint that a CPU has no use for, and states
are arrays of their own, which may grow.
"""


def leaves(descriptor, prefix=""):
    """The path of each plain field, and of each block without fields; maps by their values."""
    for field in descriptor.fields:
        path = prefix + field.name
        value = field.message_type.fields_by_name["value"] if schema.is_map(field) else field
        inner = value.message_type
        # A shape in a map of blocks and so on: no message of the config contains itself.
        yield from leaves(inner, f"{path}.") if inner is not None and inner.fields else [path]


LEAVES = tuple(leaves(message_class("inference.ModelConfig").DESCRIPTOR))
GROUPS = {"does something": DOES_SOMETHING, "informs": ONLY_INFORMS, "warned about": UNUSED_FIELDS}


def groups_of(leaf):
    return [name for name, paths in GROUPS.items() if any(leaf == path or leaf.startswith(f"{path}.") for path in paths)]


@pytest.mark.parametrize("leaf", LEAVES)
def test_each_field_is_in_exactly_one_group(leaf):
    assert len(groups_of(leaf)) == 1, groups_of(leaf)


@pytest.mark.parametrize("path", [path for paths in GROUPS.values() for path in paths])
def test_no_group_names_a_field_that_is_not_there(path):
    assert [leaf for leaf in LEAVES if leaf == path or leaf.startswith(f"{path}.")]


def set_field(message, names):
    """Set the field at the end of `names` to something that isn't its default."""
    field = message.DESCRIPTOR.fields_by_name[names[0]]
    value = getattr(message, field.name)
    if schema.is_map(field):
        of_value = field.message_type.fields_by_name["value"]
        key = "k" if not schema.integer_range(field.message_type.fields_by_name["key"]) else 1
        if of_value.message_type is None:
            value[key] = "v"
        else:
            target = value[key]
            if names[1:]:
                set_field(target, names[1:])
    elif field.message_type is not None:
        target = value.add() if schema.is_repeated(field) else value
        if names[1:]:
            set_field(target, names[1:])
        else:
            target.SetInParent() if not schema.is_repeated(field) else None
    else:
        plain = "x" if isinstance(field.default_value, str) or (schema.is_repeated(field) and field.type == 9) else 1
        value.append(plain) if schema.is_repeated(field) else setattr(message, field.name, plain)


def config_with(leaf):
    config = message_class("inference.ModelConfig")()
    config.backend = "python" if leaf.startswith("batch_") else "identity"
    set_field(config, leaf.split("."))
    return config


@pytest.mark.parametrize("leaf", [leaf for leaf in LEAVES if groups_of(leaf) == ["warned about"]])
def test_a_field_without_effect_is_named_in_a_warning(leaf):
    named = unused_fields(config_with(leaf))
    assert len(named) == 1
    assert leaf == named[0] or leaf.startswith(f"{named[0]}.")


@pytest.mark.parametrize("leaf", [*DOES_SOMETHING, *ONLY_INFORMS])
def test_a_field_that_does_something_is_not_warned_about(leaf):
    assert unused_fields(config_with(leaf)) == []


@pytest.mark.parametrize("leaf", ["batch_input.kind", "batch_output.kind"])
def test_what_tells_where_requests_lie_is_for_engines_that_join_them(leaf):
    config = config_with(leaf)
    assert unused_fields(config) == [leaf.split(".")[0]]
    config.backend = "onnxruntime"
    assert unused_fields(config) == []


@pytest.mark.parametrize("field", ["graph", "execution_accelerators"])
def test_how_a_graph_runs_is_onnx_runtimes_business(field):
    config = config_with(f"optimization.{field}")
    assert unused_fields(config) == [f"optimization.{field}"]
    config.backend = "onnxruntime"
    assert unused_fields(config) == []
