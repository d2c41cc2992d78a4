"""Server options: one flag table, and how a command line becomes a checked `ServerOptions`."""

from naiad.config.options.access_options import ApiKey
from naiad.config.options.composite import MetricsConfig, RestrictedGroup
from naiad.config.options.flag import Category, Flag
from naiad.config.options.parse import parse_options
from naiad.config.options.server_options import ServerOptions, flag_table

__all__ = ["ApiKey", "Category", "Flag", "MetricsConfig", "RestrictedGroup", "ServerOptions", "flag_table", "parse_options"]
