"""A stop that was asked for always ends the agent, and with it what the agent started."""

from __future__ import annotations

import os
import signal
from typing import Any

import anyio
import psutil
import pytest

from tests.unit.process.agents import all_lines, first_line, lives, spawned
from untether.process import direct
from untether.process.host import Rung
from untether.session import Place

pytestmark = pytest.mark.anyio

QUICK = (Rung("close_stdin", 0.1), Rung("SIGINT", 0.1), Rung("SIGTERM", 0.1), Rung("SIGKILL", 2.0))
BOUND = sum(rung.wait for rung in QUICK) + 1 + 1  # the ladder's time, a second for what is left, one for this machine
WAIT = "\nwhile True: time.sleep(60)"
DEAF = "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
DEAF_SLEEP = "['sh', '-c', 'trap \"\" TERM INT; sleep 60']"


@pytest.mark.parametrize(
    ("source", "act", "code", "ended_by"),
    [
        ("say('up'); sys.stdin.read()", "close_stdin", 0, ""),
        ("signal.signal(signal.SIGINT, lambda *_: sys.exit(7)); say('up')" + WAIT, "SIGINT", 7, ""),
        ("signal.signal(signal.SIGINT, signal.SIG_IGN); say('up')" + WAIT, "SIGTERM", None, "SIGTERM"),
        (DEAF + "say('up')" + WAIT, "SIGKILL", None, "SIGKILL"),
    ],
)
async def test_the_ladder_is_climbed_as_far_as_needed(source: str, act: str, code: int | None, ended_by: str) -> None:
    async with spawned(source) as process:
        await first_line(process)
        await process.stop(patient(act))
        end = await process.wait()
    assert (end.code, end.signal, end.stopped, end.note) == (code, ended_by, True, f"it ended at {act}")


def patient(act: str) -> list[Rung]:
    """A ladder that leaves time for the rung at which the agent should end, however busy the machine is."""
    return [Rung(rung.act, 10.0) if rung.act == act else rung for rung in QUICK]


async def test_output_during_the_ladder_arrives() -> None:
    async with spawned("say('up'); sys.stdin.read(); say('x' * 500_000)") as process:
        await first_line(process)
        await process.stop(patient("close_stdin"))
        assert [len(line.data) for line in await all_lines(process)] == [500_000]


async def test_an_agent_that_does_not_read_its_stdin_is_ended_all_the_same() -> None:
    async with spawned("say('up')" + WAIT) as process:
        await first_line(process)
        receipt = process.write(Place(0, 1), b"x" * 10_000_000)
        with anyio.fail_after(BOUND):
            await process.stop(QUICK)
        with pytest.raises(OSError, match="stdin is closed"):
            await receipt.written()


@pytest.mark.parametrize(
    "start",
    [
        "start('sleep', '60')",
        "start('sleep', '60', start_new_session=True)",
        f"start(*{DEAF_SLEEP}, start_new_session=True)",
        # no trace of us in its environment, but seen as a descendant before the agent ends
        f"start('env', '-i', 'PATH=/usr/bin:/bin', *{DEAF_SLEEP}, start_new_session=True)",
    ],
)
@pytest.mark.parametrize("deaf", ["", DEAF])
async def test_what_the_agent_started_ends_with_it(start: str, deaf: str) -> None:
    async with spawned(f"{deaf}say({start}){WAIT}") as process:
        child = int(await first_line(process))
        assert lives(child)
        with anyio.fail_after(BOUND):
            await process.stop(QUICK)
        assert not lives(child)


async def test_an_orphan_in_a_session_of_its_own_is_found_by_the_id_it_carries() -> None:
    script = "setsid sh -c 'echo $$; exec sleep 60' & wait"
    source = f"subprocess.Popen(['setsid', 'sh', '-c', {script!r}]); say('up'){WAIT}"
    async with spawned(source) as process:
        words: list[bytes] = []
        async for batch in process.batches():
            words += [line.data for line in batch]
            if len(words) == 2:
                break
        orphan = next(int(word) for word in words if word != b"up")
        os.kill(psutil.Process(orphan).ppid(), signal.SIGKILL)
        with anyio.fail_after(BOUND):
            await process.stop(QUICK)
        assert not lives(orphan)


async def test_another_agent_is_left_alone() -> None:
    async with spawned("say('up'); sys.stdin.read()") as other, spawned("say('up')" + WAIT) as process:
        await first_line(other)
        await first_line(process)
        await process.stop([Rung("SIGKILL", 2.0)])
        assert lives(other.pid)


async def test_stops_at_the_same_time_join() -> None:
    ladder = [Rung("SIGINT", 0.4), Rung("SIGKILL", 2.0)]
    async with spawned("signal.signal(signal.SIGINT, lambda *_: say('int')); say('up')" + WAIT) as process:
        await first_line(process)
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(process.stop, ladder)
        await process.stop(ladder)
        assert [line.data for line in await all_lines(process)] == [b"int"]


async def test_a_stop_goes_on_when_its_caller_is_cancelled() -> None:
    async with spawned(DEAF + "say('up')" + WAIT) as process:
        await first_line(process)
        with anyio.move_on_after(0.05):
            await process.stop(QUICK)
        with anyio.fail_after(5):
            assert (await process.wait()).signal == "SIGKILL"


async def test_a_ladder_that_does_not_reach_the_top_still_ends_the_agent() -> None:
    async with spawned(DEAF + "say('up')" + WAIT) as process:
        await first_line(process)
        with anyio.fail_after(BOUND):
            await process.stop([Rung("SIGTERM", 0.1)])
        assert (await process.wait()).signal == "SIGKILL"


async def test_a_stop_after_the_end_changes_nothing() -> None:
    async with spawned("say(start('sleep', '60', start_new_session=True, stdout=subprocess.DEVNULL))") as process:
        child = int(await first_line(process))
        end = await process.wait()
        await process.stop(QUICK)
        assert await process.wait() == end
        assert not end.stopped
        assert lives(child)
        os.kill(child, signal.SIGKILL)


async def test_an_agent_that_closes_its_output_and_stays_is_ended() -> None:
    async with spawned("say('bye'); os.close(1); os.close(2); sys.stdin.read()") as process:
        with anyio.fail_after(5):
            assert [line.data for line in await all_lines(process)] == [b"bye"]
            end = await process.wait()
    assert (end.code, end.stopped, end.note) == (0, False, "it ended at close_stdin")


async def test_leaving_ends_a_living_agent_and_what_it_started() -> None:
    source = f"say(start('sleep', '60', start_new_session=True)){WAIT}"
    async with spawned(source, ladder=patient("SIGINT")) as process:
        child = int(await first_line(process))
    assert not lives(child)
    end = await process.wait()
    assert (end.signal, end.stopped, end.lost) == ("SIGINT", False, True)


async def test_a_cancel_right_after_the_start_leaves_no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    spawn = direct._spawn

    async def spawn_then_cancel(*args: Any) -> Any:
        child = await spawn(*args)
        started.append(child.pid)
        scope.cancel()
        return child

    monkeypatch.setattr(direct, "_spawn", spawn_then_cancel)
    with anyio.CancelScope() as scope:
        async with spawned("sys.stdin.read()", ladder=QUICK) as process:
            await process.wait()
    assert scope.cancelled_caught
    assert not lives(started[0])


async def test_leaving_by_cancellation_ends_a_living_agent() -> None:
    with anyio.CancelScope() as scope:
        async with spawned(DEAF + "say('up')" + WAIT, ladder=QUICK) as process:
            await first_line(process)
            scope.cancel()
            await all_lines(process)
    assert scope.cancelled_caught
    assert (await process.wait()).signal == "SIGKILL"
    assert not lives(process.pid)
