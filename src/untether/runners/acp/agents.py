"""The agents that are known to speak the Agent Client Protocol: how each is started, and where it differs.

What is said here was measured with the real programs (recordings in tests/transcripts/acp). An agent that is not
listed works too: what is not known of it is said to be unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal

from ...model import Record
from ...process.environment import CLAUDE_NAMES, Names

Reject = Literal["goes_on", "ends", ""]

_OPENCODE_POLICY = {"permission": {"*": "ask"}}


class Agent(Record, frozen=True):
    """One agent. `mode` is the mode of its own in which it asks; "" when it has none.

    `modes` gives its modes for our names of permission modes. `reject`: what a denied step does to the turn, "" when
    that is not known. `steers`: a message during a turn goes into it. `cancel_leaves_work`: a cancelled turn leaves
    its commands running, so a stop ends the process. `warns_in_answer`: warnings come as pieces of the answer. `login`
    is what to do when it is not logged in.
    """

    id: str = ""
    title: str = ""
    command: tuple[str, ...] = ()
    install: str = ""
    mode: str = ""
    modes: dict[str, str] = {}
    reject: Reject = ""
    steers: bool = False
    cancel_leaves_work: bool = False
    warns_in_answer: bool = False
    login: str = ""
    env: dict[str, str] = {}
    names: Names = Names()


UNLISTED = Agent()

_LISTED = (
    Agent(
        "gemini",
        "Gemini CLI",
        ("gemini", "--acp"),
        "npm install -g @google/gemini-cli",
        mode="default",
        modes={"default": "default", "acceptEdits": "autoEdit", "plan": "plan", "bypassPermissions": "yolo"},
        reject="goes_on",
        login="Run `gemini` on the machine and log in, or set GEMINI_API_KEY, then try again.",
        names=Names(prefixes=("GEMINI_", "GOOGLE_")),
    ),
    Agent(
        "codex",
        "Codex (ACP)",
        ("codex-acp",),
        "npm install -g @agentclientprotocol/codex-acp",
        mode="read-only",  # the default, "agent", lets a model approve
        modes={"default": "read-only", "acceptEdits": "workspace-write", "bypassPermissions": "agent-full-access"},
        reject="ends",
        cancel_leaves_work=True,
        warns_in_answer=True,
        login="Run `codex login` on the machine, then try again.",
        names=Names(prefixes=("CODEX_", "OPENAI_")),
    ),
    Agent(
        "claude",
        "Claude Code (ACP)",
        ("claude-agent-acp",),
        "npm install -g @agentclientprotocol/claude-agent-acp",
        mode="default",
        modes={
            "default": "default",
            "acceptEdits": "acceptEdits",
            "plan": "plan",
            "auto": "auto",
            "dontAsk": "dontAsk",
        },
        reject="goes_on",
        login="Run `claude` on the machine and log in with /login, then try again.",
        names=CLAUDE_NAMES,
    ),
    Agent(
        "opencode",
        "OpenCode (ACP)",
        ("opencode", "acp"),
        "npm install -g opencode-ai",
        modes={"plan": "plan"},
        reject="ends",
        steers=True,
        login="Run `opencode auth login` on the machine, then try again.",
        env={"OPENCODE_CONFIG_CONTENT": json.dumps(_OPENCODE_POLICY)},  # it asks for nothing by itself
        names=Names(prefixes=("OPENCODE_",)),
    ),
)

AGENTS: Mapping[str, Agent] = {agent.id: agent for agent in _LISTED}


def recognised(command: Sequence[str]) -> Agent:
    """The agent that a command starts, by the names of its words; `UNLISTED` when it is none of ours."""
    words = {word.replace("\\", "/").rpartition("/")[2] for word in command}
    for agent in _LISTED:
        if agent.command[0] in words and set(agent.command[1:]) <= words:
            return agent
    return UNLISTED
