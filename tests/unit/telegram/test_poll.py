"""An update is confirmed only after it is stored; trouble makes pauses that grow and is said once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import anyio
import pytest
from structlog.testing import capture_logs

from untether.clock import ManualClock
from untether.store.database import StoreError
from untether.transport import ChatRef
from untether.transports.telegram import poll as poll_module
from untether.transports.telegram.errors import ApiError
from untether.transports.telegram.poll import LONG_POLL_S, Poller, Trouble

pytestmark = pytest.mark.anyio

Batch = list[tuple[int, bytes]]

DOWN = ApiError("later", "ConnectError: All connection attempts failed")
BAD_TOKEN = ApiError("unauthorized", "Unauthorized")
CONFLICT = ApiError("conflict", "Conflict: terminated by other getUpdates request")
WEBHOOK = ApiError("conflict", "Conflict: can't use getUpdates method while webhook is active")


class Server:
    """Answers with what the test lists, in order, and then waits like a long poll without updates."""

    def __init__(self, clock: ManualClock, *answers: Batch | ApiError) -> None:
        self.clock = clock
        self.answers = list(answers)
        self.asked: list[tuple[int | None, float]] = []
        self.webhooks_deleted = 0
        self.renewed = 0

    async def get_updates(self, offset: int | None, seconds: int) -> Batch:
        self.asked.append((offset, self.clock.monotonic()))
        await self.clock.sleep(0)
        if not self.answers:
            await self.clock.sleep(seconds)
            return []
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def delete_webhook(self) -> str:
        self.webhooks_deleted += 1
        return ""

    async def renew(self) -> None:
        self.renewed += 1

    @property
    def offsets(self) -> list[int | None]:
        return [offset for offset, _ in self.asked]

    @property
    def pauses(self) -> list[float]:
        times = [time for _, time in self.asked]
        return [round(next_one - one, 3) for one, next_one in pairwise(times)]


class Store:
    def __init__(self, *failures: StoreError | None) -> None:
        self.failures = list(failures)
        self.stored: list[tuple[str, bytes]] = []
        self.told: list[tuple[str, str]] = []

    async def moved(self, transport: str, old: str, new: str) -> None:
        raise AssertionError("the poller knows nothing of chats")

    async def tell(self, chat: ChatRef, *lines: str) -> None:
        self.told.append((chat.chat, lines[0]))

    async def store(self, transport: str, updates: Sequence[tuple[str, bytes]]) -> None:
        assert transport == "telegram"
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure
        self.stored += updates


async def poll(poller: Poller, store: Store, clock: ManualClock, seconds: float) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(poller.run, store)
        await clock.advance(0)
        await clock.advance(seconds)
        tasks.cancel_scope.cancel()


def sentence(poller: Poller, clock: ManualClock) -> str:
    return poller.trouble.sentence(clock.now()) if poller.trouble else ""


class Kept:
    """Facts that survive a restart."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.puts = 0

    def get(self, key: str) -> str | None:
        return self.values.get(key)

    async def put(self, key: str, value: str) -> None:
        self.values[key] = value
        self.puts += 1


def make(
    *answers: Batch | ApiError, luck: float = 0.0, told: list[str] | None = None, **more: Any
) -> tuple[Server, Poller, ManualClock]:
    clock = more.pop("clock", None) or ManualClock()
    server = Server(clock, *answers)

    async def tell(text: str) -> None:
        if told is not None:
            told.append(text)

    return server, Poller(server, clock, random=lambda: luck, tell=tell, **more), clock


async def test_it_asks_for_all_that_is_unconfirmed_and_confirms_a_batch_with_the_next_question() -> None:
    server, poller, clock = make([(8, b"8"), (9, b"9")])
    store = Store()
    await poll(poller, store, clock, 10)
    assert store.stored == [("8", b"8"), ("9", b"9")]
    assert server.offsets == [None, 10]
    assert server.webhooks_deleted == 1


async def test_it_tells_at_once_that_it_is_under_way_without_a_first_message() -> None:
    _, poller, clock = make()
    await poll(poller, Store(), clock, 0)
    assert poller.under_way.is_set()


async def test_nothing_is_confirmed_while_nothing_can_be_stored_and_the_chat_is_told_once() -> None:
    told: list[str] = []
    server, poller, clock = make([(8, b"8")], [(8, b"8")], [(8, b"8")], told=told)
    full = StoreError("full", "database or disk is full")
    store = Store(full, full, None)
    with capture_logs() as logs:
        await poll(poller, store, clock, 0.5)
        assert "cannot be stored" in sentence(poller, clock)
        assert store.stored == []
        await poll(poller, store, clock, 20)
    assert store.stored == [("8", b"8")]
    assert server.offsets == [None, None, None, 9]
    assert [text[0] for text in told] == ["✗", "✓"]
    assert "disk is full" in told[0]
    assert sentence(poller, clock) == ""
    assert [entry["event"] for entry in logs] == ["telegram.trouble", "telegram.recovered"]


async def test_pauses_grow_to_a_minute_with_jitter_and_the_outage_is_said_once() -> None:
    server, poller, clock = make(*[DOWN] * 9)
    with capture_logs() as logs:
        await poll(poller, Store(), clock, 400)
    assert server.pauses[:9] == [1, 2, 4, 8, 16, 32, 45, 45, 45]
    assert [entry["event"] for entry in logs] == ["telegram.trouble", "telegram.recovered"]
    assert logs[1]["lasted"] == "3m 21s"

    server, poller, clock = make(*[DOWN] * 8, luck=1.0)
    await poll(poller, Store(), clock, 400)
    assert server.pauses[:8] == [0.75, 1.5, 3, 6, 12, 24, 33.75, 33.75]


async def test_a_refused_token_is_said_once_and_tried_again_up_to_every_ten_minutes() -> None:
    server, poller, clock = make(*[BAD_TOKEN] * 13)
    with capture_logs() as logs:
        await poll(poller, Store(), clock, 2500)
        assert len(logs) == 1
        assert "refuses the bot token" in sentence(poller, clock)
    assert server.pauses[:12] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]


async def test_another_poller_is_named_and_a_webhook_is_taken_away_again() -> None:
    server, poller, clock = make(CONFLICT)
    await poll(poller, Store(), clock, 0.5)
    assert "Another program polls with this bot's token since" in sentence(poller, clock)
    assert "409 Conflict" in sentence(poller, clock)
    assert server.webhooks_deleted == 1

    server, poller, clock = make(WEBHOOK)
    await poll(poller, Store(), clock, 0.5)
    assert "A webhook was set for this bot since" in sentence(poller, clock)
    await poll(poller, Store(), clock, 10)
    assert server.webhooks_deleted == 2
    assert sentence(poller, clock) == ""


async def test_a_flood_answer_is_waited_out() -> None:
    server, poller, clock = make(ApiError("later", "Too Many Requests", retry_after=17))
    await poll(poller, Store(), clock, 30)
    assert server.pauses[0] == 17


async def test_a_server_that_does_not_wait_is_not_asked_all_the_time() -> None:
    server, poller, clock = make(*[[]] * 100)
    await poll(poller, Store(), clock, 10)
    assert len(server.asked) <= 12


async def test_update_ids_may_start_over_anywhere() -> None:
    server, poller, clock = make([(900, b"a")], [(12, b"b")])
    await poll(poller, Store(), clock, LONG_POLL_S)
    assert server.offsets[:3] == [None, 901, 13]


async def test_an_old_offset_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a quiet week ids go on anywhere; an offset above them would confirm messages that nobody saw."""
    monkeypatch.setattr(poll_module, "_WATCH_S", 1e6)  # it has nothing to do here, a day long
    server, poller, clock = make([(900, b"a")], ApiError("later", "Too Many Requests", retry_after=90_000))
    await poll(poller, Store(), clock, 10)
    assert server.offsets[-1] == 901
    await clock.advance(90_000)
    await poll(poller, Store(), clock, 10)
    assert server.offsets[-1] is None


def test_trouble_is_told_in_the_zone_of_the_reader() -> None:
    """`since` is 2023-11-14 22:13:20 UTC."""
    trouble = Trouble("unreachable", 1_700_000_000.0, "no route")
    told = trouble.sentence(1_700_000_060.0, ZoneInfo("Asia/Kolkata"))
    assert told == "Telegram cannot be reached since 03:43 (no route)"


async def test_the_points_at_which_a_crash_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    server, poller, clock = make([(8, b"8")])
    store, seen = Store(), list[tuple[str, int, list[int | None]]]()

    def point(name: str) -> None:
        seen.append((name, len(store.stored), list(server.offsets)))

    monkeypatch.setattr(poll_module, "point", point)
    await poll(poller, store, clock, 1)
    assert seen == [("poll.received", 0, [None]), ("poll.stored", 1, [None])]


async def test_after_trouble_a_short_poll_proves_that_it_is_over() -> None:
    _, poller, clock = make(DOWN)
    await poll(poller, Store(), clock, 0.5)
    assert sentence(poller, clock) != ""
    await poll(poller, Store(), clock, 4)
    assert sentence(poller, clock) == ""


async def test_a_poll_that_never_ends_is_given_up_and_asked_again_over_fresh_connections() -> None:
    server, poller, clock = make(deadline_s=0.05)
    hanging = server.get_updates
    stuck = anyio.Event()

    async def hang_once(offset: int | None, seconds: int) -> Batch:
        if not stuck.is_set():
            stuck.set()
            await anyio.sleep_forever()
        return await hanging(offset, seconds)

    server.get_updates = hang_once  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(poller.run, Store())
        await stuck.wait()
        await clock.wait_for_sleepers(2)  # the watch, and the pause after the poll
        assert "no answer in time" in sentence(poller, clock)
        await clock.advance(1)
        assert server.renewed == 1
        await clock.advance(4)
        assert sentence(poller, clock) == ""
        tasks.cancel_scope.cancel()


async def test_after_a_sleep_of_the_machine_polling_is_healthy_within_a_minute() -> None:
    server, poller, clock = make()
    asleep = anyio.Event()
    answering = server.get_updates

    async def dead_while_asleep(offset: int | None, seconds: int) -> Batch:
        if not server.renewed:
            asleep.set()
            await anyio.sleep_forever()  # its connection was forgotten by the network, and nobody says so
        return await answering(offset, seconds)

    server.get_updates = dead_while_asleep  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(poller.run, Store())
        await asleep.wait()
        await clock.wait_for_sleepers(1)
        clock.jump(8 * 3600)  # the wall clock goes on over a sleep, timers do not
        await clock.advance(20)
        assert server.renewed == 1
        assert server.asked
        assert sentence(poller, clock) == ""
        tasks.cancel_scope.cancel()


async def test_a_sleep_in_a_pause_ends_the_pause() -> None:
    server, poller, clock = make(*[DOWN] * 8)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(poller.run, Store())
        await clock.advance(0)
        await clock.advance(65)  # the pause of 45 s has just begun
        asked = len(server.asked)
        clock.jump(3600)
        await clock.advance(12)
        assert len(server.asked) > asked
        tasks.cancel_scope.cancel()


async def test_connections_are_renewed_after_repeated_failures() -> None:
    server, poller, clock = make(*[DOWN] * 7)
    await poll(poller, Store(), clock, 400)
    assert server.renewed == 2


async def test_the_worst_pause_and_the_proof_fit_into_a_minute() -> None:
    server, poller, clock = make(*[DOWN] * 12)
    await poll(poller, Store(), clock, 600)
    assert max(server.pauses[:12]) + 3 < 60


async def test_a_long_absence_is_said_in_the_chats() -> None:
    facts, clock = Kept(), ManualClock()
    _, poller, _ = make([(8, b"8")], facts=facts, chats=lambda: ["1001", "-2001"], clock=clock)
    store = Store()
    await poll(poller, store, clock, 10)
    assert store.told == []  # the first start of all
    for away, said in ((23 * 3600.0, 0), (50 * 3600.0, 2)):
        clock.jump(away)
        _, poller, _ = make([(9, b"9")], facts=facts, chats=lambda: ["1001", "-2001"], clock=clock)
        await poll(poller, store, clock, 10)
        assert len(store.told) == said
    assert [chat for chat, _ in store.told] == ["1001", "-2001"]
    assert "away for 2 days" in store.told[0][1]
    assert "24 hours" in store.told[0][1]


async def test_an_absence_that_cannot_be_stored_is_said_when_it_can() -> None:
    facts, clock, store = Kept(), ManualClock(), Store()
    facts.values["last_poll"] = str(clock.now() - 100_000)
    telling, refused = store.tell, 0

    async def tell(chat: ChatRef, *lines: str) -> None:
        nonlocal refused
        refused += 1
        if refused == 1:
            raise StoreError("full", "database or disk is full")
        await telling(chat, *lines)

    store.tell = tell  # type: ignore[method-assign]
    _, poller, _ = make(facts=facts, chats=lambda: ["1001"], clock=clock)
    await poll(poller, store, clock, 100)
    assert [chat for chat, _ in store.told] == ["1001"]


async def test_the_time_of_the_last_poll_is_stored_now_and_then() -> None:
    facts = Kept()
    _, poller, clock = make(facts=facts)
    await poll(poller, Store(), clock, 3600)
    assert 10 <= facts.puts <= 13
    assert clock.now() - float(facts.values["last_poll"]) < 400
