"""Requests that name no version, spread over the versions of their model; and copies of them for versions on trial."""
