"""Check all models of some repositories, and ensembles against the models of their steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
    models = {key: check_source(source, settings) for key, source in found.sources.items()}
    for key, places in found.duplicates.items():
        models[key] = CheckedModel(layout.ModelSource(layout.name_of(key), places[0], None, {}))
        text = f"{layout.DUPLICATE}: {', '.join(map(str, places))}"
        models[key].add_error(Finding(text, (), "rename one of the folders"))
    for namespace in sorted({model.source.namespace for model in models.values()}):
        _check_wiring(_seen_from(namespace, models))
    return [model for _, model in sorted(models.items(), key=lambda item: (item[1].source.name, item[0]))]


def check_model_folder(path: Path, suffixes: Sequence[str], settings: CheckSettings) -> CheckedModel:
    """Return what there is to say of the one model at `path`. Raises INVALID_ARGUMENT when it is none, or a repository."""
    sources = list(layout.scan([path], suffixes, settings.naming).sources.values())
    if len(sources) != 1 or sources[0].directory not in (path.resolve(), path.resolve().parent):
        raise invalid_argument(f"'{path}' is not a model's folder: it needs a config.pbtxt or numbered folders")
    return check_source(sources[0], settings)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The models by the names that ensembles of one namespace give them, and which of these ensembles there are."""

    namespace: str
    models: dict[str, CheckedModel]
    ambiguous: dict[str, str]


def _seen_from(namespace: str, models: dict[str, CheckedModel]) -> _Seen:
    """Return what names mean in a namespace: its own models, and of other namespaces those whose names nobody else has."""
    seen: dict[str, CheckedModel] = {}
    ambiguous: dict[str, str] = {}
    by_name: dict[str, list[CheckedModel]] = {}
    for model in models.values():
        by_name.setdefault(model.source.name, []).append(model)
    for name, namesakes in by_name.items():
        own = [model for model in namesakes if model.source.namespace == namespace]
        if len(own or namesakes) == 1:
            seen[name] = (own or namesakes)[0]
        else:
            where = ", ".join(str(model.source.directory) for model in namesakes)
            ambiguous[name] = f"the name is ambiguous, it is in {where}"
    return _Seen(namespace, seen, ambiguous)


def _check_wiring(seen: _Seen) -> None:
    """Add the mistakes between ensembles and their models. A model that isn't read, or is wrong by itself, has failed."""
    models = seen.models
    ensembles = [
        model for model in models.values() if model.config is not None and model.config.HasField("ensemble_scheduling")
    ]
    failed = {name: model.errors[0].text for name, model in models.items() if model.errors and model not in ensembles}
    configs = {name: model.config for name, model in models.items() if model.config is not None and name not in failed}
    known = KnownModels(configs, {**failed, **seen.ambiguous}, {name: _versions(models[name]) for name in configs})
    for model in (model for model in ensembles if model.source.namespace == seen.namespace):
        for finding in (*wiring_findings(model.config, known), *circular_findings(model.config, known)):
            model.add_error(finding)
            model.plans.clear()


def _versions(model: CheckedModel) -> list[int]:
    """Return the versions that would be served, as far as that is known."""
    return [plan.version for plan in model.plans] or sorted(model.source.versions)
