"""Which backend a model is for, from what its config says and from the names of its files.

Owns the table of known kinds of model file. Doesn't load anything; whether a backend is installed is another's question.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from naiad.errors import invalid_argument
from naiad.proto import Message

ENSEMBLE_PLATFORM = "ensemble"


@dataclass(frozen=True, slots=True)
class FileKind:
    """One kind of model file: its backend, the platform ("" where there is none) and the file's name when none is given.

    `aliases` are other names of the platform.
    """

    backend: str
    platform: str
    file_name: str
    aliases: tuple[str, ...] = ()

    def has_platform(self, platform: str) -> bool:
        """Return whether `platform` names this kind."""
        return bool(platform) and platform in (self.platform, *self.aliases)

    def has_file_name(self, file_name: str) -> bool:
        """Return whether `file_name` has this kind's ending: a model served from a single file keeps its own name."""
        return bool(file_name) and Path(file_name).suffix == Path(self.file_name).suffix


FILE_KINDS = (
    FileKind("tensorflow", "tensorflow_savedmodel", "model.savedmodel"),
    FileKind("tensorflow", "tensorflow_graphdef", "model.graphdef"),
    FileKind("tensorrt", "tensorrt_plan", "model.plan"),
    FileKind("onnxruntime", "onnxruntime_onnx", "model.onnx"),
    FileKind("openvino", "", "model.xml"),
    FileKind("pytorch", "pytorch_libtorch", "model.pt", ("libtorch",)),
    FileKind("pytorch", "torch_aoti", "model.pt2"),
    FileKind("python", "", "model.py"),
)
"""In the order in which they are tried."""


def infer_backend(config: Message, version_directory: Path, model_name: str) -> None:
    """Set `backend`, `platform` and `default_model_filename` of a ModelConfig as far as they are empty.

    A given backend stays. Otherwise the first kind whose platform or file name matches is taken, or, with both empty, whose
    file is in `version_directory`; then what the model's name has after its first dot. An unknown platform is left for
    validation to refuse. Raises INVALID_ARGUMENT when nothing tells.
    """
    if config.platform == ENSEMBLE_PLATFORM or config.HasField("ensemble_scheduling"):
        return
    kind = next(_candidates(config, version_directory), None)
    if kind is not None:
        config.backend = kind.backend
        config.platform = config.platform or kind.platform
        config.default_model_filename = config.default_model_filename or kind.file_name
    elif not (config.backend or config.platform or config.default_model_filename):
        config.backend = _backend_in_name(model_name)
        config.default_model_filename = f"model.{config.backend}"


def platforms_of(backend: str) -> frozenset[str]:
    """Return the platforms that may stand next to `backend`; empty for one that any platform may stand next to."""
    kinds = [kind for kind in FILE_KINDS if kind.backend == backend and kind.platform]
    return frozenset(name for kind in kinds for name in (kind.platform, *kind.aliases))


def _candidates(config: Message, directory: Path) -> Iterator[FileKind]:
    """Yield the kinds that fit, best first: by what is written, by the file that is there, and by the backend alone."""
    kinds = [kind for kind in FILE_KINDS if config.backend in ("", kind.backend)]
    if config.platform or config.default_model_filename:
        for kind in kinds:
            if kind.has_platform(config.platform) or kind.has_file_name(config.default_model_filename):
                yield kind
    else:
        for kind in kinds:
            if (directory / kind.file_name).exists():
                yield kind
    if config.backend:
        yield from kinds


def _backend_in_name(model_name: str) -> str:
    backend = model_name.partition(".")[2]
    if not backend:
        raise invalid_argument(
            f"Invalid model name: Could not determine backend for model '{model_name}' with no backend in model configuration. "
            "Expected model name of the form 'model.<backend_name>'."
        )
    return backend
