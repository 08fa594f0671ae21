"""Addresses, pairing codes and sessions of the console."""

from __future__ import annotations

import pytest

from tests.unit.web.shown import StillClock
from untether.store.database import StoreError
from untether.transports.web.access import (
    Addresses,
    CodeRefused,
    MemoryStore,
    Pairing,
    Sessions,
    form_token,
    form_token_ok,
    random_code,
    random_token,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("host", ["127.0.0.1:8420", "localhost:8420", "[::1]:8420", "LOCALHOST:8420"])
def test_names_of_this_machine_are_ours(host: str) -> None:
    assert Addresses("127.0.0.1", 8420).origin(host) == f"http://{host.lower()}"


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:8420", "127.0.0.1", "127.0.0.1:8421", "localhost.evil.example:8420",
     "192.168.1.5:8420", "127.0.0.1:8420@evil.example", "127.0.0.1:8420, evil.example"],
)  # fmt: skip
def test_other_names_are_not(host: str) -> None:
    assert Addresses("127.0.0.1", 8420).origin(host) is None


def test_the_public_name_is_ours_with_and_without_its_default_port() -> None:
    addresses = Addresses("127.0.0.1", 8420, "https://Console.Example")
    assert addresses.origin("console.example") == "https://console.example"
    assert addresses.origin("console.example:443") == "https://console.example"
    assert addresses.origin("console.example:8443") is None
    assert addresses.is_ours("https://console.example")
    assert not addresses.is_ours("http://console.example")
    assert addresses.origin("localhost:8420") == "http://localhost:8420"


def test_numeric_addresses_count_only_where_the_network_was_asked_for() -> None:
    addresses = Addresses("0.0.0.0", 8420, allow_insecure=True)
    assert addresses.origin("192.168.1.5:8420") == "http://192.168.1.5:8420"
    assert addresses.origin("[fd00::1]:8420") == "http://[fd00::1]:8420"
    assert addresses.origin("rebound.example:8420") is None
    assert addresses.origin("192.168.1.5:80") is None


@pytest.mark.parametrize("origin", ["null", "", "http://", "https://127.0.0.1:8420", "http://127.0.0.1:9000"])
def test_foreign_origins(origin: str) -> None:
    assert not Addresses("127.0.0.1", 8420).is_ours(origin)


def pairing() -> tuple[Pairing, StillClock]:
    clock = StillClock()
    codes = iter(["aaaa-bbbb-cccc", "dddd-ffff-gggg", "hhhh-jjjj-kkkk"])
    return Pairing(clock, lambda: next(codes)), clock


def test_a_code_works_once() -> None:
    codes, _ = pairing()
    codes.redeem(codes.new_code())
    with pytest.raises(CodeRefused, match="each works once"):
        codes.redeem("aaaa-bbbb-cccc")


def test_a_code_may_be_typed_without_dashes_and_in_capitals() -> None:
    codes, _ = pairing()
    codes.new_code()
    codes.redeem(" AAAAbbbb cccc ")


def test_a_code_expires_after_ten_minutes() -> None:
    codes, clock = pairing()
    code = codes.new_code()
    clock.pass_by(600)
    with pytest.raises(CodeRefused, match="expired"):
        codes.redeem(code)


def test_the_link_keeps_its_code_until_it_is_used_or_expired() -> None:
    codes, clock = pairing()
    assert codes.code() == codes.code() == "aaaa-bbbb-cccc"
    codes.redeem("aaaa-bbbb-cccc")
    assert codes.code() == "dddd-ffff-gggg"
    clock.pass_by(601)
    assert codes.code() == "hhhh-jjjj-kkkk"


@pytest.mark.parametrize("typed", ["", "-", "  "])
def test_nothing_is_no_code_before_one_was_made(typed: str) -> None:
    with pytest.raises(CodeRefused):
        pairing()[0].redeem(typed)


def test_wrong_codes_are_slowed_down_more_and_more() -> None:
    codes, clock = pairing()
    code = codes.new_code()
    for _ in range(4):
        with pytest.raises(CodeRefused, match="not the current one"):
            codes.redeem("wrong")
    for wait in (1.0, 2.0, 4.0):
        with pytest.raises(CodeRefused, match="not the current one"):
            codes.redeem("wrong again")
        with pytest.raises(CodeRefused, match="Too many wrong codes") as refused:
            codes.redeem(code)  # the right one does not count while it is slowed down
        assert refused.value.retry_after == wait
        clock.pass_by(wait)
    codes.redeem(code)


def test_the_wait_after_wrong_codes_has_an_end() -> None:
    codes, clock = pairing()
    codes.new_code()
    for _ in range(40):
        with pytest.raises(CodeRefused, match="not the current one"):
            codes.redeem("wrong")
        clock.pass_by(300)


def test_random_values_are_long_and_differ() -> None:
    assert len({random_token() for _ in range(50)}) == 50
    assert len(random_token()) == 43  # 256 bits
    assert len({random_code() for _ in range(50)}) == 50


async def test_a_session_survives_a_restart_and_keeps_no_cookie() -> None:
    clock, store = StillClock(), MemoryStore()
    token = await Sessions(store, clock).open()
    assert await Sessions(store, clock).known(token)
    assert token not in repr(vars(store))


async def test_a_session_ends_after_long_absence_and_by_signing_out() -> None:
    clock, store = StillClock(), MemoryStore()
    sessions = Sessions(store, clock)
    token = await sessions.open()
    for _ in range(4):
        clock.pass_by(30 * 86_400)
        assert await sessions.known(token)  # each visit counts
    clock.pass_by(61 * 86_400)
    assert not await sessions.known(token)
    other = await sessions.open()
    await sessions.close(other)
    assert not await sessions.known(other)
    assert not await sessions.known("")


async def test_a_full_disk_locks_nobody_out() -> None:
    class Full(MemoryStore):
        full = False

        async def put(self, key: str, value: str) -> None:
            if self.full:
                raise StoreError("full", "untether.db")
            await super().put(key, value)

    clock, store = StillClock(), Full()
    token = await Sessions(store, clock).open()
    store.full = True
    clock.pass_by(2 * 86_400)
    assert await Sessions(store, clock).known(token)


def test_form_tokens_belong_to_one_session() -> None:
    assert form_token_ok("cookie", form_token("cookie"))
    assert not form_token_ok("other", form_token("cookie"))
    assert not form_token_ok("cookie", "")
    assert "cookie" not in form_token("cookie")
