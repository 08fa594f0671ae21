"""Any agent that speaks the Agent Client Protocol (ACP): an engine for each table with `type = "acp"`.

[engines.goose]
type = "acp"
command = ["goose", "acp"]

[engines.gemini]
type = "acp"
agent = "gemini"        # a ready-made entry; `gemini` is also what the id says, so this line may be left out
"""

from __future__ import annotations

from pathlib import Path

from ...backends import EngineBackend, EngineConfig
from .agents import AGENTS
from .capabilities import capabilities_of
from .runner import AcpRunner
from .settings import read

__all__ = ["AcpRunner", "backend"]


def backend(id: str, config: EngineConfig) -> EngineBackend:
    """The engine for the table `[engines.ID]`. Raises ValueError with a message for the owner when it is wrong."""
    table = read(id, config)
    agent = AGENTS[table.agent] if table.agent else None

    def build_runner(config: EngineConfig, config_path: Path) -> AcpRunner:
        return AcpRunner(id, read(id, config))

    return EngineBackend(
        id=id,
        build_runner=build_runner,
        cli_cmd=table.command[0],
        install_cmd=agent.install if agent is not None else None,
        capabilities=capabilities_of(table.known),
        title=table.title,
    )
