"""Pairing finds the chat and the person by a code that works once; doctor's look at bot and chat."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from fake_telegram import FakeTelegram
from tests.support.telegram import FastClock
from untether.transports.telegram.api import BotApi
from untether.transports.telegram.check import check
from untether.transports.telegram.errors import ApiError
from untether.transports.telegram.pair import Paired, Seen, link, new_code, pair, seen_ids

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tg() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram(limits="off", strict_polling=False) as server:
        yield server


@pytest.fixture
async def api(tg: FakeTelegram) -> AsyncIterator[BotApi]:
    api = BotApi(tg.token, tg.url)
    yield api
    await api.aclose()


def test_the_link_carries_a_code_that_telegram_accepts() -> None:
    code = new_code()
    assert link("my_bot", code) == f"https://t.me/my_bot?start={code}"
    assert 16 <= len(code) <= 64
    assert set(code) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    assert new_code() != code


async def test_the_one_who_sends_the_code_is_paired_and_the_bridge_does_not_see_it(
    tg: FakeTelegram, api: BotApi
) -> None:
    assert (await api.get_me()).username == "fake_test_bot"
    ann = await tg.ctl.user(first_name="Ann", last_name="Lee")
    eve = await tg.ctl.user(first_name="Eve")
    await eve.text("hello")
    await eve.command("start")
    await eve.command("start", args="guessed")
    found: list[Paired] = []

    async def wait() -> None:
        found.append(await pair(api, code="s3cret", clock=FastClock(1.0)))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await tg.ctl.wait_call(method="getUpdates")
            await ann.command("start", args="s3cret")
    assert found == [Paired(ann.chat, ann.user, "Ann Lee")]
    assert await tg.ctl.pending() == []


async def test_a_group_can_be_paired(tg: FakeTelegram, api: BotApi) -> None:
    ann = await tg.ctl.user(first_name="Ann")
    group = (await tg.ctl.add_group(members=[ann.user], bot="administrator"))["chat"]
    await tg.ctl.actor(group, ann.user).text("/start@fake_test_bot s3cret")
    assert await pair(api, code="s3cret", clock=FastClock()) == Paired(group, ann.user, "Ann")


async def test_a_refused_token_ends_pairing(tg: FakeTelegram) -> None:
    api = BotApi("123456:AAE_this-token-is-not-the-right-one_xyz", tg.url)
    with pytest.raises(ApiError) as caught:
        await pair(api, code="s3cret", clock=FastClock())
    assert caught.value.kind == "unauthorized"
    await api.aclose()


async def test_ids_are_shown_and_what_was_said_is_left_for_the_bridge(tg: FakeTelegram, api: BotApi) -> None:
    ann = await tg.ctl.user(first_name="Ann")
    group = (await tg.ctl.add_group(title="Team", members=[ann.user], bot="administrator"))["chat"]
    await ann.text("hello")
    await ann.text("again")
    await tg.ctl.actor(group, ann.user).text("hello all")
    assert await seen_ids(api, 5, clock=FastClock(50)) == [
        Seen(ann.chat, "Ann", ann.user, "Ann"),
        Seen(group, "Team", ann.user, "Ann"),
    ]
    assert len(await tg.ctl.pending()) == 3


async def test_doctor_tells_what_is_wrong_with_bot_and_chat(tg: FakeTelegram) -> None:
    ann = await tg.ctl.user()
    assert await check(tg.token, ann.chat, tg.url) == ("", "")
    assert "chat 4242 is not there for @fake_test_bot" in (await check(tg.token, 4242, tg.url))[0]
    assert (await check("123:bad", ann.chat, tg.url))[0] == "the bot token is refused"
    assert "cannot be reached" in (await check(tg.token, ann.chat, "http://127.0.0.1:1"))[0]
