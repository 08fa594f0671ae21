"""The machine that Untether is on: commands that are run there, and facts that decide how long runs live."""

from __future__ import annotations

import getpass
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_PATIENCE_S = 120.0  # a start waits until the service says that it is ready


class Done(NamedTuple):
    """How a command ended. `code` is 127 when there is no such program, 124 when it did not end in time."""

    code: int
    out: str = ""
    err: str = ""

    @property
    def words(self) -> str:
        """What it said, in one line."""
        return " ".join((self.err.strip() or self.out.strip()).split()) or f"exit code {self.code}"


class Shell:
    """Runs commands of the machine. The seam: a test brings one that answers from a script."""

    def run(self, command: Sequence[str]) -> Done:
        """Run it to its end, without a terminal."""
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
            )
        except FileNotFoundError:
            return Done(127, err=f"{command[0]} was not found")
        except subprocess.TimeoutExpired:
            return Done(124, err=f"{command[0]} did not end within {_PATIENCE_S:g} seconds")
        return Done(done.returncode, done.stdout, done.stderr)

    def show(self, command: Sequence[str]) -> int:
        """Run it with our own output and keyboard, and return its exit code."""
        try:
            return subprocess.run(command, check=False).returncode
        except FileNotFoundError:
            return 127
        except KeyboardInterrupt:  # the usual end of a log that is followed
            return 0


@dataclass(frozen=True)
class Machine:
    """Where to look; a test brings a folder instead of `/`."""

    platform: str
    environ: Mapping[str, str]
    root: Path = Path("/")
    user: str = field(default_factory=getpass.getuser)
    uid: int = field(default_factory=os.getuid)

    @property
    def home(self) -> Path:
        return Path(self.environ.get("HOME") or Path.home())

    def container(self) -> str:
        """The kind of container that this is, `container` when it is one of an unknown kind, else empty."""
        if self._at("run/.containerenv").exists():
            return "podman"
        if self._at(".dockerenv").exists():
            return "docker"
        if "KUBERNETES_SERVICE_HOST" in self.environ:
            return "kubernetes"
        try:
            return self._at("run/systemd/container").read_text().strip() or "container"
        except OSError:
            return self.environ.get("container", "")

    def booted_with_systemd(self) -> bool:
        return self._at("run/systemd/system").is_dir()

    def lingers(self) -> bool:
        """Whether this user's service manager runs without a log-in, from the start of the machine on."""
        return self._at("var/lib/systemd/linger").joinpath(self.user).exists()

    def kills_user_processes(self) -> bool:
        """Whether logind ends what a log-in started when that ends (`KillUserProcesses=` in logind.conf(5))."""
        kills = False
        for file in self._logind_files():
            try:
                lines = file.read_text("utf-8", "replace").splitlines()
            except OSError:
                continue
            for line in lines:
                key, _, value = line.partition("=")
                if key.strip() == "KillUserProcesses":
                    kills = value.strip().lower() in ("yes", "true", "on", "1", "y", "t")
        return kills

    def _logind_files(self) -> list[Path]:
        """The main file, then what is dropped in, by name; of two with one name the one in /etc counts."""
        places = ("usr/lib", "usr/local/lib", "run", "etc")
        main = [self._at(f"{place}/systemd/logind.conf") for place in reversed(places)]
        dropped: dict[str, Path] = {}
        for place in places:
            for file in self._at(f"{place}/systemd/logind.conf.d").glob("*.conf"):
                dropped[file.name] = file
        return [*[file for file in main if file.exists()][:1], *(dropped[name] for name in sorted(dropped))]

    def _at(self, path: str) -> Path:
        return self.root / path
