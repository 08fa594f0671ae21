"""What a result means, and its errors in words for people.

`is_error` decides, never `subtype`: a failed call of the API ends as `success` with `is_error` (claude-protocol §1, §7;
`terminal_reason` differs between the versions). The table of failures is tried from the top; what it does not know
keeps the CLI's own words behind a general sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from ...exit_text import how_it_ended, last_words
from ...schemas.claude import Result
from ...session import ProcessExit

_ABORTED = ("aborted_streaming", "aborted_tools")
_RESETS = re.compile(r"resets? (?:at )?(.{1,40}?)\.?$", re.MULTILINE)
_LONGEST_RAW = 4_000


class Outcome(NamedTuple):
    """How a turn ended, in the terms of `CompletedEvent` and `TurnEvent`.

    `lost` when the session does not exist; `detail` as in `CompletedEvent`.
    """

    ok: bool
    answer: str = ""
    error: str | None = None
    advice: str = ""
    raw_error: str = ""
    outcome: Literal["", "stopped", "ended_early"] = ""
    detail: Mapping[str, Any] = {}
    lost: bool = False


class Facts(NamedTuple):
    """What an error is recognised by: the HTTP status, the names that frames gave it, and its text."""

    status: int | None
    names: frozenset[str]
    text: str

    def says(self, *words: str) -> bool:
        text = self.text.lower()
        return any(word in text for word in words)


class Failure(NamedTuple):
    applies: Callable[[Facts], bool]
    error: str
    advice: str = ""
    detail: Mapping[str, Any] = {}


def read(result: Result, *, written: str, api_error: str, interrupted: bool) -> Outcome:
    """The outcome of a turn.

    `written` is the last text of the main agent in it, `api_error` the error name of its last synthetic message,
    `interrupted` whether we asked for its end.
    """
    failed = result.subtype != "success" if result.is_error is None else result.is_error
    aborted = result.terminal_reason in _ABORTED
    if failed and (aborted or (interrupted and result.subtype == "error_during_execution")):
        return stopped(written)
    if not failed and interrupted and not result.result:
        return stopped("")  # such as a compaction that was cut: the text is the CLI's own
    if not failed:
        return Outcome(True, result.result or written, outcome="stopped" if aborted else "")
    text = "\n".join(result.errors) or result.result or ""
    names = (
        result.subtype,
        result.terminal_reason,
        result.stop_reason,
        result.api_error,
        result.api_error_type,
        api_error,
    )
    failure = _failure(Facts(result.api_error_status, frozenset(name for name in names if name), text))
    return Outcome(
        False,
        written,
        failure.error,
        failure.advice,
        text[:_LONGEST_RAW],
        detail=failure.detail,
        lost="fresh" in failure.detail,
    )


def together(before: Result | None, result: Result) -> Result:
    """The latest of several results of one run, with the time and the steps of all."""
    if before is None:
        return result
    return msgspec.structs.replace(
        result,
        duration_ms=(before.duration_ms or 0) + (result.duration_ms or 0),
        num_turns=(before.num_turns or 0) + (result.num_turns or 0),
    )


def stopped(written: str) -> Outcome:
    return Outcome(False, written, "The run was stopped.", outcome="stopped")


def foreign_session(name: str, raw_error: str) -> Outcome:
    """The CLI went on with another session than the one it was to continue."""
    error = f"{name} went on with another session than the one asked for."
    return Outcome(False, "", error, "Try again, or start a new session with /new.", raw_error)


def login_lost(written: str, raw_error: str) -> Outcome:
    """The login was refused, and no more tries were wanted."""
    return Outcome(False, written, _LOGIN.error, _LOGIN.advice, raw_error, detail=_LOGIN.detail)


def not_compacted(why: str) -> Outcome:
    return Outcome(False, "", "The conversation could not be compacted.", "It goes on as it is.", why)


def empty_after_resume() -> Outcome:
    """The first turn of a resumed session came to nothing: no model was called, and nothing was said."""
    error = "The resumed session gave no answer."
    return Outcome(False, "", error, "Send it again, or start a new session with /new.", detail={"fresh": "empty"})


def already_known() -> Outcome:
    """The conversation had the message from before, so the CLI does not answer it again (claude-protocol-332)."""
    return Outcome(
        False, error="The agent had this message already and does not answer it again.", advice="Send it once more."
    )


def ended_early(name: str, exit: ProcessExit, written: str) -> Outcome:
    """The process ended in the middle of a turn."""
    if exit.stopped:
        return stopped(written)
    how, words = how_it_ended(exit), last_words(exit.stderr_tail)
    error = f"{name} ended before it answered" + (f" ({how})" if how else "")
    return Outcome(
        False,
        written,
        f"{error}: {words}" if words else f"{error}.",
        "Try again. If it stays so, start the agent in a terminal on the machine to see why.",
        exit.stderr_tail[-_LONGEST_RAW:],
        "ended_early",
    )


def _failure(facts: Facts) -> Failure:
    found = next((failure for failure in _FAILURES if failure.applies(facts)), _UNKNOWN)
    if found is _QUOTA and (resets := _RESETS.search(facts.text)):
        return found._replace(error=f"The usage limit is reached; it resets {resets[1]}.")
    return found


def _named(*names: str) -> Callable[[Facts], bool]:
    return lambda facts: not facts.names.isdisjoint(names)


_QUOTA = Failure(
    lambda facts: (
        _named("usage_limit_reached")(facts) or (facts.says("hit your", "limit reached") and "reset" in facts.text)
    ),
    "The usage limit is reached.",
    "Wait until it resets, or use another model or account.",
    {"quota": True},
)
_UNKNOWN = Failure(lambda facts: True, "Claude Code reported an error.", "Try again; the details have its own words.")

_LOGIN = Failure(
    lambda facts: (
        facts.status == 401
        or _named("authentication_failed", "authentication_error")(facts)
        or facts.says("please run /login", "invalid api key")
    ),
    "Claude Code is not logged in, or its login has expired.",
    "Run `claude` on the machine and log in with /login, then try again.",
    {"login": True},
)

_FAILURES: tuple[Failure, ...] = (
    Failure(
        lambda facts: facts.says("no conversation found", "requires a valid session id"),
        "The session to continue was not found.",
        "Start a new one with /new.",
        {"fresh": "not_found"},
    ),
    Failure(
        _named("error_max_turns", "max_turns"),
        "The limit of steps for one run is reached.",
        "Send “continue” to go on.",
    ),
    Failure(
        _named("error_max_budget_usd", "budget_exhausted"),
        "The budget of this session is used up.",
        "Raise the budget, or start a new session with /new.",
    ),
    Failure(
        _named("refusal"),
        "The model declined this request.",
        "Put it in other words, or start a new session with /new.",
    ),
    _QUOTA,
    Failure(
        lambda facts: _named("billing_error")(facts) or facts.says("credit balance"),
        "The credit of this account is used up.",
        "Add credit, or use another account.",
    ),
    Failure(
        lambda facts: facts.status == 403 or _named("permission_error", "oauth_org_not_allowed")(facts),
        "The provider does not let this account in.",
        "Check the account, or run `claude` on the machine and log in again with /login.",
    ),
    _LOGIN,
    Failure(
        lambda facts: facts.status == 404 or _named("model_not_found", "not_found_error")(facts),
        "This model does not exist, or this account may not use it.",
        "Name another one in the settings (model), or leave it out.",
    ),
    Failure(
        lambda facts: _named("prompt_too_long")(facts) or facts.says("prompt is too long"),
        "The conversation is too long for the model.",
        "Start a new session with /new, or attach less.",
    ),
    Failure(
        lambda facts: facts.status == 413 or _named("image_error", "request_too_large")(facts),
        "The message is too large for the model.",
        "Send a smaller file or a shorter text.",
    ),
    Failure(
        lambda facts: facts.status == 429 or _named("rate_limit", "rate_limit_error")(facts),
        "The provider limits requests right now.",
        "Try again in a few minutes.",
    ),
    Failure(
        lambda facts: (
            (facts.status or 0) >= 500
            or _named("overloaded", "overloaded_error", "server_error")(facts)
            or facts.says("overloaded")
        ),
        "The provider is overloaded or has an error.",
        "Try again in a moment.",
    ),
    Failure(
        lambda facts: facts.says("connection", "network", "econn", "enotfound", "timed out", "fetch failed"),
        "The provider cannot be reached.",
        "Check the network and any proxy, then try again.",
    ),
    Failure(
        lambda facts: facts.status == 400 or _named("invalid_request", "invalid_request_error")(facts),
        "The provider did not accept the request.",
        "Try again; if it stays so, start a new session with /new.",
    ),
    Failure(
        _named("max_output_tokens"),
        "The answer was longer than the model may write.",
        "Ask for less at once, or send “continue”.",
    ),
)
