"""`untether pair` and `untether chat-id`: connect a Telegram bot, and find out the ids of chats and people."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import anyio
import click

from ..clock import SystemClock
from ..settings import ConfigError, default_path, edit
from ..settings.document import Document
from ..settings.load import read_text
from ..transports.telegram import pair as pairing
from ..transports.telegram.api import BotApi
from ..transports.telegram.errors import ApiError
from .errors import told

_API = "https://api.telegram.org"

_token = click.option("--token", help="The bot's token from @BotFather; asked for when it is not given.")
_api = click.option("--api-base-url", help="A Bot API server of your own.")


@click.command()
@_token
@_api
@click.option("--config-path", type=click.Path(path_type=Path), help="The settings file.")
def pair(token: str | None, api_base_url: str | None, config_path: Path | None) -> None:
    """Connect a Telegram bot: prints a link and a QR code, and writes the chat and the person that use it."""
    path = config_path or default_path(os.environ)
    token, base = _bot(path, token, api_base_url)
    try:
        found = anyio.run(_pair, token, base)
        edit.set_telegram(path, token, found.chat_id, [found.user_id], api_base_url=api_base_url, environ=os.environ)
    except (ApiError, pairing.PairingExpired, ConfigError) as error:
        click.echo(f"✗ {_said(error)}", err=True)
        raise SystemExit(1) from error
    click.echo(f"✓ Connected with {found.name}: chat {found.chat_id}, user {found.user_id}, written to {path}")
    click.echo("  Start Untether, or start it again, to use it.")


@click.command("chat-id")
@_token
@_api
@click.option("--seconds", default=60.0, help="How long to listen.")
@click.option("--config-path", type=click.Path(path_type=Path), help="The settings file.")
def chat_id(token: str | None, api_base_url: str | None, seconds: float, config_path: Path | None) -> None:
    """Print the ids of chats and people that write to the bot. Stop the bridge first: only one program can receive."""
    token, base = _bot(config_path or default_path(os.environ), token, api_base_url)
    click.echo(f"Send /start to the bot now (in a group: /start@NAME); listening for {seconds:.0f} s.", err=True)
    try:
        anyio.run(_listen, token, base, seconds)
    except ApiError as error:
        click.echo(f"✗ {_said(error)}", err=True)
        raise SystemExit(1) from error


def _bot(path: Path, token: str | None, base: str | None) -> tuple[str, str]:
    """The token and the address: as given, else as configured, else asked for."""
    # As far as it is written: these commands find out what is missing, so a half-filled table is no obstacle.
    with told(ConfigError):
        merged = Document(path, read_text(path) or "", os.environ).merged
    transports = merged.get("transports")
    table = transports.get("telegram") if isinstance(transports, Mapping) else None
    if isinstance(table, Mapping):
        token = token or _text(table.get("bot_token"))
        base = base or _text(table.get("api_base_url"))
    if not token:
        token = click.prompt("The token that @BotFather gave you", hide_input=True).strip()
    return token, base or _API


def _text(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


async def _pair(token: str, base: str) -> pairing.Paired:
    import segno

    api = BotApi(token, base)
    try:
        bot = await api.get_me()
        code = pairing.new_code()
        link = pairing.link(bot.username, code)
        click.echo(f"Open this on your phone within 10 minutes and tap Start:\n\n  {link}\n")
        segno.make(link, micro=False).terminal(compact=True)
        found = await pairing.pair(api, code=code, clock=SystemClock())
        with suppress(ApiError):  # a courtesy; the terminal tells the same
            await api.send_message(str(found.chat_id), "✓ Connected. Start Untether on your machine, then send a task.")
        return found
    finally:
        await api.aclose()


async def _listen(token: str, base: str, seconds: float) -> None:
    api = BotApi(token, base)
    try:
        async for seen in pairing.watch_ids(api, seconds, clock=SystemClock()):
            click.echo(f"chat {seen.chat_id} ({seen.chat_title})  user {seen.user_id} ({seen.name})")
    finally:
        await api.aclose()


def _said(error: Exception) -> str:
    if isinstance(error, ApiError) and error.kind == "unauthorized":
        return "The token is refused. Get the current one from @BotFather."
    if isinstance(error, ApiError) and error.kind == "conflict":
        return "Another program receives for this bot (Untether itself?). Stop it, then try again."
    if isinstance(error, ApiError) and error.kind in ("later", "unknown"):
        return f"Telegram cannot be reached ({error.detail}). Look at the network, and at api_base_url if it is set."
    return str(error)
