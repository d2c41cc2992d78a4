"""Plans of sequence models, from a few words of config."""

from __future__ import annotations

from pathlib import Path

from naiad.config.compile import compile_plan
from naiad.config.defaults import normalise
from naiad.config.pbtxt import parse_config
from naiad.config.plan import ModelPlan

CONTROLS = """
control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
control_input { name: "END" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } }
control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } }
control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
"""
STATE = 'state { input_name: "S" output_name: "S_NEXT" data_type: TYPE_FP32 dims: 1 }'


def sequence_plan(
    batching: str = f"direct {{ }} {CONTROLS}", max_batch_size: int = 4, directory: Path = Path("/m")
) -> ModelPlan:
    """Return the plan of a model with the input X and the output Y; `batching` is what its sequence_batching says."""
    text = f"""
    name: "m" backend: "identity" max_batch_size: {max_batch_size}
    input {{ name: "X" data_type: TYPE_FP32 dims: -1 }}
    output {{ name: "Y" data_type: TYPE_FP32 dims: -1 }}
    sequence_batching {{ {batching} }}
    """
    config = parse_config(text, "f")
    normalise(config, default_instance_count=1)
    return compile_plan(config, version=1, directory=directory, version_directory=directory / "1")
