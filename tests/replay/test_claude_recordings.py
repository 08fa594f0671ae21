"""Every recording of Claude Code, of both versions, through the real session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.replay_claude import check_contract, recordings, replay

ROOT = Path(__file__).resolve().parents[2]
# 2.1.197 takes on whatever mode it is told.
UNKNOWN = {name: {"permission_mode=bogus": 1} for name in ("claude/set_same_mode_twice", "claude/set_unknown_mode")}


@pytest.mark.parametrize("name", recordings())
def test_every_recording_keeps_the_contract(name: str) -> None:
    replayed = replay(name)
    check_contract(replayed)
    assert replayed.session.unknown == UNKNOWN.get(name, {})


def test_there_are_recordings_of_both_versions() -> None:
    folders = [name.split("/")[0] for name in recordings()]
    assert folders.count("claude") >= 150
    assert folders.count("claude-2.1.332") >= 80


def test_the_hash_seed_changes_nothing() -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.replay_claude"],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (run.communicate(timeout=50)[0].splitlines() for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    assert len(first) == len(recordings())
    assert first == second
