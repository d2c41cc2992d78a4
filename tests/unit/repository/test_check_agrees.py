"""A check says yes exactly when loading does, whatever the config, and never fails itself."""

from __future__ import annotations

from typing import Any, cast

from config_messages import configs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from naiad.backends.table import BackendTable
from naiad.config.pbtxt import write_config
from naiad.errors import InferenceServerError
from naiad.repository.check.origins import origins
from naiad.repository.check.steps import CheckSettings, check_source
from naiad.repository.layout import ModelSource
from naiad.repository.loader import Loader, LoadSettings

LOADING = LoadSettings(True, {})
BACKENDS = BackendTable(others=())


def loads(source: ModelSource) -> bool:
    """Whether the server loads the model."""
    loader = Loader(BACKENDS, LOADING, cast("Any", None))
    try:
        prepared = loader.prepare(source)
        for version in prepared.versions:
            loader.close(loader.load(prepared, version).instances)
    except InferenceServerError:
        return False
    return True


@given(configs(), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_check_agrees_with_loading(tmp_path, config, is_named, is_small):
    for field in ("backend", "runtime", "platform", "default_model_filename"):
        config.ClearField(field)
    config.backend = "identity"
    if is_named:
        config.name = "m"
    if is_small:
        # Any config is nearly always wrong somewhere: without these blocks some are right.
        for field in ("input", "output", "instance_group", "batch_input", "batch_output", "model_repository_agents"):
            config.ClearField(field)
        config.max_batch_size = abs(config.max_batch_size) % 8
    folder = tmp_path / "m"
    (folder / "1").mkdir(parents=True, exist_ok=True)
    file = folder / "config.pbtxt"
    file.write_text(write_config(config), encoding="utf-8", newline="")
    source = ModelSource("m", folder, file, {1: folder / "1"})
    checked = check_source(source, CheckSettings(BACKENDS, LOADING))
    assert loads(source) == (not checked.errors), checked.errors
    assert bool(checked.plans) == (not checked.errors)
    assert all(remark.text for remark in checked.errors + checked.warnings)
    if checked.config is not None:
        assert all(each.origin for each in origins(checked, {}))
