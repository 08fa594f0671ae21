"""Several messages that are one: albums, forwards, texts that were cut, edits on their way; and their files."""

from __future__ import annotations

import sqlite3
import stat
from dataclasses import replace
from pathlib import Path

import anyio
import msgspec
import pytest

from tests.support.chat import ANN, FakeChat, engines_for, office_with
from untether.conversation.engines import Engine, Engines
from untether.conversation.office import Office
from untether.conversation.recovery import stored_inputs
from untether.session import Begin, Capabilities, Prompt, Say
from untether.store import runs, threads
from untether.store.threads import Message
from untether.transport import ChatRef, FileIn, MessageIn

pytestmark = pytest.mark.anyio

SEEING = Capabilities(followup=True, interrupt=True, interactive_permissions=True, images=True, documents=True)
PATIENT = 30.0  # seconds: longer than any of these tests


def seeing(**config: object) -> Engines:
    """The demo agent, taken for one that takes pictures: they are named to it by their paths."""
    demo = engines_for(config or None).get("demo")
    assert demo is not None
    demo.runner.capabilities = SEEING  # type: ignore[misc]
    return Engines(
        {"demo": Engine("demo", replace(demo.backend, capabilities=SEEING), demo.runner, "built in")}, "demo"
    )


def picture(chat: FakeChat, number: int, content: bytes = b"\xff\xd8") -> tuple[FileIn, ...]:
    chat.files[f"f{number}"] = content
    return (FileIn(f"f{number}", "photo.jpg", "image/jpeg", len(content)),)


def messages(office: Office) -> list[Message]:
    def all_of(conn: sqlite3.Connection) -> list[Message]:
        rows = conn.execute("SELECT id FROM messages ORDER BY id").fetchall()
        return [message for row in rows if (message := threads.message(conn, row[0])) is not None]

    return office.services.db.read(all_of)


def prompts(office: Office) -> list[Prompt]:
    """What the agents were told."""

    def all_of(conn: sqlite3.Connection) -> list[Prompt]:
        ids = [row[0] for row in conn.execute("SELECT id FROM processes ORDER BY created")]
        items = [stored.item for one in ids for stored in stored_inputs(conn, one)]
        return [item.prompt for item in items if isinstance(item, Begin | Say)]

    return office.services.db.read(all_of)


def kept(prompt: Prompt, folder: Path, *contents: bytes) -> None:
    """The files of a prompt lie there, and nobody else can read them."""
    paths = [Path(file.path) for file in prompt.attachments]
    assert [path.read_bytes() for path in paths] == list(contents)
    for path in paths:
        assert path.is_relative_to(folder)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_an_album_is_one_prompt_with_all_its_pictures(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=seeing(), join_s=0.2) as office:
        first = await chat.say("what is on these?", files=picture(chat, 1, b"one"), album="a")
        await chat.say("", files=picture(chat, 2, b"two"), album="a")
        await chat.say("", files=picture(chat, 3, b"three"), album="a")
        answer = await chat.shown("what is on these?", "✓")
        assert answer.card.reply_to == first
        (prompt,) = prompts(office)
        assert prompt.text == "what is on these?"
        assert {(file.name, file.mime) for file in prompt.attachments} == {("photo.jpg", "image/jpeg")}
        kept(prompt, tmp_path / "incoming", b"one", b"two", b"three")
        assert len([shown for shown in chat.messages if shown.text.startswith("▸")]) == 1


async def test_a_stop_in_the_middle_of_an_album_loses_nothing(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=seeing(), join_s=PATIENT) as office:
        await chat.say("what is on these?", files=picture(chat, 1), album="a")
        await chat.say("", files=picture(chat, 2), album="a")
        assert messages(office) == []
    async with office_with(tmp_path, chat, engines=seeing(), join_s=0.2) as office:
        await chat.say("", files=picture(chat, 3), album="a")
        await chat.shown("what is on these?", "✓")
        (prompt,) = prompts(office)
        assert len(prompt.attachments) == 3


async def test_a_late_picture_joins_its_album_while_that_waits(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=seeing(env={}), join_s=0.0) as office:
        await chat.say("slow 30")
        status = await chat.shown("▸", "step 1")
        await chat.say("look", files=picture(chat, 1), album="a")
        await chat.shown("⏳ queued, 1st")
        await chat.say("", files=picture(chat, 2), album="a")
        await chat.until(lambda: len(messages(office)[-1].attachments) == 2)
        assert len(messages(office)) == 2
        await chat.tap(status, "Stop")
        await chat.shown("look", "✓")
        assert [len(prompt.attachments) for prompt in prompts(office)] == [0, 2]


async def test_a_picture_that_is_too_late_goes_on_with_the_session_of_its_album(tmp_path: Path) -> None:
    chat = FakeChat()
    stateless = frozenset({"fake"})
    async with office_with(tmp_path, chat, engines=seeing(), join_s=0.0, stateless=stateless) as office:
        await chat.say("look", files=picture(chat, 1), album="a")
        await chat.shown("look", "✓")
        await chat.say("", files=picture(chat, 2), album="a")
        await chat.shown("Look at the attached file: photo.jpg", "✓")
        assert {run.thread_id for run in office.services.db.read(lambda conn: runs.recent(conn, 9))} == {1}


async def test_a_comment_and_its_forwards_are_one_prompt(tmp_path: Path) -> None:
    chat = FakeChat()
    here = ChatRef("fake", "1")
    said = [
        MessageIn(here, ANN, "m1", "who has it?"),
        MessageIn(here, ANN, "m2", "/ctx not for us", forwarded=True),
        MessageIn(here, ANN, "m3", "I have", forwarded=True),
    ]
    async with office_with(tmp_path, chat) as office:
        await office.inbox.store("fake", [(one.message_id, msgspec.json.encode(one)) for one in said])
        await chat.shown("I have", "✓")
        assert [message.text for message in messages(office)] == ["who has it?\n\n/ctx not for us\n\nI have"]


async def test_forwards_that_come_after_their_comment_was_taken_up_go_to_its_agent(tmp_path: Path) -> None:
    chat = FakeChat()
    engines = engines_for({"env": {"UNTETHER_DEMO_SPEED": "0.1"}})
    async with office_with(tmp_path, chat, engines=engines, stateless=frozenset({"fake"})) as office:
        await chat.say("slow 10")
        await chat.shown("▸", "step 1")
        await chat.say("it was me", forwarded=True)
        await chat.shown("While I was at it you also said", "it was me")
        assert len({message.thread_id for message in messages(office)}) == 1


async def test_each_sender_has_an_own_series(tmp_path: Path) -> None:
    chat = FakeChat()
    chat.may_act = lambda inbound: True  # type: ignore[method-assign]
    async with office_with(tmp_path, chat, join_s=0.3) as office:
        await chat.say("mine", forwarded=True)
        await chat.say("yours", by=type(ANN)("8", "Ben"))
        await chat.say("mine too", forwarded=True)
        await chat.shown("yours", "✓")
        assert [message.text for message in messages(office)] == ["mine\n\nmine too", "yours"]


async def test_an_edit_of_what_is_still_gathered_replaces_its_text(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=seeing(), join_s=0.2) as office:
        first = await chat.say("what is this?", files=picture(chat, 1), album="a")
        await chat.say("", files=picture(chat, 2), album="a")
        await chat.change(first, "what are these?")
        await chat.shown("what are these?", "✓")
        assert [message.text for message in messages(office)] == ["what are these?"]
        assert not any("Already with the agent" in shown.text for shown in chat.messages)


async def test_an_edit_of_one_part_leaves_the_others(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines_for({"env": {}}), join_s=0.1) as office:
        await chat.say("slow 30")
        await chat.shown("▸", "step 1")
        await chat.say("melon", album="a")
        second = await chat.say("plum", album="a")
        await chat.shown("⏳ queued, 1st")
        await chat.change(second, "apple")
        await chat.until(lambda: messages(office)[-1].text == "melon\n\napple")


async def test_a_cancel_withdraws_an_album_that_is_gathered(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=seeing(), join_s=0.3) as office:
        await chat.say("never", files=picture(chat, 1), album="a")
        await chat.say("", files=picture(chat, 2), album="a")
        await chat.say("/cancel")
        await chat.shown("■ 2 messages withdrawn.")
        await chat.say("but this")
        await chat.shown("but this", "✓")
        assert [message.text for message in messages(office)] == ["but this"]


async def test_a_tap_does_not_wait_for_a_download(tmp_path: Path) -> None:
    chat = FakeChat()
    begun, fetch = anyio.Event(), anyio.Event()

    async def slow(file: FileIn, limit: int) -> bytes:
        begun.set()
        await fetch.wait()
        return b"at last"

    async with office_with(tmp_path, chat, engines=seeing()):
        await chat.say("permission please")
        asked = await chat.shown(button="Deny")
        chat.fetch = slow  # type: ignore[method-assign]
        await chat.say("look", files=(FileIn("f1", "photo.jpg", "image/jpeg", 7),))
        await begun.wait()
        await chat.tap(asked, "Deny")
        await chat.shown("✗ Denied by Ann")
        await chat.say("/status")
        await chat.shown("today:")
        fetch.set()
        await chat.shown("look", "✓")


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (FileIn("f1", "movie.mp4", "video/mp4", 5), "movie.mp4 was not taken: only texts, pictures and documents"),
        (FileIn("f1", "big.pdf", "application/pdf", 50_000_000), "big.pdf was not taken: it has 50 MB, and at most"),
    ],
)
async def test_what_is_not_taken_is_said(tmp_path: Path, file: FileIn, words: str) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=seeing()) as office:
        await chat.say("look", files=(file,))
        await chat.shown(f"✗ {words}")
        assert messages(office) == []


async def test_an_engine_that_takes_no_pictures_is_named(tmp_path: Path) -> None:
    chat = FakeChat()
    engines = engines_for()
    demo = engines.get("demo")
    assert demo is not None
    demo.runner.capabilities = Capabilities(followup=True)  # type: ignore[misc]
    async with office_with(tmp_path, chat, engines=engines):
        await chat.say("look", files=picture(chat, 1))
        await chat.shown("✗ photo.jpg was not taken: demo takes only text files. Send the text itself.")


async def test_a_name_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    chat = FakeChat()
    chat.files["f1"] = b"x"
    async with office_with(tmp_path, chat, engines=seeing()) as office:
        await chat.say("look", files=(FileIn("f1", "../../evil\n.png", "image/png", 1),))
        await chat.shown("look", "✓")
        (file,) = messages(office)[0].attachments
        assert Path(file.path).parent.parent == tmp_path / "incoming"
        assert Path(file.path).name == "_.._evil_.png"
