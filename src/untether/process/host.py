"""The seam between the driver and whatever owns an agent process: a child of ours, a keeper, another machine.

Nothing above this seam may assume a local pid, a parent relation or a file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

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


class Vitals(Record, frozen=True):
    """What an agent and the programs that it started do: CPU seconds used so far, and how many programs there are.

    `alive` is that of the agent itself. Only the growth of `cpu_seconds` means something.
    """

    cpu_seconds: float = 0.0
    children: int = 0
    alive: bool = True


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


Standing: TypeAlias = Literal["new", "alive", "ended", "gone"]
"""How a process stands: no agent was started, it is at work, its end is on record, or nobody saw its end."""


class SpawnFailed(Exception):
    """The agent was not started. `reason` is one sentence for people; `kind` says which case it is."""

    def __init__(self, kind: Literal["program", "folder", "journal", "other"], reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class NotOurs(Exception):
    """This process may not be controlled from here, for another bridge does or its owner refuses us. Leave it alone."""


class WriteFailed(OSError):
    """The agent no longer reads: its stdin is closed or it has ended."""


class Receipt(Protocol):
    """A line that was accepted for the agent's stdin."""

    async def written(self) -> None:
        """Return when its last byte is in the pipe. Raises WriteFailed when it never will be."""


class AgentProcess(Protocol):
    """One agent at work."""

    def batches(self) -> AsyncIterator[Sequence[Line]]:
        """Lines in order, as many at a time as were ready. Ends when the agent has ended and its output is read.

        After an attach an empty batch says that all it has printed so far was read.
        """

    def write(self, place: Place, data: bytes, *, again: bool = False) -> Receipt:
        """Accept one whole line. Never blocks; lines leave in order; the same place twice joins the first.

        `again`: it is one of a step that is folded again, so the agent may have it, even at another place of the step.
        """

    async def close_stdin(self) -> None:
        """Close stdin after the accepted lines. Bounded; closing twice is fine."""

    async def vitals(self) -> Vitals | None:
        """Whether it is at work though it prints nothing; None when that is not known. Takes 2 s at most."""

    async def stop(self, ladder: Sequence[Rung] = DEFAULT_LADDER) -> None:
        """Climb the ladder until the agent and what it started have ended. Always returns within the ladder's time."""

    async def wait(self) -> ProcessExit:
        """How the agent ended. `lost` when nobody saw it: then all that was left of it has been ended."""

    async def release(self) -> None:
        """All that came of it is stored: whoever owns the agent need not wait for us any more."""


class Host(Protocol):
    """Where agents run. A process is known by its id, and by a journal that outlives the bridge."""

    def spawned(
        self,
        launch: Launch,
        process_id: str,
        *,
        ladder: Sequence[Rung],
        on_blocked: Callable[[str], None] | None = None,
    ) -> AbstractAsyncContextManager[AgentProcess]:
        """Start an agent; one that was started before under this id is attached to. Raises SpawnFailed, NotOurs.

        `on_blocked` hears why the agent has to wait for the disk (`journal`, `disk`), and "" when it goes on.
        """

    def attached(
        self, process_id: str, *, on_blocked: Callable[[str], None] | None = None
    ) -> AbstractAsyncContextManager[AgentProcess]:
        """Attach to an agent that was started before, at work or ended, from the beginning of its output.

        Raises NotOurs.
        """

    def standing(self, process_id: str) -> Standing: ...

    def journal(self, process_id: str) -> Iterator[Line]:
        """What an agent has printed so far, at work or ended."""

    async def end_leftovers(self, process_id: str) -> int:
        """End what an agent that nobody owns any more has left. Returns how many programs that were."""
