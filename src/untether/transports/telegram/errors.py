"""What a call of the Bot API can end with, besides its result: one error with a kind, read from the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

ApiErrorKind: TypeAlias = Literal[
    "refused",  # it will never be accepted in this form
    "gone",  # the topic or message is no longer there
    "no_chat",  # the chat is no longer there, or the bot may not write in it
    "moved",  # the chat has another id now, `migrate_to`
    "later",  # it had no effect, or may be repeated without harm: try again, after `retry_after` seconds if given
    "unknown",  # the request left and its fate is not known
    "conflict",  # somebody else receives with this token
    "unauthorized",  # the token is refused
    "not_modified",  # the message already looks like that
    "not_found",  # the server does not know the method
]

# Words of the 400 answers that say "no longer there", from the sources of telegram-bot-api (`Client.cpp`).
_NO_CHAT = (
    "chat not found",
    "user not found",
    "group chat was deactivated",
    "chat_write_forbidden",
    "chat_send_plain_forbidden",
    "have no rights to send",
    "not enough rights to send text",
)
_TOPIC_GONE = ("message thread not found", "topic_closed", "topic_deleted")
_GONE = (
    "message to edit not found",
    "message can't be edited",
    "message to delete not found",
    "message can't be deleted",
    "message_id_invalid",
    "query is too old",
    "query_id_invalid",
    *_TOPIC_GONE,
)


class ApiError(Exception):
    """A call that did not succeed. `detail` is in Telegram's words; `migrate_to` is the new id of a migrated group."""

    def __init__(
        self, kind: ApiErrorKind, detail: str, *, retry_after: float = 0.0, migrate_to: int | None = None
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after
        self.migrate_to = migrate_to

    @property
    def topic_gone(self) -> bool:
        """The chat is there, but its topic was closed or deleted."""
        return any(words in self.detail.lower() for words in _TOPIC_GONE)


def from_answer(code: int, description: str, parameters: Mapping[str, Any], *, repeatable: bool) -> ApiError:
    """The error that a refusing answer means (https://core.telegram.org/bots/api#making-requests).

    `repeatable` says that making the same call twice does no harm, as with edits, deletions and queries.
    """
    words = description.lower()
    if (migrate_to := parameters.get("migrate_to_chat_id")) is not None:
        return ApiError("moved", description, migrate_to=int(migrate_to))
    if code == 429:
        return ApiError("later", description, retry_after=float(parameters.get("retry_after") or 1))
    if code == 401 or (code == 404 and words.removeprefix("not found").strip() == ""):
        return ApiError("unauthorized", description)  # 404 without more: a token that cannot be one
    if code == 403:
        return ApiError("no_chat", description)
    if code == 404:
        return ApiError("not_found", description)
    if code == 409:
        return ApiError("conflict", description)
    if code == 504 and not repeatable:
        return ApiError("unknown", description)  # a proxy gave up waiting for the server
    if code >= 500:
        # The server says that it failed. Should the call have had an effect in spite of that, then the message is
        # seen twice, which is better than an answer that is given up because Telegram is down for a minute.
        return ApiError("later", description)
    if "message is not modified" in words:
        return ApiError("not_modified", description)
    if any(gone in words for gone in _NO_CHAT):
        return ApiError("no_chat", description)
    if any(gone in words for gone in _GONE):
        return ApiError("gone", description)
    return ApiError("refused", description)
