"""From a completed, validated ModelConfig to the immutable plan that everyone else uses."""

from naiad.config.compile.instances import instance_plans, unknown_policies
from naiad.config.compile.model import compile_plan
from naiad.config.compile.unused import unused_fields

__all__ = ["compile_plan", "instance_plans", "unknown_policies", "unused_fields"]
