"""Make a `ModelPlan` of one model version. Owns the assembly; the parts are made in the modules beside this one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from naiad.config.compile.batch_tensors import batch_input_plans, scattered_outputs
from naiad.config.compile.instances import instance_plans
from naiad.config.compile.scheduling import dynamic_batching_plan, ensemble_plan
from naiad.config.compile.sequences import first_inputs, sequence_plan
from naiad.config.compile.shared_answers import answers_digest
from naiad.config.compile.tensors import input_plans, output_plans
from naiad.config.compile.warmup import warmup_samples
from naiad.config.json_form import to_json
from naiad.config.plan import ModelPlan
from naiad.config.traffic import traffic_of
from naiad.proto import Message


def compile_plan(config: Message, *, version: int, directory: Path, version_directory: Path) -> ModelPlan:
    """Return the plan of version `version` of the model in `directory`; `config` is normalised and validated.

    Raises INVALID_ARGUMENT for a label file, a file of an initial state or of a warm-up sample that is missing, unreadable or
    outside the model's folder, for a sample that doesn't fit the model, and as `answers_digest` does.
    """
    inputs = input_plans(config)
    outputs = output_plans(config, directory)
    parameters = {name: parameter.string_value for name, parameter in config.parameters.items()}
    plan = ModelPlan(
        name=config.name,
        version=version,
        backend=config.backend,
        platform=config.platform,
        max_batch_size=config.max_batch_size,
        inputs=inputs,
        outputs=outputs,
        required_inputs=frozenset(tensor.name for tensor in inputs if not tensor.is_optional),
        is_decoupled=config.model_transaction_policy.decoupled,
        dynamic_batching=dynamic_batching_plan(config, inputs),
        sequence_batching=sequence_plan(config, inputs, directory),
        batch_inputs=tuple(batch_input_plans(config)),
        scattered_outputs=scattered_outputs(config),
        instances=instance_plans(config),
        parameters=parameters,
        metric_tags=dict(config.metric_tags),
        directory=directory,
        version_directory=version_directory,
        model_file=config.default_model_filename,
        config=to_json(config),
        inputs_by_name={tensor.name: tensor for tensor in inputs},
        outputs_by_name={tensor.name: tensor for tensor in outputs},
        traffic=traffic_of(parameters),
        is_cached=config.response_cache.enable,
        answers_digest=answers_digest(config, parameters, directory, version_directory),
        ensemble=ensemble_plan(config),
    )
    if not config.model_warmup:
        return plan
    samples = warmup_samples(config, plan.for_backend().inputs_by_name, directory)
    if plan.sequence_batching is not None:
        added = first_inputs(plan.sequence_batching, plan.max_batch_size)
        samples = tuple(replace(sample, inputs={**added, **sample.inputs}) for sample in samples)
    return replace(plan, warmup=samples)
