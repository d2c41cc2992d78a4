"""Models whose `auto_complete_config` completes their configs, well and badly: the ways of `sources/completing.py`.

Owns what config each way starts from, and what comes of it in Naiad.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from model_folders import write_model

from python_models import source

INPUT = 'input [{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }]'
OUTPUT = 'output [{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }]'


@dataclass(frozen=True)
class Completion:
    """One way, with what config.pbtxt says beside backend and way.

    `error` is a pattern of the reason why it isn't loaded, `batch` and `inputs` are what a loaded one has.
    """

    way: str
    config: str = ""
    error: str = ""
    batch: int = 4
    inputs: tuple[str, ...] = ("X",)
    is_batched: bool = True


LOADED = (
    Completion("everything"),
    Completion("everything", f"max_batch_size: 2 {INPUT} {OUTPUT}"),
    Completion("optional_input", inputs=("O", "X")),
    Completion("decoupled"),
    Completion("the_same_again"),
    Completion("unchanged", f"{INPUT} {OUTPUT}", batch=0, is_batched=False),
)
REFUSED = (
    Completion("not_a_config", error="must return"),
    Completion("nothing", error="must return"),
    Completion("smaller_batch", f"max_batch_size: 8 {INPUT} {OUTPUT}", "max_batch_size.*2"),
    Completion("extra_key", error="format|contains property other"),
    Completion("no_data_type", error="data_type"),
    Completion("no_dims", error="dims"),
    Completion("no_name", error="name"),
    Completion("other_data_type", INPUT, "TYPE_INT32"),
    Completion("other_dims", OUTPUT, "dims"),
    Completion("output_optional", error="optional|contains property other"),
    Completion("dynamic_batching_with_sequences", f"max_batch_size: 4 {INPUT} {OUTPUT} sequence_batching {{ }}", "sequence"),
    Completion("policy_conflict", f"{INPUT} {OUTPUT} model_transaction_policy {{ decoupled: false }}", "decoupled"),
    Completion("policy_with_unknown_key", error="decoupled"),
    Completion("raises", error="no config é"),
    Completion("shows", error=r"dict shows_\d+ 0 \["),
)


def write_all(repository: Path, completions: tuple[Completion, ...]) -> dict[str, Completion]:
    """Write a model for each; return them by the models' names."""
    named = {f"{each.way}_{number}": each for number, each in enumerate(completions)}
    for name, completion in named.items():
        write_completing(repository, name, completion)
    return named


def write_completing(repository: Path, name: str, completion: Completion) -> Path:
    """Write the model as `name`."""
    way = f'parameters {{ key: "way" value {{ string_value: "{completion.way}" }} }}'
    folder = write_model(repository, name, f'backend: "python" {completion.config} {way}')
    (folder / "1" / "model.py").write_text(source("completing"))
    return folder
