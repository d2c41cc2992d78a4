"""What is wrong with a configuration's version policy, response cache and metrics."""

from __future__ import annotations

from collections.abc import Iterator

from naiad.config.findings import Finding
from naiad.proto import Message


def policy_findings(config: Message) -> Iterator[Finding]:
    """Yield a text for each mistake."""
    yield from _version_findings(config)
    if config.model_transaction_policy.decoupled and config.response_cache.enable:
        text = f"response_cache can't be enabled for a decoupled model, which has any number of responses, for {config.name}"
        yield Finding(text, ("response_cache", "enable"))
    yield from _metric_findings(config)


def _version_findings(config: Message) -> Iterator[Finding]:
    policy = config.version_policy
    if policy.WhichOneof("policy_choice") != "specific":
        return
    if not policy.specific.versions:
        text = f"version_policy 'specific' must list one or more versions for {config.name}"
        yield Finding(text, ("version_policy", "specific"))
    for index, version in enumerate(policy.specific.versions):
        if version < 0:
            text = f"version_policy 'specific' lists version {version}, must be >= 0 for {config.name}"
            yield Finding(text, ("version_policy", "specific", "versions", index))


def _metric_findings(config: Message) -> Iterator[Finding]:
    for index, control in enumerate(config.model_metrics.metric_control):
        path = ("model_metrics", "metric_control", index)
        family = control.metric_identifier.family
        if not family:
            yield Finding(f"model_metrics must specify 'family' in metric_identifier for {config.name}", path)
        if not control.histogram_options.buckets:
            text = f"model_metrics must specify 'buckets' in histogram_options of family '{family}' for {config.name}"
            yield Finding(text, path)
