"""Claude Code, driven through its stream-json protocol and its control channel."""

from __future__ import annotations

from pathlib import Path

from ...backends import EngineBackend, EngineConfig, Login
from ...runner_context import RunOptions
from . import spawn
from .forms import CONTROL
from .runner import ClaudeRunner

__all__ = ["BACKEND", "ClaudeRunner"]


def _build_runner(config: EngineConfig, config_path: Path) -> ClaudeRunner:
    """Raises ValueError when the table is wrong."""
    runner = ClaudeRunner(config, config_path.parent)
    spawn.arguments(runner.start_settings(RunOptions()))
    return runner


BACKEND = EngineBackend(
    id="claude",
    build_runner=_build_runner,
    cli_cmd="claude",
    install_cmd=spawn.INSTALL,
    min_version=spawn.MIN_VERSION,
    capabilities=CONTROL,
    title="Claude Code",
    login=Login(("auth", "login")),  # over pipes on 2.1.197 and 2.1.332: a link, then a code, 0 or 1
)
