"""A CLI that is missing or too old is refused before it is started."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from untether.process.guard import Cli, Guard, RoomLimits, little_room, no_room
from untether.process.machine import Machine

pytestmark = pytest.mark.anyio

CLI = Cli(name="Claude Code", command="claude", install="npm install -g claude", min_version="2.1.100")


@pytest.fixture
def bin(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def environ(bin: Path) -> dict[str, str]:
    return {"PATH": f"{bin}:/usr/bin:/bin"}


def program(bin: Path, body: str, name: str = "claude") -> Path:
    path = bin / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("version", ["2.1.100 (Claude Code)", "v2.1.197", "claude version 2.2", "3.0.0-beta.1"])
async def test_a_supported_version_may_start(bin: Path, version: str) -> None:
    program(bin, f"echo '{version}'")
    assert await Guard().check(CLI, environ(bin)) is None


@pytest.mark.parametrize("version", ["2.1.99", "1.10.200", "2.0"])
async def test_an_old_version_is_refused_with_the_way_to_update(bin: Path, version: str) -> None:
    program(bin, f"echo '{version} (Claude Code)'")
    refusal = await Guard().check(CLI, environ(bin))
    assert refusal is not None
    assert refusal.reason == "cli_unsupported"
    assert refusal.message == f"Claude Code {version} is too old: 2.1.100 or newer is needed."
    assert "npm install -g claude" in refusal.advice


async def test_a_missing_program_is_refused_with_the_way_to_install(bin: Path) -> None:
    refusal = await Guard().check(CLI, {"PATH": str(bin)})
    assert refusal is not None
    assert refusal.reason == "cli_missing"
    assert refusal.message == "Claude Code was not found: there is no program `claude` on the PATH."
    assert "npm install -g claude" in refusal.advice


async def test_a_file_that_is_no_program_is_told_apart(bin: Path) -> None:
    (bin / "claude").write_text("text")
    refusal = await Guard().check(Cli("Claude Code", str(bin / "claude")), environ(bin))
    assert refusal is not None
    assert "is not a program" in refusal.message


async def test_a_program_that_cannot_be_started_is_refused(bin: Path) -> None:
    program(bin, "").write_text("#!/no/such/interpreter\n")
    refusal = await Guard().check(CLI, environ(bin))
    assert refusal is not None
    assert refusal.reason == "cli_unusable"


@pytest.mark.parametrize("body", ["echo no digits here", "echo 1.0.0 broken; exit 3", ":"])
async def test_an_unknown_version_is_no_obstacle(bin: Path, body: str) -> None:
    program(bin, body)
    assert await Guard().check(CLI, environ(bin)) is None


async def test_a_program_that_does_not_answer_is_given_up(bin: Path) -> None:
    program(bin, "sleep 60")
    guard = Guard(timeout=0.2)
    with anyio.fail_after(5):
        assert await guard.check(CLI, environ(bin)) is None
        info = await guard.probe("claude", environ=environ(bin))
    assert "within 0.2 s" in info.error


async def test_something_left_behind_does_not_hold_up_the_answer(bin: Path) -> None:
    program(bin, "sleep 3 & echo 2.1.150")
    with anyio.fail_after(2):
        info = await Guard().probe("claude", environ=environ(bin))
    assert info.version == "2.1.150"


async def test_a_program_is_asked_once_until_it_changes(bin: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    path = program(bin, f"echo x >> {asked}; echo 2.1.150")
    guard = Guard()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(guard.check, CLI, environ(bin))
    assert asked.read_text() == "x\n"
    program(bin, "echo 1.0.0")
    os.utime(path, ns=(1, 1))
    refusal = await guard.check(CLI, environ(bin))
    assert refusal is not None


# ----------------------------------------------------------------------------------------------------------- room


def machine(free_mb: int) -> Machine:
    return Machine(free_mb * 2**20, 16 * 2**30)


@pytest.mark.parametrize(
    ("free", "living", "fits"), [(500, 0, True), (499, 0, False), (1999, 2, False), (2000, 2, True)]
)
def test_memory_is_kept_aside_for_each_agent_that_lives(free: int, living: int, fits: bool) -> None:
    assert (no_room(RoomLimits(), machine(free), living) is None) == fits


def test_too_little_memory_is_told_with_its_facts() -> None:
    refusal = no_room(RoomLimits(), machine(1228), 2)
    assert refusal is not None
    assert refusal.reason == "too_little_memory"
    assert refusal.message == (
        "There is too little memory for one more agent: 1.2 GB are free, and 1.5 GB are kept for those at work."
    )
    assert "watchdog.prespawn_ram_block_mb" in refusal.advice


def test_the_number_of_agents_is_free_unless_it_is_limited() -> None:
    assert no_room(RoomLimits(block=0), machine(0), 300) is None
    refusal = no_room(RoomLimits(most=3), machine(64_000), 3)
    assert refusal is not None
    assert refusal.message == "3 agents are at work, and no more than 3 may be."


def test_short_memory_is_said_and_starts_all_the_same() -> None:
    assert little_room(RoomLimits(), machine(2000), 0) == ""
    assert little_room(RoomLimits(), machine(1999), 0) == "memory is short: 2.0 GB free on this machine"
    assert little_room(RoomLimits(), machine(2700), 1) == "memory is short: 2.6 GB free on this machine"
    assert little_room(RoomLimits(warn=0), machine(1), 1) == ""
