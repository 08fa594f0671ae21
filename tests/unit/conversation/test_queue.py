"""Messages that wait for a busy agent: what is said under them, and how they are steered, replaced and withdrawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.support.chat import ANN, FakeChat, Shown, engines_for, office_with
from untether.conversation.engines import Engine, Engines
from untether.conversation.office import Office
from untether.session import Capabilities
from untether.store import runs, updates
from untether.store.database import Database
from untether.store.migrate import load_migrations
from untether.transport import ChatRef, MessageIn

pytestmark = pytest.mark.anyio

REAL_TIME: dict[str, dict[str, str]] = {"env": {}}  # "slow 30" takes 30 seconds
TEN_TIMES = {"env": {"UNTETHER_DEMO_SPEED": "0.1"}}


def state(office: Office, text: str) -> str:
    """What became of the message with a text; "" when there is none."""
    row = office.services.db.read(
        lambda conn: conn.execute("SELECT state FROM messages WHERE text = ?", (text,)).fetchone()
    )
    return "" if row is None else str(row[0])


def answers(chat: FakeChat) -> list[Shown]:
    return [shown for shown in chat.messages if "\n✓" in shown.text and "demo-1" in shown.text and shown.text[0] != "▸"]


async def busy(chat: FakeChat, office: Office, text: str = "slow 30") -> None:
    """Give the agent something to do, and wait until it is at it."""
    before = len(chat.messages)
    await chat.say(text)
    await chat.shown("▸", "step 1", after=before)


async def tap_twice(chat: FakeChat, shown: Shown, label: str) -> None:
    """As on a phone that has not repainted yet."""
    old = shown.card
    await chat.tap(shown, label)
    await chat.until(lambda: shown.card != old)
    shown.card, new = old, shown.card
    await chat.tap(shown, label)
    shown.card = new


async def test_each_message_tells_its_place_and_moves_up(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for(REAL_TIME)) as office:
        await busy(chat, office)
        sent = [await chat.say(text) for text in ("apple", "melon", "plum")]
        third = await chat.shown("⏳ queued, 3rd")
        second = await chat.shown("⏳ queued, 2nd")
        first = await chat.shown("⏳ queued, 1st")
        assert [first.card.reply_to, second.card.reply_to, third.card.reply_to] == sent
        assert third.labels == ["Steer now", "Withdraw"]
        await chat.tap(second, "Withdraw")
        await chat.until(lambda: second.text == "■ withdrawn" and third.text == "⏳ queued, 2nd")
        assert second.labels == ["Send again"]
        assert first.text == "⏳ queued, 1st"
        assert chat.toasts == ["Withdrawn"]
        await chat.tap(second, "Send again")
        await chat.until(lambda: second.text == "⏳ queued, 3rd")
        assert second.labels == ["Steer now", "Withdraw"]
        status = await chat.shown("▸", button="Stop")
        await chat.tap(status, "Stop")
        await chat.until(lambda: len(answers(chat)) == 3)
        assert [word for shown in answers(chat) for word in ("apple", "melon", "plum") if word in shown.text] == [
            "apple",
            "plum",
            "melon",
        ]
        await chat.until(lambda: first.deleted and second.deleted and third.deleted)


async def test_what_was_withdrawn_is_not_answered_and_a_late_tap_says_what_it_was(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for(TEN_TIMES)) as office:
        await busy(chat, office, "slow 15")
        await chat.say("never mind")
        waiting = await chat.shown("⏳ queued, 1st")
        await tap_twice(chat, waiting, "Withdraw")
        await chat.until(lambda: chat.toasts == ["Withdrawn", "Already withdrawn"])
        await chat.say("but this")
        waiting = await chat.shown("⏳ queued, 1st")
        old = waiting.card
        await chat.shown("but this", "✓")
        waiting.card = old  # a phone that has not repainted yet
        await chat.tap(waiting, "Withdraw")
        await chat.until(lambda: len(chat.toasts) == 3)
        assert chat.toasts[-1] == "Already answered"
        assert state(office, "never mind") == "withdrawn"
        assert not any("never mind" in shown.text for shown in chat.messages)


async def test_steering_puts_a_message_into_the_running_turn(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for(TEN_TIMES)) as office:
        await busy(chat, office, "slow 10")
        await chat.say("mind the gap")
        waiting = await chat.shown("⏳ queued, 1st")
        await chat.tap(waiting, "Steer now")
        await chat.until(lambda: "running turn" in waiting.text)
        assert waiting.labels == ["Withdraw"]
        assert chat.toasts == ["On its way"]
        await chat.until(lambda: waiting.text == "✓ taken" or waiting.deleted)
        answer = await chat.shown("While I was at it you also said", "mind the gap")
        await chat.until(lambda: waiting.deleted)
        assert answers(chat) == [answer]
        await chat.until(lambda: state(office, "mind the gap") == "answered")
        # One turn for both: one status message, and what it cost counts once.
        assert len([shown for shown in chat.messages if shown.text.startswith("▸")]) == 1
        ended = office.services.db.read(lambda conn: runs.recent(conn, 9))
        assert sorted(bool(run.usage) for run in ended) == [False, True]


async def steered(chat: FakeChat, text: str) -> Shown:
    await chat.say(f"/steer {text}")
    return await chat.shown("on its way into the running turn", button="Withdraw")


async def test_what_the_agent_was_told_can_be_taken_back_until_it_has_taken_it(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for(REAL_TIME)) as office:
        await busy(chat, office)
        told = await steered(chat, "mind the gap")
        await chat.tap(told, "Withdraw")
        await chat.until(lambda: told.text == "■ withdrawn")
        assert state(office, "mind the gap") == "withdrawn"
        await chat.tap(told, "Send again")
        await chat.until(lambda: told.text == "⏳ queued, 1st")
        await chat.tap(await chat.shown("▸", button="Stop"), "Stop")
        await chat.shown("mind the gap", "✓")
        await chat.until(lambda: told.deleted)


async def test_cancel_takes_back_what_the_agent_was_told(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for(REAL_TIME)) as office:
        await busy(chat, office)
        told = await steered(chat, "mind the gap")
        await chat.say("/cancel")
        await chat.shown("■ Stopped after")
        await chat.until(lambda: told.text == "■ withdrawn")
        await chat.say("after it")
        await chat.shown("after it", "✓")
        assert len(answers(chat)) == 1


async def test_what_is_sent_in_place_of_the_running_turn_comes_before_the_others(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for(REAL_TIME)) as office:
        office.services.engines = without_steering(office.services.engines)
        await busy(chat, office)
        live = next(iter(office.scheduler.processes()))
        live.session.__class__ = type("Deaf", (type(live.session),), {"capabilities": NO_STEERING})
        await chat.say("later")
        await chat.say("at once")
        waiting = await chat.shown("⏳ queued, 2nd", button="Stop and send this")
        assert waiting.labels == ["Stop and send this", "Withdraw"]
        await chat.tap(waiting, "Stop and send this")
        stopped = await chat.shown("■ Stopped after")
        assert "Stopping…" in chat.toasts
        await chat.until(lambda: len(answers(chat)) == 2)
        first, second = answers(chat)
        assert "at once" in first.text
        assert "later" in second.text
        assert chat.messages.index(stopped) < chat.messages.index(first)


NO_STEERING = Capabilities(interactive_permissions=True, followup=True, interrupt=True)


def without_steering(engines: Engines) -> Engines:
    demo = engines.get("demo")
    assert demo is not None
    demo.runner.capabilities = NO_STEERING  # type: ignore[misc]
    return Engines({"demo": Engine("demo", replace(demo.backend, capabilities=NO_STEERING), demo.runner, "")}, "demo")


async def test_a_chat_chooses_to_steer_and_one_message_to_wait(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for(TEN_TIMES)) as office:
        await chat.say("/steer")
        chosen = await chat.shown("go into the running turn")
        assert chosen.labels == ["Queue", "Interrupt", "Default"]
        await busy(chat, office, "slow 10")
        await chat.say("/queue and then this")
        await chat.shown("⏳ queued, 1st")
        await chat.say("mind the gap")
        await chat.shown("While I was at it you also said", "mind the gap")
        await chat.shown("and then this", "✓")
        assert state(office, "and then this") == "answered"
        assert len(answers(chat)) == 2


async def test_a_topic_chooses_for_itself_and_else_follows_its_chat(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for(REAL_TIME)) as office:
        await chat.say("/steer")
        await chat.shown("go into the running turn")
        await chat.say("/queue", thread="9")
        chosen = await chat.shown("wait for their turn")
        await chat.tap(chosen, "Interrupt", thread="9")
        await chat.until(lambda: "stop the running turn" in chosen.text)
        await chat.tap(chosen, "Default", thread="9")
        await chat.until(lambda: "go into the running turn" in chosen.text)  # as its chat
        assert "Default" not in chosen.labels
        await chat.tap(chosen, "Interrupt", thread="9")
        await chat.until(lambda: "stop the running turn" in chosen.text)
        await chat.say("slow 30", thread="9")
        await chat.shown("▸", "step 1")
        await chat.say("this instead", thread="9")
        await chat.shown("■ Stopped after")
        await chat.shown("this instead", "✓")
        assert office.services.db.read(runs.running) == []


async def test_the_setting_counts_where_no_chat_has_chosen(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for(REAL_TIME), busy="interrupt") as office:
        await busy(chat, office)
        await chat.say("this instead")
        await chat.shown("■ Stopped after")
        await chat.shown("this instead", "✓")


async def test_an_edit_replaces_the_text_until_the_agent_has_it(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for(REAL_TIME)) as office:
        await busy(chat, office)
        sent = await chat.say("paint it green")
        await chat.shown("⏳ queued, 1st")
        await chat.change(sent, "paint it red")
        await chat.until(lambda: state(office, "paint it red") == "queued")
        await chat.tap(await chat.shown("▸", button="Stop"), "Stop")
        await chat.shown("paint it red", "✓")
        await chat.change(sent, "paint it blue")
        told = await chat.shown("Already with the agent; send it as a new message.")
        assert told.card.reply_to == sent
        assert told.card.silent
        await chat.change(sent, "paint it black")
        await chat.say("after it")
        await chat.shown("after it", "✓")
        assert len([shown for shown in chat.messages if "Already with the agent" in shown.text]) == 1


async def test_an_edit_that_changes_nothing_is_nothing(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        sent = await chat.say("hello there")
        await chat.shown("hello there", "✓")
        await chat.change(sent, "hello there")  # a link preview came
        await chat.change("u999", "a message that we never saw")
        await chat.say("after it")
        await chat.shown("after it", "✓")
        assert not any("Already with the agent" in shown.text for shown in chat.messages)


async def test_cancel_leaves_what_it_withdrew_to_be_sent_again(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for(REAL_TIME)) as office:
        await busy(chat, office)
        await chat.say("not now")
        waiting = await chat.shown("⏳ queued, 1st")
        await chat.say("/cancel")
        await chat.shown("■ 1 message withdrawn.")
        await chat.shown("■ Stopped after")
        await chat.until(lambda: waiting.labels == ["Send again"])
        await chat.tap(waiting, "Send again")
        await chat.shown("not now", "✓")
        await chat.until(lambda: waiting.deleted)


async def test_the_queue_and_its_buttons_survive_a_restart(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for(REAL_TIME)) as office:
        await busy(chat, office)
        await chat.say("apple")
        await chat.say("melon")
        second = await chat.shown("⏳ queued, 2nd")
        first = await chat.shown("⏳ queued, 1st")
        await chat.tap(second, "Withdraw")
        await chat.until(lambda: second.text == "■ withdrawn")
    async with office_with(tmp_path, chat, engines=engines_for(REAL_TIME)) as office:
        await chat.shown("apple", "✓")
        await chat.until(lambda: first.deleted)
        await chat.tap(second, "Send again")
        await chat.shown("melon", "✓")
        await chat.until(lambda: second.deleted)


async def test_a_command_acts_once_however_often_it_comes(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for(REAL_TIME)) as office:
        await busy(chat, office)
        await chat.say("/cancel", key="500")
        await chat.shown("■ Stopped after")
    async with office_with(tmp_path, chat, engines=engines_for(REAL_TIME)) as office:
        await busy(chat, office)
        await chat.say("/cancel", key="500")  # Telegram had not heard that we have it
        await chat.say("/status")
        await chat.shown("▸ home: slow 30")
        assert len([shown for shown in chat.messages if "■ Stopped" in shown.text]) == 1


async def test_a_cancel_that_was_sent_while_down_withdraws_what_came_before_it(tmp_path: Path) -> None:
    chat = FakeChat()

    def sent(number: int, text: str, album: str = "") -> tuple[str, bytes]:
        return str(number), msgspec.json.encode(MessageIn(ChatRef("fake", "1"), ANN, f"m{number}", text, album=album))

    async with office_with(tmp_path, chat, engines=engines_for(REAL_TIME)) as office:
        await busy(chat, office)
        await chat.say("queued before the stop")
        await chat.shown("⏳ queued, 1st")
    batch = [
        sent(901, "one", album="a"),
        sent(902, "two", album="a"),
        sent(903, "three"),
        sent(904, "/cancel"),
        sent(905, "the only one"),
    ]
    async with Database(tmp_path / "untether.db", migrations=load_migrations()) as db:
        await db.write(lambda conn: updates.store(conn, "fake", batch, 0.0))
    async with office_with(tmp_path, chat, engines=engines_for(REAL_TIME)) as office:
        await chat.shown("■ 4 messages withdrawn.")
        await chat.shown("the only one", "✓")
        started = [run.title for run in office.services.db.read(lambda conn: runs.recent(conn, 9))]
        assert sorted(started) == ["slow 30", "the only one"]
