"""An agent as a child of the bridge: spawn it, read all it prints, write what it is told, and see it to its end.

It ends with the bridge. The keeper, which outlives it, comes behind the same interface.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.abc
import anyio.to_thread
import psutil
import structlog

from ..clock import Clock
from ..session import Place, ProcessExit
from . import tree
from .environment import PROCESS_VARIABLE
from .host import DEFAULT_LADDER, Launch, Line, Receipt, Rung, SpawnFailed, Vitals
from .journal import Excerpt, JournalWriter, ProcessState
from .lines import LINE_LIMIT, LineReader
from .pipes import DRAIN, GRACE, InputPipe, OutputPipe
from .vitals import vitals_of

log = structlog.get_logger(__name__)

_CLOSE_WAIT = 30.0  # seconds for accepted lines before stdin is closed without them: an agent may be slow to start
_LOOK = 0.3  # seconds for finding descendants before a signal goes out
_SWEEP = 0.4  # seconds for each of the two passes over what an ended agent has left


class DirectProcess:
    """One agent, a child of ours; see `host.AgentProcess`. Made by `spawned`."""

    def __init__(
        self,
        child: anyio.abc.Process,
        pipes: _Pipes,
        *,
        process_id: str,
        journal: JournalWriter | None,
        clock: Clock,
        line_limit: int,
    ) -> None:
        self.pid = child.pid  # for diagnosis only
        self._child = child
        self._pipes = pipes
        self._journal = journal
        self._recording = journal is not None
        self._clock = clock
        self._lines = LineReader(line_limit)
        self._printed = 0
        self._read_at = 0.0
        self._errors = Excerpt()
        self._errors_read = anyio.Event()
        self._ready: list[Line] = []
        self._news = anyio.Event()
        self._exited = anyio.Event()
        self._ended = anyio.Event()  # exited, and its output read
        self._exit = ProcessExit(note="the agent could not be ended")
        self._log = log.bind(process_id=process_id, pid=child.pid)
        self._stop = _Stop(process_id)

    @classmethod
    @asynccontextmanager
    async def spawned(
        cls,
        launch: Launch,
        *,
        clock: Clock,
        folder: Path | None = None,
        line_limit: int = LINE_LIMIT,
        ladder: Sequence[Rung] = DEFAULT_LADDER,
    ) -> AsyncIterator[DirectProcess]:
        """Start the agent, with a journal in `folder` if given. Leaving the context climbs `ladder` if it still lives.

        Raises SpawnFailed.
        """
        with ExitStack() as owned:
            process_id = launch.env.get(PROCESS_VARIABLE, "")
            journal = owned.enter_context(closing(_open_journal(folder, process_id))) if folder is not None else None
            pipes = _open_pipes(owned)
            if not launch.stdin:
                pipes.stdin.end(0.0, "the agent was started without stdin")
            child = await _spawn(launch, pipes)
            process = cls(
                child,
                pipes,
                process_id=process_id,
                journal=journal,
                clock=clock,
                line_limit=line_limit,
            )
            failure: Exception | None = None
            async with anyio.create_task_group() as tasks:
                with anyio.CancelScope(shield=True):  # a cancel now would leave an agent that nobody sees to its end
                    await tasks.start(process._live)
                try:
                    yield process
                except Exception as error:
                    failure = error  # raised below as it is, not wrapped in a group
                finally:
                    with anyio.CancelScope(shield=True):
                        await process._leave(ladder)
            if failure is not None:
                raise failure

    # -------------------------------------------------------------------------------------- the AgentProcess protocol

    async def batches(self) -> AsyncIterator[Sequence[Line]]:
        """See `host.AgentProcess`. One consumer. What it has not taken waits here, however much it is."""
        while True:
            if self._ready:
                batch, self._ready = self._ready, []
                yield batch
            elif self._ended.is_set():
                return
            else:
                self._news = anyio.Event()
                await self._news.wait()

    def write(self, place: Place, data: bytes, *, again: bool = False) -> Receipt:
        """See `host.AgentProcess`."""
        return self._pipes.stdin.write(place, data)

    async def close_stdin(self) -> None:
        """See `host.AgentProcess`."""
        self._pipes.stdin.end(_CLOSE_WAIT)
        await self._pipes.stdin.closed.wait()

    async def vitals(self) -> Vitals | None:
        """See `host.AgentProcess`."""
        return Vitals(alive=False) if self._exited.is_set() else await vitals_of(self.pid)

    async def stop(self, ladder: Sequence[Rung] = DEFAULT_LADDER) -> None:
        """See `host.AgentProcess`. A stop while another climbs joins it, and goes on when its caller is cancelled.

        What the agent started ends with it, however it ended; only an agent that ends by itself leaves it behind.
        """
        if not self._exited.is_set() and not self._ended.is_set():
            self._stop.asked = True
            self._begin_climb(ladder)
        if self._stop.begun:
            await self._stop.done.wait()

    async def wait(self) -> ProcessExit:
        """See `host.AgentProcess`."""
        await self._ended.wait()
        return self._exit

    async def release(self) -> None:
        """See `host.AgentProcess`."""

    # ---------------------------------------------------------------------------------------------------- its life

    async def _live(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        # Shielded, because a cancelled caller must not end the reading while the ladder is climbed: `_leave` ends it.
        try:
            with anyio.CancelScope(shield=True) as self._scope:
                async with anyio.create_task_group() as self._tasks:
                    self._tasks.start_soon(self._watch)
                    self._tasks.start_soon(self._pipes.stdin.run)
                    self._tasks.start_soon(self._read_errors)
                    task_status.started()
                    await self._read_output()
                    await self._see_end()
                    await self._errors_read.wait()
                    self._finish()
        finally:
            self._finish()
            self._stop.done.set()

    async def _leave(self, ladder: Sequence[Rung]) -> None:
        if not self._exited.is_set() and not self._stop.asked:
            # Nobody asked for its end: it cannot outlive us. What it says to that does not belong to its work.
            self._stop.lost = True
            self._recording = False
        await self.stop(ladder)
        with anyio.move_on_after(DRAIN + 2 * GRACE):
            await self._ended.wait()
        self._scope.cancel()
        if self._child.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def _watch(self) -> None:
        await self._child.wait()
        self._exited.set()
        self._pipes.stdin.end(0.0, "the agent has ended")
        self._pipes.stdout.agent_ended()
        self._pipes.stderr.agent_ended()

    async def _read_output(self) -> None:
        async for chunk in self._pipes.stdout.chunks():
            self._printed += len(chunk)
            self._read_at = self._clock.now()
            self._record(chunk)
            self._hand_over(self._lines.feed(chunk, self._read_at))
        self._hand_over(self._lines.finish(self._read_at))

    async def _read_errors(self) -> None:
        async for chunk in self._pipes.stderr.chunks():
            self._record_errors(self._errors.add(chunk))
        self._record_errors(self._errors.rest())
        self._errors_read.set()

    async def _see_end(self) -> None:
        """Output has ended; the agent should too. One that closes its output and stays is made to."""
        with anyio.move_on_after(GRACE):
            await self._exited.wait()
        if not self._exited.is_set():
            self._log.warning("process.closed_output")
            self._begin_climb(DEFAULT_LADDER)
        await self._exited.wait()

    def _finish(self) -> None:
        if self._ended.is_set():
            return
        if self._exited.is_set():
            code = self._child.returncode
            assert code is not None
            self._exit = ProcessExit(
                code=code if code >= 0 else None,
                signal=_signal_name(-code) if code < 0 else "",
                stderr_tail=self._errors.tail.decode("utf-8", "replace"),
                stopped=self._stop.asked and not self._stop.lost,
                note=self._stop.note,
                lost=self._stop.lost,
            )
        if self._journal is not None:
            place = self._pipes.stdin.written
            written = (place.offset, place.ordinal, place.index) if place is not None else None
            state = ProcessState(self._exit, self._clock.now(), self._printed, self._journal.stored, written)
            try:
                self._journal.write_state(state)
            except OSError as error:
                self._log.warning("journal.state_failed", error=str(error))
        self._ended.set()
        self._news.set()

    def _hand_over(self, lines: list[Line]) -> None:
        if lines:
            self._ready += lines
            self._news.set()

    def _record(self, chunk: bytes) -> None:
        # When the disk is full this agent goes on without a journal: it is read by nobody while it runs and ends with
        # the bridge. A keeper must instead stop reading, since there the journal is the only way to the bridge.
        if self._journal is not None and self._recording:
            try:
                self._journal.append(chunk, self._read_at)
            except OSError as error:
                self._recording = False
                self._log.error("journal.failed", error=str(error), full=error.errno == errno.ENOSPC)

    def _record_errors(self, data: bytes) -> None:
        if self._journal is not None and self._recording and data:
            try:
                self._journal.append_errors(data)
            except OSError as error:
                self._log.warning("journal.errors_failed", error=str(error))

    # ----------------------------------------------------------------------------------------------- the stop ladder

    def _begin_climb(self, ladder: Sequence[Rung]) -> None:
        if not self._stop.begun:
            self._stop.begun = True
            self._tasks.start_soon(self._climb, ladder)

    async def _climb(self, ladder: Sequence[Rung]) -> None:
        for rung in ladder:
            with anyio.move_on_after(rung.wait):
                await self._remember()
                self._stop.note = f"it ended at {rung.act}"
                await self._act(rung)
                await self._exited.wait()
            if self._exited.is_set():
                self._log.info("process.stopped", act=rung.act, asked=self._stop.asked)
                break
        else:
            self._log.warning("process.not_stopped_by_ladder")
        await self._sweep()
        self._stop.done.set()

    async def _act(self, rung: Rung) -> None:
        match rung.act:
            case "close_stdin":
                self._pipes.stdin.end(rung.wait / 2)
            case "SIGINT" | "SIGTERM":
                # To the agent alone: it cleans up after its tools, which its group would take from under it.
                with suppress(ProcessLookupError):
                    self._child.send_signal(signal.Signals[rung.act])
            case "SIGKILL":
                await self._end_all(signal.SIGKILL)

    async def _remember(self) -> None:
        """Note what the agent has started. Once it has ended, nothing tells whose orphans they are."""
        with anyio.move_on_after(_LOOK):
            found = await anyio.to_thread.run_sync(tree.descendants, self.pid, abandon_on_cancel=True)
            self._stop.known |= found
            self._stop.sessions |= tree.sessions(found)

    async def _living(self) -> list[psutil.Process]:
        return await anyio.to_thread.run_sync(
            tree.living,
            self.pid,
            self._stop.process_id,
            frozenset(self._stop.known),
            frozenset(self._stop.sessions),
            abandon_on_cancel=True,
        )

    async def _end_all(self, number: signal.Signals) -> None:
        """Signal all that lives, each process once, until nothing does: while we look, something may be started."""
        signalled: set[psutil.Process] = set()
        while living := await self._living():
            tree.send(set(living) - signalled, number)
            signalled.update(living)
            await anyio.sleep(0.02)

    async def _sweep(self) -> None:
        """End what the agent has left, with a chance to end by itself; and the agent, if no rung has."""
        if self._exited.is_set():
            with anyio.move_on_after(_SWEEP):
                await self._end_all(signal.SIGTERM)
                return
        with anyio.move_on_after(_SWEEP):
            await self._end_all(signal.SIGKILL)
            await self._exited.wait()


class _Stop:
    """What is known of the stop of one process, and of the tree that it has to end."""

    def __init__(self, process_id: str) -> None:
        self.process_id = process_id
        self.asked = False
        self.lost = False
        self.begun = False
        self.done = anyio.Event()
        self.note = ""
        self.known: set[psutil.Process] = set()
        self.sessions: set[int] = set()


class _Pipes(NamedTuple):
    stdin: InputPipe
    stdout: OutputPipe
    stderr: OutputPipe


def _open_pipes(owned: ExitStack) -> _Pipes:
    try:
        return _Pipes(
            owned.enter_context(closing(InputPipe())),
            owned.enter_context(closing(OutputPipe())),
            owned.enter_context(closing(OutputPipe())),
        )
    except OSError as error:
        raise SpawnFailed("other", f"The pipes for the agent could not be made: {error.strerror}.") from error


def _open_journal(folder: Path, process_id: str) -> JournalWriter:
    try:
        return JournalWriter(folder, process_id)
    except OSError as error:
        raise SpawnFailed("journal", f"{folder} cannot be written: {error.strerror or error}.") from error


async def _spawn(launch: Launch, pipes: _Pipes) -> anyio.abc.Process:
    try:
        return await anyio.open_process(
            launch.argv,
            stdin=pipes.stdin.child_end,
            stdout=pipes.stdout.child_end,
            stderr=pipes.stderr.child_end,
            cwd=launch.cwd,
            env=launch.env,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise spawn_failed(launch, error) from error
    finally:
        for pipe in pipes:
            pipe.close_child_end()


def spawn_failed(launch: Launch, error: Exception) -> SpawnFailed:
    """Why a spawn failed, in words."""
    # The error itself does not tell whether the folder, the program or its interpreter is missing.
    program = launch.argv[0]
    if not os.path.isdir(launch.cwd):
        return SpawnFailed("folder", f"The folder {launch.cwd} does not exist.")
    if not os.access(launch.cwd, os.X_OK):
        return SpawnFailed("folder", f"The folder {launch.cwd} may not be entered.")
    if shutil.which(program, path=launch.env.get("PATH", os.defpath)) is None:
        there = os.path.dirname(program) and os.path.exists(program)
        return SpawnFailed("program", f"{program} is not executable." if there else f"{program} was not found.")
    reason = getattr(error, "strerror", None) or str(error)
    return SpawnFailed("other", f"{program} could not be started: {reason}.")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
