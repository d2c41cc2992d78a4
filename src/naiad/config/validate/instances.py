"""What is wrong with a configuration's instance groups."""

from __future__ import annotations

from collections.abc import Iterator

from naiad.config import schema
from naiad.config.findings import Finding
from naiad.devices.inventory import UsableGpus
from naiad.proto import Message

MAX_INSTANCE_COUNT = 4096
"""More copies on one device are a slip of the keyboard; each is an object, so a slip must not fill the memory."""


def instance_findings(config: Message, gpus: UsableGpus) -> Iterator[Finding]:
    """Yield a text for each mistake; `gpus` are those that may be used."""
    for index, group in enumerate(config.instance_group):
        for field, texts in (
            ("count", _count_texts(group)),
            ("gpus" if group.gpus else "kind", _gpu_texts(group, gpus)),
            ("profile", _profile_texts(config, group)),
        ):
            for text in texts:
                whole = f"instance group {group.name} of model {config.name} {text}"
                yield Finding(whole, ("instance_group", index, field))


def _count_texts(group: Message) -> Iterator[str]:
    if not 0 <= group.count <= MAX_INSTANCE_COUNT:
        yield f"has count {group.count}, must be from 1 to {MAX_INSTANCE_COUNT}, or 0 for the default"


def _gpu_texts(group: Message, gpus: UsableGpus) -> Iterator[str]:
    kind = schema.enum_name(group, "kind")
    if group.kind != group.KIND_GPU:
        if group.gpus:
            yield f"has kind {kind} but specifies one or more GPUs: {list(group.gpus)}"
    elif not gpus.is_supported:
        yield f"has kind {kind} but server does not support GPUs"
    elif not gpus.ids:
        yield f"has kind {kind} but no GPUs are available{_capability_text(gpus)}"
    else:
        there = ", ".join(map(str, gpus.ids))
        yield from (
            f"specifies invalid or unsupported gpu id {device}. GPUs{_capability_text(gpus)} are: {there}"
            for device in group.gpus
            if device not in gpus.ids
        )


def _capability_text(gpus: UsableGpus) -> str:
    major, minor = gpus.min_capability
    return f" with at least the minimum required CUDA compute capability of {major}.{minor}"


def _profile_texts(config: Message, group: Message) -> Iterator[str]:
    if group.profile and config.platform != "tensorrt_plan":
        yield f"sets profile, which only platform tensorrt_plan has, got '{config.platform}'"
    for profile in group.profile:
        if not (profile.isascii() and profile.isdigit()):
            yield f"has profile '{profile}', must be a whole number >= 0"
