"""What an ensemble has of the models of its steps: whether it is decoupled, and the labels of its outputs. A pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from naiad.config.plan import ModelPlan, TensorPlan


def fitted(plan: ModelPlan, members: Sequence[ModelPlan]) -> ModelPlan:
    """Return the ensemble's plan with what the plans of its steps' models, in the order of the steps, say of it."""
    assert plan.ensemble is not None
    is_decoupled = any(member.is_decoupled for member in members)
    sources: dict[str, TensorPlan] = {}
    for step, member in zip(plan.ensemble.steps, members):
        sources.update((tensor, member.outputs_by_name[name]) for name, tensor in step.outputs.items())
    outputs = tuple(
        replace(output, labels=sources[output.name].labels) if not output.labels and output.name in sources else output
        for output in plan.outputs
    )
    changed = replace(
        plan,
        is_decoupled=is_decoupled,
        outputs=outputs,
        outputs_by_name={output.name: output for output in outputs},
        config={**plan.config, "model_transaction_policy": {"decoupled": is_decoupled}} if is_decoupled else plan.config,
    )
    return plan if changed == plan else changed
