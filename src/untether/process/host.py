"""The seam between the driver and whatever owns an agent process: a child of ours, a keeper, another machine.

Nothing above this seam may assume a local pid, a parent relation or a file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol

from ..model import Record
from ..session import Place, ProcessExit


class Line(Record, frozen=True):
    """One line of the agent's stdout. `end` is the offset after its newline, `time` when its last byte was read.

    `data` has neither newline nor carriage return. `skipped` is the length of a line over the reader's limit, whose
    data is dropped; 0 otherwise.
    """

    end: int
    time: float
    data: bytes = b""
    skipped: int = 0


class Launch(Record, frozen=True):
    """How to start an agent: the program and its arguments, its folder, and its whole environment.

    No secret and no prompt is in `argv`. `stdin` False closes stdin at once.
    """

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdin: bool = True


class Rung(Record, frozen=True):
    """One step of a stop ladder: do `act`, then wait up to `wait` seconds for the agent to end."""

    act: Literal["close_stdin", "SIGINT", "SIGTERM", "SIGKILL"]
    wait: float


# Claude Code ends cleanly at end of input when idle and on SIGINT in a tool; SIGTERM orphans a foreground shell in
# 2.1.197 (claude-protocol §10), so SIGINT comes before it. SIGKILL goes to the whole tree and always ends the ladder.
DEFAULT_LADDER: tuple[Rung, ...] = (
    Rung("close_stdin", 2.0),
    Rung("SIGINT", 3.0),
    Rung("SIGTERM", 2.0),
    Rung("SIGKILL", 2.0),
)


class WriteFailed(OSError):
    """The agent no longer reads: its stdin is closed or it has ended."""


class Receipt(Protocol):
    """A line that was accepted for the agent's stdin."""

    async def written(self) -> None:
        """Return when its last byte is in the pipe. Raises WriteFailed when it never will be."""


class AgentProcess(Protocol):
    """One agent at work."""

    def batches(self) -> AsyncIterator[Sequence[Line]]:
        """Lines in order, as many at a time as were ready. Ends when the agent has ended and its output is read."""

    def write(self, place: Place, data: bytes) -> Receipt:
        """Accept one whole line. Never blocks; lines leave in order; the same place twice joins the first."""

    async def close_stdin(self) -> None:
        """Close stdin after the accepted lines. Bounded; closing twice is fine."""

    async def stop(self, ladder: Sequence[Rung] = DEFAULT_LADDER) -> None:
        """Climb the ladder until the agent and what it started have ended. Always returns within the ladder's time."""

    async def wait(self) -> ProcessExit:
        """How the agent ended."""
