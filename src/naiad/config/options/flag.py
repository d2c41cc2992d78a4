"""What a flag of `naiad serve` is: the row of the one table that gives the command line, its help and the reference page.

Owns the row. The rows themselves stand at the fields of `ServerOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from naiad.config.options.kinds import Kind


class Category(Enum):
    """Under which title help and documentation show a flag, in their order."""

    SERVER = "Server"
    REPOSITORY = "Model repository"
    HTTP = "HTTP"
    GRPC = "gRPC"
    TLS = "TLS"
    ACCESS = "API keys"
    LOGGING = "Logging"
    METRICS = "Metrics"
    BACKENDS = "Backends and execution"
    DEVICES = "GPUs and CPUs"
    PYTHON = "Python models"
    SCHEDULING = "Response cache, rate limiter, shares of clients"


def last(values: Sequence[Any]) -> Any:
    """Return the last value: a flag given twice means its later value."""
    return values[-1]


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag, named without its leading dashes.

    `default` is the value of the option when the flag isn't given; `default_text` says it where the value itself would mislead.
    `collect` makes the option's value of all values given, in order; it raises ValueError with a sentence. A repeatable
    flag is one whose values add up. `is_ours` tells that Triton doesn't have it. The values of one that `is_secret` are never
    shown. `environment` is the variable that gives them, separated by spaces, when the flag doesn't.
    """

    name: str
    category: Category
    kind: Kind
    default: Any
    help: str
    unit: str = ""
    default_text: str = ""
    aliases: tuple[str, ...] = ()
    is_repeatable: bool = False
    is_ours: bool = False
    collect: Callable[[Sequence[Any]], Any] = last
    is_secret: bool = False
    environment: str = ""

    @property
    def field_name(self) -> str:
        """The name of the option as a Python name."""
        return self.name.replace("-", "_")

    @property
    def spellings(self) -> tuple[str, ...]:
        """The flag and its aliases with their dashes."""
        return tuple(f"--{name}" for name in (self.name, *self.aliases))

    @property
    def shown_default(self) -> str:
        """The default as a reader writes it on the command line."""
        if self.default_text:
            return self.default_text
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


def option(flag: Flag) -> Any:
    """Return the dataclass field that is set by `flag`."""
    return field(default_factory=lambda: flag.default, metadata={"flag": flag})
