"""Permission modes by the names that people use: which tool calls of Pi a person is asked about.

Pi itself asks about nothing. Our extension (`gate.ts`) asks about every call, and these rules say which of its requests
reach a person. `default` asks about all but reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from ...session import Capabilities

RPC = Capabilities(
    interactive_permissions=True,
    questions=True,
    steer=True,
    followup=True,
    interrupt=True,
    set_model=True,
    images=True,
    cost=True,
    continue_latest=True,
    set_effort=True,
    partial_text=True,
)
JSON = Capabilities(cost=True, continue_latest=True)

CANNOT_ASK = "This form cannot ask: what needs your permission is refused."
CANNOT_ASK_BYPASS = "This form cannot ask, and every tool of the agent runs at once."

DEFAULT = "default"
ACCEPT_EDITS = "acceptEdits"
DONT_ASK = "dontAsk"
BYPASS = "bypassPermissions"

READING = ("read", "grep", "find", "ls")
EDITING = ("edit", "write")

Ruling: TypeAlias = Literal["allow", "ask", "deny"]

MODES: Mapping[str, tuple[str, ...]] = {
    DEFAULT: READING,
    "manual": READING,
    "safe": READING,
    ACCEPT_EDITS: (*READING, *EDITING),
    "auto": (*READING, *EDITING),
    DONT_ASK: READING,
}
"""The tools that run without asking, by mode. `bypassPermissions` runs all; there is no mode for plans."""


def mode_of(settings: Mapping[str, Any]) -> str:
    """The mode to run in: one that is not known asks, and so does bypassing that the owner did not allow."""
    allowed = bool(settings.get("dangerously_skip_permissions"))
    return known_mode(str(settings.get("permission_mode") or (BYPASS if allowed else DEFAULT)), bypass=allowed)


def known_mode(mode: str, *, bypass: bool) -> str:
    if mode == BYPASS:
        return BYPASS if bypass else DEFAULT
    return mode if mode in MODES else DEFAULT


def ruling(mode: str, tool: str) -> Ruling:
    """What becomes of a call of `tool`."""
    if mode == BYPASS or tool in MODES[mode]:
        return "allow"
    return "deny" if mode == DONT_ASK else "ask"
