"""Check all models of some repositories, and ensembles against the models of their steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from naiad.config.findings import Finding
from naiad.config.validate.wiring import KnownModels, circular_findings, wiring_findings
from naiad.errors import invalid_argument
from naiad.repository import layout
from naiad.repository.check.model import CheckedModel
from naiad.repository.check.steps import CheckSettings, check_source


def check_repositories(paths: Iterable[Path], suffixes: Sequence[str], settings: CheckSettings) -> list[CheckedModel]:
    """Return what there is to say of each model below `paths`, by name; blocking. Raises what `layout.scan` raises."""
    found = layout.scan(paths, suffixes, settings.naming)
    models = {name: check_source(source, settings) for name, source in found.sources.items()}
    for name, places in found.duplicates.items():
        models[name] = CheckedModel(layout.ModelSource(name, places[0], None, {}))
        text = f"{layout.DUPLICATE}: {', '.join(map(str, places))}"
        models[name].add_error(Finding(text, (), "rename one of the folders"))
    _check_wiring(models)
    return [model for _, model in sorted(models.items())]


def check_model_folder(path: Path, suffixes: Sequence[str], settings: CheckSettings) -> CheckedModel:
    """Return what there is to say of the one model at `path`. Raises INVALID_ARGUMENT when it is none, or a repository."""
    sources = list(layout.scan([path], suffixes, settings.naming).sources.values())
    if len(sources) != 1 or sources[0].directory not in (path.resolve(), path.resolve().parent):
        raise invalid_argument(f"'{path}' is not a model's folder: it needs a config.pbtxt or numbered folders")
    return check_source(sources[0], settings)


def _check_wiring(models: dict[str, CheckedModel]) -> None:
    """Add the mistakes between ensembles and their models. A model that isn't read, or is wrong by itself, has failed."""
    ensembles = [
        model for model in models.values() if model.config is not None and model.config.HasField("ensemble_scheduling")
    ]
    failed = {name: model.errors[0].text for name, model in models.items() if model.errors and model not in ensembles}
    configs = {name: model.config for name, model in models.items() if model.config is not None and name not in failed}
    known = KnownModels(configs, failed)
    for model in ensembles:
        for finding in (*wiring_findings(model.config, known), *circular_findings(model.config, known)):
            model.add_error(finding)
            model.plans.clear()
