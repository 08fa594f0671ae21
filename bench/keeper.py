"""What a keeper costs against an agent that is a child of the bridge: to start, in memory, for each line and write."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import psutil

from untether.clock import SystemClock
from untether.process.environment import PROCESS_VARIABLE
from untether.process.host import DEFAULT_LADDER, AgentProcess, Host, Launch, Line
from untether.process.hosts import Children, Keepers
from untether.process.kept import KeeperLimits
from untether.session import Place

from .figures import Figure, median

_ROUNDS, _LINES = 20, 300
# It answers each line with the time at which it had read it.
_ECHO = "import sys, time\nfor line in sys.stdin:\n print(time.time(), flush=True)"


class _Sample:
    """Seconds, of one kind of host."""

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.receipts: list[float] = []
        self.lines: list[float] = []


def measure() -> list[Figure]:
    with TemporaryDirectory(prefix="untether-bench-") as folder:
        kept, direct, rss, private = anyio.run(_measure, Path(folder))
    return [
        Figure("keeper", "start until attached, median", 1000 * median(kept.starts), "ms", "≤ 100 ms"),
        Figure("keeper", "the same as a child of the bridge", 1000 * median(direct.starts), "ms"),
        Figure("keeper", "RSS", rss / 1e6, "MB", "≤ 20 MB"),
        Figure("keeper", "private memory", private / 1e6, "MB", "≤ 8 MB"),
        Figure("keeper", "write until its receipt, median", 1000 * median(kept.receipts), "ms"),
        Figure("keeper", "the same as a child of the bridge", 1000 * median(direct.receipts), "ms"),
        Figure("keeper", "agent's line until we have it, median", 1000 * median(kept.lines), "ms"),
        Figure("keeper", "the same as a child of the bridge", 1000 * median(direct.lines), "ms"),
    ]


async def _measure(folder: Path) -> tuple[_Sample, _Sample, int, int]:
    keepers = Keepers(folder / "kept", epoch=1, limits=KeeperLimits(orphan=20.0, retention=2.0))
    children = Children(folder / "direct", clock=SystemClock())
    kept, direct = _Sample(), _Sample()
    rss = private = 0
    for number in range(_ROUNDS):
        for host, sample in ((keepers, kept), (children, direct)):
            process_id = f"bench-{number}"
            async with _timed(host, process_id, sample) as process:
                if number == 0:
                    await _talk(process, sample)
                    if host is keepers:
                        rss, private = _memory(process_id)
                await process.stop()
                await process.release()
    return kept, direct, rss, private


@asynccontextmanager
async def _timed(host: Host, process_id: str, sample: _Sample) -> AsyncIterator[AgentProcess]:
    """A process whose start is timed."""
    launch = Launch((sys.executable, "-S", "-c", _ECHO), "/", {PROCESS_VARIABLE: process_id})
    began = time.perf_counter()
    async with host.spawned(launch, process_id, ladder=DEFAULT_LADDER) as process:
        sample.starts.append(time.perf_counter() - began)
        yield process


async def _talk(process: AgentProcess, sample: _Sample) -> None:
    batches = aiter(process.batches())
    for number in range(_LINES):
        began = time.perf_counter()
        await process.write(Place(0, number + 1), b"x\n").written()
        sample.receipts.append(time.perf_counter() - began)
        lines: Sequence[Line] = ()
        while not lines:
            lines = await anext(batches)
        sample.lines.append(time.time() - float(lines[0].data))


def _memory(process_id: str) -> tuple[int, int]:
    """RSS and private bytes of the keeper of a process: the one of the two that carry its id which is the parent."""
    carry = [one for one in psutil.process_iter() if _carries(one, process_id)]
    keeper = next(one for one in carry if any(child in carry for child in one.children()))
    facts = keeper.memory_full_info()
    return facts.rss, facts.uss


def _carries(process: psutil.Process, process_id: str) -> bool:
    try:
        return process.environ().get(PROCESS_VARIABLE) == process_id
    except psutil.Error:
        return False
