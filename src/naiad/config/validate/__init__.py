"""Checks of a completed configuration: `validate` runs them all and lists every mistake at once."""

from __future__ import annotations

from naiad.config.compile.gpu_placement import gpu_placement_findings
from naiad.config.findings import Finding, refuse
from naiad.config.validate.adaptive import adaptive_findings
from naiad.config.validate.batch_tensors import batch_tensor_findings
from naiad.config.validate.ensembles import ensemble_findings
from naiad.config.validate.general import general_findings
from naiad.config.validate.instances import instance_findings
from naiad.config.validate.policies import policy_findings
from naiad.config.validate.scheduling import early_refusal_findings, scheduling_findings
from naiad.config.validate.sequences import sequence_findings
from naiad.config.validate.tensors import tensor_findings
from naiad.config.validate.traffic import traffic_findings, unserved_traffic
from naiad.devices.inventory import UsableGpus
from naiad.proto import Message

_NO_GPUS = UsableGpus()

__all__ = [
    "all_findings",
    "unserved_traffic",
    "validate",
    "validate_batch_tensors",
    "validate_general",
    "validate_instances",
    "validate_policies",
    "validate_scheduling",
    "validate_tensors",
]


def validate(config: Message, model_name: str, *, gpus: UsableGpus = _NO_GPUS) -> None:
    """Check everything. `gpus` are those that may be used.

    Raises INVALID_ARGUMENT that lists every mistake.
    """
    refuse(all_findings(config, model_name, gpus=gpus))


def all_findings(config: Message, model_name: str, *, gpus: UsableGpus = _NO_GPUS) -> list[Finding]:
    """Return every mistake that the config alone shows; see `validate`."""
    return [
        *general_findings(config, model_name),
        *tensor_findings(config),
        *batch_tensor_findings(config),
        *scheduling_findings(config),
        *sequence_findings(config),
        *ensemble_findings(config),
        *instance_findings(config, gpus),
        *gpu_placement_findings(config),
        *policy_findings(config),
        *traffic_findings(config),
        *early_refusal_findings(config),
        *adaptive_findings(config),
    ]


def validate_general(config: Message, model_name: str) -> None:
    """Check name, backend, platform and max_batch_size; needed before a backend is looked up. Raises as `validate` does."""
    refuse(general_findings(config, model_name))


def validate_tensors(config: Message) -> None:
    """Check inputs and outputs: name, data type, dims, reshape, format. Raises INVALID_ARGUMENT."""
    refuse(tensor_findings(config))


def validate_batch_tensors(config: Message) -> None:
    """Check batch_input and batch_output. Raises INVALID_ARGUMENT."""
    refuse(batch_tensor_findings(config))


def validate_scheduling(config: Message) -> None:
    """Check the dynamic batcher's settings. Raises INVALID_ARGUMENT."""
    refuse(scheduling_findings(config))


def validate_instances(config: Message, *, gpus: UsableGpus = _NO_GPUS) -> None:
    """Check instance groups. Raises INVALID_ARGUMENT."""
    refuse(instance_findings(config, gpus))


def validate_policies(config: Message) -> None:
    """Check version policy, response cache and metrics. Raises INVALID_ARGUMENT."""
    refuse(policy_findings(config))
