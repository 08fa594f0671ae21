"""What a service manager reads: the systemd user unit and the launchd agent, as text."""

from __future__ import annotations

import plistlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

UNIT = "untether.service"
LABEL = "dev.untether.bridge"
BACKOFF_SINCE = 254  # the systemd that knows RestartSteps= and RestartMaxDelaySec=

# Of the terminal in which `service install` is called. Agents need PATH as it is there; for a manager it is short.
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "UNTETHER_CONFIG_PATH")

_UNIT = """\
# Written by `untether service install`, which replaces it. Changes of your own: systemctl --user edit untether
[Unit]
Description=Untether, the bridge between chats and coding agents
# It comes back for as long as it takes: there is no number of starts after which it is given up.
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
WorkingDirectory={folder}
{environment}# For API keys, proxies and settings (UNTETHER__...), one NAME=value a line; it may be missing.
EnvironmentFile=-{extra}

# Agents at work outlive the bridge: a stop or an upgrade ends the bridge alone, and so does one that is too large.
KillMode=process
OOMPolicy=continue
TasksMax=infinity
TimeoutStartSec=90
TimeoutStopSec=30
WatchdogSec=60

Restart=always
{restart}
# What restricts this unit would restrict the agents, which inherit it (NoNewPrivileges= takes sudo away, ProtectHome=
# the projects), so nothing does. A core file of the bridge would hold its secrets; who wants one can raise the limit.
LimitCORE=0:infinity

[Install]
WantedBy=default.target
"""
_BACKOFF = "RestartSec=2\nRestartSteps=8\nRestartMaxDelaySec=300"
_RESTART_OLD = "RestartSec=10"  # a delay that grows came with systemd 254


@dataclass(frozen=True)
class Recipe:
    """What to start: the command, where, and the variables it gets. `extra` is a file with more of them."""

    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    extra: Path


def systemd_unit(recipe: Recipe, version: int) -> str:
    """The text of the unit, for a systemd of this version."""
    program, *arguments = recipe.command
    lines = [f"Environment={_quoted(f'{name}={value}')}\n" for name, value in recipe.environment.items()]
    return _UNIT.format(
        # variables are put into the arguments, not into the name of the program (systemd.service(5), command lines)
        command=" ".join([_quoted(program), *(_quoted(word.replace("$", "$$")) for word in arguments)]),
        folder=f"-{_percent(str(recipe.folder))}",
        environment="".join(lines),
        extra=_percent(str(recipe.extra)),
        restart=_BACKOFF if version >= BACKOFF_SINCE else _RESTART_OLD,
    )


def launchd_plist(recipe: Recipe, log: Path) -> str:
    """The text of the agent's property list. launchd waits 10 s between two starts, and longer for one that fails."""
    content = {
        "Label": LABEL,
        "ProgramArguments": list(recipe.command),
        "WorkingDirectory": str(recipe.folder),
        "EnvironmentVariables": dict(recipe.environment),
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 10,
        "ExitTimeOut": 30,
        "AbandonProcessGroup": True,  # agents at work outlive the bridge
        "ProcessType": "Interactive",  # else the agents would be slowed down as background work
        "StandardOutPath": str(log),
        "StandardErrorPath": str(log),
    }
    return plistlib.dumps(content, sort_keys=False).decode()


def _quoted(word: str) -> str:
    """A word as systemd.syntax(7) reads it: with quotes, backslashes and % of its own."""
    word = _percent(word)
    if re.fullmatch(r"[\w@%+=:,./$-]+", word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _percent(text: str) -> str:
    return text.replace("%", "%%")
