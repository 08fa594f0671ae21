"""What a transport, a renderer or an engine does wrong: the chat hears of it, and everything else goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.chat import ANN, FakeChat, Shown, engines_for, office_with
from untether.conversation.context import Project
from untether.conversation.engines import Engines
from untether.store import interactions, runs
from untether.text.blocks import Markdown
from untether.transport import Card, ChatRef, Inbound, MessageIn, SendFailed, TapIn

pytestmark = pytest.mark.anyio


class CannotRender(FakeChat):
    """Has a defect in its rendering of Markdown."""

    def parts(self, card: Card) -> list[Card]:
        if any(isinstance(block, Markdown) for block in card.blocks):
            raise IndexError("list index out of range")
        return [card]


async def test_a_defect_of_the_renderer_costs_the_formatting_only(tmp_path: Path) -> None:
    chat = CannotRender()
    async with office_with(tmp_path, chat) as office:
        await chat.say("hello there")
        await chat.shown("hello there", "✓")
        assert [run.state for run in office.services.db.read(lambda conn: runs.recent(conn, 9))] == ["done"]


class Refuses(FakeChat):
    """Refuses messages that contain a word, for good."""

    word = ""

    async def send(self, chat: ChatRef, card: Card, priority: int) -> str:
        if self.word and self.word in Shown("", chat, card).text:
            raise SendFailed("refused", "it is too strange")
        return await super().send(chat, card, priority)


async def test_an_answer_that_is_refused_is_told(tmp_path: Path) -> None:
    chat = Refuses()
    chat.word = "You said"
    async with office_with(tmp_path, chat):
        await chat.say("hello there")
        await chat.shown("✗ An answer could not be shown here: it is too strange.")


class InTwoParts(Refuses):
    """Sends what is asked in one part, and the buttons in another."""

    def parts(self, card: Card) -> list[Card]:
        if "Run a command?" not in Shown("", ChatRef("fake", "1"), card).text:
            return [card]
        return [msgspec.structs.replace(card, buttons=()), Card((card.blocks[-1],), buttons=card.buttons)]


async def test_buttons_do_not_come_without_what_they_are_about(tmp_path: Path) -> None:
    chat = InTwoParts()
    chat.word = "Run a command?"
    async with office_with(tmp_path, chat) as office:
        await chat.say("permission please")
        await chat.shown("✗ A request of the agent could not be shown here: it is too strange.")
        assert not [shown for shown in chat.messages if "Approve" in shown.labels]
        await chat.say("/cancel")
        await chat.until(lambda: not office.services.db.read(runs.running))


class Unsure(FakeChat):
    """Loses the answer to the first sending of a request."""

    lost = False

    async def send(self, chat: ChatRef, card: Card, priority: int) -> str:
        message_id = await super().send(chat, card, priority)
        if not self.lost and "Approve" in self.messages[-1].labels:
            self.lost = True
            raise SendFailed("unknown", "the connection died")
        return message_id


async def test_both_copies_of_a_request_are_retired(tmp_path: Path) -> None:
    chat = Unsure()
    async with office_with(tmp_path, chat):
        await chat.say("permission please")
        await chat.until(lambda: sum("Approve" in shown.labels for shown in chat.messages) == 2)
        first, second = (shown for shown in chat.messages if "Approve" in shown.labels)
        await chat.tap(first, "Approve")
        await chat.until(lambda: first.text.startswith("✓ Approved") and second.text.startswith("✓ Approved"))


class BadToasts(FakeChat):
    async def toast(self, tap: TapIn, text: str) -> bool:
        raise ConnectionError("no route")


async def test_a_tap_counts_though_its_toast_fails(tmp_path: Path) -> None:
    chat = BadToasts()
    async with office_with(tmp_path, chat):
        await chat.say("permission please")
        asked = await chat.shown(button="Approve")
        await chat.tap(asked, "Approve")
        await chat.shown("✓ Approved by Ann")


class BadDecoder(FakeChat):
    def decode(self, raw: bytes) -> Inbound | None:
        if b"odd" in raw:
            raise KeyError("chat")
        return super().decode(raw)


async def test_an_update_that_cannot_be_read_does_not_stop_what_follows(tmp_path: Path) -> None:
    chat = BadDecoder()
    async with office_with(tmp_path, chat) as office:
        await chat.say("odd")
        await chat.say("/cancel")
        await chat.shown("Nothing runs in this chat.")
        await chat.say("hello there")
        await chat.shown("hello there", "✓")
        state = office.services.db.read(lambda conn: conn.execute("SELECT state FROM updates LIMIT 1").fetchone()[0])
        assert state == "parked"


class BadPainter(FakeChat):
    def paint(self, chat: ChatRef, message_id: str, card: Card) -> None:
        raise ValueError("no")


async def test_progress_that_cannot_be_shown_ends_no_run(tmp_path: Path) -> None:
    chat = BadPainter()
    async with office_with(tmp_path, chat):
        await chat.say("tools")
        await chat.shown("Done.", "✓")


def broken(method: str) -> Engines:
    """The demo agent, one method of whose runner or session has a defect."""
    engines = engines_for()
    engine = engines.get("demo")
    assert engine is not None

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{method} is broken")

    if hasattr(engine.runner, method):
        setattr(engine.runner, method, fail)
        return engines
    make = engine.runner.session

    def session(start: Any) -> Any:
        made = make(start)
        setattr(made, method, fail)
        return made

    engine.runner.session = session  # type: ignore[method-assign]
    return engines


@pytest.mark.parametrize("method", ["check", "start_settings", "session", "launch", "begin", "feed", "end"])
async def test_a_defect_of_an_engine_is_told_and_the_next_message_is_handled(tmp_path: Path, method: str) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=broken(method)) as office:
        for text in ("first", "second"):
            before = len(chat.messages)
            await chat.say(text)
            if method == "end":
                await chat.shown(text, "✓", after=before)
                await office.scheduler.processes()[0].close()
            else:
                failed = await chat.shown("✗", f"{method} is broken", button="Try again", after=before)
                assert "TaskGroup" not in failed.text
        assert office.services.db.read(runs.running) == []
        await chat.until(lambda: not office.services.db.read(runs.open_processes))


async def test_a_defect_in_saying_fails_that_run_only(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=broken("say")) as office:
        await chat.say("first")
        await chat.shown("first", "✓")
        await chat.say("second")
        await chat.shown("✗", "say is broken")
        await chat.say("third")
        await chat.shown("third", "✓")
        assert office.services.db.read(runs.running) == []


async def test_an_open_request_of_a_broken_process_is_withdrawn(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=broken("decide")) as office:
        await chat.say("permission please")
        await chat.say("permission again")
        asked = await chat.shown(button="Approve")
        await chat.tap(asked, "Approve")
        await chat.shown("✗", "decide is broken", button="Try again")
        await chat.until(lambda: "✗ The agent ended before it heard your answer" in asked.text)
        again = await chat.shown(button="Approve")
        assert [pending.delivery_id is not None for pending in office.services.db.read(interactions.all_open)] == [True]
        assert again is not asked


@pytest.mark.parametrize(
    "text", ["@" + "x" * 5000 + " hi", "/shop @a\0b hi", "/shop @\ud800 hi", "/shop @" + "y/" * 2000 + "z hi"]
)
async def test_names_that_no_file_system_takes(tmp_path: Path, text: str) -> None:
    chat = FakeChat()
    shop = tmp_path / "shop"
    shop.mkdir()
    async with office_with(tmp_path, chat, projects={"shop": Project("shop", str(shop))}) as office:
        update = MessageIn(ChatRef("fake", "1"), ANN, "u1", text)
        await office.inbox.store("fake", [("1", msgspec.json.encode(msgspec.structs.replace(update, text="hi")))])
        await chat.shown("hi", "✓")
        before = len(chat.messages)
        chat.decode = lambda raw: update  # type: ignore[method-assign]  # JSON cannot carry half a surrogate pair
        await office.inbox.store("fake", [("2", b"{}")])
        shown = await chat.shown("✗", after=before)
        assert "Something went wrong" not in shown.text


async def test_an_engine_that_is_not_installed_any_more_says_what_to_do(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        await chat.say("hello there")
        await chat.shown("hello there", "✓")
        await office.services.db.write(lambda conn: conn.execute("UPDATE threads SET engine = 'gone'"))
        await office.scheduler.processes()[0].close()
        await chat.say("and now?")
        await chat.shown("✗ The engine gone is not installed here.", "/new")
        session = office.services.db.read(lambda conn: conn.execute("SELECT session FROM threads").fetchone()[0])
        assert session
