"""The backend of the demo engine: the demo agent, spoken to like Claude Code."""

from __future__ import annotations

from pathlib import Path

from ...backends import EngineBackend, EngineConfig
from ...runner_context import RunOptions
from ..claude import spawn
from ..claude.forms import CONTROL
from .runner import DemoRunner

__all__ = ["BACKEND", "DemoRunner"]


def _build_runner(config: EngineConfig, config_path: Path) -> DemoRunner:
    """Raises ValueError when the table is wrong."""
    runner = DemoRunner(config)
    spawn.arguments(runner.start_settings(RunOptions()))
    return runner


BACKEND = EngineBackend(id="demo", build_runner=_build_runner, capabilities=CONTROL, title="Demo agent")
