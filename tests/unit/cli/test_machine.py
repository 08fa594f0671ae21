"""What decides how long runs live on a machine, and what `untether doctor` says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from untether.cli.doctor import stays
from untether.cli.machine import Machine


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tmp_path.joinpath("run/systemd/system").mkdir(parents=True)
    return tmp_path


def machine(root: Path, platform: str = "linux", **environ: str) -> Machine:
    return Machine(platform, environ, root=root, user="ann", uid=1000)


def write(root: Path, name: str, text: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({}, False),
        ({"etc/systemd/logind.conf": "[Login]\n#KillUserProcesses=yes\n"}, False),
        ({"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n"}, True),
        ({"usr/lib/systemd/logind.conf": "[Login]\nKillUserProcesses = yes\n"}, True),
        (
            {
                "usr/lib/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n",
                "etc/systemd/logind.conf": "[Login]\nKillUserProcesses=no\n",
            },
            False,
        ),
        (
            {
                "etc/systemd/logind.conf": "[Login]\nKillUserProcesses=no\n",
                "usr/lib/systemd/logind.conf.d/10-a.conf": "[Login]\nKillUserProcesses=yes\n",
            },
            True,
        ),
        (
            {
                "usr/lib/systemd/logind.conf.d/10-a.conf": "[Login]\nKillUserProcesses=yes\n",
                "etc/systemd/logind.conf.d/10-a.conf": "[Login]\n",
            },
            False,
        ),
        (
            {
                "run/systemd/logind.conf.d/90-b.conf": "[Login]\nKillUserProcesses=yes\n",
                "etc/systemd/logind.conf.d/10-a.conf": "[Login]\nKillUserProcesses=no\n",
            },
            True,
        ),
    ],
)
def test_logind_is_read_as_it_reads_its_files(root: Path, files: dict[str, str], kills: bool) -> None:
    for name, text in files.items():
        write(root, name, text)
    assert machine(root).kills_user_processes() is kills


@pytest.mark.parametrize(
    ("file", "text", "kind"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "", "podman"),
        ("run/systemd/container", "lxc\n", "lxc"),
        ("etc/hostname", "x", ""),
    ],
)
def test_kinds_of_containers(root: Path, file: str, text: str, kind: str) -> None:
    write(root, file, text)
    assert machine(root).container() == kind


def test_containers_that_only_the_environment_tells_of(root: Path) -> None:
    assert machine(root, KUBERNETES_SERVICE_HOST="10.0.0.1").container() == "kubernetes"
    assert machine(root, container="oci").container() == "oci"


def said(made: Machine) -> str:
    return "\n".join(map(str, stays(made)))


def test_doctor_says_that_runs_end_with_a_container(root: Path) -> None:
    write(root, ".dockerenv")
    text = said(machine(root))
    assert text.startswith("· Container (docker): runs end with it")
    assert "inger" not in text


def test_doctor_says_whether_runs_stay_after_the_log_out(root: Path) -> None:
    assert said(machine(root)) == (
        "· Linger is off: services end when you log out\n"
        "    So that a service and its runs stay: loginctl enable-linger ann"
    )
    write(root, "var/lib/systemd/linger/ann")
    assert said(machine(root)) == "✓ Linger: what runs as a service of ann stays after the log-out"
    write(root, "etc/systemd/logind.conf", "[Login]\nKillUserProcesses=yes\n")
    assert "· KillUserProcesses is on (logind.conf)" in said(machine(root))


def test_doctor_is_silent_where_there_is_no_systemd(root: Path) -> None:
    assert said(machine(root, "darwin")) == ""
    root.joinpath("run/systemd/system").rmdir()
    assert said(machine(root)) == ""
