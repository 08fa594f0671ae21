"""Configuration: `untether.toml` and its overrides, read with `load`, changed with `settings.edit`."""

from .errors import ConfigError, Problem
from .load import Settings, default_path, load

__all__ = ["ConfigError", "Problem", "Settings", "default_path", "load"]
