"""The engines for a configuration: found, built, and the default chosen. Also names agents that are not built yet."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from ..backends import LoadError, discover
from ..conversation.engines import Engine, Engines
from ..process.guard import locate
from ..settings import Settings

DEMO = "demo"

# Agents that have no engine yet: named at start and in `doctor`, so that nobody wonders why they are not used.
PLANNED: Mapping[str, str] = {
    "opencode": "OpenCode",
    "gemini": "Gemini CLI",
    "amp": "Amp",
}


def build(settings: Settings, environ: Mapping[str, str]) -> tuple[Engines, list[LoadError]]:
    """All installed engines with their runners. Raises ConfigError when the configuration names an unknown one."""
    found = discover(settings.plugins.enabled)
    errors = list(found.errors)
    settings.check_engine_names(found.backends)
    engines: dict[str, Engine] = {}
    for engine_id, backend in found.backends.items():
        config = settings.engine_config(engine_id)
        try:
            runner = backend.build(config, settings.path)
        except ValueError as error:
            errors.append(LoadError(engine_id, "", str(error)))
            continue
        command = str(config.get("command") or backend.cli_cmd or "")
        path = locate(command, environ)[0] if command and engine_id != DEMO else "built in"
        engines[engine_id] = Engine(engine_id, backend, runner, path or None)
    return Engines(engines, settings.default_engine or _default(engines)), errors


def _default(engines: Mapping[str, Engine]) -> str:
    """Claude Code when it is here, else the demo agent."""
    claude = engines.get("claude")
    return "claude" if claude is not None and claude.available else DEMO


def planned(environ: Mapping[str, str]) -> list[str]:
    """Names of agents on PATH whose engines are not built yet."""
    path = environ.get("PATH", os.defpath)
    return [name for command, name in PLANNED.items() if shutil.which(command, path=path)]
