"""What goes along with the greeting of the CLI (`initialize`), so that it is in no argument.

Hooks are set here too: in 2.1.197 the first greeting wins, and one after the first message sets none
(claude-protocol §4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import schedules


def greeting(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `initialize`, from `StartFacts.settings`.

    `preamble` is text for the system prompt, `agents` sub-agents by name (as for `--agents`), and `own_schedule` False
    leaves the hooks on what the CLI schedules out.
    """
    fields: dict[str, Any] = {}
    if settings.get("own_schedule") is not False:
        fields["hooks"] = schedules.hooks()
    if preamble := settings.get("preamble"):
        fields["appendSystemPrompt"] = str(preamble)
    if agents := settings.get("agents"):
        fields["agents"] = agents
    return fields
