"""How `naiad check` shows what it has found: as text for people, as JSON for programs. Owns both forms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from naiad.devices.host_policy import default_policy

if TYPE_CHECKING:
    from naiad.config.plan import InstancePlan, ModelPlan, StepPlan, TensorPlan
    from naiad.repository.check import CheckedModel, Remark


def as_text(models: Iterable[CheckedModel]) -> str:
    """Return a paragraph for each model and a last line with the counts."""
    checked = list(models)
    wrong = sum(bool(model.errors) for model in checked)
    errors = sum(len(model.errors) for model in checked)
    summary = f"{len(checked)} models checked, {wrong} can't be served, {errors} errors"
    return "\n\n".join([*("\n".join(_model_lines(model)) for model in checked), summary])


def as_json(models: Iterable[CheckedModel]) -> dict[str, Any]:
    """Return the same as JSON values: `ok`, and `models` with errors, warnings and the plan (null with errors)."""
    shown = [
        {
            "name": model.source.name,
            "ok": not model.errors,
            "errors": [_remark(remark) for remark in model.errors],
            "warnings": [_remark(remark) for remark in model.warnings],
            "plan": _plan(model.plans) if model.plans else None,
        }
        for model in models
    ]
    return {"ok": all(model["ok"] for model in shown), "models": shown}


def remark_lines(kind: str, remark: Remark) -> Iterator[str]:
    """Yield a remark as compilers write theirs, with its advice below."""
    place = f"{remark.place}:{remark.position}" if remark.position else remark.place
    field = f" [{remark.field}]" if remark.field else ""
    yield f"{place}: {kind}: {remark.text}{field}"
    if remark.advice:
        yield f"    advice: {remark.advice}"


def _model_lines(model: CheckedModel) -> Iterator[str]:
    yield f"model {model.source.name}: {'ERROR' if model.errors else 'ok'}"
    for kind, remarks in (("error", model.errors), ("warning", model.warnings)):
        for remark in remarks:
            yield from (f"  {line}" for line in remark_lines(kind, remark))
    if model.plans:
        yield from (f"  {name}: {_value(value)}" for name, value in _plan(model.plans).items())


def _value(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    return ", ".join(" ".join(map(str, item.values())) if isinstance(item, dict) else str(item) for item in value) or "none"


def _plan(plans: list[ModelPlan]) -> dict[str, Any]:
    """Return what the server would make of a model; its versions differ in their files only."""
    plan = plans[-1]
    steps = {} if plan.ensemble is None else {"steps": [_step(step) for step in plan.ensemble.steps]}
    return {
        "backend": plan.backend or plan.platform,
        "versions": [each.version for each in plans],
        "batching": _batching(plan),
        "inputs": [_tensor(tensor) for tensor in plan.inputs],
        "outputs": [_tensor(tensor) for tensor in plan.outputs],
        "instances": [_instance(instance) for instance in plan.instances],
        **steps,
    }


def _step(step: StepPlan) -> str:
    """Return a step as `model[ version]: input=tensor, … -> output=tensor, …`."""
    sides = [", ".join(f"{name}={tensor}" for name, tensor in side) for side in (step.inputs, step.outputs.items())]
    version = f" version {step.version}" if step.version else ""
    return f"{step.model_name}{version}: {' -> '.join(sides)}"


def _instance(instance: InstancePlan) -> dict[str, Any]:
    policy = (
        {"host_policy": instance.host_policy}
        if instance.host_policy != default_policy(instance.kind, instance.device_id)
        else {}
    )
    return {"name": instance.name, "kind": instance.kind, **policy}


def _batching(plan: ModelPlan) -> str:
    if plan.ensemble is not None:
        return f"by the models of the steps, max_batch_size {plan.max_batch_size}"
    if plan.dynamic_batching is None:
        return f"none by the server, max_batch_size {plan.max_batch_size}"
    preferred = ", ".join(map(str, plan.dynamic_batching.preferred_batch_sizes)) or "none"
    delay = plan.dynamic_batching.max_queue_delay_us
    return f"dynamic, max_batch_size {plan.max_batch_size}, preferred {preferred}, queue delay {delay} µs"


def _tensor(tensor: TensorPlan) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype.name, "shape": list(tensor.shape)}


def _remark(remark: Remark) -> dict[str, Any]:
    position = remark.position
    return {
        "file": remark.place,
        "line": position.line if position else None,
        "column": position.column if position else None,
        "field": remark.field or None,
        "message": remark.text,
        "advice": remark.advice or None,
    }
