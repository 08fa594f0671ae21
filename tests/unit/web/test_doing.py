"""Messages, taps and notices: what a person does on the console and what comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.unit.web.conftest import Console
from tests.unit.web.shown import NOW, run, shown, thread
from untether.conversation import cards
from untether.conversation.views import Page
from untether.model import Record
from untether.store.database import StoreError
from untether.text.blocks import Line
from untether.transport import Button, Card, ChatRef, FileIn, MessageIn, Priority, ReplyTo, Sender, SendFailed, TapIn

pytestmark = pytest.mark.anyio


def answering(console: Console, text: str) -> Callable[[Record], Awaitable[bool]]:
    """The router, as far as it answers every tap with the same words."""

    async def answer(inbound: Record) -> bool:
        assert isinstance(inbound, TapIn)
        return await console.transport.toast(inbound, text)

    return answer


def message_of(console: Console) -> MessageIn:
    (inbound,) = console.inbox.stored
    assert isinstance(inbound, MessageIn)
    return inbound


async def test_a_new_conversation_is_a_chat_of_its_own(console: Console) -> None:
    first = await console.post("/send", text="Fix the total")
    second = await console.post("/send", text="Write the docs")
    one, two = console.inbox.stored
    assert isinstance(one, MessageIn)
    assert (one.text, one.sender, one.date, one.reply_to) == ("Fix the total", Sender("console", "console"), NOW, None)
    assert (one.chat.transport, one.chat.chat) == ("web", "console")
    assert one.chat.thread
    assert one.chat.thread != two.chat.thread
    assert first.headers["location"] == f"/chat/{one.chat.thread}"
    assert second.headers["location"] == f"/chat/{two.chat.thread}"
    assert len({key for _, key in console.inbox.keys}) == 2


async def test_a_new_conversation_leads_to_its_run(console: Console) -> None:
    where = (await console.post("/send", text="Fix the total")).headers["location"]
    assert "Sent. The agent starts in a moment." in (await console.get(where)).text
    chat = message_of(console).chat
    other = Page(thread(2), "shop", (shown(run(6, "running", started=NOW)),), ())
    console.show(other, Page(thread(1, chat), "shop", (shown(run(7, "running", started=NOW)),), ()))
    assert (await console.get(where)).headers["location"] == "/run/7#end"
    assert (await console.get(where, **{"hx-request": "true"})).headers["hx-redirect"] == "/run/7#end"


async def test_what_was_chosen_goes_before_the_text(console: Console) -> None:
    await console.post("/send", text="Fix it", engine="demo", project="docs", branch="@fix-cart")
    assert message_of(console).text == "/demo /docs @fix-cart Fix it"


async def test_what_cannot_be_chosen_is_left_out(console: Console) -> None:
    await console.post("/send", text="Fix it", engine="evil", project="")
    assert message_of(console).text == "Fix it"


async def test_a_wrong_branch_is_said_and_the_text_stays(console: Console) -> None:
    answer = await console.post("/send", text="Fix it", project="docs", branch="two words")
    assert answer.status_code == 422
    assert "A branch name has no spaces" in answer.text
    assert ">\nFix it</textarea>" in answer.text
    assert '<option value="docs" selected>' in answer.text
    assert console.inbox.stored == []


@pytest.mark.parametrize("transport", ["telegram", "web"])
async def test_a_conversation_of_any_chat_goes_on(console: Console, transport: str) -> None:
    console.show(Page(thread(5, ChatRef(transport, "1001", "topic")), "shop", (shown(run(1)), shown(run(2))), ()))
    answer = await console.post("/send", text="Now push it", run="2", engine="demo")
    assert answer.headers["location"] == "/run/2"
    inbound = message_of(console)
    assert inbound.text == "Now push it"
    assert inbound.reply_to == ReplyTo("run:2", ours=True)
    # A conversation of the console keeps its chat; one from elsewhere gets one that stays the same.
    assert inbound.chat == ChatRef("web", "console", "topic" if transport == "web" else "t5")


@pytest.mark.parametrize("text", ["", "   ", "\r\n \t", "\0"])
async def test_an_empty_message_is_refused_in_place(console: Console, text: str) -> None:
    console.show(Page(thread(), "shop", (shown(run(1)),), ()))
    for where in ({}, {"run": "1"}, {"thread": "abc"}):
        answer = await console.post("/send", text=text, **where)
        assert answer.status_code == 422
        assert "✗ There is no text in this message." in answer.text
    assert console.inbox.stored == []


async def test_a_message_of_a_million_characters_is_taken(console: Console) -> None:
    text = "🙂" * 1_000_000
    form = {"token": (None, await console.form_token()), "text": (None, text)}
    answer = await console.browser.post("/send", files=form, headers={"origin": console.address})
    assert answer.status_code == 303
    assert message_of(console).text == text


async def test_a_longer_one_is_refused(console: Console) -> None:
    answer = await console.post("/send", text="x" * 1_000_001)
    assert answer.status_code == 422
    assert "too long (1,000,001 characters, at most 1,000,000)" in answer.text


@pytest.mark.parametrize("text", ["-p rm", "/status", "a\0b", "é\u2028ü", "line one\nline two", "<b>&amp;"])
async def test_odd_texts_arrive_as_they_are(console: Console, text: str) -> None:
    await console.post("/send", text=text.replace("\n", "\r\n"))
    assert message_of(console).text == text


async def test_a_message_that_cannot_be_kept_is_said_and_stays_in_the_box(console: Console) -> None:
    console.inbox.fail = StoreError("full", "untether.db")
    answer = await console.post("/send", text="Fix it")
    assert answer.status_code == 503
    assert "Not sent, nothing was kept." in answer.text
    assert ">\nFix it</textarea>" in answer.text


# ------------------------------------------------------------------------------------------------------- taps


async def test_a_tap_and_the_words_that_answer_it(console: Console) -> None:
    console.show(Page(thread(), "shop", (shown(run(1, "running")),), ()))

    async def decide(inbound: Record) -> None:
        assert isinstance(inbound, TapIn)
        assert await console.transport.toast(inbound, "Approved")

    console.inbox.on_store = decide
    answer = await console.post("/tap", data="i:k1:a", run="1", back="/run/1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/run/1")
    (tap,) = console.inbox.stored
    assert isinstance(tap, TapIn)
    assert (tap.data, tap.sender.name, tap.chat) == ("i:k1:a", "console", ChatRef("web", "console", "t1"))
    assert '<p id="toast" role="status">Approved</p>' in (await console.get("/run/1")).text
    console.clock.pass_by(10)
    assert 'id="toast"' not in (await console.get("/run/1")).text
    assert not await console.transport.toast(tap, "too late")


async def test_a_tap_is_decoded_as_it_was_stored(console: Console) -> None:
    console.inbox.on_store = answering(console, "")
    await console.post("/tap", data="i:k1:d", text=" not on a Friday ", back="/")
    (tap,) = console.inbox.stored
    assert isinstance(tap, TapIn)
    assert tap.data == "i:k1:d:not on a Friday"
    assert console.transport.may_act(tap)


async def test_a_reason_never_changes_what_a_button_does(console: Console) -> None:
    console.inbox.on_store = answering(console, "")
    await console.post("/tap", data="i:k1:a", text="reason")
    await console.post("/tap", data="stop:1", text="reason")
    assert [tap.data for tap in console.inbox.stored if isinstance(tap, TapIn)] == ["i:k1:a", "stop:1"]


@pytest.mark.parametrize("data", ["", "x" * 65])
async def test_data_of_no_button(console: Console, data: str) -> None:
    assert (await console.post("/tap", data=data)).status_code == 400
    assert console.inbox.stored == []


@pytest.mark.parametrize("back", ["https://evil.example", "//evil.example", "/logout", "/run/1/../../x", "/run/1\n"])
async def test_a_tap_leads_only_to_pages_of_ours(console: Console, back: str) -> None:
    console.inbox.on_store = answering(console, "")
    assert (await console.post("/tap", data="stop:1", back=back)).headers["location"] == "/"


async def test_a_tap_that_nobody_answers(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("untether.transports.web.app._TOAST_PATIENCE", 0.01)
    await console.post("/tap", data="stop:1", back="/")
    assert '<p id="toast" role="status">…</p>' in (await console.get("/")).text


async def test_a_tap_that_cannot_be_kept(console: Console) -> None:
    console.inbox.fail = StoreError("full", "untether.db")
    await console.post("/tap", data="stop:1", back="/")
    assert "Not done, nothing was kept." in (await console.get("/")).text


async def test_two_browsers_get_their_own_words(console: Console) -> None:
    other = console.new_browser()
    await console.pair(other)
    console.inbox.on_store = answering(console, "Stopping…")
    await console.post("/tap", data="stop:1", back="/")
    assert "Stopping…" in (await console.get("/")).text
    assert "Stopping…" not in (await other.get("/")).text


# ---------------------------------------------------------------------------------------------------- notices


def notice(text: str, *buttons: Button) -> Card:
    return Card((Line(text),), buttons=(buttons,) if buttons else ())


async def test_the_reply_to_a_command_is_shown_where_it_was_sent(console: Console) -> None:
    where = (await console.post("/send", text="/status")).headers["location"]
    chat = message_of(console).chat
    sent = await console.transport.send(chat, notice("Nothing <b>runs</b>."), Priority.NOTICE)
    assert sent.startswith("web:")
    for path in (where, "/"):
        page = (await console.get(path)).text
        assert "Nothing &lt;b&gt;runs&lt;/b&gt;." in page
        assert "Sent. The agent starts" not in page
    elsewhere = await console.get("/chat/other")
    assert "Nothing &lt;b&gt;" not in elsewhere.text


async def test_a_notice_of_a_conversation_is_on_its_page(console: Console) -> None:
    console.show(Page(thread(5), "shop", (shown(run(1)),), ()))
    await console.transport.send(ChatRef("web", "console", "t5"), notice("■ Stopped."), Priority.NOTICE)
    assert "■ Stopped." in (await console.get("/run/1")).text


async def test_a_notice_is_dismissed_replaced_removed_and_forgotten(console: Console) -> None:
    chat = ChatRef("web", "console", "abc")
    ids = [await console.transport.send(chat, notice(f"notice {n}."), Priority.NOTICE) for n in range(3)]
    await console.transport.edit(chat, ids[1], notice("changed."), Priority.NOTICE)
    await console.transport.delete(chat, ids[2])
    answer = await console.post("/dismiss", id=ids[0], back="/chat/abc")
    assert answer.headers["location"] == "/chat/abc"
    page = (await console.get("/chat/abc")).text
    assert "changed." in page
    assert "notice " not in page.split("<main")[1].replace('id="notice', "").replace('class="notice', "")
    console.clock.pass_by(3601)
    assert "changed." not in (await console.get("/")).text


async def test_the_buttons_of_a_notice_are_taps(console: Console) -> None:
    card = notice("For example:", Button("Explain", "try:Explain"), Button("Copy", copy="x"))
    await console.transport.send(ChatRef("web", "console", "abc"), card, Priority.NOTICE)
    assert 'value="try:Explain"' in (await console.get("/chat/abc")).text
    console.inbox.on_store = answering(console, "Sent")
    await console.post("/tap", data="try:Explain", back="/chat/abc")
    (tap,) = console.inbox.stored
    assert tap.chat.thread == "abc"


async def test_what_pages_show_by_themselves_is_no_notice(console: Console) -> None:
    chat = ChatRef("web", "console", "abc")
    for card in (
        cards.queued(1, "m:1"),
        cards.interrupted(1, "title"),
        cards.failure(1, "No.", "", details=True),
        notice("▸ claude", Button("Stop", "stop:1")),
    ):
        await console.transport.send(chat, card, Priority.NOTICE)
    await console.transport.send(chat, notice("answer"), Priority.ANSWER)
    await console.transport.send(chat, notice("request"), Priority.INTERACTION)
    assert 'class="notice"' not in (await console.get("/chat/abc")).text


# -------------------------------------------------------------------------------------------------- the rest


async def test_the_rest_of_the_transport(console: Console) -> None:
    transport = console.transport
    assert (transport.name, transport.shows_all) == ("web", True)
    card = notice("x")
    assert transport.parts(card) == [card]
    transport.paint(ChatRef("web", "console"), "web:1", card)
    with pytest.raises(ValueError, match="not an update of the console"):
        transport.decode(b'{"type": "other"}')
    with pytest.raises(SendFailed):
        await transport.fetch(FileIn("f", "a.txt"), 1)
    assert "not served" in transport.health()
