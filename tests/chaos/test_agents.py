"""Agents and keepers that die, do not die, print too much, or turn against us; the disk is full; an upgrade."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.chaos.conversation import Talk, ask, say
from tests.chaos.invariants import check, heard
from tests.chaos.test_network import QUIET_TALK, answer_to
from tests.chaos.world import PATIENCE_S, World, world

pytestmark = pytest.mark.anyio

INTERRUPTED = r"^■ Interrupted"
LINE_LIMIT = 64 << 20


def agents(w: World) -> list[psutil.Process]:
    """The demo agents that are alive."""
    return [psutil.Process(pid) for pid, command in w.processes().items() if "chaos/agent.py" in command]


def keepers(w: World) -> list[psutil.Process]:
    return [psutil.Process(pid) for pid, command in w.processes().items() if "keeper" in command]


async def is_heard(w: World, text: str) -> None:
    await w.until(lambda: any(text in str(frame) for frame in heard(w)), f"{text} on its way to the agent")


async def test_a_keeper_is_killed(tmp_path: Path, chance: random.Random) -> None:
    """Its agent is ended, the run is told as interrupted with a way to go on, and the next message is answered."""
    async with world(tmp_path) as w:
        said = Talk(**QUIET_TALK, extra=(INTERRUPTED,))
        await ask(w.ann, said, "alpha-1", answer_to("alpha-1"))
        await w.ann.text("alpha-2: silent")
        await is_heard(w, "alpha-2")
        (keeper,) = keepers(w)
        (agent,) = agents(w)
        keeper.kill()
        told = await w.ann.wait(INTERRUPTED, timeout=PATIENCE_S)
        assert "Resume" in str(told["buttons"])
        await w.until(lambda: not agent.is_running() or agent.status() == psutil.STATUS_ZOMBIE, "the agent's end")
        await ask(w.ann, said, "alpha-3", answer_to("alpha-3"))
        await check_interrupted(w, said)


async def test_a_keeper_is_killed_while_the_bridge_is_down(tmp_path: Path, chance: random.Random) -> None:
    async with world(tmp_path, supervised=False) as w:
        said = Talk(**QUIET_TALK, extra=(INTERRUPTED,))
        await w.ann.text("alpha-1: silent")
        await is_heard(w, "alpha-1")
        (keeper,) = keepers(w)
        await w.kill()
        keeper.kill()
        await w.bridge.start()
        await w.ann.wait(INTERRUPTED, timeout=PATIENCE_S)
        await ask(w.ann, said, "alpha-2", answer_to("alpha-2"))
        await check_interrupted(w, said)


async def check_interrupted(w: World, said: Talk) -> None:
    """As `check`, with the button that resumes gone first: it may stay."""
    for message in await w.ann.shows(sender="bot"):
        if re.search(INTERRUPTED, message["text"]):
            await w.telegram.ctl.delete(chat=w.ann.chat, message_id=message["id"])
    await check(w, said)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_an_agent_is_killed_in_its_second_turn(
    tmp_path: Path, number: signal.Signals, chance: random.Random
) -> None:
    """The run is told as failed, once; the next message resumes the session."""
    async with world(tmp_path) as w:
        said = Talk(**QUIET_TALK)
        await ask(w.ann, said, "alpha-1: remember the word plum", r"^I will remember")
        await say(w.ann, said, "second", "alpha-2: silent", r"^✗ ")
        await is_heard(w, "alpha-2")
        (agent,) = agents(w)
        agent.send_signal(number)
        await w.ann.wait(r"^✗ ", timeout=PATIENCE_S)
        await ask(w.ann, said, "alpha-3: what did I say", r"^Before this you said:")
        await check(w, said)


async def test_an_agent_that_nothing_but_sigkill_ends(tmp_path: Path, chance: random.Random) -> None:
    """`/cancel` ends it within 10 s, and the grandchild that holds its stdout in a session of its own."""
    async with world(tmp_path, hurry=1) as w:
        said = Talk(**QUIET_TALK)
        await say(w.ann, said, "stubborn", "alpha-1: stubborn", r"^■ Stopped")
        await w.until(lambda: [p for p in w.processes().values() if "sleep 1000" in p], "the grandchild")
        await w.ann.text("/cancel")
        await w.ann.wait(r"^■ Stopped", timeout=12)
        await ask(w.ann, said, "alpha-2", answer_to("alpha-2"))
        assert not [p for p in w.processes().values() if "sleep 1000" in p]
        await check(w, said)


@pytest.mark.parametrize("size", [LINE_LIMIT, LINE_LIMIT + 1])
async def test_a_line_of_64_mib(tmp_path: Path, size: int, chance: random.Random) -> None:
    """The longest line that is read, and one byte more: it is left out, and the answer comes all the same."""
    async with world(tmp_path, hurry=1) as w:
        said = Talk(**QUIET_TALK)
        await ask(w.ann, said, f"alpha-1: line {size}", rf"^That was a line of {size} bytes")
        await check(w, said)


async def test_an_agent_that_turns_against_its_keeper(tmp_path: Path, chance: random.Random) -> None:
    """It cannot write to itself, nor take control."""
    async with world(tmp_path) as w:
        said = Talk(**QUIET_TALK)
        await ask(w.ann, said, "alpha-1: betray", r"^The keepers said: \[['\"].*(error|refused|peer|Reset|reset)")
        assert "I allow everything" not in str(heard(w))
        await check(w, said)


# ------------------------------------------------------------------------------------------------- the disk is full


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that is a little larger than what keepers leave free."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 65536)


async def test_the_disk_is_full(small_disk: Path, tmp_path: Path, chance: random.Random) -> None:
    """Nothing is confirmed, nothing is lost, and the chat is told when it works again."""
    (small_disk / "home").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (small_disk / "stdin").symlink_to(outside)  # the witness is not to suffer
    async with world(small_disk, hurry=1) as w:
        told = (r"cannot be stored", r"can be stored again")
        said = Talk(**QUIET_TALK, extra=told)
        await ask(w.ann, said, "alpha-1", answer_to("alpha-1"))
        await say(w.ann, said, "work", "alpha-2: work", answer_to("alpha-2"))
        await is_heard(w, "alpha-2")
        fill(small_disk / "filler")
        w.folder.joinpath("here", "work").symlink_to("/")
        await say(w.bob, said, "beta", "beta-1 " + "with much to store " * 200, answer_to("beta-1"))
        await w.ann.wait(told[0], timeout=PATIENCE_S)
        (small_disk / "filler").unlink()
        await w.advance(61)
        await w.bob.wait(answer_to("beta-1"), timeout=PATIENCE_S)
        await w.ann.wait(answer_to("alpha-2"), timeout=PATIENCE_S)
        await check(w, said)


# ------------------------------------------------------------------------------------------------------- an upgrade

ONE_LINE_MORE = '''
"""The demo engine of the next release: its session says one line more to a new agent."""

import os

from untether.runners.demo.runner import DemoRunner
from untether.runners.claude.session import ClaudeSession
from untether.session import Step
from msgspec.structs import replace
import json


class NextSession(ClaudeSession):
    def begin(self, start, prompt, now):
        step = super().begin(start, prompt, now)
        id = f"upgrade-{start.process_id}"
        line = {"type": "control_request", "request_id": id, "request": {"subtype": "mcp_status"}}
        return replace(step, writes=(json.dumps(line).encode() + b"\\n", *step.writes))


if os.environ.get("CHAOS_RELEASE") == "next":
    DemoRunner.session = lambda self, start: NextSession(self.engine, self.name)
'''


async def test_an_upgrade_that_says_one_line_more(tmp_path: Path, chance: random.Random) -> None:
    """The new release folds what the old one did; the agent that runs hears nothing twice, and is answered."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(ONE_LINE_MORE)
    async with world(tmp_path, supervised=False) as w:
        said = Talk()
        env: dict[str, Any] = w.bridge.sync.env
        await say(w.ann, said, "approval", "alpha-1: permission", r"^The command ran")
        await w.ann.wait(r"Run a command\?", button="Approve", timeout=PATIENCE_S)
        await w.bridge.stop()
        env |= {"PYTHONPATH": str(site), "CHAOS_RELEASE": "next"}
        await w.bridge.start()
        await w.bridge.wait_for_line("web.serving")
        await w.ann.press("Approve", stale=True)
        await w.ann.wait(r"^The command ran", timeout=PATIENCE_S)
        await ask(w.ann, said, "alpha-3", answer_to("alpha-3"))
        assert "mcp_status" not in str(heard(w))  # the agent was begun by the old release
        await ask(w.bob, said, "beta-1", answer_to("beta-1"))
        assert str(heard(w)).count("mcp_status") == 1  # that one by the new
        await check(w, said)
