"""The spawn recipe of Codex: the native program, its arguments and environment, and how it is stopped.

The prompt is never an argument, and no secret is one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...model import ResumeToken
from ...process.environment import Names
from ...process.host import Rung
from .policies import POLICIES, allowed_mode, asked_mode

INSTALL = "npm install -g @openai/codex"
MIN_VERSION = "0.166.0"

# The interrupt has come before. End of input and SIGTERM each end it in 0.1 s with all it started; SIGINT leaves the
# commands of an unsandboxed session alive, so it is not used (recordings as_end_*).
LADDER = (Rung("close_stdin", 3.0), Rung("SIGTERM", 3.0), Rung("SIGKILL", 2.0))

ENV_NAMES = Names(
    exact=frozenset({"RUST_LOG"}),
    prefixes=("CODEX_", "OPENAI_", "AZURE_OPENAI_"),
    # Codex sets these for the commands that it runs: they tell of another session.
    never=frozenset({"CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID", "CODEX_CI"}),
)

# Arguments of the owner that would change what is read here, where it works, or whether a person is asked.
_FLAGS = """
    --json --experimental-json --color --skip-git-repo-check --output-schema -o --output-last-message --cd -C
    --worktree --ask-for-approval -a --approve-for-me --ignore-rules --ignore-user-config --full-auto --yolo
    --dangerously-bypass-approvals-and-sandbox --dangerously-bypass-hook-trust --sandbox -s --listen --stdio --
"""
_BLOCKED_FLAGS = frozenset(_FLAGS.split())
_DANGEROUS = ("danger", "bypass", "approval_policy", "approvals_reviewer", "sandbox_mode")


def check_extra_args(words: Sequence[str]) -> None:
    """Raises ValueError for an argument that is not the owner's to give here."""
    before = ""
    for word in words:
        flag, _, value = word.partition("=")
        if flag in _BLOCKED_FLAGS or flag.startswith("--dangerously"):
            raise ValueError(f"extra_args of codex cannot hold {flag}: use permission_mode and the other settings")
        given = word if before in ("-c", "--config") else value if flag in ("-c", "--config") else ""
        if any(part in given for part in _DANGEROUS):
            raise ValueError(f"extra_args of codex cannot hold {given!r}: use permission_mode instead")
        before = word


def app_server(settings: Mapping[str, Any]) -> list[str]:
    """The arguments for the app-server. What a thread is told goes through its protocol."""
    return [*_extra(settings), "app-server"]


def exec_json(settings: Mapping[str, Any], resume: ResumeToken | None) -> list[str]:
    """The arguments for `codex exec`; the prompt is read from stdin (`-`). Flags go before `resume`."""
    policy = POLICIES[allowed_mode(asked_mode(settings), settings)]
    args = [*_extra(settings), "exec", "--json", "--skip-git-repo-check", "--color=never", "--sandbox", policy.sandbox]
    if settings.get("model"):
        args += ["--model", str(settings["model"])]
    if settings.get("reasoning"):
        args += ["-c", f'model_reasoning_effort="{settings["reasoning"]}"']
    return [*args, *(("resume", resume.value) if resume is not None else ()), "-"]


def _extra(settings: Mapping[str, Any]) -> list[str]:
    return [str(word) for word in settings.get("extra_args") or ()]


def native_program(command: str, path: str) -> tuple[str, ...]:
    """The native program behind `command`, and the folder of tools that its launcher puts on PATH.

    npm installs a launcher for Node. Without it 41 MB are saved, and an end of the launcher leaves nothing behind.
    `path` is the PATH to look in. Where no native program is found, `command` stays as it is.
    """
    found = shutil.which(command, path=path)
    if found is None:
        return (command,)
    launcher = Path(os.path.realpath(found))
    package = launcher.parent.parent  # …/@openai/codex/bin/codex.js
    if launcher.suffix != ".js":
        return (command,)
    vendors = [
        *package.parent.glob("codex-*/vendor/*"),
        *package.glob("node_modules/@openai/codex-*/vendor/*"),
        *package.glob("vendor/*"),
    ]
    for vendor in sorted(vendors):
        for program in (vendor / "bin" / "codex", vendor / "codex" / "codex"):
            if program.is_file() and os.access(program, os.X_OK):
                tools = [str(folder) for name in ("codex-path", "path") if (folder := vendor / name).is_dir()]
                return (str(program), *tools[:1])
    return (command,)


def environment(environ: Mapping[str, str], own: Mapping[str, str], tools: Sequence[str]) -> dict[str, str]:
    """`environ`, made for an agent, with Codex's own tools at the end of PATH and the owner's variables on top."""
    path = os.pathsep.join(filter(None, (*tools, environ.get("PATH", ""))))
    return {**environ, "PATH": path, **own}
