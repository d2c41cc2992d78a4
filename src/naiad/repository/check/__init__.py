"""Checking models as the server would load them, without serving: every mistake at once, with its place."""

from naiad.repository.check.model import CheckedModel, Remark
from naiad.repository.check.models import check_model_folder, check_repositories
from naiad.repository.check.origins import origins
from naiad.repository.check.steps import CheckSettings
from naiad.repository.check.worker_thread import worker_loader

__all__ = ["CheckSettings", "CheckedModel", "Remark", "check_model_folder", "check_repositories", "origins", "worker_loader"]
