"""An agent behind a keeper: start one, attach to one that runs, read its journal, and end what a dead one has left.

The journal is read here, from the files, whatever the keeper does: while it lives its notes tell when to look. What
goes to the agent goes through the keeper's socket (see `keeper`), again after the connection broke, until the keeper
has said what became of it.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
import msgspec
import structlog

from ..model import Record
from ..session import Place, ProcessExit
from . import keeper
from .direct import spawn_failed
from .host import DEFAULT_LADDER, Launch, Line, NotOurs, Receipt, Rung, SpawnFailed, Standing, Vitals, WriteFailed
from .journal import JournalReader, JournalTail
from .lines import LINE_LIMIT
from .vitals import vitals_of

log = structlog.get_logger(__name__)

# Imported and not run as a file: then its compiled form is used, which saves each keeper 3 MB and some milliseconds.
_IMPORT = "import sys; sys.path.append(sys.argv[1]); import keeper; sys.exit(keeper.main())"
KEEPER_COMMAND = (sys.executable, "-I", "-S", "-c", _IMPORT, os.path.dirname(keeper.__file__))

_ATTACH = 5.0  # seconds for a keeper to answer
_START = 10.0  # seconds for a keeper to say that its agent runs; it takes some hundredths
_CLOSE_WAIT = 30.0  # seconds for accepted lines before stdin is closed without them: an agent may be slow to start
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0  # seconds between two tries to connect
_MARGIN = 2.0  # seconds over the ladder's time that a keeper gets to end an agent
_LEFT = 5.0  # seconds for ending what a dead keeper has left
_ASK = 1.0  # seconds of these for ending by themselves
_LARGEST_FLOOR = 20  # the part of a small disk that is kept free is at most 1 in this
_PATH_LIMIT = 100  # bytes of a socket's path: 104 with its end on macOS, 108 on Linux


class _KeeperGone(Exception):
    """The keeper has died and nobody saw how the agent ended."""


class NotStarted(Exception):
    """No agent was started in this folder: it may be started again."""


class Superseded(NotOurs):
    """Another bridge, with a newer epoch, controls this process."""


class AttachRefused(NotOurs):
    """The keeper does not take calls from here; the text says why."""


class KeeperLimits(Record, frozen=True):
    """What a keeper may use. `cap` (of the journal) and `floor` (of free space) in bytes, the rest in seconds.

    `orphan`: how long an agent works on without a bridge. `retention`: how long a keeper waits for one after the
    agent's end; nothing is lost after that. `retry`: between two tries on a full disk.
    """

    cap: int = 2 * 1024**3
    floor: int = 256 * 1024**2
    orphan: float = 72 * 3600.0
    retention: float = 600.0
    retry: float = 2.0


def standing(folder: Path) -> Standing:
    """How a process stands: not started, kept, ended (`state.json` tells how), or left by a keeper that died."""
    if _held(folder / keeper.LOCK):
        return "alive"
    if JournalReader(folder).state() is not None:
        return "ended"
    return "gone" if (folder / keeper.STARTED).exists() else "new"


class KeptProcess:
    """One agent, owned by a keeper; see `host.AgentProcess`. Made by `spawned` and `attached`.

    `on_blocked` is called with the reason (`journal`: at its cap, `disk`: full) when the agent has to wait for the
    disk, and with an empty one when it goes on.
    """

    def __init__(
        self,
        folder: Path,
        *,
        epoch: int | None,
        from_offset: int = 0,
        line_limit: int = LINE_LIMIT,
        on_blocked: Callable[[str], None] | None = None,
    ) -> None:
        self.pid = 0  # for diagnosis only
        self.blocked = ""
        self._folder = folder.absolute()
        self._epoch = epoch
        self._tail = JournalTail(folder, from_offset, line_limit)
        self._on_blocked = on_blocked
        self._numbers = itertools.count(1)
        self._calls: dict[int, _Call] = {}  # those without their last reply, in order
        self._lines: dict[Place, _Call] = {}  # those of them that are lines
        self._unsent: deque[_Call] = deque()
        self._called = anyio.Event()
        self._grown = anyio.Event()
        self._settled = anyio.Event()  # attached, or known why not
        self._over = anyio.Event()
        self._exit: ProcessExit | None = None
        self._failure: Exception | None = None
        self._hung_up = ""  # why nothing reaches the keeper any more
        self._written = Place(-1, 0)  # then: the last line that the agent had
        self._log = log.bind(process_id=folder.name)

    @classmethod
    @asynccontextmanager
    async def spawned(
        cls,
        launch: Launch,
        folder: Path,
        *,
        epoch: int,
        ladder: Sequence[Rung] = DEFAULT_LADDER,
        limits: KeeperLimits = KeeperLimits(),  # noqa: B008 (immutable)
        line_limit: int = LINE_LIMIT,
        on_blocked: Callable[[str], None] | None = None,
        prefix: Sequence[str] = (),
    ) -> AsyncIterator[KeptProcess]:
        """Start a keeper in `folder`, and the agent with it. Leaving the context leaves both at work.

        `ladder` is what the keeper climbs when no bridge comes. `prefix` is a command to start the keeper through,
        such as `systemd-run --user --scope`. A folder in which an agent was started before is attached to instead.
        Raises SpawnFailed, and what `attached` raises.
        """
        with anyio.CancelScope(shield=True):  # it is soon over, and its outcome is not to be lost
            await _start_keeper(launch, folder, ladder, limits, prefix)
        async with cls.attached(folder, epoch=epoch, line_limit=line_limit, on_blocked=on_blocked) as process:
            yield process

    @classmethod
    @asynccontextmanager
    async def attached(
        cls,
        folder: Path,
        *,
        epoch: int | None,
        from_offset: int = 0,
        line_limit: int = LINE_LIMIT,
        on_blocked: Callable[[str], None] | None = None,
    ) -> AsyncIterator[KeptProcess]:
        """Attach to the agent of `folder`: in control with an epoch; without, as an observer, who may stop it.

        Lines come from `from_offset` on, the end of a line. An agent that has ended is read to its end; so is one
        whose keeper died. Leaving the context leaves the agent at work.
        Raises NotStarted, Superseded, AttachRefused.
        """
        process = cls(folder, epoch=epoch, from_offset=from_offset, line_limit=line_limit, on_blocked=on_blocked)
        failure: Exception | None = None
        with closing(process._tail):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(process._live)
                try:
                    with anyio.move_on_after(_ATTACH):  # a keeper that is slow to answer does not hold up the reading
                        await process._settled.wait()
                    if process._failure is not None and not isinstance(process._failure, _KeeperGone):
                        raise process._failure
                    yield process
                except Exception as error:
                    failure = error  # raised below as it is, not wrapped in a group
                finally:
                    tasks.cancel_scope.cancel()
            if failure is not None:
                raise failure

    # -------------------------------------------------------------------------------------- the AgentProcess protocol

    async def batches(self) -> AsyncIterator[Sequence[Line]]:
        """See `host.AgentProcess`. One consumer. Raises Superseded when another bridge takes over."""
        caught_up = False
        while True:
            if isinstance(self._failure, Superseded):
                raise self._failure
            over, grown = self._over.is_set(), self._grown  # as they were before the reading
            lines = self._tail.read()
            if lines:
                yield lines
            elif lines is not None:
                await anyio.lowlevel.checkpoint()  # a part of a long line
            elif not over:
                if not caught_up:
                    caught_up = True
                    yield ()
                await grown.wait()
            else:
                if rest := self._tail.finish():
                    yield rest
                return

    def write(self, place: Place, data: bytes, *, again: bool = False) -> Receipt:
        """See `host.AgentProcess`. A place at or before the last one that the keeper took counts as written."""
        same = self._lines.get(place)
        if same is not None and same.data == data:
            return same
        call = self._call("write", data, at=place, **({"again": True} if again else {}))
        if not call.settled.is_set():
            self._lines[place] = call
        return call

    async def close_stdin(self) -> None:
        """See `host.AgentProcess`."""
        with suppress(WriteFailed):
            await self._call("close_stdin", within=_CLOSE_WAIT).written()

    async def vitals(self) -> Vitals | None:
        """See `host.AgentProcess`. Not known before the keeper has told which process it is."""
        if self._over.is_set():
            return Vitals(alive=False)
        return await vitals_of(self.pid) if self.pid else None

    async def stop(self, ladder: Sequence[Rung] = DEFAULT_LADDER) -> None:
        """See `host.AgentProcess`. When the keeper is gone or does not answer, the tree is ended from here."""
        call = self._call("stop", ladder=_encoded(ladder))
        bound = sum(rung.wait for rung in ladder) + _MARGIN
        with anyio.move_on_after(bound) as waiting, suppress(WriteFailed):
            await call.written()
        if waiting.cancelled_caught or isinstance(self._failure, _KeeperGone):
            self._log.warning("process.keeper_did_not_stop")
            await end_leftovers(self._folder, _process_id(self._folder))

    async def wait(self) -> ProcessExit:
        """See `host.AgentProcess`. Raises Superseded. What a dead keeper has left is ended first."""
        await self._over.wait()
        if isinstance(self._failure, _KeeperGone):
            await end_leftovers(self._folder, _process_id(self._folder))
            return ProcessExit(note=str(self._failure), lost=True)
        if self._exit is None:
            assert self._failure is not None
            raise self._failure
        return self._exit

    async def release(self) -> None:
        """See `host.AgentProcess`."""
        with suppress(WriteFailed):
            await self._call("release").written()

    # --------------------------------------------------------------------------------------------------- the connection

    async def _live(self) -> None:
        pause = _FIRST_PAUSE
        try:
            while self._keeper_lives():
                if await self._converse():
                    pause = _FIRST_PAUSE
                if self._over.is_set():
                    return
                # Not listening yet, or it has let us go: meanwhile the files are read all the same.
                await anyio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                self._wake()
        finally:
            self._hang_up()

    def _keeper_lives(self) -> bool:
        match standing(self._folder):
            case "alive":
                return True
            case "ended":
                state = JournalReader(self._folder).state()
                assert state is not None
                self._end(exit=state.exit)
            case "gone":
                self._end(failure=_KeeperGone(f"the keeper of {self._folder.name} has died"))
            case "new":
                self._end(failure=NotStarted(f"no agent was started in {self._folder}"))
        return False

    async def _converse(self) -> bool:
        """Attach and talk until the connection breaks. Says whether it got that far."""
        try:
            with _short(self._folder / keeper.SOCKET) as path:
                stream = await anyio.connect_unix(path)
        except OSError as error:
            self._log.debug("process.keeper_not_reached", error=repr(error))
            return False
        async with stream, anyio.create_task_group() as tasks:
            tasks.start_soon(self._send, stream)
            attached = await self._receive(stream)
            tasks.cancel_scope.cancel()
        return attached

    async def _send(self, stream: anyio.abc.ByteSendStream) -> None:
        hello = {"call": "observe"} if self._epoch is None else {"call": "attach", "epoch": self._epoch}
        self._unsent = deque([_Call(0, hello | {"version": keeper.VERSION}), *self._calls.values()])
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):  # `_receive` sees it too
            while True:
                while self._unsent:
                    call = self._unsent.popleft()
                    await stream.send(call.header + call.data)
                self._called = anyio.Event()
                await self._called.wait()

    async def _receive(self, stream: anyio.abc.SocketStream) -> bool:
        rest = b""
        attached = False
        socket = stream.extra(anyio.abc.SocketAttribute.raw_socket)
        with suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                # A `receive` that is cancelled just when data comes leaves an error in the event loop (anyio 4.16).
                await anyio.wait_readable(socket)
                *lines, rest = (rest + await stream.receive()).split(b"\n")
                for line in lines:
                    attached |= self._hear(json.loads(line))
        return attached

    def _hear(self, message: dict[str, Any]) -> bool:
        """Act on what the keeper says. True when it has attached us."""
        match message:
            case {"note": "grown"}:
                self._wake()
            case {"note": "blocked", "reason": reason}:
                self._set_blocked(reason)
            case {"note": "ended", "exit": exit}:
                self._end(exit=msgspec.convert(exit, ProcessExit))
            case {"note": "replaced"} | {"state": "error", "error": "epoch"}:
                self._end(failure=Superseded("another bridge controls this process"))
            case {"state": "error", "error": "peer", "reason": reason}:
                self._end(failure=AttachRefused(reason))
            case {"id": 0, "state": "attached", "agent": pid, "blocked": reason, "exit": exit}:
                self.pid = pid
                self._set_blocked(reason)
                if exit is not None:
                    self._end(exit=msgspec.convert(exit, ProcessExit))
                self._settled.set()
                return True
            case {"id": int(number), "state": state} if number in self._calls:
                self._replied(number, state, message.get("reason") or "")
            case {"state": "error"}:
                self._log.warning("process.keeper_objects", message=message)
            case _:
                self._log.info("process.keeper_says_unknown", message=message)
        return False

    def _replied(self, number: int, state: str, reason: str) -> None:
        if state != "accepted":
            call = self._calls.pop(number)
            self._lines = {place: line for place, line in self._lines.items() if line is not call}
            call.settle(reason or state if state in ("failed", "refused", "error") else "")

    def _call(self, name: str, data: bytes = b"", at: Place | None = None, **more: object) -> _Call:
        if at is not None:
            more |= {"place": [at.offset, at.ordinal, at.index], "size": len(data)}
        call = _Call(next(self._numbers), {"call": name, **more}, data, at)
        if self._hung_up or (self._epoch is None and name != "stop"):
            call.settle(self._fate(call) if self._hung_up else "an observer does not write")
        else:
            self._calls[call.number] = call
            self._unsent.append(call)
            self._called.set()
        return call

    def _fate(self, call: _Call) -> str:
        """Why a call fails when nobody answers it any more; "" for a line that the agent had."""
        return "" if call.place is not None and call.place <= self._written else self._hung_up

    def _set_blocked(self, reason: str) -> None:
        if reason != self.blocked:
            self.blocked = reason
            if self._on_blocked is not None:
                self._on_blocked(reason)

    def _wake(self) -> None:
        self._grown.set()
        self._grown = anyio.Event()

    def _end(self, exit: ProcessExit | None = None, failure: Exception | None = None) -> None:
        if not self._over.is_set():
            self._exit, self._failure = exit, failure
        self._over.set()
        self._settled.set()
        self._wake()

    def _hang_up(self) -> None:
        self._hung_up = str(self._failure or "the agent has ended")
        state = JournalReader(self._folder).state()
        if state is not None and state.written is not None:
            self._written = Place(*state.written)
        for call in self._calls.values():
            call.settle(self._fate(call))
        self._calls.clear()
        self._lines.clear()


class _Call:
    """One call to the keeper; as a receipt, see `host.Receipt`."""

    def __init__(self, number: int, header: dict[str, object], data: bytes = b"", place: Place | None = None) -> None:
        self.number = number
        self.place = place
        self.header = json.dumps({"id": number, **header}).encode() + b"\n"
        self.data = data
        self.settled = anyio.Event()
        self._failure = ""

    async def written(self) -> None:
        await self.settled.wait()
        if self._failure:
            raise WriteFailed(self._failure)

    def settle(self, failure: str) -> None:
        self._failure = failure
        self.settled.set()


async def end_leftovers(folder: Path, process_id: str) -> int:
    """End what a dead keeper has left: its agent, and all that carries `process_id` in its environment.

    Each may end by itself first. Returns how many there were; takes up to some seconds, and logs what outlives that.
    """
    known = _agent(folder)
    mine = set(keeper.lineage(os.getpid()) or [os.getpid()])  # we may have been started by that very agent
    signalled: set[tuple[keeper.Identity, int]] = set()
    found: dict[int, keeper.Process] = {}
    asked_until = anyio.current_time() + _ASK
    with anyio.move_on_after(_LEFT):
        while found := await anyio.to_thread.run_sync(keeper.living, process_id, set[int](), known, set[int](), mine):
            number = signal.SIGTERM if anyio.current_time() < asked_until else signal.SIGKILL
            for process in found.values():
                if (process.identity, number) not in signalled:
                    signalled.add((process.identity, number))
                    keeper.send(process, number)
            await anyio.sleep(0.02)
    if found:
        log.error("process.leftovers_remain", process_id=process_id, pids=sorted(found))
    return len({identity for identity, _ in signalled})


async def _start_keeper(
    launch: Launch, folder: Path, ladder: Sequence[Rung], limits: KeeperLimits, prefix: Sequence[str]
) -> None:
    _make(folder)
    plan = {
        "argv": launch.argv,
        "env": launch.env,
        "cwd": launch.cwd,
        "stdin": launch.stdin,
        "ladder": _encoded(ladder),
        "journal_cap": limits.cap,
        "disk_floor": min(limits.floor, _size_of_disk(folder) // _LARGEST_FLOOR),
        "orphan": limits.orphan,
        "retention": limits.retention,
        "retry": limits.retry,
    }

    def start() -> subprocess.CompletedProcess[bytes]:
        # What it says ends when it knows how the start went: then it closes the pipes and goes on by itself.
        command = [*prefix, *KEEPER_COMMAND]
        words = json.dumps(plan).encode()
        return subprocess.run(
            command, input=words, capture_output=True, cwd=folder, env=launch.env, timeout=_START, check=False
        )

    try:
        # In a thread, because what ends before it has read its plan breaks the pipe, and must still be heard.
        done = await anyio.to_thread.run_sync(start)
    except subprocess.TimeoutExpired as error:
        if prefix:
            log.warning("keeper.prefix_failed", command=prefix[0], stderr="it did not answer in time")
            return await _start_keeper(launch, folder, ladder, limits, ())
        raise SpawnFailed("other", f"The keeper did not start within {_START:g} seconds.") from error
    except (OSError, ValueError) as error:
        raise SpawnFailed("other", f"The keeper could not be started: {error}.") from error
    match json.loads(done.stdout) if done.stdout else None:
        case {"agent": int()} | {"refused": "taken" | "used"}:
            return None
        case {"refused": "journal", "reason": reason}:
            raise SpawnFailed("journal", f"{folder} cannot be written: {reason}.")
        case {"refused": _, "errno": number, "reason": reason}:
            raise spawn_failed(launch, OSError(number, reason))
    if prefix:  # no keeper came to a word: what it was to be started through does not work (any more)
        log.warning("keeper.prefix_failed", command=prefix[0], stderr=done.stderr[-200:].decode("utf-8", "replace"))
        return await _start_keeper(launch, folder, ladder, limits, ())
    words = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
    raise SpawnFailed("other", f"The keeper could not be started: {words[-1]}.")


def _size_of_disk(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_frsize * disk.f_blocks


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise SpawnFailed("journal", f"{folder} cannot be written: {error.strerror or error}.") from error


@contextmanager
def _short(path: Path) -> Iterator[Path]:
    """Another path to the same file, short enough for a socket's. Raises OSError."""
    if len(os.fsencode(path)) < _PATH_LIMIT:
        yield path
        return
    temporary = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(prefix="untether-", dir=temporary if len(temporary) < 50 else "/tmp") as folder:
        link = Path(folder, "p")
        link.symlink_to(path.parent)
        yield link / path.name


def _held(lock: Path) -> bool:
    try:
        fd = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _encoded(ladder: Sequence[Rung]) -> list[tuple[str, float]]:
    return [(rung.act, rung.wait) for rung in ladder]


def _agent(folder: Path) -> set[keeper.Identity]:
    """The agent of `folder` by pid and start time, if it was started in this boot."""
    match _object(folder / keeper.STATE):
        case {"agent": [int(pid), str(started)], "boot": boot} if started and boot == keeper.boot_id():
            return {(pid, started)}
    return set()


def _process_id(folder: Path) -> str:
    return str(_object(folder / keeper.STARTED).get("process", ""))


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
