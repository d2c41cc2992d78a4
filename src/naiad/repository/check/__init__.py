"""Checking models as the server would load them, without serving: every mistake at once, with its place."""

from naiad.repository.check.model import CheckedModel, Remark
from naiad.repository.check.models import check_model_folder, check_repositories
from naiad.repository.check.origins import origins

__all__ = ["CheckedModel", "Remark", "check_model_folder", "check_repositories", "origins"]
