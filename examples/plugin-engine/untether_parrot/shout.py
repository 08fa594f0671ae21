"""The command `/shout`: says what you wrote, louder."""

from __future__ import annotations

from untether.api import CommandBackend, CommandCall


async def shout(call: CommandCall) -> str:
    if not call.arguments:
        raise ValueError("Say what to shout: /shout WORDS")
    return f"**{call.arguments.upper()}{call.settings.get('ending', '!')}**"


BACKEND = CommandBackend(
    id="shout", what="say it louder", form="/shout WORDS", example="/shout good morning", run=shout
)
