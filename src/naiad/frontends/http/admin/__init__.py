"""The endpoints that aren't hot: health, metadata, statistics, repository, settings, the documentation page."""
