"""An update is confirmed only after it is stored; trouble makes pauses that grow and is said once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from zoneinfo import ZoneInfo

import anyio
import pytest
from structlog.testing import capture_logs

from untether.clock import ManualClock
from untether.store.database import StoreError
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

    async def delete_webhook(self) -> None:
        self.webhooks_deleted += 1

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


def make(
    *answers: Batch | ApiError, luck: float = 0.0, told: list[str] | None = None
) -> tuple[Server, Poller, ManualClock]:
    clock = ManualClock()
    server = Server(clock, *answers)

    async def tell(text: str) -> None:
        if told is not None:
            told.append(text)

    return server, Poller(server, clock, random=lambda: luck, tell=tell), clock


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
    assert server.pauses[:9] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert [entry["event"] for entry in logs] == ["telegram.trouble", "telegram.recovered"]
    assert logs[1]["lasted"] == "4m 53s"

    server, poller, clock = make(*[DOWN] * 8, luck=1.0)
    await poll(poller, Store(), clock, 400)
    assert server.pauses[:8] == [0.75, 1.5, 3, 6, 12, 24, 45, 45]


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
    assert "Another program receives" in sentence(poller, clock)
    assert server.webhooks_deleted == 1

    server, poller, clock = make(WEBHOOK)
    await poll(poller, Store(), clock, 10)
    assert server.webhooks_deleted == 2


async def test_a_flood_answer_is_waited_out() -> None:
    server, poller, clock = make(ApiError("later", "Too Many Requests", retry_after=17))
    await poll(poller, Store(), clock, 30)
    assert server.pauses == [17]


async def test_a_server_that_does_not_wait_is_not_asked_all_the_time() -> None:
    server, poller, clock = make(*[[]] * 100)
    await poll(poller, Store(), clock, 10)
    assert len(server.asked) <= 12


async def test_update_ids_may_start_over_anywhere() -> None:
    server, poller, clock = make([(900, b"a")], [(12, b"b")])
    await poll(poller, Store(), clock, LONG_POLL_S)
    assert server.offsets[:3] == [None, 901, 13]


async def test_an_old_offset_is_forgotten() -> None:
    """After a quiet week ids go on anywhere; an offset above them would confirm messages that nobody saw."""
    server, poller, clock = make([(900, b"a")], *[[]] * 2000)
    await poll(poller, Store(), clock, 10)
    assert server.offsets[-1] == 901
    await poll(poller, Store(), clock, 90_000)
    assert server.offsets[-1] is None


def test_trouble_is_told_in_the_zone_of_the_reader() -> None:
    """`since` is 2023-11-14 22:13:20 UTC."""
    trouble = Trouble("unreachable", 1_700_000_000.0, "no route")
    told = trouble.sentence(1_700_000_060.0, ZoneInfo("Asia/Kolkata"))
    assert told == "Telegram cannot be reached since 03:43 (no route)"
