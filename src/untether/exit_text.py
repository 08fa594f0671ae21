"""How the end of an agent process is told to a person: exit code or signal, session, and its last words made safe."""

from __future__ import annotations

import re

from .model import ResumeToken
from .session import ProcessExit

_LONGEST_WORDS = 300
_SHORT_SESSION = 8

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_URL = re.compile(r"(?<![a-zA-Z0-9])[a-zA-Z][a-zA-Z0-9+.-]{0,20}://[^\s'\"`<>]*")
_PATH = re.compile(r"(?<![\w./~\\-])(?:~[\w.-]*/|\.{0,2}/|[A-Za-z]:[\\/]|\\\\)[^\s'\"`<>:;,()\[\]{}|*?]+")


def short_session(token: ResumeToken) -> str:
    """Enough of a session id to tell it from others."""
    return token.value[:_SHORT_SESSION]


def last_words(stderr: str, limit: int = _LONGEST_WORDS) -> str:
    """The end of an agent's stderr in one line of at most `limit` characters, without paths, URLs or control codes."""
    text = _ESCAPES.sub("", stderr)
    text = _PATH.sub("[path]", _URL.sub("[url]", text))
    text = "".join(char if char.isprintable() else " " for char in text)
    text = " ".join(text.split())
    return text if len(text) <= limit else "…" + text[1 - limit :].lstrip()


def how_it_ended(exit: ProcessExit) -> str:
    """ "exit code 3" or "SIGKILL"; "" when it ended well or nobody knows how."""
    if exit.signal:
        return exit.signal
    return f"exit code {exit.code}" if exit.code else ""


def exit_error(engine: str, exit: ProcessExit, *, session: ResumeToken | None, resumed: bool) -> str:
    """The sentence for an agent that ended with an error, its last words not included.

    Such as "codex ended with exit code 1 (session 0199a213, resumed)".
    """
    how = how_it_ended(exit)
    age = "resumed" if resumed else "new"
    which = f"session {short_session(session)}, {age}" if session else f"{age} session"
    verb = "was ended by" if exit.signal else "ended with"
    return f"{engine} {verb} {how or 'an error'} ({which})"


def with_last_words(error: str, stderr: str) -> str:
    """`error` with the agent's last words behind it, when it has any and they are not in it already."""
    words = last_words(stderr)
    if not words or words in error:
        return error
    return f"{error.rstrip('.')}: {words}"
