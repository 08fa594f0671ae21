"""The Telegram transport against the strict Bot API server: what people in the chat see, and what is confirmed when."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from fake_telegram import FakeTelegram
from tests.support.telegram import FastClock
from untether.clock import ManualClock, SystemClock
from untether.settings.model import Telegram
from untether.store import outfiles, updates
from untether.store.database import Database, StoreError
from untether.store.migrate import load_migrations
from untether.text.blocks import Code, Line, Markdown
from untether.transport import Button, Card, ChatRef, FileIn, FileOut, Inbox, MessageIn, Priority, SendFailed, TapIn
from untether.transports.telegram.transport import TelegramTransport

pytestmark = pytest.mark.anyio

ANN = ChatRef("telegram", "1001")
APPROVE = ((Button("Approve", "i:k:a", style="success"), Button("Deny", "i:k:d", style="danger")),)


class Memory:
    """Keeps updates; `failing` makes it refuse them."""

    def __init__(self) -> None:
        self.stored: list[tuple[str, bytes]] = []
        self.failing = False
        self.refused = 0
        self.moves: list[tuple[str, str]] = []
        self.told: list[tuple[str, str]] = []
        self._changed = anyio.Event()

    async def moved(self, transport: str, old: str, new: str) -> None:
        self.moves.append((old, new))

    async def tell(self, chat: ChatRef, *lines: str) -> None:
        self.told.append((chat.chat, lines[0]))

    async def store(self, transport: str, items: Sequence[tuple[str, bytes]]) -> None:
        if self.failing:
            self.refused += 1
        else:
            self.stored += items
        self._changed.set()
        self._changed = anyio.Event()
        if self.failing:
            raise StoreError("full", "database or disk is full")

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(10):
            while not condition():
                await self._changed.wait()


@pytest.fixture
async def tg() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram(limits="off", strict_polling=False) as server:
        yield server


def make(tg: FakeTelegram, *, token: str = "", url: str = "", **more: Any) -> TelegramTransport:
    settings = Telegram(
        bot_token=SecretStr(token or tg.token),
        chat_id=1001,
        allowed_user_ids=(1001,),
        api_base_url=url or tg.url,
    )
    return TelegramTransport(settings, clock=more.pop("clock", FastClock()), **more)


@asynccontextmanager
async def connected(tg: FakeTelegram, inbox: Inbox, **options: Any) -> AsyncIterator[TelegramTransport]:
    """A transport that receives."""
    transport = make(tg, **options)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.run, inbox)
            yield transport
            tasks.cancel_scope.cancel()
    finally:
        await transport.close()


@asynccontextmanager
async def sending(tg: FakeTelegram, **options: Any) -> AsyncIterator[TelegramTransport]:
    """A transport that only sends, with a person who has written to the bot before."""
    transport = make(tg, **options)
    ann = await tg.ctl.user(first_name="Ann")
    await ann.text("hello")
    try:
        yield transport
    finally:
        await transport.close()


async def until(condition: Callable[[], bool]) -> None:
    """For conditions of the transport that no event tells of."""
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.005)


async def failure(transport: TelegramTransport, chat: ChatRef = ANN, text: str = "answer") -> SendFailed:
    with pytest.raises(SendFailed) as caught:
        await transport.send(chat, Card((Line(text),)), Priority.ANSWER)
    return caught.value


# ------------------------------------------------------------------------------------------------- receiving


async def test_an_update_is_confirmed_only_after_it_is_stored(tg: FakeTelegram) -> None:
    ann = await tg.ctl.user(first_name="Ann")
    await ann.text("fix the bug")
    inbox = Memory()
    inbox.failing = True
    async with connected(tg, inbox) as transport:
        await inbox.until(lambda: inbox.refused >= 3)
        assert len(await tg.ctl.pending()) == 1
        assert "cannot be stored" in transport.health()
        inbox.failing = False
        await inbox.until(lambda: bool(inbox.stored))
        await until(lambda: not tg.queue)
        assert transport.health() == ""
    (key, raw) = inbox.stored[0]
    assert json.loads(raw)["update_id"] == int(key)
    found = transport.decode(raw)
    assert isinstance(found, MessageIn)
    assert (found.text, found.sender.name, found.chat) == ("fix the bug", "Ann", ANN)


async def test_the_same_update_twice_is_stored_once_and_a_restart_adds_what_is_new(
    tg: FakeTelegram, tmp_path: Path
) -> None:
    ann = await tg.ctl.user()
    async with Database(tmp_path / "untether.db", migrations=load_migrations()) as db:

        class Stored(Memory):
            async def store(self, transport: str, items: Sequence[tuple[str, bytes]]) -> None:
                await db.write(lambda conn: updates.store(conn, transport, items, 1.0))
                await super().store(transport, items)

        inbox = Stored()
        async with connected(tg, inbox):
            await ann.text("one")
            await inbox.until(lambda: len(inbox.stored) == 1)
            await tg.ctl.duplicate(count=1, same_id=True)
            await inbox.until(lambda: len(inbox.stored) == 2)
        assert len(db.read(updates.waiting)) == 1

        await ann.text("while it was down")
        async with connected(tg, inbox):
            await inbox.until(lambda: len(db.read(updates.waiting)) == 2)
        texts = [json.loads(update.raw)["message"]["text"] for update in db.read(updates.waiting)]
    assert texts == ["one", "while it was down"]


async def test_a_webhook_that_somebody_set_is_removed_and_nothing_is_dropped(tg: FakeTelegram) -> None:
    ann = await tg.ctl.user()
    await ann.text("waiting")
    tg.webhook = {"url": "https://example.com/hook", "max_connections": 40}
    inbox = Memory()
    async with connected(tg, inbox):
        await inbox.until(lambda: len(inbox.stored) == 1)


async def test_an_outage_is_ridden_out(tg: FakeTelegram) -> None:
    ann = await tg.ctl.user()
    inbox = Memory()
    async with connected(tg, inbox) as transport:
        await ann.text("before")
        await inbox.until(lambda: len(inbox.stored) == 1)
        await tg.ctl.outage(seconds=60, kind="reset")
        await until(lambda: transport.health() != "")
        assert "Telegram cannot be reached since" in transport.health()
        await tg.ctl.clear_faults()
        await ann.text("after")
        await inbox.until(lambda: len(inbox.stored) == 2)
        assert transport.health() == ""


async def test_another_program_with_the_same_token_is_named(tg: FakeTelegram) -> None:
    await tg.ctl.user()
    async with connected(tg, Memory()) as first:
        await tg.ctl.wait_call(method="deleteWebhook")
        await until(lambda: tg.poll is not None)
        async with connected(tg, Memory(), clock=SystemClock()):
            await until(lambda: "Another program polls" in first.health())


async def test_a_bad_token_neither_ends_anything_nor_shows_up_anywhere(
    tg: FakeTelegram, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    token = "123456:AAE_this-token-is-not-the-right-one_xyz"
    async with connected(tg, Memory(), token=token) as transport:
        await until(lambda: transport.health() != "")
        assert "Telegram refuses the bot token" in transport.health()
        failed = await failure(transport)
        assert (failed.kind, failed.retry_after) == ("later", 60)  # the answer waits until the token is right
        await tg.ctl.fault(kind="error", method="*", code=400, description=f"Bad Request: /bot{tg.token}/x")
    async with sending(tg) as transport:
        leaky = await failure(transport)
    printed = capsys.readouterr()
    for text in (caplog.text, printed.out, printed.err, str(failed), leaky.detail, repr(leaky.__cause__)):
        assert token not in text
        assert tg.token not in text


async def test_the_command_menu_is_set(tg: FakeTelegram) -> None:
    async with connected(tg, Memory(), commands=[("new", "Start afresh"), ("help", "What you can do")]):
        (call,) = await tg.ctl.wait_call(method="setMyCommands", ok=True)
    assert call["params"]["commands"][0] == {"command": "new", "description": "Start afresh"}


async def test_only_allowed_people_in_configured_chats_may_act(tg: FakeTelegram) -> None:
    ann = await tg.ctl.user(first_name="Ann")
    bob = await tg.ctl.user(first_name="Bob")
    group = (await tg.ctl.add_group(members=[ann.user, bob.user], bot="administrator"))["chat"]
    other = (await tg.ctl.add_group(members=[ann.user, bob.user], bot="administrator"))["chat"]
    inbox = Memory()
    async with connected(tg, inbox, project_chats=[group]) as transport:
        await ann.text("mine")
        await bob.text("a stranger")
        for chat in (group, other):
            for person in (ann, bob):
                await tg.ctl.actor(chat, person.user).text("in a group")
        await inbox.until(lambda: len(inbox.stored) == 6)
        found = [transport.decode(raw) for _, raw in inbox.stored]
        allowed = [(one.chat.chat, one.sender.name) for one in found if one is not None and transport.may_act(one)]
    assert allowed == [("1001", "Ann"), (str(group), "Ann")]


async def test_a_file_is_fetched_up_to_a_limit(tg: FakeTelegram) -> None:
    async with sending(tg) as transport:
        sent = await tg.ctl.send_document(chat=1001, text="long prompt", file_name="prompt.txt")
        file = FileIn(sent["file_id"], "prompt.txt")
        assert await transport.fetch(file, 1000) == b"long prompt"
        for limit, lose in ((5, False), (1000, True)):
            if lose:
                await tg.ctl.lose_file(file_id=file.id)
            with pytest.raises(SendFailed) as caught:
                await transport.fetch(file, limit)
            assert caught.value.kind == "refused"


# --------------------------------------------------------------------------------------------------- sending


async def test_a_card_arrives_formatted_with_its_buttons_as_a_silent_reply(tg: FakeTelegram) -> None:
    async with sending(tg) as transport:
        card = Card(
            (Line("Run a command?", "bold"), Code("git push", "bash"), Markdown("see [docs](https://e.org/a)")),
            buttons=APPROVE,
            silent=True,
            reply_to="1",
        )
        message_id = await transport.send(ANN, card, Priority.INTERACTION)
        seen = await tg.ctl.message(chat=1001, message_id=int(message_id))
        (call,) = await tg.ctl.calls(method="sendMessage")
    assert seen["text"] == "Run a command?\ngit push\n\nsee docs"
    assert '<a href="https://e.org/a">docs</a>' in seen["html"]
    assert [button["style"] for button in seen["buttons"][0]] == ["success", "danger"]
    assert seen["silent"]
    assert seen["reply_to"] == 1
    assert "parse_mode" not in call["params"]
    assert call["params"]["link_preview_options"] == {"is_disabled": True}


async def test_a_long_answer_arrives_in_order_and_whole(tg: FakeTelegram) -> None:
    source = "\n\n".join(f"{n}. **bold {n}** `code {n}` " + "word " * 60 for n in range(100))
    async with sending(tg) as transport:
        made = transport.parts(Card((Markdown(source),), buttons=APPROVE))
        ids = [await transport.send(ANN, part, Priority.ANSWER) for part in made]
        seen = [await tg.ctl.message(chat=1001, message_id=int(message_id)) for message_id in ids]
    assert len(seen) > 3
    text = "\n\n".join(one["text"] for one in seen)
    assert [text.index(f"bold {n} code {n}") for n in range(100)] == sorted(
        text.index(f"bold {n} code {n}") for n in range(100)
    )
    assert sum(entity["type"] == "bold" for one in seen for entity in one["entities"]) == 100
    assert not any(one["dropped_entities"] for one in seen)
    assert [bool(one["buttons"]) for one in seen] == [False] * (len(seen) - 1) + [True]


async def test_a_long_diff_arrives_as_a_file_before_the_buttons(tg: FakeTelegram) -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n" + "-old ä\n+new \U0001f600\n" * 600
    card = Card((Line("Edit a file?"), Code(diff, "diff")), buttons=APPROVE, whole="attach", file_name="change.diff")
    async with sending(tg) as transport:
        ids = [await transport.send(ANN, part, Priority.INTERACTION) for part in transport.parts(card)]
        file, question = [await tg.ctl.message(chat=1001, message_id=int(one)) for one in ids]
        content = await transport.fetch(FileIn(file["media"]["file_id"], ""), 1_000_000)
    assert file["media"]["file_name"] == "change.diff"
    assert content.decode() == diff
    assert not file["buttons"]
    assert [button["text"] for button in question["buttons"][0]] == ["Approve", "Deny"]
    assert "is in change.diff above" in question["text"]


async def test_an_edit_replaces_text_and_buttons_and_may_change_nothing(tg: FakeTelegram) -> None:
    async with sending(tg) as transport:
        message_id = await transport.send(ANN, Card((Line("Run?"),), buttons=APPROVE), Priority.INTERACTION)
        done = Card((Line("✓ Approved by Ann 14:02"),))
        for _ in range(2):
            await transport.edit(ANN, message_id, done, Priority.NOTICE)
        seen = await tg.ctl.message(chat=1001, message_id=int(message_id))
        assert (seen["text"], seen["buttons"], seen["edits"]) == ("✓ Approved by Ann 14:02", [], 1)

        await transport.delete(ANN, message_id)
        assert (await tg.ctl.last(chat=1001)) is None
        for act in (transport.edit(ANN, message_id, done, Priority.NOTICE), transport.delete(ANN, message_id)):
            with pytest.raises(SendFailed) as caught:
                await act
            assert caught.value.kind == "gone"


async def test_a_flood_in_one_chat_leaves_the_others_alone(tg: FakeTelegram) -> None:
    async with sending(tg, clock=SystemClock()) as transport:
        bob = await tg.ctl.user(first_name="Bob")
        await bob.text("hello")
        await tg.ctl.fault(kind="429", method="sendMessage", retry_after=35)
        flooded = await failure(transport)
        assert (flooded.kind, flooded.retry_after) == ("later", 35)
        meanwhile = await failure(transport)
        assert meanwhile.kind == "later"
        assert 34 < meanwhile.retry_after <= 35
        assert "pause chat 1001 until" in transport.health()
        await transport.send(ChatRef("telegram", "1002"), Card((Line("for Bob"),)), Priority.ANSWER)
        assert (await bob.last())["text"] == "for Bob"
        assert len(await tg.ctl.calls(method="sendMessage")) == 2


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["reset", "garbage", "half", "504"])
async def test_a_send_that_left_without_an_answer_has_an_unknown_fate(tg: FakeTelegram, kind: str, when: str) -> None:
    async with sending(tg) as transport:
        await tg.ctl.fault(kind=kind, method="sendMessage", when=when)
        assert (await failure(transport)).kind == "unknown"
        shown = await tg.ctl.shows(chat=1001, sender="bot")
        assert len(shown) == (1 if when == "after" else 0)
        await transport.send(ANN, Card((Line("next"),)), Priority.ANSWER)


async def test_edits_and_deletions_without_an_answer_may_simply_be_repeated(tg: FakeTelegram) -> None:
    async with sending(tg) as transport:
        message_id = await transport.send(ANN, Card((Line("one"),)), Priority.ANSWER)
        acts: dict[str, Callable[[], Awaitable[None]]] = {
            "editMessageText": lambda: transport.edit(ANN, message_id, Card((Line("two"),)), Priority.NOTICE),
            "deleteMessage": lambda: transport.delete(ANN, message_id),
        }
        for method, act in acts.items():
            await tg.ctl.fault(kind="reset", method=method, when="before")
            with pytest.raises(SendFailed) as caught:
                await act()
            assert caught.value.kind == "later"
            await act()
        assert await tg.ctl.shows(chat=1001, sender="bot") == []


@pytest.mark.parametrize("kind", ["500", "502"])
async def test_a_server_that_says_it_failed_is_asked_again_later(tg: FakeTelegram, kind: str) -> None:
    async with sending(tg) as transport:
        await tg.ctl.fault(kind=kind, method="sendMessage")
        assert (await failure(transport)).kind == "later"


async def test_nothing_is_sent_when_nobody_listens(tg: FakeTelegram) -> None:
    async with sending(tg, url="http://127.0.0.1:1") as transport:
        failed = await failure(transport)
    assert failed.kind == "later"


async def test_chats_that_are_no_longer_there(tg: FakeTelegram) -> None:
    async with sending(tg) as transport:
        assert (await failure(transport, ChatRef("telegram", "4242"))).kind == "no_chat"
        await tg.ctl.block(user=1001)
        assert (await failure(transport)).kind == "no_chat"
        group = (await tg.ctl.add_group(members=[1001]))["chat"]
        new = (await tg.ctl.migrate(chat=group))["chat"]
        moved = await failure(transport, ChatRef("telegram", str(group)))
        assert (moved.kind, moved.moved_to) == ("moved", str(new))


async def test_a_message_is_answered_even_when_it_was_deleted(tg: FakeTelegram) -> None:
    async with sending(tg) as transport:
        await tg.ctl.delete(chat=1001, message_id=1)
        message_id = await transport.send(ANN, Card((Line("answer"),), reply_to="1"), Priority.ANSWER)
        assert (await tg.ctl.message(chat=1001, message_id=int(message_id)))["reply_to"] is None


async def test_a_refused_formatting_does_not_cost_the_answer(tg: FakeTelegram) -> None:
    async with sending(tg) as transport:
        await tg.ctl.fault(
            kind="error", method="sendMessage", match="text_link", description="Bad Request: invalid URL"
        )
        await transport.send(ANN, Card((Markdown("see [docs](https://e.org/a)"),)), Priority.ANSWER)
        assert (await tg.ctl.last(chat=1001))["text"] == "see docs"
        await tg.ctl.fault(kind="error", method="sendMessage", times=9)
        assert (await failure(transport)).kind == "refused"


# ----------------------------------------------------------------------------------- topics, taps, progress


async def test_topics_are_threads_and_a_deleted_one_falls_back_to_the_chat(tg: FakeTelegram) -> None:
    ann = await tg.ctl.user()
    forum = (await tg.ctl.add_group(kind="forum", members=[ann.user], bot="administrator"))["chat"]
    topic = (await tg.ctl.add_topic(chat=forum))["thread"]
    inbox = Memory()
    async with connected(tg, inbox, project_chats=[forum]) as transport:
        await tg.ctl.actor(forum, ann.user).text("in the topic", thread=topic)
        await tg.ctl.actor(forum, ann.user).text("in General")

        def said() -> list[MessageIn]:
            found = [transport.decode(raw) for _, raw in inbox.stored]
            return [one for one in found if isinstance(one, MessageIn)]

        await inbox.until(lambda: len(said()) == 2)
        where = ChatRef("telegram", str(forum), str(topic))
        assert [one.chat for one in said()] == [where, ChatRef("telegram", str(forum))]
        assert said()[0].reply_to is None

        await transport.send(where, Card((Line("answer"),)), Priority.ANSWER)
        assert (await tg.ctl.last(chat=forum))["thread"] == topic
        await tg.ctl.topic(chat=forum, thread=topic, action="delete")
        await transport.send(where, Card((Line("late answer"),)), Priority.ANSWER)
        late = await tg.ctl.wait_message(chat=forum, pattern="late answer")
        assert late["thread"] in (0, None)


async def tapped(tg: FakeTelegram, transport: TelegramTransport, inbox: Memory) -> TapIn:
    await transport.send(ANN, Card((Line("Run?"),), buttons=APPROVE), Priority.INTERACTION)
    before = len(inbox.stored)
    await tg.ctl.actor(1001, 1001).press("Approve")
    await inbox.until(lambda: len(inbox.stored) > before)
    tap = transport.decode(inbox.stored[-1][1])
    assert isinstance(tap, TapIn)
    return tap


async def test_a_tap_is_answered_with_a_toast_whatever_is_queued(tg: FakeTelegram) -> None:
    ann = await tg.ctl.user()
    await ann.text("hello")
    inbox = Memory()
    async with connected(tg, inbox) as transport, anyio.create_task_group() as tasks:
        tap = await tapped(tg, transport, inbox)
        assert (tap.data, tap.sender.id, tap.chat) == ("i:k:a", "1001", ANN)
        await tg.ctl.fault(kind="timeout", method="sendMessage")
        tasks.start_soon(transport.send, ANN, Card((Line("stuck"),)), Priority.INTERACTION)
        await tg.ctl.fault(kind="reset", method="answerCallbackQuery")  # once more does no harm
        assert await transport.toast(tap, "Approved")
        assert [answer["text"] for answer in await tg.ctl.answers(callback_query_id=tap.token)] == ["Approved"]
        tasks.cancel_scope.cancel()


async def test_a_toast_that_comes_too_late_says_so(tg: FakeTelegram) -> None:
    ann = await tg.ctl.user()
    await ann.text("hello")
    inbox = Memory()
    async with connected(tg, inbox) as transport:
        tap = await tapped(tg, transport, inbox)
        await tg.ctl.option(callback_ttl=0)
        assert not await transport.toast(tap, "Approved")
        await tg.ctl.option(callback_ttl=15)
        assert await transport.toast(tap, "very long " * 100)


async def test_progress_shows_the_newest_state_in_few_edits_and_never_as_a_new_message(tg: FakeTelegram) -> None:
    ann = await tg.ctl.user()
    await ann.text("hello")
    async with connected(tg, Memory()) as transport:
        message_id = await transport.send(ANN, Card((Line("▸ step 0"),), silent=True), Priority.NOTICE)
        for step in range(1, 101):
            transport.paint(ANN, message_id, Card((Line(f"▸ step {step}"),)))
        await tg.ctl.wait_message(chat=1001, pattern="step 100")
        assert len(await tg.ctl.calls(method="editMessageText")) <= 2

        transport.paint(ANN, message_id, Card((Line("▸ out of date"),)))
        await transport.edit(ANN, message_id, Card((Line("✓ done"),)), Priority.ANSWER)
        await transport.delete(ANN, message_id)
        transport.paint(ANN, message_id, Card((Line("▸ too late"),)))
        await tg.ctl.wait_call(method="editMessageText", pattern="too late", ok=False)
        assert await tg.ctl.shows(chat=1001, sender="bot") == []
        edits = await tg.ctl.calls(method="editMessageText")
        assert not any("out of date" in call["params"]["text"] for call in edits)


# ------------------------------------------------------------------------------------------- under pressure


async def test_a_send_is_repeated_only_to_a_server_that_answers(tg: FakeTelegram) -> None:
    async with sending(tg) as transport:
        await tg.ctl.fault(kind="reset", method="sendMessage")
        assert (await failure(transport)).kind == "unknown"
        await tg.ctl.outage(seconds=30, kind="502")
        assert (await failure(transport)).kind == "later"
        assert len(await tg.ctl.calls(method="sendMessage")) == 1  # the repeat did not leave
        await tg.ctl.clear_faults()
        await transport.send(ANN, Card((Line("answer"),)), Priority.ANSWER)
        assert (await tg.ctl.last(chat=1001))["text"] == "answer"


@pytest.mark.parametrize("seconds", [5, 35, 900])
async def test_a_pause_is_obeyed_to_the_second(tg: FakeTelegram, seconds: int) -> None:
    clock = ManualClock()
    async with sending(tg, clock=clock) as transport:
        await tg.ctl.fault(kind="429", method="sendMessage", retry_after=seconds)
        assert (await failure(transport)).retry_after == seconds
        await clock.advance(seconds - 1)
        early = await failure(transport)
        assert (early.kind, early.retry_after) == ("later", 1)
        assert "answers wait" in transport.health()
        await clock.advance(1)
        await transport.send(ANN, Card((Line("answer"),)), Priority.ANSWER)
        assert transport.health() == ""
        assert len(await tg.ctl.calls(method="sendMessage")) == 2


async def test_a_tap_is_answered_at_once_while_everything_else_hangs(tg: FakeTelegram) -> None:
    ann = await tg.ctl.user()
    await ann.text("hello")
    inbox = Memory()
    async with connected(tg, inbox) as transport, anyio.create_task_group() as tasks:
        tap = await tapped(tg, transport, inbox)
        await tg.ctl.fault(kind="timeout", method="sendMessage", times=100)
        people = [await tg.ctl.user() for _ in range(70)]  # more than there are connections
        for person in people:
            await person.text("hello")
            chat = ChatRef("telegram", str(person.user))
            tasks.start_soon(transport.send, chat, Card((Line("stuck"),)), Priority.INTERACTION)
        await tg.ctl.fault(kind="429", method="sendMessage", retry_after=900)
        with anyio.fail_after(0.5):
            assert await transport.toast(tap, "Approved")
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def closed_topic(tg: FakeTelegram) -> AsyncIterator[tuple[ChatRef, Any]]:
    """A topic that was closed for the bot, and a person in it."""
    ann = await tg.ctl.user()
    forum = (await tg.ctl.add_group(kind="forum", members=[ann.user], bot="member"))["chat"]
    topic = (await tg.ctl.add_topic(chat=forum))["thread"]
    await tg.ctl.topic(chat=forum, thread=topic, action="close")
    yield ChatRef("telegram", str(forum), str(topic)), tg.ctl.actor(forum, ann.user)


async def test_a_lost_topic_is_said_once(tg: FakeTelegram) -> None:
    async with sending(tg) as transport, closed_topic(tg) as (where, ann):
        forum, topic = int(where.chat), int(where.thread)
        for text in ("one", "two"):
            await transport.send(where, Card((Line(text),)), Priority.ANSWER)
        shown = [one["text"] for one in await tg.ctl.shows(chat=forum, sender="bot", thread=0)]
        assert [text.partition(".")[0] for text in shown] == [
            "The topic of a conversation was closed or deleted",
            "one",
            "two",
        ]
        await tg.ctl.topic(chat=forum, thread=topic, action="reopen")
        said = await ann.text("back again", thread=topic)
        update = {"update_id": 1, "message": tg.msg_json(tg.chats[forum].messages[said["message_id"]])}
        transport.decode(json.dumps(update).encode())
        await transport.send(where, Card((Line("three"),)), Priority.ANSWER)
        assert (await tg.ctl.last(chat=forum))["thread"] == topic


async def test_calls_that_fail_count_like_the_others(tg: FakeTelegram) -> None:
    clock = ManualClock()
    rate = 3 / 60
    async with (
        sending(tg, clock=clock, group_chat_rps=rate) as transport,
        closed_topic(tg) as (where, _),
        anyio.create_task_group() as tasks,
    ):
        await transport.send(where, Card((Line("one"),)), Priority.ANSWER)  # with the refused call and the notice: 3
        tasks.start_soon(transport.send, where, Card((Line("two"),)), Priority.ANSWER)
        await clock.wait_for_sleepers()
        await clock.advance(59)
        assert (await tg.ctl.last(chat=int(where.chat)))["text"] == "one"
        await clock.advance(2)
        await tg.ctl.wait_message(chat=int(where.chat), pattern="two")


async def test_a_chat_where_nothing_arrives_is_named_until_something_does(tg: FakeTelegram) -> None:
    async with sending(tg) as transport:
        await tg.ctl.block(user=1001)
        assert (await failure(transport)).kind == "no_chat"
        assert "nothing arrives in chat 1001 (Forbidden: bot was blocked by the user)" in transport.health()
        await tg.ctl.unblock(user=1001)
        await transport.send(ANN, Card((Line("again"),)), Priority.ANSWER)
        assert transport.health() == ""


async def test_missing_rights(tg: FakeTelegram) -> None:
    ann = await tg.ctl.user()
    group = (await tg.ctl.add_group(kind="supergroup", members=[ann.user], bot="member"))["chat"]
    chat = ChatRef("telegram", str(group))
    async with sending(tg) as transport:
        await tg.ctl.set_member(chat=group, status="restricted", rights={"can_send_documents": False})
        with pytest.raises(SendFailed) as caught:
            await transport.send(chat, Card((), file=FileOut("a.txt", "x")), Priority.ANSWER)
        assert (caught.value.kind, "documents" in caught.value.detail) == ("refused", True)
        await transport.send(chat, Card((Line("text is fine"),)), Priority.ANSWER)
        await tg.ctl.set_member(chat=group, status="restricted", rights={"can_send_messages": False})
        assert (await failure(transport, chat)).kind == "no_chat"


async def test_a_group_that_was_upgraded_is_served_under_its_new_id(tg: FakeTelegram) -> None:
    ann = await tg.ctl.user()
    group = (await tg.ctl.add_group(members=[ann.user], bot="administrator"))["chat"]
    inbox = Memory()
    async with connected(tg, inbox, project_chats=[group]) as transport:
        old = ChatRef("telegram", str(group))
        shown = await transport.send(old, Card((Line("Run?"),), buttons=APPROVE), Priority.INTERACTION)
        new = (await tg.ctl.migrate(chat=group))["chat"]
        await inbox.until(lambda: len(inbox.moves) == 2)  # it is said in both
        assert set(inbox.moves) == {(str(group), str(new))}
        await tg.ctl.actor(new, ann.user).text("and now?")
        await inbox.until(lambda: b"and now?" in inbox.stored[-1][1])
        found = transport.decode(inbox.stored[-1][1])
        assert found is not None
        assert transport.may_act(found)

        # What is still asked of the old chat goes to the new one. A message of before the move may be edited, no more.
        await transport.send(old, Card((Line("answer"),)), Priority.ANSWER)
        assert (await tg.ctl.last(chat=new))["text"] == "answer"
        now, before = ChatRef("telegram", str(new)), f"{group}/{shown}"
        await transport.edit(now, before, Card((Line("✓ Approved"),)), Priority.NOTICE)
        assert (await tg.ctl.message(chat=group, message_id=int(shown)))["text"] == "✓ Approved"
        with pytest.raises(SendFailed) as caught:
            await transport.delete(now, before)
        assert caught.value.kind == "gone"

        # Replying to it in the new chat, as apps let one do, names it as it is called there.
        await tg.ctl.actor(new, ann.user).text("no", reply_to=0)
        raw = tg.chats[new].messages
        last = raw[max(raw)]
        last.reply = {"chat": group, "id": int(shown)}
        update = json.dumps({"update_id": 9, "message": tg.msg_json(last)}).encode()
        reply = transport.decode(update)
        assert isinstance(reply, MessageIn)
        assert reply.reply_to is not None
        assert (reply.reply_to.message_id, reply.reply_to.ours) == (f"{group}/{shown}", True)


async def test_a_group_that_was_upgraded_unseen_is_found_by_the_error(tg: FakeTelegram) -> None:
    ann = await tg.ctl.user()
    group = (await tg.ctl.add_group(members=[ann.user], bot="administrator"))["chat"]
    async with sending(tg, project_chats=[group]) as transport:
        new = (await tg.ctl.migrate(chat=group))["chat"]
        chat = ChatRef("telegram", str(group))
        assert (await failure(transport, chat)).moved_to == str(new)
        await transport.send(chat, Card((Line("answer"),)), Priority.ANSWER)
        assert (await tg.ctl.last(chat=new))["text"] == "answer"


def damage(path: Path) -> None:
    path.write_bytes(b"other")


async def test_a_copied_file_arrives_as_it_was_and_a_changed_one_does_not(tg: FakeTelegram, tmp_path: Path) -> None:
    source = tmp_path / "report.csv"
    source.write_bytes(b"a;b\r\n\x00\xff")
    async with sending(tg) as transport:
        kept = outfiles.keep(source, tmp_path / "outbox")
        source.unlink()
        message_id = await transport.send(ANN, Card((), file=kept), Priority.ANSWER)
        media = (await tg.ctl.message(chat=1001, message_id=int(message_id)))["media"]
        assert media["file_name"] == "report.csv"
        assert await transport.fetch(FileIn(media["file_id"], ""), 1000) == b"a;b\r\n\x00\xff"
        damage(Path(kept.path))
        with pytest.raises(SendFailed) as caught:
            await transport.send(ANN, Card((), file=kept), Priority.ANSWER)
        assert (caught.value.kind, "was changed" in caught.value.detail) == ("refused", True)


async def test_an_edit_whose_formatting_is_refused_still_arrives(tg: FakeTelegram) -> None:
    async with sending(tg) as transport:
        message_id = await transport.send(ANN, Card((Line("Run?"),)), Priority.INTERACTION)
        await tg.ctl.fault(kind="error", method="editMessageText", match="bold")
        await transport.edit(ANN, message_id, Card((Line("✓ Approved", "bold"),)), Priority.NOTICE)
        assert (await tg.ctl.last(chat=1001))["text"] == "✓ Approved"


async def test_a_connection_that_dies_without_saying_so_is_replaced(tg: FakeTelegram) -> None:
    async with sending(tg) as transport:
        await transport.send(ANN, Card((Line("one"),)), Priority.ANSWER)
        before = set(tg.transports)
        await transport.api.renew()
        await transport.send(ANN, Card((Line("two"),)), Priority.ANSWER)
        assert not tg.transports <= before
        assert [one["text"] for one in await tg.ctl.shows(chat=1001, sender="bot")] == ["one", "two"]


async def test_a_webhook_is_removed_and_named(tg: FakeTelegram) -> None:
    tg.webhook = {"url": "https://hooks.example.org/secret-path", "max_connections": 40}
    inbox = Memory()
    with capture_logs() as logs:
        async with connected(tg, inbox):
            ann = await tg.ctl.user()
            await ann.text("hello")
            await inbox.until(lambda: bool(inbox.stored))
    (entry,) = [entry for entry in logs if entry["event"] == "telegram.webhook_removed"]
    assert entry["host"] == "hooks.example.org"
    assert "secret-path" not in str(logs)
