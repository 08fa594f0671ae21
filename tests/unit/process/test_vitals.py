"""What is seen of an agent that prints nothing."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from tests.unit.process.agents import first_line, spawned
from untether.process.direct import DirectProcess
from untether.process.host import Vitals

pytestmark = pytest.mark.anyio


async def seen(process: DirectProcess, enough: Callable[[Vitals], bool]) -> Vitals:
    with anyio.fail_after(10):
        while True:
            vitals = await process.vitals()
            if vitals is not None and enough(vitals):
                return vitals
            await anyio.sleep(0.02)  # the kernel counts CPU time in ticks of 10 ms


async def test_an_agent_that_computes_uses_time_and_one_that_sleeps_does_not() -> None:
    async with spawned("say('up')\nwhile True: pass") as busy, spawned("say('up'); time.sleep(60)") as resting:
        await first_line(busy)
        await first_line(resting)
        before = await resting.vitals()
        first = await seen(busy, lambda vitals: vitals.cpu_seconds > 0)
        await seen(busy, lambda vitals: vitals.cpu_seconds >= first.cpu_seconds + 0.1)
        after = await resting.vitals()
        assert before is not None
        assert after is not None
        assert after.cpu_seconds - before.cpu_seconds < 0.05
        assert after.children == 0


async def test_the_time_of_a_program_that_ended_is_kept() -> None:
    source = """
        work = "import time\\nend = time.process_time() + 0.2\\nwhile time.process_time() < end: pass"
        subprocess.run([sys.executable, "-I", "-S", "-c", work])
        say("done"); time.sleep(60)
    """
    async with spawned(source) as process:
        await first_line(process)
        vitals = await seen(process, lambda vitals: vitals.children == 0)
        assert vitals.cpu_seconds >= 0.2


async def test_programs_at_work_are_counted_also_those_of_programs() -> None:
    async with spawned("start('sh', '-c', 'sleep 60; true'); say('up'); time.sleep(60)") as process:
        await first_line(process)
        assert (await seen(process, lambda vitals: vitals.children == 2)).alive


async def test_an_agent_that_ended_is_not_alive() -> None:
    async with spawned("say('bye')") as process:
        await process.wait()
        assert await process.vitals() == Vitals(alive=False)
