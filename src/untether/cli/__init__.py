"""The command line. Subcommands are imported when they are used, so that `untether --version` is quick."""

from __future__ import annotations

import sys

# Command: (module, function, one line for the help). The modules import what they need.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("run", "run", "Start the bridge (the same as no command)."),
    "status": ("runs", "status", "What waits for you, what runs, what is queued."),
    "runs": ("runs", "runs", "List the latest runs."),
    "init": ("project", "init", "Add this directory as a project."),
    "pair": ("pair", "pair", "Connect a Telegram bot and a chat."),
    "chat-id": ("pair", "chat_id", "Print the ids of chats and people that write to the bot."),
    "config": ("config", "config", "Show and change the settings."),
    "doctor": ("doctor", "doctor", "Check everything, and say what to do."),
    "replay": ("replay", "replay", "Feed a recording to an engine and print its events."),
    "plugins": ("plugins", "plugins", "List the engines that are installed."),
}


def main(argv: list[str] | None = None) -> None:
    """The entry point of `untether`."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments in (["--version"], ["-V"]):
        from .. import __version__

        print(f"untether {__version__}")
        return
    from .group import untether

    untether.main(arguments, prog_name="untether")
