"""A session's inputs and outputs: read for auto-complete, and compared with what a config says of them.

Owns the names of ONNX's types. Filling a config belongs to `config`.

The engine tells no difference between a scalar and a tensor whose rank isn't known (both have the shape []), so a config may
give such a tensor any rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from naiad.backends.onnx.session import Session
from naiad.config.findings import about
from naiad.config.plan import ModelPlan, TensorPlan
from naiad.config.signature import ModelSignature, TensorSignature
from naiad.errors import InferenceServerError, invalid_argument
from naiad.tensor import shape as shapes
from naiad.tensor.datatype import BY_NAME

_DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(bfloat16)": "BF16",
    "tensor(string)": "BYTES",
}


def read_signature(model_name: str, session: Session) -> ModelSignature:
    """Return the model's tensors. Raises INVALID_ARGUMENT for a type that can't be served (sequence, map, float8 …)."""
    return ModelSignature(
        tuple(_tensor(model_name, node) for node in session.get_inputs()),
        tuple(_tensor(model_name, node) for node in session.get_outputs()),
    )


def check_plan(plan: ModelPlan, session: Session) -> ModelSignature:
    """Return the model's tensors that `plan` names, in its order.

    Raises INVALID_ARGUMENT when the config doesn't fit the model: an input of the model isn't in it, a name isn't the model's,
    or a datatype or shape differs. Outputs may be left out; inputs that have a value in the model too.
    """
    _refuse_ragged(plan)
    required = _by_name(session.get_inputs())
    absent = [name for name in required if name not in plan.inputs_by_name]
    if absent:
        raise invalid_argument(
            f"unable to load model '{plan.name}', configuration expects {len(plan.inputs)} inputs, model provides "
            f"{len(required)}: not in the configuration: {', '.join(absent)}"
        )
    inputs = {**required, **_by_name(session.get_overridable_initializers())}
    return ModelSignature(
        _all_checked(plan, plan.inputs, inputs, "input"),
        _all_checked(plan, plan.outputs, _by_name(session.get_outputs()), "output"),
    )


def _all_checked(
    plan: ModelPlan, tensors: Sequence[TensorPlan], nodes: Mapping[str, Any], what: str
) -> tuple[TensorSignature, ...]:
    """As `_checked`; what is raised is about the tensor's block in the config."""
    found = []
    for index, tensor in enumerate(tensors):
        with about((what, index)):
            found.append(_checked(plan, tensor, nodes, what))
    return tuple(found)


def _refuse_ragged(plan: ModelPlan) -> None:
    """A batch is one tensor here: without something that tells the model where each request lies, different shapes can't be
    joined.
    """
    if plan.joins_ragged:
        return
    ragged = [tensor.name for tensor in plan.inputs if tensor.allow_ragged_batch]
    if ragged:
        raise invalid_argument(
            f"model '{plan.name}': allow_ragged_batch (input {', '.join(ragged)}) needs a batch_input or batch_output for ONNX "
            f"models, which get all elements of a batch in one row; without it, requests of equal shapes are batched"
        )


def _by_name(nodes: Iterable[Any]) -> dict[str, Any]:
    return {node.name: node for node in nodes}


def _checked(plan: ModelPlan, tensor: TensorPlan, nodes: Mapping[str, Any], what: str) -> TensorSignature:
    node = nodes.get(tensor.name)
    if node is None:
        raise invalid_argument(
            f"model '{plan.name}': unexpected inference {what} '{tensor.name}', allowed {what}s are: {', '.join(nodes)}"
        )
    found = _tensor(plan.name, node)
    if found.datatype != tensor.datatype.name:
        raise invalid_argument(
            f"model '{plan.name}', tensor '{tensor.name}': the model expects data type {BY_NAME[found.datatype].config_name} "
            f"but the model configuration specifies {tensor.datatype.config_name}"
        )
    if found.shape and not _fits(plan, tensor, found.shape):
        raise _shape_error(plan, tensor, found.shape)
    return found


def _tensor(model_name: str, node: Any) -> TensorSignature:
    datatype = _DATATYPES.get(node.type)
    if datatype is None:
        raise invalid_argument(
            f"model '{model_name}': '{node.name}' has the ONNX type {node.type}, which can't be served; if it is an output "
            f"that nobody needs, give the model a config that lists all inputs and the wanted outputs"
        )
    return TensorSignature(
        node.name, datatype, tuple(size if isinstance(size, int) else shapes.VARIABLE for size in node.shape)
    )


def _fits(plan: ModelPlan, tensor: TensorPlan, shape: tuple[int, ...]) -> bool:
    if plan.is_batching and shape[0] != shapes.VARIABLE:
        return False
    if len(shape) != len(tensor.backend_shape):
        return False
    return all(shapes.VARIABLE in pair or pair[0] == pair[1] for pair in zip(shape, tensor.backend_shape))


def _shape_error(plan: ModelPlan, tensor: TensorPlan, shape: tuple[int, ...]) -> InferenceServerError:
    text = f"model '{plan.name}', tensor '{tensor.name}': "
    if plan.is_batching and shape[0] != shapes.VARIABLE:
        return invalid_argument(
            f"{text}the first dimension must be variable for max_batch_size {plan.max_batch_size} but the model's shape is "
            f"{shapes.text(shape)}; set max_batch_size to 0"
        )
    batch = " (an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape)" * plan.is_batching
    return invalid_argument(
        f"{text}the model expects {len(shape)} dimensions (shape {shapes.text(shape)}) but the model configuration specifies "
        f"{len(tensor.backend_shape)} dimensions{batch}, making complete shape {shapes.text(tensor.backend_shape)}"
    )
