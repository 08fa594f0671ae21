"""Keepers get a unit of their own where that works, and are started all the same where it does not."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from untether.process import scope
from untether.process.scope import keeper_prefix, outlives_sessions

PROCESS_ID = "0b6f2a50-8f0e-4d2c-9f43-2f1d4a0f9a11"


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A machine with a user manager that outlives the log-in, and a `systemd-run` that notes how it was called."""
    runtime = tmp_path / "run"
    runtime.joinpath("systemd").mkdir(parents=True)
    runtime.joinpath("systemd", "private").touch()
    monkeypatch.setattr(scope, "outlives_sessions", lambda: True)
    answers(tmp_path, "exit 0")
    return {"PATH": f"{tmp_path}:/usr/bin:/bin", "XDG_RUNTIME_DIR": str(runtime)}


def answers(folder: Path, script: str) -> None:
    program = folder / "systemd-run"
    program.write_text(f'#!/bin/sh\necho "$XDG_RUNTIME_DIR $@" >> "{folder}/calls"\n{script}\n')
    program.chmod(0o700)


def test_a_scope_for_each_process_after_one_probe(environ: dict[str, str], tmp_path: Path) -> None:
    first = keeper_prefix(environ, PROCESS_ID)
    second = keeper_prefix(environ, "another")
    assert first[0] == str(tmp_path / "systemd-run")
    assert first[1:5] == ("--user", "--scope", "--quiet", "--collect")
    assert first[-2:] == (f"--unit=untether-{PROCESS_ID}", "--")
    assert second[-2:] == ("--unit=untether-another", "--")
    (probe,) = (tmp_path / "calls").read_text().splitlines()
    assert probe.startswith(f"{tmp_path}/run --user --scope")
    assert "--unit" not in probe


@pytest.mark.parametrize("script", ["echo Failed to connect to bus >&2; exit 1", "exec sleep 30"])
def test_no_scope_when_the_probe_fails_or_does_not_end(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(scope, "_PROBE_S", 0.3)
    answers(tmp_path, script)
    assert keeper_prefix(environ, PROCESS_ID) == ()
    assert keeper_prefix(environ, PROCESS_ID) == ()
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_no_scope_without_a_manager(environ: dict[str, str], tmp_path: Path) -> None:
    assert keeper_prefix({**environ, "PATH": "/nowhere"}, PROCESS_ID) == ()
    assert keeper_prefix({"PATH": environ["PATH"]}, PROCESS_ID) == ()
    assert keeper_prefix(environ, PROCESS_ID) != ()
    (tmp_path / "run" / "systemd" / "private").unlink()  # it has ended since
    assert keeper_prefix(environ, PROCESS_ID) == ()


def test_no_scope_that_would_go_with_the_last_log_in(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scope, "outlives_sessions", lambda: False)
    assert keeper_prefix(environ, PROCESS_ID) == ()
    assert not (tmp_path / "calls").exists()


def test_a_manager_outlives_us_when_it_started_us_or_lingers(tmp_path: Path) -> None:
    uid = os.geteuid()
    in_manager = tmp_path / "in-manager"
    in_manager.write_text(f"0::/user.slice/user-{uid}.slice/user@{uid}.service/app.slice/untether.service\n")
    in_session = tmp_path / "in-session"
    in_session.write_text(f"0::/user.slice/user-{uid}.slice/session-3.scope\n")
    linger = tmp_path / "linger"
    linger.mkdir()
    assert outlives_sessions(in_manager, linger)
    assert not outlives_sessions(in_session, linger)
    linger.joinpath(pwd.getpwuid(uid).pw_name).touch()
    assert outlives_sessions(in_session, linger)
    assert not outlives_sessions(tmp_path / "no-proc", tmp_path / "no-linger")
