"""The models that the HTTP tests share: identities of every datatype, and some with several tensors, labels or fixed shapes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from model_folders import write_model

# The protocol's datatype: the config's.
CONFIG_TYPES = {
    **{name: f"TYPE_{name}" for name in ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")},
    **{name: f"TYPE_{name}" for name in ("FP16", "BF16", "FP32", "FP64")},
    "BYTES": "TYPE_STRING",
}


@dataclass(frozen=True)
class Pair:
    """An input and the output that it is copied to."""

    source: str = "X"
    target: str = "Y"
    datatype: str = "FP32"
    dims: str = "-1"
    is_optional: bool = False
    labels: str = ""


def write_identity(repository: Path, name: str, *pairs: Pair, max_batch_size: int = 8, more: str = "") -> Path:
    """Write an identity model with these tensors, in their order."""
    lines = [f'backend: "identity" max_batch_size: {max_batch_size}']
    for pair in pairs or (Pair(),):
        kind = CONFIG_TYPES[pair.datatype]
        optional = "optional: true" if pair.is_optional else ""
        labels = f'label_filename: "{pair.labels}"' if pair.labels else ""
        lines.append(f'input [{{ name: "{pair.source}" data_type: {kind} dims: [ {pair.dims} ] {optional} }}]')
        lines.append(f'output [{{ name: "{pair.target}" data_type: {kind} dims: [ {pair.dims} ] {labels} }}]')
    return write_model(repository, name, "\n".join([*lines, more]))


def write_everything(repository: Path) -> Path:
    """Write every model that the shared servers serve.

    `echo` and `echo0` (no batching) take FP32 [-1], `echo_<datatype>` every datatype, `two` FP32 A and INT32 B, `fixed` FP32
    [16], `gen` is called by generate, `img` and `img0` take [3,4,-1], `cls` has labels, `versions` has versions 1, 3 and 12 of
    which 3 and 12 are served.
    """
    write_identity(repository, "echo")
    write_identity(repository, "echo0", max_batch_size=0)
    for datatype in CONFIG_TYPES:
        write_identity(repository, f"echo_{datatype.lower()}", Pair(datatype=datatype))
    write_identity(repository, "two", Pair("A", "YA"), Pair("B", "YB", "INT32"))
    write_identity(repository, "fixed", Pair(dims="16"))
    write_identity(repository, "img", Pair(dims="3, 4, -1"))
    write_identity(repository, "img0", Pair(dims="3, 4, -1"), max_batch_size=0)
    write_identity(repository, "free", Pair(dims="-1, -1"))
    _write_generate_model(repository)
    _write_classifier(repository)
    folder = write_identity(repository, "versions", more="version_policy { latest { num_versions: 2 } }")
    for version in ("3", "12"):
        (folder / version).mkdir()
    return repository


def _write_generate_model(repository: Path) -> None:
    write_identity(
        repository,
        "gen",
        Pair("text_input", "text_output", "BYTES", "1"),
        Pair("stop_words", "stop_words_seen", "BYTES", "-1", is_optional=True),
        Pair("n", "n_seen", "INT32", "1", is_optional=True),
        Pair("bias", "bias_seen", "FP32", "-1, 2", is_optional=True),
        Pair("half", "half_seen", "FP16", "1", is_optional=True),
    )


def _write_classifier(repository: Path) -> None:
    folder = write_identity(
        repository,
        "cls",
        Pair("P_in", "P", "FP32", "4", is_optional=True, labels="four.txt"),
        Pair("Q_in", "Q", "FP32", "4", is_optional=True, labels="two.txt"),
        Pair("R_in", "R", "FP32", "4", is_optional=True, labels="odd.txt"),
        Pair("P2_in", "P2", "FP32", "2, 3", is_optional=True),
        Pair("I_in", "I", "INT32", "4", is_optional=True, labels="six.txt"),
        Pair("H_in", "H", "FP16", "4", is_optional=True),
        Pair("S_in", "S", "BYTES", "2", is_optional=True),
        Pair("B_in", "B", "BOOL", "2", is_optional=True),
        Pair("E_in", "E", "FP32", "-1", is_optional=True),
        max_batch_size=4,
    )
    (folder / "four.txt").write_text("zero\none\ntwo\nthree\n")
    (folder / "two.txt").write_bytes(b"zero\r\none\r\n")
    (folder / "six.txt").write_text("zero\none\ntwo\nthree\nfour\nfive")
    (folder / "odd.txt").write_bytes("\ufeffa:b\n\n\u00e9t\u00e9\nlast".encode())
