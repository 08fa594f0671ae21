"""The Bot API refuses, breaks off, repeats itself and goes away; two bridges fight over one bot."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.chaos.conversation import Talk, ask, say, talk
from tests.chaos.invariants import check, heard
from tests.chaos.world import PATIENCE_S, World, world
from tests.support.bridge import AsyncBridge, Bridge

pytestmark = pytest.mark.anyio

QUIET_TALK: dict[str, Any] = {"approvals": 0}  # nothing is asked
TO_A_CHAT = ("sendmessage", "editmessagetext", "deletemessage", "senddocument")


def answer_to(text: str) -> str:
    return rf"You said:\s+{text}"


async def calls_to(w: World, chat: int) -> list[dict[str, Any]]:
    return [
        call
        for call in await w.telegram.ctl.calls()
        if call["method"].lower() in TO_A_CHAT and str(call["params"].get("chat_id")) == str(chat)
    ]


@pytest.mark.parametrize("seconds", [5, 35, 900])
async def test_429(tmp_path: Path, seconds: int, chance: random.Random) -> None:
    """The chat that got it is left alone until the second, answers wait, other chats go on, `/status` says so."""
    async with world(tmp_path, hurry=1) as w:
        said = Talk(**QUIET_TALK, extra=(r"^Untether|pause chat",))
        await w.telegram.ctl.fault(kind="429", method="sendmessage", match="You said", retry_after=seconds)
        await say(w.ann, said, "alpha", "alpha-1", answer_to("alpha-1"))
        await w.telegram.ctl.wait_call(method="sendMessage", pattern="You said", timeout=PATIENCE_S)
        await ask(w.bob, said, "beta-1", answer_to("beta-1"))
        before = len(await calls_to(w, w.ann.chat))
        await w.advance(seconds - 4)
        await w.bob.text("/status")
        status = await w.bob.wait("(?i)pause", timeout=PATIENCE_S)
        assert str(w.ann.chat) in status["text"]
        assert len(await calls_to(w, w.ann.chat)) == before
        assert not [m for m in await w.ann.shows(sender="bot") if "You said" in m["text"]]
        await w.advance(5)
        await w.ann.wait(answer_to("alpha-1"), timeout=PATIENCE_S)
        said.extra += ("(?i)pause",)
        await check(w, said)


async def test_500s(tmp_path: Path, chance: random.Random) -> None:
    async with world(tmp_path) as w:
        for _ in range(6):
            await w.telegram.ctl.fault(kind=chance.choice(["500", "502"]), skip=chance.randint(0, 8))
        await check(w, await talk(w))


async def test_an_answer_that_meets_three_500s_in_a_row_arrives(tmp_path: Path, chance: random.Random) -> None:
    async with world(tmp_path) as w:
        said = Talk(**QUIET_TALK)
        await w.telegram.ctl.fault(kind="500", method="sendmessage", match="You said", times=3)
        await ask(w.ann, said, "alpha-1", answer_to("alpha-1"))
        await check(w, said)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_connections_are_reset(tmp_path: Path, when: str, chance: random.Random) -> None:
    """After a reset nobody knows whether the message arrived: it is repeated once. Before, nothing shows."""
    async with world(tmp_path) as w:
        said = Talk(**QUIET_TALK, repeats=1 if when == "after" else 0)
        await w.telegram.ctl.fault(kind="reset", method="sendmessage", match="You said", when=when)
        await ask(w.ann, said, "alpha-1", answer_to("alpha-1"))
        await check(w, said)


async def test_connections_are_reset_all_the_time(tmp_path: Path, chance: random.Random) -> None:
    async with world(tmp_path) as w:
        whens = [chance.choice(["before", "after"]) for _ in range(8)]
        for when in whens:
            await w.telegram.ctl.fault(kind="reset", when=when, skip=chance.randint(0, 6))
        said = await talk(w)
        said.repeats = whens.count("after")
        await check(w, said)


async def test_polls_are_cut_and_lost(tmp_path: Path, chance: random.Random) -> None:
    """A poll that is cut after it took effect has its updates delivered again."""
    async with world(tmp_path) as w:
        for kind in ("reset", "500", "garbage", "reset"):
            await w.telegram.ctl.fault(kind=kind, method="getupdates", when="after", skip=chance.randint(0, 2))
        await check(w, await talk(w))


async def test_updates_come_twice(tmp_path: Path, chance: random.Random) -> None:
    async with world(tmp_path) as w:
        said = await talk(w)
        await w.telegram.ctl.duplicate(count=8, same_id=True)
        await ask(w.ann, said, "alpha-9", answer_to("alpha-9"))
        await w.settle()
        await w.kill()
        await w.telegram.ctl.duplicate(count=9, same_id=True)
        await ask(w.ann, said, "alpha-8", answer_to("alpha-8"))
        await check(w, said)


async def test_a_backlog_and_a_cancel(tmp_path: Path, chance: random.Random) -> None:
    """What was written while nobody was there is handled in order: the cancel withdraws what stands before it."""
    async with world(tmp_path, supervised=False) as w:
        said = Talk(**QUIET_TALK, extra=(r"^■ 5 messages withdrawn",))
        await ask(w.ann, said, "alpha-1", answer_to("alpha-1"))
        await w.settle()
        await w.kill()
        for number in range(5):
            await w.ann.text(f"never mind {number}")
        await w.ann.text("/cancel")
        await say(w.ann, said, "after", "alpha-2", answer_to("alpha-2"))
        await w.bridge.start()
        await w.ann.wait(r"^■ 5 messages withdrawn", timeout=PATIENCE_S)
        await w.ann.wait(answer_to("alpha-2"), timeout=PATIENCE_S)
        await check(w, said)


async def test_a_cancel_while_nobody_is_there(tmp_path: Path, chance: random.Random) -> None:
    """It stops the run that goes on behind its keeper, and says nothing else."""
    async with world(tmp_path, supervised=False) as w:
        said = Talk(**QUIET_TALK)
        await say(w.ann, said, "alpha", "alpha-1: be silent", r"^■ Stopped after")
        await w.until(lambda: "alpha-1" in str(heard(w)), "the message on its way to the agent")
        await w.kill()
        await w.ann.text("/cancel")
        await w.bridge.start()
        await w.ann.wait(r"^■ Stopped after", timeout=PATIENCE_S)
        await check(w, said)


async def test_a_cancel_that_was_stored_when_the_bridge_died(tmp_path: Path, chance: random.Random) -> None:
    """It is routed again at once, while its run is still being taken up, and stops it all the same."""
    async with world(tmp_path) as w:
        said = Talk(**QUIET_TALK)
        await say(w.ann, said, "alpha", "alpha-1: be silent", r"^■ Stopped after")
        await w.until(lambda: "alpha-1" in str(heard(w)), "the message on its way to the agent")
        w.faults.kill_at("inbox.routing")
        await w.ann.text("/cancel")
        await w.ann.wait(r"^■ Stopped after", timeout=PATIENCE_S)
        await check(w, said)


@pytest.mark.parametrize("kind", ["refuse", "reset"])
async def test_an_hour_without_network(tmp_path: Path, kind: str, chance: random.Random) -> None:
    """The agent goes on; what was asked and answered meanwhile arrives when the network is back."""
    async with world(tmp_path, hurry=1) as w:
        said = Talk(**QUIET_TALK, repeats=2 if kind == "reset" else 0)
        await say(w.ann, said, "alpha", "alpha-1: work", answer_to("alpha-1"))
        await w.ann.wait("▸", button="Stop", timeout=PATIENCE_S)
        await w.telegram.ctl.outage(seconds=3, kind=kind)
        w.touch("work")
        await say(w.bob, said, "beta", "beta-1", answer_to("beta-1"))
        for _ in range(60):
            await w.advance(60)
            await anyio.sleep(0.05)
        await w.until(lambda: w.telegram.outage is None or time.time() > w.telegram.outage["until"], "the network")
        await w.advance(61)
        await w.ann.wait(answer_to("alpha-1"), timeout=PATIENCE_S)
        await w.bob.wait(answer_to("beta-1"), timeout=PATIENCE_S)
        await check(w, said)


async def test_the_clock_jumps_over_a_sleep(tmp_path: Path, chance: random.Random) -> None:
    """A machine that slept: the wall time is hours later, and the connections are dead without a word."""
    async with world(tmp_path, hurry=1) as w:
        said = Talk(**QUIET_TALK)
        await ask(w.ann, said, "alpha-1", answer_to("alpha-1"))
        w.faults.jump(8 * 3600.0)
        await w.telegram.ctl.outage(seconds=1, kind="hang")
        w.telegram.cut_connections()
        await say(w.ann, said, "alpha", "alpha-2", answer_to("alpha-2"))
        await anyio.sleep(1.2)
        await w.advance(60)
        await w.ann.wait(answer_to("alpha-2"), timeout=PATIENCE_S)
        w.faults.jump(-9 * 3600.0)
        await ask(w.ann, said, "alpha-3", answer_to("alpha-3"))
        await check(w, said)


async def test_two_bridges_on_one_token(tmp_path: Path, chance: random.Random) -> None:
    """It is named for what it is, and every message is answered once, by one of them."""
    async with world(tmp_path) as w:
        said = Talk(**QUIET_TALK)
        await ask(w.ann, said, "alpha-1", answer_to("alpha-1"))
        other = tmp_path / "other"
        other.mkdir()
        config = other / "untether.toml"
        config.write_text(w.bridge.sync.config.read_text())
        env = {**w.bridge.sync.env, "HOME": str(other)}  # as on another machine: on this one it would not even start
        async with AsyncBridge(Bridge(config, env=env)) as second:
            both = (w.bridge, second)
            await w.until(
                lambda: any("Another program polls" in line for one in both for line in one.sync.lines()), "the word"
            )
            assert await second.stop() == 0
        await w.advance(61)
        await ask(w.ann, said, "alpha-2", answer_to("alpha-2"))
        await check(w, said)


async def test_two_bridges_on_one_folder(tmp_path: Path, chance: random.Random) -> None:
    async with world(tmp_path) as w:
        said = Talk(**QUIET_TALK)
        second = AsyncBridge(Bridge(w.bridge.sync.config, env=w.bridge.sync.env, logs=tmp_path / "second"))
        await w.bridge.wait_for_line("web.serving")
        await second.start()
        assert await second.wait() == 3
        assert any("running already" in line for line in second.sync.lines())
        await ask(w.ann, said, "alpha-1", answer_to("alpha-1"))
        await check(w, said)
