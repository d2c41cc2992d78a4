"""Model folders for tests, written in a line."""

from __future__ import annotations

from pathlib import Path


def write_model(repository: Path, name: str, config: str, versions: tuple[int, ...] = (1,)) -> Path:
    """Write a model without files: its config.pbtxt and empty version folders."""
    folder = repository / name
    for version in versions:
        (folder / str(version)).mkdir(parents=True, exist_ok=True)
    (folder / "config.pbtxt").write_text(config)
    return folder


def identity(
    repository: Path,
    name: str = "echo",
    datatype: str = "FP32",
    dims: str = "-1",
    max_batch_size: int = 8,
    delay_ms: int = 0,
    more: str = "",
) -> Path:
    """Write an identity model with input X and output Y."""
    return write_model(
        repository,
        name,
        f"""
        backend: "identity"
        max_batch_size: {max_batch_size}
        input [{{ name: "X" data_type: TYPE_{datatype} dims: [ {dims} ] }}]
        output [{{ name: "Y" data_type: TYPE_{datatype} dims: [ {dims} ] }}]
        parameters {{ key: "execute_delay_ms" value {{ string_value: "{delay_ms}" }} }}
        {more}
        """,
    )
