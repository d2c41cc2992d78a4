"""Where the batches of a model run that lives in the server's process: its own wish, its backend's and the operator's."""

from __future__ import annotations

from naiad.backends.base import Backend
from naiad.config.plan import ModelPlan
from naiad.errors import invalid_argument
from naiad.execution.placement import PlacementMode

PLACEMENT_PARAMETER = "naiad_placement"


def placement_mode(plan: ModelPlan, backend: type[Backend], *, allows_in_place: bool) -> PlacementMode:
    """Return where the model's batches run: its own wish, within what its backend and the operator allow.

    Raises INVALID_ARGUMENT for a wish that doesn't exist.
    """
    text = plan.parameters.get(PLACEMENT_PARAMETER, "auto")
    if text not in [mode.value for mode in PlacementMode]:
        raise invalid_argument(
            f"model '{plan.name}': parameter '{PLACEMENT_PARAMETER}' is '{text}', must be one of auto, in_place, thread"
        )
    wished = PlacementMode(text)
    if wished is PlacementMode.THREAD or not allows_in_place:
        return PlacementMode.THREAD
    if backend.must_run_in_place(plan):
        return PlacementMode.IN_PLACE
    has_strings = any(tensor.datatype.name == "BYTES" for tensor in plan.inputs)
    if not backend.releases_gil or has_strings:
        # What holds the GIL, or takes time by what is in a string, can't be predicted from sizes.
        return PlacementMode.THREAD
    return wished
