"""Reminders of open requests: when they come, that there is one at a time, and that they go with the answer."""

from __future__ import annotations

from datetime import datetime, time
from pathlib import Path

import pytest

from tests.support.chat import FakeChat, Shown, office_with
from tests.support.scripted import scripted
from untether.clock import ManualClock
from untether.conversation import requests
from untether.conversation.office import Office
from untether.conversation.reminders import Reminders
from untether.conversation.times import ReminderTimes
from untether.model import Content, Interaction, Question
from untether.store import interactions

pytestmark = pytest.mark.anyio

PUSH = Interaction("push", "permission", "Run a command?", (Content("command", "git push"),))
WORDS = "⏸ Still waiting for you: Run a command?"


def reminding(chat: FakeChat) -> list[Shown]:
    return [shown for shown in chat.messages if shown.text.startswith("⏸ Still waiting") and not shown.deleted]


async def opened(office: Office) -> float:
    (pending,) = office.services.db.read(interactions.all_open)
    return pending.opened


async def test_once_after_ten_minutes_then_every_thirty(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), scripted(PUSH)
    async with office_with(tmp_path, chat, engines=engines) as office:
        await chat.say("go")
        asked = await chat.shown("Run a command?", button="Approve")
        reminders, start = Reminders(office.services), await opened(office)
        await reminders.remind(start + 599)
        assert reminding(chat) == []
        await reminders.remind(start + 600)
        first = await chat.shown(WORDS)
        assert first.card.reply_to == asked.message_id
        await reminders.remind(start + 600 + 1799)
        assert reminding(chat) == [first]
        await reminders.remind(start + 600 + 1800)
        await chat.until(lambda: first.deleted and len(reminding(chat)) == 1)
        assert reminding(chat)[0].card.reply_to == asked.message_id
        await chat.tap(asked, "Approve")
        await chat.until(lambda: reminding(chat) == [])
        assert len(runner.decisions) == 1
        await reminders.remind(start + 9000)
        assert reminding(chat) == []


async def test_nobody_is_reminded_in_quiet_hours(tmp_path: Path) -> None:
    chat, (engines, _) = FakeChat(), scripted(PUSH)
    times = ReminderTimes(quiet=(time(22), time(7)))
    async with office_with(tmp_path, chat, engines=engines, reminders=times) as office:
        await chat.say("go")
        await chat.shown("Run a command?", button="Approve")
        reminders = Reminders(office.services)
        day = datetime(2040, 5, 3)
        await reminders.remind(day.replace(hour=23).timestamp())
        await reminders.remind(day.replace(hour=6, minute=59).timestamp())
        assert reminding(chat) == []
        await reminders.remind(day.replace(hour=7).timestamp())
        await chat.shown(WORDS)


async def test_a_reply_to_a_reminder_is_one_to_the_request(tmp_path: Path) -> None:
    question = Interaction("q", "question", "Answer a question?", questions=(Question("Which one?"),))
    chat, (engines, runner) = FakeChat(), scripted(question)
    async with office_with(tmp_path, chat, engines=engines) as office:
        await chat.say("go")
        await chat.shown("⏸ Which one?")
        await Reminders(office.services).remind(await opened(office) + 600)
        await chat.say("the first", reply_to=await chat.shown("Still waiting"))
        await chat.shown("✓ Answered: “the first”")
        assert len(runner.decisions) == 1


async def test_after_an_absence_it_is_announced_again(tmp_path: Path) -> None:
    chat, (engines, _) = FakeChat(), scripted(PUSH)
    async with office_with(tmp_path, chat, engines=engines) as office:
        await chat.say("go")
        asked = await chat.shown("Run a command?", button="Approve")
        services = office.services
        await chat.until(lambda: services.db.read(interactions.all_open))
        (pending,) = services.db.read(interactions.all_open)
        now = pending.opened + 7200
        assert await services.db.write(lambda conn: requests.announce_again(conn, services, pending, now))
        services.outbox.kick()
        told = await chat.shown(f"{WORDS} · 2h")
        assert told.card.reply_to == asked.message_id
        await chat.tap(asked, "Approve")
        await chat.until(lambda: told.deleted)


async def test_the_clock_brings_them(tmp_path: Path) -> None:
    clock = ManualClock()
    chat, (engines, _) = FakeChat(), scripted(PUSH)
    async with office_with(tmp_path, chat, engines=engines, clock=clock):
        await chat.say("go")
        await chat.shown("Run a command?", button="Approve")
        await clock.advance(630)
        await chat.shown(WORDS)


@pytest.mark.parametrize(
    ("quiet", "at", "silent"),
    [
        ((time(22), time(7)), time(22), True),
        ((time(22), time(7)), time(3), True),
        ((time(22), time(7)), time(7), False),
        ((time(12), time(14)), time(13), True),
        ((time(12), time(14)), time(14), False),
        (None, time(3), False),
    ],
)
def test_quiet_hours(quiet: tuple[time, time] | None, at: time, silent: bool) -> None:
    now = datetime.combine(datetime(2026, 5, 3), at).timestamp()
    assert ReminderTimes(quiet=quiet).is_quiet(now, None) is silent
