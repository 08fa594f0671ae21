"""`untether service`: the bridge as a service of this user, which starts with the machine and comes back after a fault.

On Linux it is a user unit of systemd, on macOS a launchd agent. Every file that is written and every command that is
run is shown. Doing it again changes nothing; where there is nobody to run a service, it says so and what to do instead.
"""

from __future__ import annotations

import os
import re
import sys
from abc import ABC, abstractmethod
from pathlib import Path

import click

from ..settings import ConfigError, Settings, load
from ..store.lock import AlreadyRunning, StateLock
from ..store.migrate import StoreError
from . import service_units as units
from .errors import told
from .machine import Done, Machine, Shell
from .service_units import LABEL, UNIT, Recipe

_LEFT = "Settings, database and journals are as they were."


class ServiceError(Exception):
    """It cannot be done; the text says why, and what to do."""


class Service(ABC):
    """The service of one kind of manager."""

    def __init__(self, machine: Machine, shell: Shell) -> None:
        self.machine = machine
        self.shell = shell

    @property
    @abstractmethod
    def file(self) -> Path:
        """What the manager reads."""

    @abstractmethod
    def check(self) -> None:
        """Raise ServiceError where there is no manager."""

    @abstractmethod
    def install(self, settings: Settings) -> None: ...

    @abstractmethod
    def uninstall(self) -> None: ...

    @abstractmethod
    def status(self) -> int: ...

    @abstractmethod
    def logs(self, lines: int, *, follow: bool) -> int: ...

    # ----------------------------------------------------------------------------------------- what both kinds need

    def run(self, *command: str, may_fail: bool = False) -> Done:
        """Run a command, show it, and raise ServiceError when it fails."""
        click.echo(f"$ {' '.join(command)}")
        done = self.shell.run(command)
        if done.code != 0 and not may_fail:
            raise ServiceError(f"{command[0]} said: {done.words}")
        return done

    def write(self, text: str) -> bool:
        """Write the file; False when it is so already."""
        if self.file.exists() and self.file.read_text("utf-8", "replace") == text:
            click.echo(f"✓ {self.file} is up to date")
            return False
        self.file.parent.mkdir(parents=True, exist_ok=True)
        part = self.file.with_name(f"{self.file.name}.part")
        part.write_text(text)
        part.replace(self.file)
        click.echo(f"✓ wrote {self.file}")
        click.echo("".join(f"    {line}".rstrip() + "\n" for line in text.splitlines()), nl=False)
        return True

    def remove(self) -> bool:
        if not self.file.exists():
            return False
        self.file.unlink()
        click.echo(f"✓ removed {self.file}")
        return True

    def recipe(self, settings: Settings) -> Recipe:
        environ = {**self.machine.environ, "UNTETHER_CONFIG_PATH": str(settings.path)}
        folder = settings.state_dir / "workspace"  # where agents work without a project
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = {name: environ[name] for name in units.KEPT_VARIABLES if environ.get(name)}
        left = sorted(name for name in environ if name.startswith("UNTETHER__"))
        extra = settings.state_dir / "service.env"
        if left and not extra.exists():
            click.echo(f"· {', '.join(left)} is set here only. For the service, write it into {extra} (chmod 600).")
        # -P: a folder named untether where it starts must not be taken for the program
        return Recipe((sys.executable, "-P", "-m", "untether", "run"), folder, kept, extra)


class SystemdService(Service):
    """A unit of the systemd that runs for this user."""

    @property
    def file(self) -> Path:
        config = self.machine.environ.get("XDG_CONFIG_HOME") or self.machine.home / ".config"
        return Path(config, "systemd", "user", UNIT)

    def check(self) -> None:
        done = self.shell.run(("systemctl", "--user", "show", "--property=Version", "--value"))
        if done.code == 0:
            return
        machine = self.machine
        if kind := machine.container():
            raise ServiceError(
                f"This is a container ({kind}) without a service manager: {done.words}.\n"
                "Make `untether run` the command of the container, and let whatever runs it start it again, such as\n"
                "docker run --restart unless-stopped. Runs end with the container."
            )
        if not machine.booted_with_systemd():
            raise ServiceError(
                f"This machine was not started with systemd: {done.words}.\n"
                "Let its own supervisor run `untether run` as this user and start it again when it ends. (WSL: put\n"
                "[boot] and systemd=true into /etc/wsl.conf, then wsl --shutdown.)"
            )
        raise ServiceError(
            f"There is no service manager for {machine.user} here: {done.words}.\n"
            f"With su or sudo there is none: log in as {machine.user}, or first run\n"
            f"    sudo loginctl enable-linger {machine.user}\n"
            f"    export XDG_RUNTIME_DIR=/run/user/{machine.uid}"
        )

    def install(self, settings: Settings) -> None:
        changed = self.write(units.systemd_unit(self.recipe(settings), self._version()))
        if changed:
            self.run("systemctl", "--user", "daemon-reload")
        self.run("systemctl", "--user", "enable", UNIT)
        active = self.shell.run(("systemctl", "--user", "is-active", "--quiet", UNIT)).code == 0
        if not active and (holder := _runs_elsewhere(settings)):
            click.echo(f"· {holder} Stop it, then run: systemctl --user start {UNIT}")
        elif changed or not active:
            self.run("systemctl", "--user", "restart" if active else "start", UNIT)
            click.echo("✓ Untether runs as a service")
        else:
            click.echo("✓ Untether runs as a service already")
        self._linger()

    def _version(self) -> int:
        found = re.match(r"systemd (\d+)", self.shell.run(("systemctl", "--version")).out)
        return int(found[1]) if found else 0

    def _linger(self) -> None:
        """Without it the service ends with the last log-in of this user, and starts with the next."""
        user = self.machine.user
        if self.machine.lingers():
            click.echo(f"✓ {user} lingers: it starts with the machine and stays when you log out")
            return
        done = self.run("loginctl", "enable-linger", user, may_fail=True)
        if done.code == 0:
            click.echo("✓ It starts with the machine now, and stays when you log out")
        else:
            click.echo(
                f"· It ends when you log out ({done.words}). So that it stays: sudo loginctl enable-linger {user}"
            )

    def uninstall(self) -> None:
        if not self.file.exists():
            click.echo(f"There is no service ({self.file}).")
            return
        self.run("systemctl", "--user", "disable", "--now", UNIT, may_fail=True)
        self.remove()
        self.run("systemctl", "--user", "daemon-reload")
        self.run("systemctl", "--user", "reset-failed", UNIT, may_fail=True)
        click.echo(
            "Settings, database and journals are as they were. Lingering stays; loginctl disable-linger ends it."
        )

    def status(self) -> int:
        click.echo(f"linger: {'yes' if self.machine.lingers() else 'no, it ends when you log out'}")
        return self.shell.show(("systemctl", "--user", "status", "--no-pager", UNIT))

    def logs(self, lines: int, *, follow: bool) -> int:
        options = ("--follow",) if follow else ("--no-pager",)
        return self.shell.show(("journalctl", "--user", f"--unit={UNIT}", f"--lines={lines}", *options))


class LaunchdService(Service):
    """An agent of launchd, in the graphical log-in of this user."""

    @property
    def file(self) -> Path:
        return self.machine.home / "Library" / "LaunchAgents" / f"{LABEL}.plist"

    @property
    def log(self) -> Path:
        return self.machine.home / "Library" / "Logs" / "untether.log"

    @property
    def domain(self) -> str:
        return f"gui/{self.machine.uid}"

    def check(self) -> None:
        done = self.shell.run(("launchctl", "print", self.domain))
        if done.code != 0:
            raise ServiceError(
                f"{self.machine.user} is not logged in at the screen of this Mac, so nothing runs a service for it.\n"
                f"Log in there once, then do this again. (launchctl said: {done.words})"
            )

    def install(self, settings: Settings) -> None:
        changed = self.write(units.launchd_plist(self.recipe(settings), self.log))
        loaded = self.shell.run(("launchctl", "print", f"{self.domain}/{LABEL}")).code == 0
        if loaded and not changed:
            click.echo("✓ Untether runs as a service already")
            return
        if not loaded and (holder := _runs_elsewhere(settings)):
            click.echo(f"· {holder} Stop it: the service tries again every 10 seconds.")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if loaded:
            self.run("launchctl", "bootout", f"{self.domain}/{LABEL}", may_fail=True)
        self.run("launchctl", "enable", f"{self.domain}/{LABEL}")
        self.run("launchctl", "bootstrap", self.domain, str(self.file))
        click.echo("✓ Untether runs as a service, from your log-in at the screen on")

    def uninstall(self) -> None:
        if not self.file.exists():
            click.echo(f"There is no service ({self.file}).")
            return
        self.run("launchctl", "bootout", f"{self.domain}/{LABEL}", may_fail=True)
        self.remove()
        click.echo(_LEFT)

    def status(self) -> int:
        return self.shell.show(("launchctl", "print", f"{self.domain}/{LABEL}"))

    def logs(self, lines: int, *, follow: bool) -> int:
        return self.shell.show(("tail", "-n", str(lines), *(("-F",) if follow else ()), str(self.log)))


def service_of(machine: Machine, shell: Shell) -> Service:
    """The service for this kind of machine. Raises ServiceError when there is none."""
    if machine.platform == "darwin":
        return LaunchdService(machine, shell)
    if machine.platform == "linux":
        return SystemdService(machine, shell)
    raise ServiceError("There is no service for this system. Run `untether run` in a terminal that stays.")


def _runs_elsewhere(settings: Settings) -> str:
    """Who holds the state folder, in a sentence; empty when nobody does."""
    lock = StateLock(settings.state_dir)
    try:
        lock.acquire()
    except AlreadyRunning as running:
        return str(running).replace("Use that one, or stop it first.", "").strip()
    lock.release()
    return ""


@click.group()
@click.pass_context
def service(ctx: click.Context) -> None:
    """Run Untether as a service: started with the machine, and again after a fault."""
    if ctx.obj is None:
        with told(ServiceError):
            ctx.obj = service_of(Machine(sys.platform, os.environ), Shell())


@service.command()
@click.pass_obj
def install(found: Service) -> None:
    """Write the service, start it, and have it started with the machine."""
    with told(ServiceError, ConfigError, StoreError, OSError):
        settings = load()
        found.check()
        found.install(settings)


@service.command()
@click.pass_obj
def status(found: Service) -> None:
    """What the service manager knows of it."""
    _installed(found)
    raise SystemExit(found.status())


@service.command()
@click.option("-n", "--lines", default=100, show_default=True, help="How many lines.")
@click.option("-f", "--follow", is_flag=True, help="Go on as they come.")
@click.pass_obj
def logs(found: Service, lines: int, follow: bool) -> None:
    """The log of the service."""
    _installed(found)
    raise SystemExit(found.logs(lines, follow=follow))


@service.command()
@click.pass_obj
def uninstall(found: Service) -> None:
    """Stop the service and remove it; nothing else is removed."""
    with told(ServiceError, OSError):
        found.uninstall()


def _installed(found: Service) -> None:
    if not found.file.exists():
        click.echo(f"There is no service ({found.file}). untether service install makes it.", err=True)
        raise SystemExit(1)
