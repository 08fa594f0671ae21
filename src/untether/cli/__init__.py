"""The command line. Subcommands are imported when they are used, so that `untether --version` is quick."""

from __future__ import annotations

import sys

# Command: (module, function, one line for the help). The modules import what they need.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("run", "run", "Start the bridge (the same as no command)."),
    "status": ("runs", "status", "What waits for you, what runs, what is queued."),
    "runs": ("runs", "runs", "List the latest runs."),
    "stop": ("agents", "stop", "Stop a run, with or without a bridge."),
    "restart": ("agents", "restart", "Start the running bridge again; what runs goes on."),
    "init": ("project", "init", "Add this directory as a project."),
    "pair": ("pair", "pair", "Connect a Telegram bot and a chat."),
    "chat-id": ("pair", "chat_id", "Print the ids of chats and people that write to the bot."),
    "config": ("config", "config", "Show and change the settings."),
    "service": ("service", "service", "Run it as a service: install, status, logs, uninstall."),
    "db": ("db", "db", "Back up the database, or check it."),
    "doctor": ("doctor", "doctor", "Check everything, and say what to do."),
    "replay": ("replay", "replay", "Print what happened in a run, or what an engine makes of a recording."),
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
