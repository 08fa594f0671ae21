"""What every page says of the machine, and in whose time zone."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from tests.unit.web.conftest import Console
from tests.unit.web.shown import NOW, allowed, asked, pending, run, shown, thread, tracker
from untether.conversation.progress import Pulse
from untether.conversation.views import Page
from untether.model import Wait

pytestmark = pytest.mark.anyio


async def test_the_machine_is_told(console: Console) -> None:
    assert "7.5 GB free · load 0.1 · claude" in (await console.get("/")).text


async def test_times_are_those_of_the_reader() -> None:
    """NOW is 22:13:20 UTC."""
    made = Console(zone=ZoneInfo("Asia/Kolkata"))
    await made.pair()
    decided = allowed(pending("k"))
    done = tracker(asked(decided))
    done.waiting.clear()
    view = shown(run(1, "running"), done=done, waits=(Wait("quota", NOW, NOW + 3600),), asked=(decided,))
    made.show(Page(thread(), "shop @fix-cart", (view,), ()))
    text = (await made.get("/run/1")).text
    assert "resets 04:43 (in 1h)" in text
    assert "by Ann 03:42" in text
    assert ">03:39</time>" in text
    await made.browser.aclose()


async def test_a_quiet_agent_is_told_as_in_a_chat(console: Console) -> None:
    view = shown(run(1, "running"), waits=(Wait("tool", NOW - 300),), pulse=Pulse("quiet", NOW - 300, 2))
    console.show(Page(thread(), "shop", (view,), ()))
    assert "quiet for 5m, but alive: 2 programs at work" in (await console.get("/run/1")).text
