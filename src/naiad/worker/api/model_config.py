"""`ModelConfig`: what `auto_complete_config` fills in, and look-ups in a ModelConfig's JSON form.

Owns what may be filled in: what the user's configuration says stays, and a contradiction is an error. Whether the whole is a
right configuration is for the server to say.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

_TENSOR_PROPERTIES = ("name", "data_type", "dims")
_UNSET_TYPES = (None, "", "TYPE_INVALID")


class ModelConfig:
    """A model's configuration in its JSON form, to be completed. All setters raise ValueError for what contradicts it."""

    def __init__(self, model_config: str | Mapping[str, Any]) -> None:
        """Take the JSON text, or what it says, of which a copy is made. Raises ValueError when it is no JSON object."""
        config = json.loads(model_config) if isinstance(model_config, str) else copy.deepcopy(dict(model_config))
        if not isinstance(config, dict):
            raise ValueError(f"a model configuration must be a JSON object, not a {type(config).__name__}")
        self._config: dict[str, Any] = config

    def as_dict(self) -> dict[str, Any]:
        """Return the configuration itself, not a copy."""
        return self._config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the largest batch; a configured one that is larger is an error, a smaller one is replaced."""
        configured = int(self._config.get("max_batch_size") or 0)
        if configured > max_batch_size:
            raise ValueError(
                f"{self._who()} sets max_batch_size to {max_batch_size}, but the configuration has the larger {configured}"
            )
        self._config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Turn dynamic batching on, unless the configuration has it already with settings of its own."""
        for other in ("sequence_batching", "ensemble_scheduling"):
            if other in self._config:
                raise ValueError(f"{self._who()} sets the scheduling choice to dynamic_batching, the configuration has {other}")
        self._config.setdefault("dynamic_batching", {})

    def add_input(self, input: Mapping[str, Any]) -> None:  # noqa: A002 — Triton's name
        """Declare an input: `name`, `data_type` (TYPE_FP32), `dims`, and if need be `optional`."""
        self._add("input", input, (*_TENSOR_PROPERTIES, "optional"))

    def add_output(self, output: Mapping[str, Any]) -> None:
        """Declare an output: `name`, `data_type` (TYPE_FP32) and `dims`."""
        self._add("output", output, _TENSOR_PROPERTIES)

    def set_model_transaction_policy(self, transaction_policy_dict: Mapping[str, Any]) -> None:
        """Set {"decoupled": …}."""
        if set(transaction_policy_dict) != {"decoupled"}:
            given = ", ".join(map(str, transaction_policy_dict)) or "nothing"
            raise ValueError(f"a model transaction policy holds 'decoupled' and nothing else: {self._who()} sets {given}")
        wanted = transaction_policy_dict["decoupled"]
        policy = self._config.setdefault("model_transaction_policy", {})
        configured = policy.setdefault("decoupled", wanted)
        if configured != wanted:
            raise ValueError(f"{self._who()} sets decoupled to {wanted}, but the configuration has {configured}")

    def _add(self, kind: str, tensor: Mapping[str, Any], allowed: Sequence[str]) -> None:
        for name in tensor:
            if name not in allowed:
                raise ValueError(f"{self._who()} gives an {kind} the property '{name}', known are: {', '.join(allowed)}")
        for name in _TENSOR_PROPERTIES:
            if name not in tensor:
                raise ValueError(f"{self._who()} gives an {kind} without the property '{name}'")
        declared: list[dict[str, Any]] = self._config.setdefault(kind, [])
        present = _by_name(declared, tensor["name"])
        if present is None:
            declared.append({**tensor, "dims": list(tensor["dims"])})
            return
        self._merge(kind, present, tensor)

    def _merge(self, kind: str, present: dict[str, Any], tensor: Mapping[str, Any]) -> None:
        """Fill in what the configuration leaves open about a tensor that it names."""
        wanted: dict[str, Any] = {**tensor, "dims": [int(dim) for dim in tensor["dims"]]}
        configured = {**present, "dims": [int(dim) for dim in present.get("dims", ())]}
        for name in ("data_type", "dims", "optional"):
            if name not in wanted:
                continue
            is_open = configured.get(name) in _UNSET_TYPES or (name == "dims" and not configured[name])
            if not is_open and configured[name] != wanted[name]:
                raise ValueError(
                    f"{self._who()} gives {kind} '{tensor['name']}' the {name} {wanted[name]}, but the configuration has "
                    f"{configured[name]}"
                )
            present[name] = wanted[name]

    def _who(self) -> str:
        return f"auto_complete_config of model '{self._config.get('name', '')}'"


def get_input_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return what the configuration, as a dict, says of an input; None when it has none of that name."""
    return _by_name(model_config.get("input", ()), name)


def get_output_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return what the configuration, as a dict, says of an output; None when it has none of that name."""
    return _by_name(model_config.get("output", ()), name)


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    """Return whether the configuration, as a dict, makes the model a decoupled one."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def _by_name(tensors: Sequence[dict[str, Any]], name: str) -> dict[str, Any] | None:
    return next((tensor for tensor in tensors if tensor.get("name") == name), None)
