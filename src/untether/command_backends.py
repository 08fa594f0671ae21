"""Command backends: what a package exports to add a command `/word` to every chat.

A command is an entry point of the group `untether.command_backends` whose name is the word and whose value is a
`CommandBackend`. It gets what the person wrote and gives back text; it starts no run and asks nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .backends import RESERVED_IDS
from .model import Record
from .plugins import Group


class CommandCall(Record, frozen=True):
    """One use of a command.

    `arguments` is what stands behind the word; `sender` names the person; `transport` and `chat` where it was written;
    `project` is the one of this chat, "" for none, and `folder` where its agents work (the main branch's folder);
    `settings` is the table `[plugins.WORD]`.
    """

    word: str
    arguments: str = ""
    sender: str = ""
    transport: str = ""
    chat: str = ""
    project: str = ""
    folder: str = ""
    settings: Mapping[str, Any] = {}


@dataclass(frozen=True)
class CommandBackend:
    """A command as its package exports it.

    `run(call)` returns the reply in Markdown, "" for none. ValueError is told to the person in its own words; whatever
    else it raises is logged, and told as a failure. It is cancelled after `timeout_s` seconds. Other messages of the
    chat wait for it; and when Untether is killed while it runs, it runs again at the next start.

    `what` says what it does, in a few words, for /help and the menu; `form` and `example` are for /help WORD.
    """

    id: str
    what: str
    run: Callable[[CommandCall], Awaitable[str]]
    form: str = ""
    example: str = ""
    timeout_s: float = 30.0


def _taken(id: str) -> str:
    return "it is a command of Untether" if id in RESERVED_IDS else ""


GROUP: Group[CommandBackend] = Group("untether.command_backends", "command", CommandBackend, _taken)
