"""A unit of its own for each keeper: where a systemd user manager runs, keepers are started through `systemd-run`.

In a scope of its own a keeper and its agent are not in the bridge's unit: whatever is done to that (a stop, a limit of
memory, an upgrade) does not reach them, and `systemctl --user status untether-ID.scope` shows one run with all that it
started. Where there is no such manager, or it does not answer, a keeper is started as it is.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

_PROBE_S = 3.0
_LINGER = Path("/var/lib/systemd/linger")  # a file for each user who has a manager without being logged in
_CGROUP = Path("/proc/self/cgroup")


def keeper_prefix(environ: Mapping[str, str], process_id: str) -> tuple[str, ...]:
    """The command to start the keeper of `process_id` through; empty when it is to be started as it is.

    `environ` is the environment that the keeper is started with: `XDG_RUNTIME_DIR` in it leads to the manager. The
    first call blocks for up to 3 seconds, to see whether a scope can be made; later ones know.
    """
    program = shutil.which("systemd-run", path=environ.get("PATH"))
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if program is None or not runtime or not Path(runtime, "systemd", "private").exists():
        return ()
    if not outlives_sessions() or not _scopes_work(program, runtime):
        return ()
    return (*_command(program), f"--unit=untether-{process_id}", "--")


def outlives_sessions(cgroup: Path = _CGROUP, linger: Path = _LINGER) -> bool:
    """Whether the user manager stays at least as long as we do: it started us, or this user lingers.

    Else it goes with the last log-in, and its scopes with it, while a process of the log-in itself may stay.
    """
    uid = os.geteuid()
    try:
        if f"/user@{uid}.service/" in cgroup.read_text():
            return True
        return linger.joinpath(pwd.getpwuid(uid).pw_name).exists()
    except (OSError, KeyError):
        return False


def _command(program: str) -> tuple[str, ...]:
    return (program, "--user", "--scope", "--quiet", "--collect", "--description=An agent of Untether")


@lru_cache(maxsize=8)
def _scopes_work(program: str, runtime: str) -> bool:
    """Make a scope in which nothing is done."""
    environ = {"PATH": os.defpath, "XDG_RUNTIME_DIR": runtime}
    try:
        done = subprocess.run(
            [*_command(program), "--", "true"],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.info("scope.not_used", reason=str(error))
        return False
    if done.returncode != 0:
        log.info("scope.not_used", reason=done.stderr.decode("utf-8", "replace").strip()[:200])
    return done.returncode == 0
