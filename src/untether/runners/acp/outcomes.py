"""How a turn ended, and what went wrong, in words for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ...exit_text import how_it_ended, last_words
from ...schemas.acp import AUTH_REQUIRED, VERSION, AuthMethod
from ...schemas.jsonrpc import METHOD_NOT_FOUND, Failure
from ...session import ProcessExit
from ..claude.results import Outcome, ended_early, stopped
from .agents import Agent

__all__ = ["Outcome", "ended_early", "stopped"]

_LONGEST_RAW = 4_000
_SHOWN = 300  # characters of an agent's own words in a sentence
_NO_ACP = "Check `command` in the settings: it must start an agent that speaks ACP on its standard input and output."

_ENDS = {
    "max_tokens": ("The answer was longer than the model may write.", "Ask for less at once, or send “continue”."),
    "max_turn_requests": ("The limit of steps for one run is reached.", "Send “continue” to go on."),
    "refusal": (
        "The model declined this request.",
        "Put it in other words, or start a new session with /new.",
    ),
}


class _Known(NamedTuple):
    """A failure that is recognised by its text."""

    signs: re.Pattern[str]
    error: str
    advice: str
    detail: Mapping[str, Any] = {}


_LIMITED = _Known(
    re.compile(r"\b429\b|rate.?limit|too many requests|resource.?exhausted|quota|usage limit", re.IGNORECASE),
    "The provider limits requests right now.",
    "Try again in a few minutes, or use another model or account.",
)
_LOGIN = re.compile(
    r"\b401\b|api.?key (?:provided|not valid|not found)|invalid.{0,8}api.?key|incorrect api.?key|unauthori[sz]ed"
    r"|unauthenticated|authenticat|not logged in|please (?:run )?/?log.?in",
    re.IGNORECASE,
)
_FAILURES = (
    _LIMITED,
    _Known(
        re.compile(r"context.{0,20}(?:length|window|overflow|exceed)|prompt is too long", re.IGNORECASE),
        "The conversation is too long for the model.",
        "Start a new session with /new, or attach less.",
    ),
    _Known(
        re.compile(r"credit balance|insufficient.{0,10}(?:credit|funds|balance)|billing", re.IGNORECASE),
        "The credit of this account is used up.",
        "Add credit, or use another account.",
    ),
    _Known(
        re.compile(r"\b5\d\d\b|overloaded|high demand|unavailable|server error", re.IGNORECASE),
        "The provider is overloaded or has an error.",
        "Try again in a moment.",
    ),
    _Known(
        re.compile(r"econn|enotfound|fetch failed|network|timed? ?out|socket", re.IGNORECASE),
        "The provider cannot be reached.",
        "Check the network and any proxy, then try again.",
    ),
)
_NOT_FOUND = re.compile(r"not found|no such|unknown session|does not exist|no (?:rollout|conversation|session)", re.I)


def ended(reason: str, written: str, *, name: str, interrupted: bool, denied: bool, agent: Agent) -> Outcome:
    """The outcome for a stop reason. `denied`: the last thing that happened before it was a denial."""
    if interrupted:
        return stopped(written)
    if denied and (reason == "cancelled" or (agent.reject == "ends" and reason == "end_turn")):
        error = f"{name} ended the turn after the denial."
        return Outcome(False, written, error, "Say what to do instead.", outcome="stopped")
    if reason == "cancelled":
        return stopped(written)
    if known := _ENDS.get(reason):
        return Outcome(False, written, *known)
    return Outcome(True, written)


def failed(failure: Failure, written: str, *, name: str, agent: Agent, methods: list[AuthMethod]) -> Outcome:
    """A request failed, such as the prompt."""
    raw = raw_words(failure)
    if failure.code == AUTH_REQUIRED or (_LOGIN.search(raw) and not _LIMITED.signs.search(failure.message)):
        return Outcome(
            False,
            written,
            f"{name} is not logged in, or its login was not accepted.",
            agent.login or _login(methods),
            raw,
            detail={"login": True},
        )
    for known in _FAILURES:
        if known.signs.search(raw):
            return Outcome(False, written, known.error, known.advice, raw, detail=known.detail)
    words = last_words(_plain(failure.message), _SHOWN)
    error = f"{name} reported an error: {words}" if words else f"{name} reported an error."
    return Outcome(False, written, error, "Try again; the details have its own words.", raw)


def not_opened(failure: Failure, *, name: str, agent: Agent, methods: list[AuthMethod], resumed: bool) -> Outcome:
    """No session could be begun, or the one to resume not be loaded."""
    raw = raw_words(failure)
    if resumed and failure.code != AUTH_REQUIRED and (failure.code == -32002 or _NOT_FOUND.search(raw)):
        return Outcome(
            False,
            "",
            "The session to continue was not found.",
            "Start a new one with /new.",
            raw,
            detail={"fresh": "not_found"},
            lost=True,
        )
    return failed(failure, "", name=name, agent=agent, methods=methods)


def cannot_resume(name: str) -> Outcome:
    return Outcome(False, "", f"{name} cannot continue an earlier session.", "Start a new one with /new.")


def no_such(what: str, value: str, offered: list[str], name: str) -> Outcome:
    """A mode or model of the settings that the agent does not have."""
    known = f"It offers: {', '.join(offered)}." if offered else f"It offers no choice of a {what}."
    return Outcome(False, "", f"{name} has no {what} {value!r}.", f"{known} Correct the {what}, then try again.")


def not_set(what: str, value: str, failure: Failure, name: str) -> Outcome:
    """The agent did not take a mode or model."""
    return Outcome(
        False, "", f"{name} did not take the {what} {value!r}.", f"Choose another {what}.", raw_words(failure)
    )


# ------------------------------------------------------------------------------------------------- no ACP at all


def greeting_refused(failure: Failure, name: str) -> Outcome:
    raw = raw_words(failure)
    if failure.code == METHOD_NOT_FOUND:
        return Outcome(False, "", f"{name} does not speak the Agent Client Protocol.", _NO_ACP, raw)
    words = last_words(_plain(failure.message), _SHOWN)
    return Outcome(False, "", f"{name} refused the greeting: {words or 'it gave no reason'}.", _NO_ACP, raw)


def silent(name: str, seconds: float, doing: str) -> Outcome:
    error = f"{name} did not {doing} within {seconds:.0f} s."
    return Outcome(False, "", error, _NO_ACP)


def other_version(name: str, version: Any) -> Outcome:
    told = version if isinstance(version, int) and not isinstance(version, bool) else None
    if told is None:
        return Outcome(False, "", f"{name} does not say which version of ACP it speaks.", _NO_ACP)
    error = f"{name} speaks version {told} of the Agent Client Protocol; version {VERSION} is needed."
    older = "the agent" if told < VERSION else "Untether"
    return Outcome(False, "", error, f"Update {older}, then try again.")


def malformed(name: str, method: str) -> Outcome:
    return Outcome(False, "", f"The answer of {name} to {method} cannot be read.", _NO_ACP)


def never_greeted(name: str, exit: ProcessExit) -> Outcome:
    """It ended before it answered the first request."""
    if exit.stopped:
        return stopped("")
    how, words = how_it_ended(exit), last_words(exit.stderr_tail)
    error = f"{name} ended before it answered the greeting" + (f" ({how})" if how else "")
    raw = exit.stderr_tail[-_LONGEST_RAW:]
    return Outcome(False, "", f"{error}: {words}" if words else f"{error}.", _NO_ACP, raw, "ended_early")


# -------------------------------------------------------------------------------------------------------- words


def raw_words(failure: Failure) -> str:
    """All that the agent said of a failure."""
    text = failure.message
    if failure.data is not None:
        data = failure.data if isinstance(failure.data, str) else msgspec.json.encode(failure.data).decode()
        text = f"{text}\n{data}" if text else data
    return f"{text} (code {failure.code})"[:_LONGEST_RAW]


def _plain(message: str) -> str:
    """Without the frame that servers put around what went wrong."""
    return re.sub(r"^(?:Internal error|Error)\s*:\s*", "", message.strip())


def _login(methods: list[AuthMethod]) -> str:
    names = [method.name or method.id for method in methods if method.name or method.id]
    ways = f" It offers: {', '.join(names)}." if names else ""
    return f"Log in with the agent's own program on the machine, then try again.{ways}"
