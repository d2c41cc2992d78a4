"""`Context`: what a model gets to know and to hold when it is loaded.

Owns its members and the logger that writes to the server's log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from naiad.model.others import OtherModels
from naiad.worker.api.control import Logger, LogLevel
from naiad.worker.api.metrics import Metric, MetricFamily, MetricKind


class Metrics:
    """Makes metrics that appear on the server's metrics page, until nobody holds them any more."""

    def counter(self, name: str, description: str, labels: Mapping[str, str] | None = None) -> Metric:
        """Return a counter: `increment`."""
        return MetricFamily(name, description, MetricKind.COUNTER).Metric(labels)

    def gauge(self, name: str, description: str, labels: Mapping[str, str] | None = None) -> Metric:
        """Return a gauge: `set`, `increment`."""
        return MetricFamily(name, description, MetricKind.GAUGE).Metric(labels)

    def histogram(
        self, name: str, description: str, buckets: Sequence[float], labels: Mapping[str, str] | None = None
    ) -> Metric:
        """Return a histogram with these upper bounds: `observe`."""
        return MetricFamily(name, description, MetricKind.HISTOGRAM).Metric(labels, buckets)


@dataclass(frozen=True, slots=True)
class Context:
    """See the module. `directory` is the model's folder, `config` its configuration in JSON form, `parameters` those of the
    configuration, `device` "CPU" or "GPU" and its number.
    """

    name: str
    version: str
    instance_name: str
    directory: Path
    device: tuple[str, int]
    config: Mapping[str, Any]
    parameters: Mapping[str, str]
    logger: logging.Logger
    models: OtherModels = field(default_factory=OtherModels)
    metrics: Metrics = field(default_factory=Metrics)


def context_of(args: Mapping[str, str]) -> Context:
    """Return the context that `initialize` is told of."""
    config = json.loads(args["model_config"])
    parameters = {name: item.get("string_value", "") for name, item in config.get("parameters", {}).items()}
    return Context(
        name=args["model_name"],
        version=args["model_version"],
        instance_name=args.get("model_instance_name", ""),
        directory=Path(args["model_repository"]),
        device=(args["model_instance_kind"], int(args["model_instance_device_id"] or 0)),
        config=config,
        parameters=parameters,
        logger=_logger(args["model_name"]),
    )


class _ServerHandler(logging.Handler):
    """Writes records to the server's log."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            level = LogLevel.ERROR
        elif record.levelno >= logging.WARNING:
            level = LogLevel.WARNING
        else:
            level = LogLevel.INFO if record.levelno >= logging.INFO else LogLevel.VERBOSE
        Logger.log(self.format(record), level)


def _logger(name: str) -> logging.Logger:
    """Return a logger outside logging's tree, so that the model's own set-up of logging neither doubles nor hides its lines."""
    logger = logging.Logger(name, logging.DEBUG)
    logger.addHandler(_ServerHandler())
    return logger
