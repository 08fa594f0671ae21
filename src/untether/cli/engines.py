"""The engines for a configuration: found, built, and the default chosen. Also names agents that are not built yet."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping

from ..backends import GROUP, EngineBackend, EngineConfig, LoadError, discover
from ..conversation.engines import Engine, Engines
from ..plugins import wrong_id
from ..process.guard import locate
from ..settings import Settings

DEMO = "demo"


def _acp(engine_id: str, config: EngineConfig) -> EngineBackend:
    from ..runners import acp  # only for those who use it

    return acp.backend(engine_id, config)


_TYPES: Mapping[str, Callable[[str, EngineConfig], EngineBackend]] = {"acp": _acp}

# Agents that have no engine yet: named at start and in `doctor`, so that nobody wonders why they are not used.
PLANNED: Mapping[str, str] = {
    "opencode": "OpenCode",
}


def build(settings: Settings, environ: Mapping[str, str]) -> tuple[Engines, list[LoadError]]:
    """All installed engines with their runners. Raises ConfigError when the configuration names an unknown one."""
    found = discover(settings.plugins.enabled)
    errors = list(found.errors)
    typed, wrong = of_a_type(settings)
    errors += wrong
    failed = {error.id for error in wrong}
    backends = {id: backend for id, backend in {**found.backends, **typed}.items() if id not in failed}
    settings.check_engine_names(backends)
    engines: dict[str, Engine] = {}
    for engine_id, backend in backends.items():
        config = settings.engine_config(engine_id)
        try:
            runner = backend.build(config, settings.path)
        except ValueError as error:
            errors.append(LoadError(engine_id, "", str(error)))
            continue
        told = config.get("command")
        command = str(told if isinstance(told, str) else backend.cli_cmd or "") or str(backend.cli_cmd or "")
        path = locate(command, environ)[0] if command and engine_id != DEMO else "built in"
        engines[engine_id] = Engine(engine_id, backend, runner, path or None)
    return Engines(engines, settings.default_engine or _default(engines)), errors


def of_a_type(settings: Settings) -> tuple[dict[str, EngineBackend], list[LoadError]]:
    """The engines that a table makes: `[engines.ID]` with a `type`. Such a table wins over an engine of the same id."""
    backends: dict[str, EngineBackend] = {}
    errors: list[LoadError] = []
    for engine_id, config in settings.typed_engines().items():
        if config["type"] not in _TYPES:
            known = ", ".join(_TYPES)
            errors.append(LoadError(engine_id, "", f"engines.{engine_id}.type is not known. Known: {known}."))
            continue
        if problem := wrong_id(GROUP, engine_id, own=False):
            errors.append(LoadError(engine_id, "", problem))
            continue
        try:
            backends[engine_id] = _TYPES[config["type"]](engine_id, config)
        except ValueError as error:
            errors.append(LoadError(engine_id, "", str(error)))
    return backends, errors


def _default(engines: Mapping[str, Engine]) -> str:
    """Claude Code when it is here, else the demo agent."""
    claude = engines.get("claude")
    return "claude" if claude is not None and claude.available else DEMO


def counts(engine: Engine, default: str) -> bool:
    """Whether it is worth a line: one that is deprecated and not installed is not missed by anybody."""
    return engine.available or not engine.backend.note or engine.id == default


def planned(environ: Mapping[str, str]) -> list[str]:
    """Names of agents on PATH whose engines are not built yet."""
    path = environ.get("PATH", os.defpath)
    return [name for command, name in PLANNED.items() if shutil.which(command, path=path)]
