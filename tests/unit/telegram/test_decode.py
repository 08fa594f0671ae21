"""Updates as Telegram sends them become messages and taps of persons, and nothing else does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from untether.transport import ChatRef, FileIn, MessageIn, ReplyTo, Sender, TapIn
from untether.transports.telegram.decode import decode

BOT = 123456
ANN: dict[str, Any] = {"id": 1001, "is_bot": False, "first_name": "Ann", "last_name": "Lee", "username": "ann"}
OUR_BOT: dict[str, Any] = {"id": BOT, "is_bot": True, "first_name": "Bot"}
PRIVATE: dict[str, Any] = {"id": 1001, "type": "private", "first_name": "Ann"}
FORUM: dict[str, Any] = {"id": -1002001, "type": "supergroup", "title": "Team", "is_forum": True}


def message(kind: str = "message", **fields: Any) -> MessageIn | TapIn | None:
    body = {"message_id": 7, "from": ANN, "chat": PRIVATE, "date": 1_700_000_000, **fields}
    return decode(json.dumps({"update_id": 1, kind: body}).encode(), BOT)


def text_of(**fields: Any) -> MessageIn:
    found = message(**fields)
    assert isinstance(found, MessageIn)
    return found


def test_a_text() -> None:
    assert message(text="fix the bug") == MessageIn(
        ChatRef("telegram", "1001"), Sender("1001", "Ann Lee"), "7", "fix the bug", 1_700_000_000.0
    )


def test_an_edited_text_says_so_and_when() -> None:
    found = message("edited_message", text="fix it", edit_date=1_700_000_060)
    assert isinstance(found, MessageIn)
    assert (found.text, found.edited, found.date) == ("fix it", True, 1_700_000_060.0)


def test_a_tap() -> None:
    query = {"id": "99", "from": ANN, "chat_instance": "1", "data": "i:abc:a"}
    update = {"update_id": 1, "callback_query": {**query, "message": {"message_id": 8, "chat": PRIVATE, "date": 0}}}
    assert decode(json.dumps(update).encode(), BOT) == TapIn(
        ChatRef("telegram", "1001"), Sender("1001", "Ann Lee"), "8", "i:abc:a", "99"
    )


def test_a_tap_without_message_or_data_is_none_of_ours() -> None:
    for query in ({"id": "9", "from": ANN, "data": "x", "inline_message_id": "q"}, {"id": "9", "from": ANN}):
        assert decode(json.dumps({"update_id": 1, "callback_query": query}).encode(), BOT) is None


@pytest.mark.parametrize(
    ("fields", "thread"),
    [
        ({"message_thread_id": 42, "is_topic_message": True}, "42"),
        ({"message_thread_id": 42}, ""),  # a reply in a group without topics
        ({}, ""),  # General
    ],
)
def test_only_a_message_of_a_topic_has_a_thread(fields: dict[str, Any], thread: str) -> None:
    assert text_of(text="hi", chat=FORUM, **fields).chat == ChatRef("telegram", "-1002001", thread)


def test_a_tap_in_a_topic_belongs_to_the_topic() -> None:
    where = {"message_id": 8, "chat": FORUM, "date": 1, "message_thread_id": 42, "is_topic_message": True}
    update = {"update_id": 1, "callback_query": {"id": "9", "from": ANN, "data": "x", "message": where}}
    found = decode(json.dumps(update).encode(), BOT)
    assert found is not None
    assert found.chat.thread == "42"


def test_a_reply_carries_the_text_it_answers_and_the_quote_wins() -> None:
    ours = {"message_id": 5, "chat": PRIVATE, "date": 1, "from": OUR_BOT, "text": "one two three"}
    assert text_of(text="why?", reply_to_message=ours).reply_to == ReplyTo("5", "one two three", True)
    quoted = text_of(text="why?", reply_to_message=ours, quote={"text": "two", "position": 4})
    assert quoted.reply_to == ReplyTo("5", "two", True)
    theirs = {"message_id": 5, "chat": PRIVATE, "date": 1, "from": ANN, "caption": "a picture", "photo": []}
    assert text_of(text="why?", reply_to_message=theirs).reply_to == ReplyTo("5", "a picture", False)


def test_the_opening_message_of_a_topic_is_not_answered_by_every_message_in_it() -> None:
    topic = {"chat": FORUM, "message_thread_id": 42, "is_topic_message": True}
    root = {"message_id": 42, "chat": FORUM, "date": 1, "from": ANN, "forum_topic_created": {"name": "T"}}
    assert text_of(text="hi", reply_to_message=root, **topic).reply_to is None
    del root["forum_topic_created"]  # a topic that came from a channel post or was imported
    assert text_of(text="hi", reply_to_message=root, **topic).reply_to is None
    other = {**root, "message_id": 43, "text": "a question"}
    assert text_of(text="hi", reply_to_message=other, **topic).reply_to == ReplyTo("43", "a question", False)


def test_files() -> None:
    document = {"file_id": "D", "file_unique_id": "u", "file_name": "a.txt", "mime_type": "text/plain", "file_size": 9}
    found = text_of(caption="read this", document=document)
    assert (found.text, found.files) == ("read this", (FileIn("D", "a.txt", "text/plain", 9),))
    sizes = [{"file_id": name, "file_size": size, "width": 1, "height": 1} for name, size in (("S", 10), ("L", 90))]
    assert text_of(photo=sizes).files == (FileIn("L", "photo.jpg", "image/jpeg", 90),)
    assert text_of(voice={"file_id": "V", "duration": 3}).files == (FileIn("V", "voice message"),)


def test_content_that_we_do_not_take_is_passed_on_empty_so_that_it_can_be_answered() -> None:
    found = text_of(location={"latitude": 1.5, "longitude": 2.5})
    assert (found.text, found.files) == ("", ())


@pytest.mark.parametrize(
    "fields",
    [
        {"new_chat_members": [ANN]},
        {"pinned_message": {"message_id": 1, "chat": PRIVATE, "date": 1}},
        {"migrate_to_chat_id": -100},
        {"forum_topic_created": {"name": "T", "icon_color": 1}},
        {"text": "hi", "from": None},
        {"text": "hi", "from": {**ANN, "is_bot": True}},
        {"something_new": {"a": 1}},
    ],
)
def test_what_no_person_said_is_nothing(fields: dict[str, Any]) -> None:
    assert message(**fields) is None


def test_kinds_of_updates_that_we_do_not_know_are_nothing() -> None:
    assert decode(b'{"update_id": 1, "some_new_kind": {"x": [1]}}', BOT) is None


def test_halves_of_surrogate_pairs_are_shown_as_damaged() -> None:
    raw = json.dumps(
        {"update_id": 1, "message": {"message_id": 7, "from": ANN, "chat": PRIVATE, "text": "a\ud83d \U0001f600"}}
    )
    assert "\\ud83d " in raw
    found = decode(raw.encode(), BOT)
    assert isinstance(found, MessageIn)
    assert found.text == "a\ufffd \U0001f600"


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"update_id": "x"}', b'{"update_id": 1, "message": {"chat": 3}}'])
def test_what_is_no_update_is_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode(raw, BOT)


def test_a_picture_of_an_album_and_a_forward_say_so() -> None:
    photo = [{"file_id": "p", "width": 9, "height": 9, "file_size": 5}]
    found = text_of(photo=photo, caption="two of us", media_group_id="777")
    assert (found.album, found.forwarded, found.text) == ("777", False, "two of us")
    origin = {"type": "hidden_user", "sender_user_name": "Somebody", "date": 1}
    assert text_of(text="read this", forward_origin=origin).forwarded
