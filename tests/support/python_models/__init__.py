"""Python models for tests: folders with config.pbtxt and model.py, the same for Naiad and for the C++ Triton.

Owns how they are written to disk. The models themselves are the files of `sources`; each says what it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from http_models import CONFIG_TYPES
from model_folders import write_model

SOURCES = Path(__file__).parent / "sources"


@dataclass(frozen=True)
class IO:
    """An input or output: `kind` is the protocol's datatype, `more` further fields of the config."""

    name: str
    kind: str = "FP32"
    dims: str = "-1"
    more: str = ""

    def text(self, side: str) -> str:
        return f'{side} [{{ name: "{self.name}" data_type: {CONFIG_TYPES[self.kind]} dims: [ {self.dims} ] {self.more} }}]'


@dataclass(frozen=True)
class Config:
    """What config.pbtxt says; `more` is further text of it. One instance, so that a test knows where its requests run."""

    inputs: tuple[IO, ...] = (IO("X"),)
    outputs: tuple[IO, ...] = (IO("Y"),)
    max_batch_size: int = 8
    more: str = ""
    instance_count: int = 1
    is_decoupled: bool = False

    def text(self) -> str:
        lines = [f'backend: "python" max_batch_size: {self.max_batch_size}']
        lines += [each.text("input") for each in self.inputs] + [each.text("output") for each in self.outputs]
        lines.append(f"instance_group [{{ kind: KIND_CPU count: {self.instance_count} }}]")
        if self.is_decoupled:
            lines.append("model_transaction_policy { decoupled: true }")
        return "\n".join([*lines, self.more])


def source(name: str) -> str:
    """Return the text of a model of `sources`."""
    return (SOURCES / f"{name}.py").read_text()


def write_python_model(repository: Path, name: str, code: str, config: Config | None = None) -> Path:
    """Write a model with the text `code` as its model.py; return its folder."""
    folder = write_model(repository, name, (config or Config()).text())
    (folder / "1" / "model.py").write_text(code)
    return folder


def write_echo(repository: Path, name: str = "echo", config: Config | None = None) -> Path:
    """Write a model that answers Y = X."""
    return write_python_model(repository, name, source("echo"), config)


def write_probes(repository: Path, name: str, config: Config | None = None) -> Path:
    """Write a model that runs the function of `sources/<name>.py` that a request's NAME names and answers in SAID what it
    returned, or the exception that it raised.
    """
    config = config or Config((IO("NAME", "BYTES", "1"),), (IO("SAID", "BYTES", "1"),), 0)
    folder = write_python_model(repository, name, source("probing"), config)
    (folder / "1" / "probes.py").write_text(source(name))
    return folder
