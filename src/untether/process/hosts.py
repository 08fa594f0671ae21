"""The two places where agents run: each behind a keeper, which outlives the bridge, or as children of the bridge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from ..clock import Clock
from .direct import DirectProcess
from .host import AgentProcess, Launch, Line, Rung, Standing
from .journal import JournalReader
from .kept import KeeperLimits, KeptProcess, end_leftovers, standing
from .lines import LINE_LIMIT

_DEFAULT_LIMITS = KeeperLimits()


class _Journals:
    """What both have in common: a folder for each process, in which its journal is."""

    def __init__(self, folder: Path, line_limit: int) -> None:
        self._processes = folder
        self._line_limit = line_limit

    def _folder(self, process_id: str) -> Path:
        return self._processes / process_id

    def standing(self, process_id: str) -> Standing:
        """See `host.Host`."""
        return standing(self._folder(process_id))

    def journal(self, process_id: str) -> Iterator[Line]:
        """See `host.Host`."""
        return JournalReader(self._folder(process_id), self._line_limit).lines()

    async def end_leftovers(self, process_id: str) -> int:
        """See `host.Host`."""
        return await end_leftovers(self._folder(process_id), process_id)


class Keepers(_Journals):
    """Agents that outlive the bridge; see `host.Host`. The bridge with the highest `epoch` controls them."""

    def __init__(
        self,
        folder: Path,
        *,
        epoch: int,
        line_limit: int = LINE_LIMIT,
        limits: KeeperLimits = _DEFAULT_LIMITS,
        prefix: Callable[[str], Sequence[str]] = lambda process_id: (),
    ) -> None:
        """`prefix` gives the command through which the keeper of a process is started."""
        super().__init__(folder, line_limit)
        self._epoch = epoch
        self._limits = limits
        self._prefix = prefix

    def spawned(
        self,
        launch: Launch,
        process_id: str,
        *,
        ladder: Sequence[Rung],
        on_blocked: Callable[[str], None] | None = None,
    ) -> AbstractAsyncContextManager[AgentProcess]:
        """See `host.Host`."""
        return KeptProcess.spawned(
            launch,
            self._folder(process_id),
            epoch=self._epoch,
            ladder=ladder,
            limits=self._limits,
            line_limit=self._line_limit,
            on_blocked=on_blocked,
            prefix=self._prefix(process_id),
        )

    def attached(
        self, process_id: str, *, on_blocked: Callable[[str], None] | None = None
    ) -> AbstractAsyncContextManager[AgentProcess]:
        """See `host.Host`."""
        return KeptProcess.attached(
            self._folder(process_id), epoch=self._epoch, line_limit=self._line_limit, on_blocked=on_blocked
        )


class Children(_Journals):
    """Agents that end with the bridge; see `host.Host`. For tests, and where there are no Unix sockets."""

    def __init__(self, folder: Path, *, clock: Clock, line_limit: int = LINE_LIMIT) -> None:
        super().__init__(folder, line_limit)
        self._clock = clock

    @asynccontextmanager
    async def spawned(
        self,
        launch: Launch,
        process_id: str,
        *,
        ladder: Sequence[Rung],
        on_blocked: Callable[[str], None] | None = None,
    ) -> AsyncIterator[AgentProcess]:
        """See `host.Host`."""
        async with DirectProcess.spawned(
            launch, clock=self._clock, folder=self._folder(process_id), line_limit=self._line_limit, ladder=ladder
        ) as process:
            yield process

    def attached(
        self, process_id: str, *, on_blocked: Callable[[str], None] | None = None
    ) -> AbstractAsyncContextManager[AgentProcess]:
        """See `host.Host`. It can only be one that has ended with an earlier bridge: its journal is read."""
        return KeptProcess.attached(self._folder(process_id), epoch=0, line_limit=self._line_limit)
