"""What a refusing answer of the Bot API means for a call."""

from __future__ import annotations

from typing import Any

import pytest

from untether.transports.telegram.errors import from_answer


@pytest.mark.parametrize(
    ("code", "description", "kind"),
    [
        (400, "Bad Request: can't parse entities", "refused"),
        (400, "Bad Request: message is not modified: specified new message content …", "not_modified"),
        (400, "Bad Request: chat not found", "no_chat"),
        (400, "Bad Request: message to edit not found", "gone"),
        (400, "Bad Request: message to delete not found", "gone"),
        (400, "Bad Request: message can't be edited", "gone"),
        (400, "Bad Request: message can't be deleted for everyone", "gone"),
        (400, "Bad Request: MESSAGE_ID_INVALID", "gone"),
        (400, "Bad Request: have no rights to send a message", "no_chat"),
        (400, "Bad Request: not enough rights to send text messages to the chat", "no_chat"),
        (400, "Bad Request: not enough rights to send documents to the chat", "refused"),
        (400, "Bad Request: message thread not found", "gone"),
        (400, "Bad Request: query is too old and response timeout expired or query ID is invalid", "gone"),
        (401, "Unauthorized", "unauthorized"),
        (403, "Forbidden: bot was blocked by the user", "no_chat"),
        (403, "Forbidden: user is deactivated", "no_chat"),
        (403, "Forbidden: bot was kicked from the supergroup chat", "no_chat"),
        (404, "Not Found", "unauthorized"),
        (404, "Not Found: method not found", "not_found"),
        (409, "Conflict: terminated by other getUpdates request", "conflict"),
        (413, "Request Entity Too Large", "refused"),
        (429, "Too Many Requests: retry after 9", "later"),
        (500, "Internal Server Error", "later"),
        (502, "Bad Gateway", "later"),
        (504, "Gateway Timeout", "unknown"),
    ],
)
def test_the_kind_of_a_refusal(code: int, description: str, kind: str) -> None:
    assert from_answer(code, description, {}, repeatable=False).kind == kind


def test_a_call_that_may_be_repeated_has_no_unknown_fate() -> None:
    assert from_answer(504, "Gateway Timeout", {}, repeatable=True).kind == "later"


@pytest.mark.parametrize(
    ("code", "parameters", "expected"),
    [
        (429, {"retry_after": 35}, ("later", 35.0, None)),
        (429, {}, ("later", 1.0, None)),
        (400, {"migrate_to_chat_id": -1002001}, ("moved", 0.0, -1002001)),
    ],
)
def test_parameters_of_an_answer(
    code: int, parameters: dict[str, Any], expected: tuple[str, float, int | None]
) -> None:
    error = from_answer(code, "…", parameters, repeatable=False)
    assert (error.kind, error.retry_after, error.migrate_to) == expected


@pytest.mark.parametrize("words", ["Bad Request: message thread not found", "Bad Request: TOPIC_CLOSED"])
def test_a_topic_may_go_while_its_chat_stays(words: str) -> None:
    assert from_answer(400, words, {}, repeatable=False).topic_gone
    assert not from_answer(400, "Bad Request: chat not found", {}, repeatable=False).topic_gone
