"""How a turn of Codex ended, and its errors in words for people.

`turn/completed` decides: `completed`, `interrupted` or `failed`, the last with an error whose `codexErrorInfo` is a
name or an object with one (recordings as_error_*). The table is tried from the top; what it does not know keeps
Codex's own words behind a general sentence. Those may hold the provider's address, so they stay in the details.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...schemas.codex import RpcError, TurnError
from ..turns import LONGEST_RAW, Outcome

NAME = "Codex"

_STATUS = re.compile(r"\bstatus:? (\d{3})\b")


class Facts(NamedTuple):
    """What an error is recognised by: the name it was given, the HTTP status, and its text in lower case."""

    name: str
    status: int | None
    text: str

    def says(self, *words: str) -> bool:
        return any(word in self.text for word in words)


class Failure(NamedTuple):
    applies: Callable[[Facts], bool]
    error: str
    advice: str = ""
    detail: Mapping[str, Any] = {}


def failed(error: TurnError | None, written: str) -> Outcome:
    """A turn that ended as `failed`."""
    if error is None:
        return Outcome(False, written, "Codex reported an error.", "Try again.")
    name, status = code(error.codex_error_info)
    raw = "\n".join(filter(None, (error.message, error.additional_details)))
    return _outcome(Facts(name, status or status_of(raw), raw.lower()), written, raw)


def failed_text(text: str, written: str) -> Outcome:
    """An error of which only the text is known, as `codex exec` tells it."""
    return _outcome(Facts("", status_of(text), text.lower()), written, text)


def refused(error: RpcError) -> Outcome:
    """Codex refused to start or resume the thread, or to begin a turn."""
    return failed_text(error.message, "")


def code(info: Any) -> tuple[str, int | None]:
    """The name in `codexErrorInfo`, and the HTTP status that comes with some."""
    if isinstance(info, str):
        return info, None
    if isinstance(info, dict) and info:
        name, facts = next(iter(info.items()))
        status = facts.get("httpStatusCode") if isinstance(facts, dict) else None
        return str(name), status if isinstance(status, int) else None
    return "", None


def status_of(text: str) -> int | None:
    """The HTTP status that a text tells."""
    found = _STATUS.search(text)
    return int(found[1]) if found else None


def _outcome(facts: Facts, written: str, raw: str) -> Outcome:
    failure = next((failure for failure in _FAILURES if failure.applies(facts)), _UNKNOWN)
    lost = "fresh" in failure.detail
    return Outcome(False, written, failure.error, failure.advice, raw[:LONGEST_RAW], lost=lost, detail=failure.detail)


def _named(*names: str) -> Callable[[Facts], bool]:
    return lambda facts: facts.name in names


_UNKNOWN = Failure(lambda facts: True, "Codex reported an error.", "Try again; the details have its own words.")

_FAILURES: tuple[Failure, ...] = (
    Failure(
        lambda facts: facts.says("no rollout found", "invalid thread id", "thread not found"),
        "The session to continue was not found.",
        "Start a new one with /new.",
        {"fresh": "not_found"},
    ),
    Failure(
        lambda facts: facts.says("already has an active writer"),
        "This session is open in another Codex.",
        "Close it there, then try again.",
    ),
    Failure(
        lambda facts: _named("usageLimitExceeded")(facts) or facts.says("hit your usage limit"),
        "The usage limit is reached.",
        "Wait until it resets, or use another model or account.",
        {"quota": True},
    ),
    Failure(
        _named("sessionBudgetExceeded"),
        "The budget of this session is used up.",
        "Raise the budget, or start a new session with /new.",
    ),
    Failure(
        lambda facts: _named("contextWindowExceeded")(facts) or facts.says("context window"),
        "The conversation is too long for the model.",
        "Start a new session with /new, or attach less.",
    ),
    Failure(
        lambda facts: facts.status == 401 or _named("unauthorized")(facts) or facts.says("not logged in"),
        "Codex is not logged in, or its login has expired.",
        "Run `codex login` on the machine, then try again.",
        {"login": True},
    ),
    Failure(
        lambda facts: facts.status == 403,
        "The provider does not let this account in.",
        "Check the account, or run `codex login` on the machine.",
    ),
    Failure(
        lambda facts: facts.status == 404 or _named("modelNotFound")(facts),
        "This model does not exist, or this account may not use it.",
        "Name another one in the settings (model), or leave it out.",
    ),
    Failure(
        lambda facts: facts.status == 429 or _named("rateLimitExceeded", "flexUnavailable")(facts),
        "The provider limits requests right now.",
        "Try again in a few minutes.",
    ),
    Failure(
        lambda facts: (
            (facts.status or 0) >= 500
            or _named("serverOverloaded", "internalServerError", "policyCapacityUnavailable")(facts)
            or facts.says("high demand")
        ),
        "The provider is overloaded or has an error.",
        "Try again in a moment.",
    ),
    Failure(
        _named("cyberPolicy", "bioPolicy", "misalignmentPolicyViolation", "inferenceHookDenied"),
        "The model declined this request.",
        "Put it in other words, or start a new session with /new.",
    ),
    Failure(
        _named("tooManyDenials"),
        "Codex gave up because too much was denied.",
        "Say what it should do instead, and try again.",
    ),
    Failure(
        _named("sandboxError"),
        "The sandbox of Codex could not be set up.",
        "Run `codex` in a terminal on the machine to see why.",
    ),
    Failure(
        _named("responseStreamDisconnected", "responseTooManyFailedAttempts"),
        "The connection to the provider broke off.",
        "Try again in a moment.",
    ),
    Failure(
        lambda facts: (
            _named("httpConnectionFailed", "responseStreamConnectionFailed")(facts)
            or facts.says("connection", "network", "dns", "timed out", "stream disconnected")
        ),
        "The provider cannot be reached.",
        "Check the network and any proxy, then try again.",
    ),
    Failure(
        lambda facts: facts.status == 400 or _named("badRequest")(facts),
        "The provider did not accept the request.",
        "Try again; if it stays so, start a new session with /new.",
    ),
)
