"""The spawn recipe of Pi: its arguments and environment in each form, and how it is stopped.

The prompt is never an argument, and no secret is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...model import ResumeToken
from ...process.environment import Names
from ...process.host import Rung
from .policies import BYPASS, MODES, mode_of

INSTALL = "npm install -g @earendil-works/pi-coding-agent"
MIN_VERSION = "1.0.0"  # 0.73.1, of the package before, tells no end of a turn (recording rpc_old_073)
NODE = "22.19"

GATE = Path(__file__).with_name("gate.ts")
UNASKED = "UNTETHER_PI_TOOLS"

# The abort has come before. End of input and SIGTERM each end the commands that run; after SIGINT and SIGKILL they live
# on in sessions of their own (recordings rpc_end_*), so SIGINT is not used and the last rung ends the whole tree.
LADDER = (Rung("close_stdin", 3.0), Rung("SIGTERM", 3.0), Rung("SIGKILL", 2.0))

_PROVIDERS = """
    ANTHROPIC_ OPENAI_ AZURE_OPENAI_ GEMINI_ GOOGLE_ GROQ_ CEREBRAS_ XAI_ OPENROUTER_ MISTRAL_ ZAI_ DEEPSEEK_ MINIMAX_
    KIMI_ HF_ AI_GATEWAY_ AWS_ FIREWORKS_ OPENCODE_ NVIDIA_ TOGETHER_ MOONSHOT_ CLOUDFLARE_ COPILOT_
"""
ENV_NAMES = Names(prefixes=("PI_", *_PROVIDERS.split()), never=frozenset({"PI_PACKAGE_DIR"}))

# Arguments of the owner that would change what is read here, which session it is, or whether a person is asked.
_FLAGS = """
    --mode --print -p --continue -c --resume -r --session --session-id --fork --no-session --export --list-models
    --no-extensions -ne --api-key --tui-mode --help -h --version -v --
"""
_BLOCKED_FLAGS = frozenset(_FLAGS.split())


def check_extra_args(words: Sequence[str]) -> None:
    """Raises ValueError for an argument that is not the owner's to give here."""
    for word in words:
        flag = word.partition("=")[0]
        if flag in _BLOCKED_FLAGS:
            raise ValueError(f"extra_args of pi cannot hold {flag}: Untether sets it, or it holds a secret")


def arguments(
    settings: Mapping[str, Any], resume: ResumeToken | None, *, mode: str, new_id: str = "", latest: bool = False
) -> list[str]:
    """The arguments in a mode (`rpc` or `json`); a new session gets the id `new_id`."""
    args = [*map(str, settings.get("extra_args") or ()), "--mode", mode]
    if mode_of(settings) != BYPASS or mode == "rpc":
        args += ["--extension", str(GATE)]
    for flag, name in (("--provider", "provider"), ("--model", "model"), ("--thinking", "reasoning")):
        if value := settings.get(name):
            args += [flag, str(value)]
    if resume is not None:
        args += ["--session", resume.value]
    elif latest:
        args.append("--continue")
    elif new_id:
        args += ["--session-id", new_id]
    return args


def environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """Variables for the agent. No update is looked for, and no telemetry sent, on behalf of a chat."""
    tools = MODES.get(mode_of(settings), ())
    return {"PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0", "NO_COLOR": "1", "CI": "1", UNASKED: ",".join(tools)}
