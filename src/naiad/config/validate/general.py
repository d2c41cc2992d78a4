"""What is wrong with a configuration's name, backend, platform and max_batch_size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from naiad.config.backend_name import ENSEMBLE_PLATFORM, platforms_of
from naiad.config.findings import Finding
from naiad.proto import Message


def general_findings(config: Message, model_name: str) -> Iterator[Finding]:
    """Yield a text for each mistake; `model_name` is what the model is called where it was found."""
    if not config.name:
        yield Finding(f"model configuration must specify 'name' for {model_name}", ("name",))
    yield from _backend_findings(config, model_name)
    yield from _file_name_findings(config, model_name)
    if config.max_batch_size < 0:
        text = f"'max_batch_size' must be non-negative value for {model_name}, got {config.max_batch_size}"
        yield Finding(text, ("max_batch_size",), "0 is for a model that doesn't batch")


def _file_name_findings(config: Message, model_name: str) -> Iterator[Finding]:
    """A client may send a configuration: it must not reach files that aren't the model's."""
    name = config.default_model_filename
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        text = (
            f"'default_model_filename' is '{name}' for {model_name}, must be a path inside the version's folder, without '..'"
        )
        yield Finding(text, ("default_model_filename",))


def _backend_findings(config: Message, model_name: str) -> Iterator[Finding]:
    if config.platform == ENSEMBLE_PLATFORM:
        if config.backend:
            yield Finding(f"ensemble model '{model_name}' must have empty backend, got '{config.backend}'", ("backend",))
        if not config.HasField("ensemble_scheduling"):
            yield Finding(f"platform 'ensemble' needs 'ensemble_scheduling' for {model_name}", ("platform",))
        return
    if not config.backend:
        advice = "ensemble_scheduling needs platform 'ensemble'" if config.HasField("ensemble_scheduling") else "set backend"
        yield Finding(f"unexpected platform type '{config.platform}' for {model_name}", ("platform",), advice)
    platforms = platforms_of(config.backend)
    if platforms and config.platform not in platforms | {""}:
        yield Finding(
            f"unexpected 'platform' and 'backend' pair, got:{config.platform}, {config.backend} for {model_name}; "
            f"allowed platforms: {', '.join(sorted(platforms))}",
            ("platform",),
        )
