"""What is wrong with a configuration's version policy, response cache and metrics."""

from __future__ import annotations

from collections.abc import Iterator

from naiad.proto import Message


def policy_findings(config: Message) -> Iterator[str]:
    """Yield a text for each mistake."""
    yield from _version_findings(config)
    if config.model_transaction_policy.decoupled and config.response_cache.enable:
        yield f"response_cache can't be enabled for a decoupled model, which has any number of responses, for {config.name}"
    yield from _metric_findings(config)


def _version_findings(config: Message) -> Iterator[str]:
    policy = config.version_policy
    if policy.WhichOneof("policy_choice") != "specific":
        return
    if not policy.specific.versions:
        yield f"version_policy 'specific' must list one or more versions for {config.name}"
    for version in policy.specific.versions:
        if version < 0:
            yield f"version_policy 'specific' lists version {version}, must be >= 0 for {config.name}"


def _metric_findings(config: Message) -> Iterator[str]:
    for control in config.model_metrics.metric_control:
        family = control.metric_identifier.family
        if not family:
            yield f"model_metrics must specify 'family' in metric_identifier for {config.name}"
        if not control.histogram_options.buckets:
            yield f"model_metrics must specify 'buckets' in histogram_options of family '{family}' for {config.name}"
