"""Model plans for tests, without a config file."""

from __future__ import annotations

from pathlib import Path

from naiad.config.plan import InstancePlan, ModelPlan, TensorPlan
from naiad.tensor.datatype import BY_NAME


def tensor(
    name: str, datatype: str, dims: list[int], max_batch_size: int = 0, reshape: list[int] | None = None, **more
) -> TensorPlan:
    batch = (-1,) if max_batch_size else ()
    return TensorPlan(
        name,
        BY_NAME[datatype],
        tuple(dims),
        (*batch, *dims),
        (*batch, *(dims if reshape is None else reshape)),
        has_reshape=reshape is not None,
        **more,
    )


def plan(
    inputs: list[TensorPlan],
    outputs: list[TensorPlan],
    max_batch_size: int = 0,
    name: str = "m",
    parameters: dict[str, str] | None = None,
) -> ModelPlan:
    return ModelPlan(
        name=name,
        version=1,
        backend="identity",
        platform="",
        max_batch_size=max_batch_size,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        required_inputs=frozenset(item.name for item in inputs if not item.is_optional),
        is_decoupled=False,
        dynamic_batching=None,
        sequence_batching=None,
        batch_inputs=(),
        scattered_outputs={},
        instances=(InstancePlan(f"{name}_0", "CPU", -1, name),),
        parameters=parameters or {},
        metric_tags={},
        directory=Path("/nowhere"),
        version_directory=Path("/nowhere/1"),
        model_file="",
        config={},
        inputs_by_name={item.name: item for item in inputs},
        outputs_by_name={item.name: item for item in outputs},
    )
