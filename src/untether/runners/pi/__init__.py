"""Pi, driven through its RPC mode with an extension of ours that asks, or one-shot through its JSON print mode."""

from __future__ import annotations

from ...backends import EngineBackend
from . import spawn
from .policies import RPC
from .runner import PiRunner, build_runner

__all__ = ["BACKEND", "PiRunner"]

BACKEND = EngineBackend(
    id="pi",
    build_runner=build_runner,
    cli_cmd="pi",
    install_cmd=spawn.INSTALL,
    min_version=spawn.MIN_VERSION,
    capabilities=RPC,
    title="Pi",
)
