"""What agents are told beside their messages: who reads along, and what works well there."""

from __future__ import annotations

from typing import Protocol

DEFAULT = """\
The person you work for follows you in a chat, often on a phone, and decides there on what you ask permission for.
- Say in one or two sentences what you are about to do before a longer piece of work.
- End with a short summary: what changed, what was checked, what is open. The last message is what they read first.
- Ask when a decision is theirs; they may answer much later.
- The program between you and the chat is called Untether. Do not stop or restart it unless you are asked to."""


class Wanted(Protocol):
    """What is configured: `text` in place of ours, None for ours."""

    enabled: bool
    text: str | None


def preamble_of(wanted: Wanted) -> str:
    """The text to tell, "" for none."""
    if not wanted.enabled:
        return ""
    return DEFAULT if wanted.text is None else wanted.text
