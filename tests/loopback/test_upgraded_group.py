"""The real bridge in a group that becomes a supergroup: it goes on there, also after a restart."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fake_telegram import FakeTelegram
from tests.loopback.test_bridge_process import bridge_in
from tests.support.bridge import AsyncBridge

pytestmark = pytest.mark.anyio

CONFIG = """
default_engine = "demo"
[transports.web]
port = 0
[transports.telegram]
bot_token = "{token}"
chat_id = {chat}
allowed_user_ids = [{user}]
api_base_url = "{url}"
session_mode = "chat"
[demo]
env = {{ UNTETHER_DEMO_SPEED = "0" }}
"""


def threads_of(folder: Path) -> list[tuple[str, int]]:
    """Chat and number of messages of each thread."""
    found = folder.glob("**/untether.db")
    with sqlite3.connect(next(iter(found))) as conn:
        return conn.execute(
            "SELECT t.chat, COUNT(*) FROM threads t JOIN messages m ON m.thread_id = t.id GROUP BY t.id"
        ).fetchall()


async def test_a_conversation_goes_on_in_the_upgraded_group(tmp_path: Path) -> None:
    async with FakeTelegram(limits="off", privacy=False) as server:
        ann = await server.ctl.user(first_name="Ann")
        group = (await server.ctl.add_group(members=[ann.user], bot="administrator"))["chat"]
        config = CONFIG.format(token=server.token, chat=group, user=ann.user, url=server.url)
        async with AsyncBridge(bridge_in(tmp_path, config)) as running:
            await server.ctl.actor(group, ann.user).text("say one")
            await server.ctl.wait_message(chat=group, pattern="✓")
            new = (await server.ctl.migrate(chat=group))["chat"]
            told = await server.ctl.wait_message(chat=new, pattern="got a new id")
            assert str(new) in told["text"]
            there = server.ctl.actor(new, ann.user)
            await there.text("say two")
            second = await server.ctl.wait_message(chat=new, pattern="✓")

            await running.stop()
            await running.start()
            await there.text("say three", reply_to=second["id"])
            await server.ctl.wait_message(chat=new, pattern="✓", since=second["seq"])
            assert threads_of(tmp_path) == [(str(new), 3)]
            shown = [one["text"] for one in await server.ctl.shows(chat=new, sender="bot")]
            assert sum("got a new id" in text for text in shown) == 1
