"""Codex, driven through the protocol of its app-server, or one-shot through `codex exec`."""

from __future__ import annotations

from pathlib import Path

from ...backends import EngineBackend, EngineConfig, Login
from . import spawn
from .policies import APP_SERVER
from .runner import CodexRunner, build_runner

__all__ = ["BACKEND", "CodexRunner"]


def _build_runner(config: EngineConfig, config_path: Path) -> CodexRunner:
    return build_runner(config)


BACKEND = EngineBackend(
    id="codex",
    build_runner=_build_runner,
    cli_cmd="codex",
    install_cmd=spawn.INSTALL,
    min_version=spawn.MIN_VERSION,
    capabilities=APP_SERVER,
    title="Codex",
    login=Login(("login", "--device-auth"), takes_code=False),  # it prints an address and a code to type there
)
