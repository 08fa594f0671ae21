"""A conversation goes on when its chat gets a new id, and a message of ours that arrived unseen is recognised."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.chat import FakeChat, Shown, office_with
from untether.conversation.context import Project
from untether.conversation.office import Office
from untether.transport import ChatRef

pytestmark = pytest.mark.anyio
NEW = "-1002"


def thread_ids(office: Office) -> set[int]:
    rows = office.services.db.read(lambda conn: conn.execute("SELECT thread_id FROM messages").fetchall())
    return {row[0] for row in rows}


async def test_a_new_message_and_a_reply_go_on_in_the_same_thread(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        await chat.say("say one")
        answer = await chat.shown("✓")
        await office.inbox.moved("fake", "1", NEW)
        told = await chat.shown(f"{NEW} instead of 1")
        assert told.chat.chat == NEW

        await chat.say("say two", chat=NEW)
        await chat.until(lambda: any(shown.chat.chat == NEW and "✓" in shown.text for shown in chat.messages))
        assert len(thread_ids(office)) == 1

        await chat.say("/new", chat=NEW)
        await chat.shown("starts a new session")
        before = len(chat.messages)
        old = msgspec.structs.replace(answer, message_id=f"1/{answer.message_id}")
        await chat.say("say three", chat=NEW, reply_to=old)
        await chat.shown("✓", after=before)
        assert len(thread_ids(office)) == 1


async def test_the_project_of_a_chat_stays_when_its_id_changes(tmp_path: Path) -> None:
    chat = FakeChat()
    shop = tmp_path / "shop"
    shop.mkdir()
    async with office_with(tmp_path, chat, projects={"shop": Project("shop", str(shop))}) as office:
        office.services.project_chats = {ChatRef("fake", "1"): "shop"}
        await office.inbox.moved("fake", "1", NEW)
        assert office.services.project_of(ChatRef("fake", NEW), None) == "shop"
        assert office.services.project_of(ChatRef("fake", "3"), None) is None


async def test_what_a_transport_has_to_say_arrives_like_any_notice(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        await office.inbox.tell(ChatRef("fake", "1"), "↻ I was away for 2 days.", "Send again what got no answer.")
        await chat.shown("away for 2 days", "Send again")


async def test_a_reply_to_an_answer_that_arrived_unseen_goes_on_with_its_thread(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        await chat.say("say one")
        answer = await chat.shown("✓")

        def job(conn: object) -> None:
            """As if the connection had died at the first attempt, which arrived."""
            conn.execute("UPDATE deliveries SET attempts = 2 WHERE role = 'answer'")  # type: ignore[attr-defined]

        await office.services.db.write(job)
        twin = Shown("twin", answer.chat, answer.card)
        chat.messages.insert(0, twin)
        before = len(chat.messages)
        await chat.say("/new")
        await chat.say("say two", reply_to=twin)
        await chat.shown("✓", after=before)
        assert len(thread_ids(office)) == 1
