"""`untether service`: what is written and run, with a scripted shell; again, elsewhere, and backwards."""

from __future__ import annotations

import plistlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from untether.cli.machine import Done, Machine, Shell
from untether.cli.service import service, service_of
from untether.cli.service_units import Recipe, launchd_plist, systemd_unit
from untether.store.lock import StateLock

RECIPE = Recipe(
    command=("/opt/my tools/python", "-P", "-m", "untether", "run"),
    folder=Path("/home/ann/.untether/workspace"),
    environment={"PATH": "/home/ann/bin:/usr/bin", "LANG": "de_DE.UTF-8", "ODD": 'a "b" 100% $HOME \\'},
    extra=Path("/home/ann/.untether/service.env"),
)

UNIT_254 = """\
# Written by `untether service install`, which replaces it. Changes of your own: systemctl --user edit untether
[Unit]
Description=Untether, the bridge between chats and coding agents
# It comes back for as long as it takes: there is no number of starts after which it is given up.
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart="/opt/my tools/python" -P -m untether run
WorkingDirectory=-/home/ann/.untether/workspace
Environment=PATH=/home/ann/bin:/usr/bin
Environment=LANG=de_DE.UTF-8
Environment="ODD=a \\"b\\" 100%% $HOME \\\\"
# For API keys, proxies and settings (UNTETHER__...), one NAME=value a line; it may be missing.
EnvironmentFile=-/home/ann/.untether/service.env

# Agents at work outlive the bridge: a stop or an upgrade ends the bridge alone, and so does one that is too large.
KillMode=process
OOMPolicy=continue
TasksMax=infinity
TimeoutStartSec=90
TimeoutStopSec=30
WatchdogSec=60

Restart=always
RestartSec=2
RestartSteps=8
RestartMaxDelaySec=300
# What restricts this unit would restrict the agents, which inherit it (NoNewPrivileges= takes sudo away, ProtectHome=
# the projects), so nothing does. A core file of the bridge would hold its secrets; who wants one can raise the limit.
LimitCORE=0:infinity

[Install]
WantedBy=default.target
"""


class Scripted(Shell):
    """Answers each command with what the script says of its beginning, else with success; notes what was run."""

    def __init__(self, **answers: Done) -> None:
        self.answers: dict[str, Done] = {name.replace("_", " "): done for name, done in answers.items()}
        self.ran: list[str] = []

    def run(self, command: Sequence[str]) -> Done:
        line = " ".join(command)
        self.ran.append(line)
        plain = line.replace("--user ", "").replace("-", " ")
        return next((done for start, done in self.answers.items() if plain.startswith(start)), Done(0))

    def show(self, command: Sequence[str]) -> int:
        self.ran.append(" ".join(command))
        return 0


class World:
    """A machine in a folder, and the commands of `untether service` on it."""

    def __init__(self, root: Path, platform: str, shell: Scripted) -> None:
        self.root, self.shell = root, shell
        self.home = root / "home" / "ann"
        self.state = self.home / ".untether"
        self.home.mkdir(parents=True)
        self.environ = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "SECRET": "no"}
        self.machine = Machine(platform, self.environ, root=root, user="ann", uid=1000)

    def __call__(self, *arguments: str) -> Result:
        self.shell.ran.clear()
        found = service_of(self.machine, self.shell)
        env = {"HOME": str(self.home), "UNTETHER_CONFIG_PATH": str(self.state / "untether.toml")}
        return CliRunner().invoke(service, list(arguments), obj=found, env=env)

    @property
    def unit(self) -> Path:
        return self.home / ".config" / "systemd" / "user" / "untether.service"

    @property
    def plist(self) -> Path:
        return self.home / "Library" / "LaunchAgents" / "dev.untether.bridge.plist"

    def linger(self) -> None:
        folder = self.root / "var/lib/systemd/linger"
        folder.mkdir(parents=True)
        folder.joinpath("ann").touch()


OLD = Done(0, "systemd 252 (252.38-1~deb12u1)\n")
INACTIVE = Done(3)


@pytest.fixture
def linux(tmp_path: Path) -> World:
    return World(tmp_path, "linux", Scripted(systemctl___version=OLD, systemctl_is_active=INACTIVE))


@pytest.fixture
def mac(tmp_path: Path) -> World:
    return World(tmp_path, "darwin", Scripted(**{"launchctl print gui/1000/dev": Done(113)}))


def test_the_unit_is_this_text() -> None:
    assert systemd_unit(RECIPE, 254) == UNIT_254


def test_an_older_systemd_gets_nothing_that_it_does_not_know() -> None:
    backoff = "RestartSec=2\nRestartSteps=8\nRestartMaxDelaySec=300"
    assert systemd_unit(RECIPE, 253) == UNIT_254.replace(backoff, "RestartSec=10")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    spaced = tmp_path / "my tools 100%"
    spaced.mkdir()
    python = spaced / "py$thon"
    python.symlink_to(sys.executable)
    version = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    recipe = Recipe((str(python), "-P", "-m", "untether", "run"), spaced, RECIPE.environment, spaced / "extra")
    unit = tmp_path / "untether.service"
    unit.write_text(systemd_unit(recipe, int(version)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(unit)],
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_property_list_keeps_the_bridge_and_leaves_its_agents() -> None:
    read = plistlib.loads(launchd_plist(RECIPE, Path("/home/ann/Library/Logs/untether.log")).encode())
    assert read == {
        "Label": "dev.untether.bridge",
        "ProgramArguments": list(RECIPE.command),
        "WorkingDirectory": "/home/ann/.untether/workspace",
        "EnvironmentVariables": RECIPE.environment,
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 10,
        "ExitTimeOut": 30,
        "AbandonProcessGroup": True,
        "ProcessType": "Interactive",
        "StandardOutPath": "/home/ann/Library/Logs/untether.log",
        "StandardErrorPath": "/home/ann/Library/Logs/untether.log",
    }


def test_install_writes_shows_and_starts(linux: World) -> None:
    done = linux("install")
    assert done.exit_code == 0, done.output
    text = linux.unit.read_text()
    assert f"ExecStart={sys.executable} -P -m untether run\n" in text
    assert "Environment=PATH=/usr/bin:/bin\nEnvironment=LANG=C.UTF-8\n" in text
    assert f"Environment=UNTETHER_CONFIG_PATH={linux.state}/untether.toml\n" in text
    assert "SECRET" not in text
    shown = [line.removeprefix("$ ") for line in done.output.splitlines() if line.startswith("$ ")]
    assert shown == [
        "systemctl --user daemon-reload",
        "systemctl --user enable untether.service",
        "systemctl --user start untether.service",
        "loginctl enable-linger ann",
    ]
    assert set(shown) <= set(linux.shell.ran)
    assert f"✓ wrote {linux.unit}" in done.output
    assert "    KillMode=process\n" in done.output
    assert "stays when you log out" in done.output


def test_installing_again_changes_nothing(linux: World) -> None:
    linux("install")
    linux.shell.answers["systemctl is active"] = Done(0)
    linux.linger()
    done = linux("install")
    assert done.exit_code == 0
    assert "is up to date" in done.output
    assert "runs as a service already" in done.output
    changing = [line for line in linux.shell.ran if "start" in line or "reload" in line or "loginctl" in line]
    assert changing == []


def test_a_changed_path_restarts_the_service(linux: World) -> None:
    linux("install")
    linux.shell.answers["systemctl is active"] = Done(0)
    linux.environ["PATH"] = "/home/ann/new/bin:/usr/bin"
    done = linux("install")
    assert "$ systemctl --user daemon-reload" in done.output
    assert "$ systemctl --user restart untether.service" in done.output


def test_linger_that_is_refused_is_said_and_the_service_stays(linux: World) -> None:
    linux.shell.answers["loginctl enable"] = Done(1, err="Could not enable linger: Access denied\n")
    done = linux("install")
    assert done.exit_code == 0
    assert "Access denied" in done.output
    assert "sudo loginctl enable-linger ann" in done.output


def test_a_bridge_in_a_terminal_is_not_fought_with(linux: World) -> None:
    with StateLock(linux.state):
        done = linux("install")
    assert "already running here" in done.output
    assert "then run: systemctl --user start untether.service" in done.output
    assert "systemctl --user start untether.service" not in linux.shell.ran
    assert "systemctl --user enable untether.service" in linux.shell.ran


def test_a_command_that_fails_ends_it_with_its_words(linux: World) -> None:
    linux.shell.answers["systemctl start"] = Done(1, err="Job for untether.service failed.\n")
    done = linux("install")
    assert done.exit_code == 1
    assert "systemctl said: Job for untether.service failed." in done.output


def test_settings_in_the_environment_are_pointed_out(linux: World) -> None:
    linux.environ["UNTETHER__TRANSPORTS__TELEGRAM__BOT_TOKEN"] = "123:hush-hush"
    done = linux("install")
    assert "UNTETHER__TRANSPORTS__TELEGRAM__BOT_TOKEN is set here only" in done.output
    assert str(linux.state / "service.env") in done.output
    assert "hush-hush" not in done.output + linux.unit.read_text()


NO_BUS = Done(1, err="Failed to connect to bus: No medium found\n")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ((".dockerenv",), ("container (docker)", "untether run", "restart", "Runs end with the container")),
        (("run/.containerenv",), ("container (podman)",)),
        ((), ("not started with systemd", "untether run")),
        (("run/systemd/system/x",), ("no service manager for ann", "loginctl enable-linger ann", "/run/user/1000")),
    ],
)
def test_without_a_user_manager_it_refuses_and_says_what_to_do(
    linux: World, made: tuple[str, ...], said: tuple[str, ...]
) -> None:
    for name in made:
        linux.root.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        linux.root.joinpath(name).touch()
    linux.shell.answers["systemctl show"] = NO_BUS
    done = linux("install")
    assert done.exit_code == 1
    assert not linux.unit.exists()
    for words in (*said, "No medium found"):
        assert words in done.output


def test_no_systemctl_at_all_is_a_refusal_too(linux: World) -> None:
    linux.shell.answers["systemctl"] = Done(127, err="systemctl was not found")
    done = linux("install")
    assert done.exit_code == 1
    assert "systemctl was not found" in done.output


def test_status_and_logs_ask_the_manager(linux: World) -> None:
    linux("install")
    assert "ends when you log out" in linux("status").output
    assert linux.shell.ran == ["systemctl --user status --no-pager untether.service"]
    linux("logs", "-n", "5")
    assert linux.shell.ran == ["journalctl --user --unit=untether.service --lines=5 --no-pager"]
    linux("logs", "-f")
    assert linux.shell.ran == ["journalctl --user --unit=untether.service --lines=100 --follow"]


@pytest.mark.parametrize("command", ["status", "logs"])
def test_without_a_service_they_name_the_command_that_makes_it(linux: World, command: str) -> None:
    done = linux(command)
    assert done.exit_code == 1
    assert "untether service install" in done.output
    assert linux.shell.ran == []


def test_uninstall_stops_removes_and_may_be_repeated(linux: World) -> None:
    linux("install")
    done = linux("uninstall")
    assert done.exit_code == 0
    assert not linux.unit.exists()
    assert linux.shell.ran == [
        "systemctl --user disable --now untether.service",
        "systemctl --user daemon-reload",
        "systemctl --user reset-failed untether.service",
    ]
    again = linux("uninstall")
    assert again.exit_code == 0
    assert "There is no service" in again.output
    assert linux.shell.ran == []


def test_on_a_mac_the_agent_is_loaded_once(mac: World) -> None:
    done = mac("install")
    assert done.exit_code == 0, done.output
    assert plistlib.loads(mac.plist.read_bytes())["ProgramArguments"][0] == sys.executable
    assert [line for line in mac.shell.ran if "print" not in line] == [
        "launchctl enable gui/1000/dev.untether.bridge",
        f"launchctl bootstrap gui/1000 {mac.plist}",
    ]
    mac.shell.answers.clear()  # loaded now
    assert "already" in mac("install").output
    assert [line for line in mac.shell.ran if "print" not in line] == []
    mac.environ["PATH"] = "/opt/homebrew/bin:/usr/bin"
    mac("install")
    assert [line for line in mac.shell.ran if "print" not in line] == [
        "launchctl bootout gui/1000/dev.untether.bridge",
        "launchctl enable gui/1000/dev.untether.bridge",
        f"launchctl bootstrap gui/1000 {mac.plist}",
    ]
    mac("logs", "-n", "7", "-f")
    assert mac.shell.ran == [f"tail -n 7 -F {mac.home}/Library/Logs/untether.log"]
    mac("uninstall")
    assert mac.shell.ran == ["launchctl bootout gui/1000/dev.untether.bridge"]
    assert not mac.plist.exists()


def test_a_mac_without_a_log_in_at_the_screen_refuses(mac: World) -> None:
    mac.shell.answers = {"launchctl print": Done(112, err="Could not find domain for gui/1000")}
    done = mac("install")
    assert done.exit_code == 1
    assert "not logged in at the screen" in done.output


def test_the_real_shell_tells_what_became_of_a_command() -> None:
    shell = Shell()
    assert shell.run(("sh", "-c", "echo out; echo err >&2; exit 3")) == Done(3, "out\n", "err\n")
    assert shell.run(("no-such-program-here",)).code == 127
    assert shell.show(("no-such-program-here",)) == 127
