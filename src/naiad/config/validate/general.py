"""What is wrong with a configuration's name, backend, platform and max_batch_size."""

from __future__ import annotations

from collections.abc import Iterator

from naiad.config.backend_name import ENSEMBLE_PLATFORM, platforms_of
from naiad.proto import Message


def general_findings(config: Message, model_name: str) -> Iterator[str]:
    """Yield a text for each mistake; `model_name` is what the model is called where it was found."""
    if not config.name:
        yield f"model configuration must specify 'name' for {model_name}"
    yield from _backend_findings(config, model_name)
    if config.max_batch_size < 0:
        yield f"'max_batch_size' must be non-negative value for {model_name}, got {config.max_batch_size}"


def _backend_findings(config: Message, model_name: str) -> Iterator[str]:
    if config.platform == ENSEMBLE_PLATFORM:
        if config.backend:
            yield f"ensemble model '{model_name}' must have empty backend, got '{config.backend}'"
        if not config.HasField("ensemble_scheduling"):
            yield f"platform 'ensemble' needs 'ensemble_scheduling' for {model_name}"
        return
    if not config.backend:
        yield f"unexpected platform type '{config.platform}' for {model_name}"
    platforms = platforms_of(config.backend)
    if platforms and config.platform not in platforms | {""}:
        yield (
            f"unexpected 'platform' and 'backend' pair, got:{config.platform}, {config.backend} for {model_name}; "
            f"allowed platforms: {', '.join(sorted(platforms))}"
        )
