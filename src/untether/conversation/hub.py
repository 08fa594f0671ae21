"""Change notices: who shows something live is told that it should look again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio


class Hub:
    """A counter that grows with every visible change. Watchers may miss notices, never that there were some."""

    def __init__(self) -> None:
        self.version = 0
        self._changed = anyio.Event()

    def changed(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = anyio.Event()

    async def watch(self, seen: int = -1) -> AsyncIterator[int]:
        """Yield the version, at once when it is not `seen`, then after every change."""
        while True:
            if self.version == seen:
                await self._changed.wait()
            seen = self.version
            yield seen
