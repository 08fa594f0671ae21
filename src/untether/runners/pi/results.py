"""How a turn of Pi ended, and its errors in words for people.

A failed call of the provider is told as an assistant message with `stopReason` `error` and an `errorMessage` that
begins with the HTTP status: `401: {…}` (recording json_error_401). The table is tried from the top; what it does not
know keeps Pi's own words behind a general sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..turns import LONGEST_RAW, Outcome

NAME = "Pi"

_STATUS = re.compile(r"^\s*(\d{3})\b|\bstatus(?: code)?:? (\d{3})\b")


class Facts(NamedTuple):
    """What an error is recognised by: the HTTP status, and its text in lower case."""

    status: int | None
    text: str

    def says(self, *words: str) -> bool:
        return any(word in self.text for word in words)


class Failure(NamedTuple):
    applies: Callable[[Facts], bool]
    error: str
    advice: str = ""
    detail: Mapping[str, Any] = {}


def failed(text: str, written: str = "") -> Outcome:
    """The outcome for an error of which `text` is what Pi said."""
    facts = Facts(status_of(text), text.lower())
    failure = next((failure for failure in _FAILURES if failure.applies(facts)), _UNKNOWN)
    lost = "fresh" in failure.detail
    return Outcome(False, written, failure.error, failure.advice, text[:LONGEST_RAW], lost=lost, detail=failure.detail)


def status_of(text: str) -> int | None:
    found = _STATUS.search(text)
    return int(found[1] or found[2]) if found else None


def retry_reason(text: str) -> str:
    """Why the provider is called again."""
    status = status_of(text)
    if status == 429:
        return "the provider limits requests"
    if status == 529 or (status or 0) >= 500 or "overloaded" in text.lower():
        return "the provider is overloaded"
    return "the provider could not be reached" if status is None else f"the provider answered with error {status}"


_UNKNOWN = Failure(lambda facts: True, "Pi reported an error.", "Try again; the details have its own words.")

_FAILURES: tuple[Failure, ...] = (
    Failure(
        lambda facts: facts.says("no session found"),
        "The session to continue was not found.",
        "Start a new one with /new.",
        {"fresh": "not_found"},
    ),
    Failure(
        lambda facts: facts.says("usage limit", "quota", "insufficient_quota"),
        "The usage limit is reached.",
        "Wait until it resets, or use another model or account.",
        {"quota": True},
    ),
    Failure(
        lambda facts: facts.status == 401 or facts.says("no api key", "not logged in", "invalid api key", "use /login"),
        "Pi is not logged in to this provider, or its login has expired.",
        "Run `pi` on the machine and log in with /login, or set the provider's key, then try again.",
        {"login": True},
    ),
    Failure(
        lambda facts: facts.status == 403,
        "The provider does not let this account in.",
        "Check the account, or log in again with `pi` on the machine.",
    ),
    Failure(
        lambda facts: facts.status == 404 or facts.says("model not found", "no model selected", "no models available"),
        "This model does not exist, or this account may not use it.",
        "Name another one in the settings (model), or leave it out.",
    ),
    Failure(
        lambda facts: facts.says("context window", "context length", "too long", "maximum context"),
        "The conversation is too long for the model.",
        "Send /compact, start a new session with /new, or attach less.",
    ),
    Failure(
        lambda facts: facts.status == 413,
        "The message is too large for the model.",
        "Send a smaller file or a shorter text.",
    ),
    Failure(
        lambda facts: facts.status == 429 or facts.says("rate limit"),
        "The provider limits requests right now.",
        "Try again in a few minutes.",
    ),
    Failure(
        lambda facts: (facts.status or 0) >= 500 or facts.says("overloaded"),
        "The provider is overloaded or has an error.",
        "Try again in a moment.",
    ),
    Failure(
        lambda facts: facts.says("connection", "network", "fetch failed", "econn", "enotfound", "timed out", "timeout"),
        "The provider cannot be reached.",
        "Check the network and any proxy, then try again.",
    ),
    Failure(
        lambda facts: facts.status == 400,
        "The provider did not accept the request.",
        "Try again; if it stays so, start a new session with /new.",
    ),
)
