"""Looks whether bot and chat answer, for `untether doctor`."""

from __future__ import annotations

from .api import BotApi
from .errors import ApiError


async def check(token: str, chat_id: int, base_url: str) -> tuple[str, str]:
    """What is wrong and what to do about it; two empty strings when all is well."""
    api = BotApi(token, base_url)
    try:
        bot = await api.get_me()
        try:
            await api.get_chat(str(chat_id))
        except ApiError as error:
            if error.kind not in ("gone", "no_chat", "moved", "refused"):
                raise
            todo = f"Write /start to @{bot.username} in that chat, or let untether pair find the chat."
            return f"chat {chat_id} is not there for @{bot.username} ({error.detail})", todo
    except ApiError as error:
        if error.kind == "unauthorized":
            return (
                "the bot token is refused",
                "Get the current one from @BotFather and set transports.telegram.bot_token.",
            )
        return (
            f"{base_url} cannot be reached ({error.detail})",
            "Look at the network, and at api_base_url if it is set.",
        )
    finally:
        await api.aclose()
    return "", ""
