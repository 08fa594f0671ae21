"""The keeper: a small process that owns one agent, so that the agent outlives the bridge.

It is started by `kept.py` in the folder of the process, like `python -I keeper.py`, with a JSON object on stdin (see
`Keeper`), and says in one line on stdout whether the agent runs. From then on the folder speaks for it:

- `lock` is held (flock) as long as the keeper lives, and `started` was written before the agent was. So a folder
  without `started` may be started again; `started` beside a free lock means that nobody saw the end, unless
  `state.json` tells it.
- `out.jsonl`, `out.times`, `err.log` and, at the end, `state.json` are as `journal.py` describes them. While the agent
  runs `state.json` has no `exit`. `keeper.log` is for faults of the keeper itself.
- `sock` takes calls: a JSON object a line; that of a `write` is followed by `size` bytes. Replies carry the `id` of
  their call, notes have a `note` instead.

    call                                        last reply            by whom
    attach {version, epoch}                     attached              a bridge; it replaces one of a lower epoch
    observe {version}                           attached              anyone
    write {place: [offset, ordinal, index], again}  written, past (at or before the last place, so never sent again),
                                                failed, refused       the bridge; `accepted` comes first
    close_stdin {within}                        closed                the bridge
    stop {ladder: [[act, seconds], ...]}        ended, alive          anyone
    release                                     released              the bridge

    notes: grown {offset}, blocked {reason}, ended {exit}, replaced {epoch}

Only the standard library is used, nothing of the package, and all of it is imported at the start: an upgrade may remove
the files while agents run. There are no threads, so that forking is safe and each call has one place in the order.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import selectors
import signal
import socket
import struct
import sys
import termios
import time
from collections import deque
from collections.abc import Callable, Iterable, Set

VERSION = 1
LOCK, STARTED, STATE, SOCKET, LOG = "lock", "started", "state.json", "sock", "keeper.log"
OUT, TIMES, ERRORS = "out.jsonl", "out.times", "err.log"
_LINUX = sys.platform == "linux"  # as a value: a type checker takes the other branch for dead code

PROCESS_VARIABLE = "UNTETHER_PROCESS"  # the same as in environment.py

GRACE = 0.5  # seconds without output after which an ended agent's pipe counts as read, though others may hold it
DRAIN = 2.0  # seconds after the agent's end at which a pipe that others keep busy is let go
_SWEEP = 0.4  # seconds for each of the two passes over what an ended agent has left
_ROUND = 0.02  # seconds between two looks for what still lives
_READ = 256 * 1024
_ERROR_HEAD, _ERROR_TAIL = 8 * 1024, 16 * 1024
_LONGEST_WAIT = 3600.0  # seconds; what epoll takes is limited
_REMEMBERED = 1000  # lines for stdin whose digests are kept
_HEADER_LIMIT = 64 * 1024
_FRAME_LIMIT = 256 * 1024 * 1024
_UNREAD_LIMIT = 1024 * 1024  # bytes that wait for a client before it is let go; it may come again
_STAMP = struct.Struct("<Qd")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_ACTS = ("close_stdin", "SIGINT", "SIGTERM", "SIGKILL")
_HANDLED = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)

_LIBC = ctypes.CDLL(None, use_errno=True)

Rungs = list[tuple[str, float]]
Place = tuple[int, int, int]
Identity = tuple[int, str]  # pid and start time: a pid alone may be used again


# ------------------------------------------------------------------------------------------------- the process table


class Process:
    """One row of the process table. `started` is comparable within one boot, in a unit of the platform's own."""

    __slots__ = ("name", "parent", "pid", "session", "started")

    def __init__(self, pid: int, started: str, parent: int, session: int, name: str) -> None:
        self.pid, self.started, self.parent, self.session, self.name = pid, started, parent, session, name

    @property
    def identity(self) -> Identity:
        return self.pid, self.started


def boot_id() -> str:
    """Which boot start times belong to; empty where that is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().strip().decode()
    except OSError:
        return ""


def look_up(pid: int) -> Process | None:
    """The process `pid`, if it lives; a zombie does not."""
    if not _LINUX:
        return table().get(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, tail = file.read().rpartition(b")")
    except OSError:
        return None
    fields = tail.split()  # proc(5): state, ppid, pgrp, session, ..., starttime is the 20th
    if fields[0] in (b"Z", b"X"):
        return None
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    return Process(pid, fields[19].decode(), int(fields[1]), int(fields[3]), name)


def table() -> dict[int, Process]:
    """All processes that live."""
    if not _LINUX:
        return _table_of_ps()
    found = (look_up(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def carriers(process_id: str, pids: Iterable[int]) -> set[int]:
    """Those of `pids` that have our process id in their environment."""
    if not process_id:
        return set()
    mark = f"{PROCESS_VARIABLE}={process_id}".encode()
    if not _LINUX:
        return _carriers_of_ps(mark) & set(pids)
    found = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.add(pid)
        except OSError:
            continue  # ended meanwhile, or another user's
    return found


def living(
    process_id: str, roots: Set[int], known: Set[Identity], sessions: Set[int], spare: Set[int]
) -> dict[int, Process]:
    """All that lives of an agent: `roots`, what is known, is in these sessions or carries the id, and what descends.

    `spare` is left out, its descendants are not.
    """
    processes = table()
    children: dict[int, list[int]] = {}
    found = carriers(process_id, processes) | (roots & processes.keys())
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
        if process.identity in known or process.session in sessions:
            found.add(pid)
    pending = list(found)
    while pending:
        new = [pid for pid in children.get(pending.pop(), ()) if pid not in found]
        found.update(new)
        pending += new
    return {pid: processes[pid] for pid in found - spare}


def lineage(pid: int) -> list[int] | None:
    """`pid` and its ancestors; None when it cannot be told, since one of them has ended."""
    for _ in range(3):  # an ancestor that ends while we look leaves its child to another
        processes = table()
        line, at = [], pid
        while at in processes:
            line.append(at)
            at = processes[at].parent
        if line and at == 0:
            return line
    return None


def send(process: Process, number: int) -> None:
    """Signal a process of a table that was just read."""
    try:
        os.kill(process.pid, number)
    except OSError:
        return  # ended meanwhile, or another user's


def _table_of_ps() -> dict[int, Process]:
    """The process table where there is no /proc; `lstart` has a resolution of one second."""
    found = {}
    for line in _ps("-axo", "pid=,ppid=,stat=,lstart=,ucomm="):
        fields = line.split(None, 8)
        if len(fields) < 9 or fields[2].startswith(b"Z"):
            continue
        pid = int(fields[0])
        try:
            session = os.getsid(pid)
        except OSError:
            session = 0
        started = b" ".join(fields[3:8]).decode("ascii", "replace")
        found[pid] = Process(pid, started, int(fields[1]), session, fields[8].decode("utf-8", "replace").strip())
    return found


def _carriers_of_ps(mark: bytes) -> set[int]:
    environment = "-axEww" if sys.platform == "darwin" else "axeww"
    rows = (line.split() for line in _ps(environment, "-o", "pid=,command="))
    return {int(words[0]) for words in rows if mark in words[1:]}


def _ps(*arguments: str) -> list[bytes]:
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(write_end, 1)
            os.execve("/bin/ps", ("ps", *arguments), {"LC_ALL": "C", "PATH": "/usr/bin:/bin"})
        finally:
            os._exit(127)
    os.close(write_end)
    try:
        return _read_all(read_end).splitlines()
    finally:
        os.close(read_end)
        os.waitpid(child, 0)


# ------------------------------------------------------------------------------------------------------- the journal


class Journal:
    """The output of the agent, on disk, to the byte. What cannot be stored now is kept and tried again."""

    def __init__(self, cap: int, floor: int) -> None:
        """`cap` is the size, `floor` the free space of the disk at which no more is taken; both in bytes."""
        self._cap, self._floor = cap, floor
        self._out, self._times, self._errors = (_open_to_append(name) for name in (OUT, TIMES, ERRORS))
        if os.fstat(self._out).st_size:
            raise FileExistsError(errno.EEXIST, "the folder already holds the output of an agent")
        self.stored = 0  # bytes in out.jsonl
        self.told = 0  # of which the time is stored too; a reader takes no more
        self._rest = b""
        self._stamp = b""
        self._error_total = 0
        self.error_tail = b""

    @property
    def behind(self) -> bool:
        """Whether something that was read could not be stored yet."""
        return bool(self._rest or self._stamp)

    def limit(self) -> str:
        """The limit that is reached: `journal` (its cap), `disk` (nearly full), or empty."""
        if self.stored >= self._cap:
            return "journal"
        try:
            disk = os.fstatvfs(self._out)
        except OSError:
            return ""
        return "disk" if disk.f_bavail * disk.f_frsize < self._floor else ""

    def room(self) -> int:
        """How much the next read may bring under the cap."""
        return min(_READ, self._cap - self.stored)

    def add(self, chunk: bytes, now: float) -> None:
        """Store one read. Only when not `behind`."""
        self._rest = chunk
        self._stamp = _STAMP.pack(self.stored + len(chunk), now)
        self.retry()

    def retry(self) -> None:
        """Store what is left of the last read: first the output, then its time."""
        try:
            while self._rest:
                count = os.write(self._out, self._rest)
                self.stored += count
                self._rest = self._rest[count:]
            while self._stamp:
                self._stamp = self._stamp[os.write(self._times, self._stamp) :]
        except OSError:
            return  # whatever ails the disk, the rest waits here
        self.told = self.stored

    def add_errors(self, chunk: bytes) -> None:
        """Take stderr: its head goes to disk at once, its tail is remembered. Not kept for when the disk is full."""
        head = chunk[: max(0, _ERROR_HEAD - self._error_total)]
        self._error_total += len(chunk)
        self.error_tail = (self.error_tail + chunk[-_ERROR_TAIL:])[-_ERROR_TAIL:]
        self._write_errors(head)

    def finish_errors(self) -> None:
        """Write the tail of stderr, with a word on what was left out before it."""
        after_head = max(0, self._error_total - _ERROR_HEAD)
        left_out = max(0, after_head - len(self.error_tail))
        word = b"\n[%d bytes left out]\n" % left_out if left_out else b""
        self._write_errors(word + self.error_tail[len(self.error_tail) - (after_head - left_out) :])

    def sync(self) -> None:
        """See the output to the disk. Raises OSError."""
        os.fsync(self._out)
        os.fsync(self._times)

    def _write_errors(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._errors, data) :]
        except OSError as error:
            complain(f"{ERRORS}: {error}")


# -------------------------------------------------------------------------------------------- the pipes of the agent


class Line:
    """A line for the agent's stdin, and the calls that wait for what becomes of it."""

    __slots__ = ("digest", "place", "reason", "rest", "state", "waiting")

    def __init__(self, place: Place, data: bytes) -> None:
        self.place = place
        self.digest = _digest(data)
        self.rest = memoryview(data)
        self.state = "accepted"
        self.reason = ""
        self.waiting: list[Call] = []

    def settle(self, state: str, reason: str = "") -> None:
        self.state, self.reason, self.rest = state, reason, memoryview(b"")
        for call in self.waiting:
            call.reply(state, reason=reason)
        self.waiting.clear()


class Stdin:
    """Lines for the agent, in order, each place at most once."""

    def __init__(self, fd: int, selector: selectors.BaseSelector) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._selector = selector
        self._watched = False  # the pipe is full
        self._queue: deque[Line] = deque()
        self._known: dict[Place, Line] = {}  # the last ones, in order
        self._last: Place = (-1, -1, -1)
        self.written: Place = (-1, -1, -1)  # of the last line that the agent has, or had in its pipe
        self._refusal = ""  # why lines are no longer accepted
        self._closing: list[Call] = []

    def write(self, place: Place, data: bytes, call: Call, again: bool = False) -> None:
        """Accept a line, join the same one, or say why not. Nothing at or before the last place is sent again.

        `again`: a bridge that started anew says once more what was said. A newer one may have more lines for the same
        step: those that we know of it are not sent a second time because they stand further behind.
        """
        line = self._known.get(place)
        if line is None and again and place > self._last and place[:2] == self._last[:2]:
            line = self._same(place, _digest(data))
        if line is None and place <= self._last:
            call.reply("past")
            return
        if line is None:
            line = self._known[place] = Line(place, data)
            self._last = place
            self._forget()
            if self._refusal:
                line.settle("failed", self._refusal)
            else:
                self._queue.append(line)
                self._pump()
        elif line.digest != _digest(data):
            call.reply("refused", reason="another line was accepted for this place")
            return
        call.reply(line.state, reason=line.reason)
        if line.state == "accepted":
            line.waiting.append(call)

    def _same(self, place: Place, digest: tuple[int, int]) -> Line | None:
        """The line of the same step with the same content."""
        for known, line in self._known.items():
            if known[:2] == place[:2] and line.digest == digest:
                return line
        return None

    def end(self, call: Call | None = None) -> None:
        """Accept no more and close after the accepted lines."""
        if call is not None:
            self._closing.append(call)
        self._refusal = self._refusal or "stdin is closed"
        self._pump()

    def close(self, reason: str) -> None:
        """Close now. What was not written fails."""
        self._refusal = self._refusal or reason
        self._watch(False)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        while self._queue:
            self._queue.popleft().settle("failed", reason)
        for call in self._closing:
            call.reply("closed")
        self._closing.clear()

    def _pump(self) -> None:
        """Write until the pipe is full or nothing waits; then close it, if that was asked for."""
        try:
            while self._queue:
                line = self._queue[0]
                while line.rest:
                    line.rest = line.rest[os.write(self._fd, line.rest) :]
                self._queue.popleft()
                self.written = line.place
                line.settle("written")
        except BlockingIOError:
            self._watch(True)
            return
        except OSError:
            self.close("the agent has closed its stdin")
        self._watch(False)
        if self._refusal:
            self.close(self._refusal)

    def _watch(self, on: bool) -> None:
        if on and not self._watched:
            self._selector.register(self._fd, selectors.EVENT_WRITE, lambda _: self._pump())
        elif self._watched and not on:
            self._selector.unregister(self._fd)
        self._watched = on

    def _forget(self) -> None:
        while len(self._known) > _REMEMBERED:
            oldest = next(iter(self._known))
            if self._known[oldest].state == "accepted":
                return
            del self._known[oldest]


class Output:
    """The reading end of the agent's stdout or stderr. `ready` is called when there is something to read."""

    def __init__(self, fd: int, selector: selectors.BaseSelector, ready: Callable[[], None]) -> None:
        os.set_blocking(fd, False)
        self.name = f"output {fd}"
        self._fd = fd
        self._selector = selector
        self._ready = ready
        self._watched = False
        self._owed = 0
        self._ended_at: float | None = None
        self.closed = False

    def watch(self, on: bool = True) -> None:
        if on and not self._watched:
            self._selector.register(self._fd, selectors.EVENT_READ, lambda _: self._ready())
        elif self._watched and not on:
            self._selector.unregister(self._fd)
        self._watched = on

    def read(self, size: int) -> bytes | None:
        """What is there; empty at end of file, None when there is nothing now."""
        try:
            chunk = os.read(self._fd, size)
        except BlockingIOError:
            return None
        self._owed -= len(chunk)
        return chunk

    def agent_ended(self) -> None:
        """All that the agent itself printed is in the pipe now."""
        self._owed = int.from_bytes(fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)), sys.byteorder)
        self._ended_at = time.monotonic()

    @property
    def overdue(self) -> bool:
        """Whether only others than the agent can still print, and had their time."""
        return self._ended_at is not None and self._owed <= 0 and time.monotonic() > self._ended_at + DRAIN

    def close(self) -> None:
        self.watch(False)
        if not self.closed:
            os.close(self._fd)
        self.closed = True


# ---------------------------------------------------------------------------------------------- clients and timers


class Client:
    """A connection. What it is told waits here until it takes it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.attached = False
        self.offset = -1  # of the last `grown`
        self.closing = False  # to be let go when it has what it was told
        self._inbox = bytearray()
        self._outbox = bytearray()

    @property
    def idle(self) -> bool:
        """Whether it has taken all that it was told."""
        return not self._outbox

    def say(self, **message: object) -> None:
        self._outbox += json.dumps(message, separators=(",", ":")).encode() + b"\n"

    def receive(self) -> bool:
        """Take what has come; False when the peer is gone."""
        try:
            chunk = self.socket.recv(_READ)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._inbox += chunk
        return bool(chunk)

    def flush(self) -> bool:
        """Send what waits; False when the peer is gone, does not read, or is to be let go."""
        try:
            while self._outbox:
                del self._outbox[: self.socket.send(self._outbox)]
        except BlockingIOError:
            return len(self._outbox) <= _UNREAD_LIMIT
        except OSError:
            return False
        return not self.closing

    def next_call(self, limit: int) -> tuple[Call, bytes] | None:
        """The next call that is here whole, and its data of up to `limit` bytes. Raises ValueError for what is none."""
        end = self._inbox.find(b"\n", 0, _HEADER_LIMIT)
        if end < 0:
            if len(self._inbox) >= _HEADER_LIMIT:
                raise ValueError("the line is too long")
            return None
        call = Call(self, json.loads(bytes(self._inbox[:end])))
        if not 0 <= call.size <= limit:
            raise ValueError("a frame of this size is not taken from you")
        whole = end + 1 + call.size
        if len(self._inbox) < whole:
            return None
        data = bytes(memoryview(self._inbox)[end + 1 : whole])
        del self._inbox[:whole]
        return call, data


class Call:
    """One call of a client, to be replied to. Raises ValueError for a header that is none."""

    def __init__(self, client: Client, header: object) -> None:
        if not isinstance(header, dict):
            raise ValueError("a call is a JSON object")
        self.client = client
        self._header: dict[str, object] = header
        self.name = header.get("call")
        self.size = self.whole("size", 0)

    def reply(self, state: str, **more: object) -> None:
        self.client.say(id=self._header.get("id"), state=state, **more)

    def get(self, name: str) -> object:
        return self._header.get(name)

    def whole(self, name: str, default: int | None = None) -> int:
        return _whole(self._header.get(name, default))

    def place(self) -> Place:
        match self._header.get("place"):
            case [offset, ordinal, index]:
                return _whole(offset), _whole(ordinal), _whole(index)
        raise ValueError("a place has three numbers")


class Timers:
    """What is to be done when, by name."""

    def __init__(self) -> None:
        self._due: dict[str, tuple[float, Callable[[], None]]] = {}

    def set(self, name: str, seconds: float, act: Callable[[], None]) -> None:
        self._due[name] = (time.monotonic() + seconds, act)

    def cancel(self, name: str) -> None:
        self._due.pop(name, None)

    def wait(self) -> float | None:
        """Seconds until the next; None when there is none."""
        if not self._due:
            return None
        first = min(when for when, _ in self._due.values())
        return min(max(0.0, first - time.monotonic()), _LONGEST_WAIT)

    def run(self) -> None:
        """Do what is due, in order."""
        now = time.monotonic()
        for name, (when, act) in sorted(self._due.items(), key=lambda item: item[1][0]):
            if when <= now and self._due.get(name) == (when, act):  # an earlier one may have changed it
                del self._due[name]
                act()


# -------------------------------------------------------------------------------------------------------- the keeper


class Climb:
    """What is known of the climb of a stop ladder, and of the tree that it has to end."""

    def __init__(self) -> None:
        self.begun = self.sweeping = self.done = False
        self.asked = False
        self.why = ""
        self.rungs: Rungs = []
        self.step = ""
        self.waiting: list[Call] = []
        self.known: set[Identity] = set()
        self.signalled: dict[tuple[Identity, int], Process] = {}

    @property
    def note(self) -> str:
        return "; ".join(part for part in (self.why, f"it ended at {self.step}" if self.step else "") if part)


class Refusal(Exception):
    """The agent was not started. `kind` is taken, used, journal, folder, program or other."""

    def __init__(self, kind: str, error: OSError) -> None:
        super().__init__(kind, error)
        self.kind, self.number, self.reason = kind, error.errno or 0, error.strerror or str(error)


class Keeper:
    """One agent from its start to its end.

    `plan` says: `argv`, `env`, `cwd` and `stdin` (False: closed at once) of the agent; `ladder` as [[act, seconds]];
    in bytes `journal_cap` and `disk_floor`; in seconds `orphan` (without a bridge before the ladder is climbed),
    `retention` (after the end, for a bridge to come) and `retry` (between two tries on a full disk).
    """

    def __init__(self, plan: dict[str, object], umask: int) -> None:
        self._plan, self._umask = plan, umask
        self._orphan, self._retention, self._retry_after = (
            _number(plan[name]) for name in ("orphan", "retention", "retry")
        )
        self._ladder = _rungs(plan["ladder"])
        # From the plan and not from our own environment, to which Python may have added LC_CTYPE (PEP 538).
        assert isinstance(plan["env"], dict)
        self._env: dict[str, str] = plan["env"]
        self._process_id = self._env.get(PROCESS_VARIABLE, "")
        self._pid = os.getpid()
        self.agent = 0  # its pid
        self._agent_started = ""
        self._status: int | None = None  # exit code of the agent, or the negative number of its signal
        self._exit: dict[str, object] | None = None
        self._written: Place = (-1, -1, -1)  # then: of the last line that the agent had, or had in its pipe
        self._ended = False  # and the end is told
        self._left: list[Process] = []
        self._released = self._leaving = False
        self._blocked = ""
        self._clients: list[Client] = []
        self._controller: Client | None = None
        self._epoch = -1
        self._climb = Climb()
        self._timers = Timers()
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)

    # ------------------------------------------------------------------------------------------------------- its start

    def start(self) -> None:
        """Listen, mark the folder as used, and start the agent. Raises Refusal."""
        try:
            self._journal = Journal(_whole(self._plan["journal_cap"]), _whole(self._plan["disk_floor"]))
            _remove(SOCKET)
            self._listener.bind(SOCKET)  # by a relative name: a path of more than about 100 bytes cannot be bound
            os.chmod(SOCKET, 0o600)  # the umask leaves it executable
            self._listener.listen(16)
            self._listener.setblocking(False)
            _write(STARTED, {"version": VERSION, "process": self._process_id, "keeper": self._pid}, sync=True)
        except OSError as error:
            raise Refusal("journal", error) from error
        self._subreaper = _prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans of the agent become our children
        self._watch_signals()
        try:
            self._spawn()
        except (Refusal, OSError) as error:
            refusal = error if isinstance(error, Refusal) else Refusal("other", error)
            self._exit = {"note": f"the agent could not be started: {refusal.reason}"}
            self._save()
            raise refusal from error
        agent = look_up(self.agent)
        self._agent_started = agent.started if agent else ""
        self._save()

    def _spawn(self) -> None:
        (their_in, our_in), (our_out, their_out), (our_err, their_err) = os.pipe(), os.pipe(), os.pipe()
        failed, failing = os.pipe()
        if sys.platform == "linux":
            try:
                # Claude Code exits without waiting for its output to be read: a wide pipe bridges our busy moments.
                fcntl.fcntl(our_out, fcntl.F_SETPIPE_SZ, _READ)
            except OSError as error:
                complain(f"the pipe stays narrow: {error}")  # over the user's allowance
        self.agent = os.fork()
        if not self.agent:
            self._become_agent((their_in, their_out, their_err), failing)
        for fd in (their_in, their_out, their_err, failing):
            os.close(fd)
        failure = _read_all(failed)  # ends when the agent's program has replaced us
        os.close(failed)
        if failure:
            os.waitpid(self.agent, 0)
            stage, _, number = failure.decode().partition(" ")
            raise Refusal(stage, OSError(int(number), os.strerror(int(number))))
        self._stdin = Stdin(our_in, self._selector)
        self._stdout = Output(our_out, self._selector, self._read_output)
        self._stderr = Output(our_err, self._selector, self._read_errors)

    def _become_agent(self, pipes: tuple[int, int, int], failing: int) -> None:
        """In the forked child: turn into the agent, or say at which stage that failed."""
        stage = "other"
        try:
            os.setsid()
            for target, fd in enumerate(pipes):
                os.dup2(fd, target)
            os.umask(self._umask)
            for number in _HANDLED:
                signal.signal(number, signal.SIG_DFL)
            _prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: without us nobody reads what it prints
            if os.getppid() != self._pid:
                return
            stage = "folder"
            os.chdir(str(self._plan["cwd"]))
            stage = "program"
            argv = self._plan["argv"]
            assert isinstance(argv, list)
            os.execvpe(argv[0], argv, self._env)
        except (OSError, ValueError) as error:
            os.write(failing, f"{stage} {getattr(error, 'errno', errno.EINVAL)}".encode())
        finally:
            os._exit(127)

    def _watch_signals(self) -> None:
        self._waker, waking = os.pipe()
        for fd in (self._waker, waking):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    # -------------------------------------------------------------------------------------------------------- its loop

    def run(self) -> None:
        """Serve until the agent has ended and the bridge has let go, or did not come."""
        self._selector.register(self._waker, selectors.EVENT_READ, lambda _: self._woken())
        self._selector.register(self._listener, selectors.EVENT_READ, lambda _: self._accept())
        self._stderr.watch()
        self._retry()
        if not self._plan["stdin"]:
            self._stdin.close("the agent was started without stdin")
        self._expect_bridge()
        self._reap()
        while not (self._ended and (self._released or self._leaving)):
            for key, mask in self._selector.select(self._timers.wait()):
                key.data(mask)
            self._timers.run()
            self._tell_clients()
        _remove(SOCKET)

    def _woken(self) -> None:
        if signal.SIGTERM in os.read(self._waker, 4096):
            # The machine shuts down, or a person ends us: then with the agent, and with a word on how it went.
            self._leaving = True
            self._begin_climb(self._ladder, "its keeper was told to end")
            if self._exit and not self._ended:
                self._tell_end()
        self._reap()

    def _reap(self) -> None:
        """Take note of children that ended: the agent, and what it left to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self.agent:
                self._agent_ended(os.waitstatus_to_exitcode(status))

    # -------------------------------------------------------------------------------------------------- output and end

    def _read_output(self) -> None:
        running = self._status is None
        chunk = self._stdout.read(self._journal.room() if running else _READ)
        if chunk is None:
            return
        if not chunk:
            self._let_go(self._stdout)
            if running:
                self._timers.set("closed output", GRACE, self._closed_output)
            return
        self._journal.add(chunk, time.time())
        if self._obstacle():
            self._pause()
        else:
            self._expect_more(self._stdout)

    def _read_errors(self) -> None:
        chunk = self._stderr.read(_READ)
        if chunk:
            self._journal.add_errors(chunk)
            self._expect_more(self._stderr)
        elif chunk is not None:
            self._let_go(self._stderr)

    def _obstacle(self) -> str:
        """Why no more output is taken. After the agent's end the limits do not count: the rest is a pipe at most."""
        if self._journal.behind:
            return "disk"
        return self._journal.limit() if self._status is None else ""

    def _pause(self) -> None:
        """Leave the output in the pipe, where it waits, as the agent does when the pipe is full."""
        self._stdout.watch(False)
        self._timers.cancel(self._stdout.name)
        self._timers.set("retry", self._retry_after, self._retry)
        self._say_blocked(self._obstacle())

    def _retry(self) -> None:
        self._journal.retry()
        if self._obstacle():
            self._pause()
            return
        self._timers.cancel("retry")
        self._stdout.watch()
        self._expect_more(self._stdout)
        self._say_blocked("")

    def _say_blocked(self, reason: str) -> None:
        if reason != self._blocked:
            self._blocked = reason
            self._note(note="blocked", reason=reason)
            self._save()

    def _expect_more(self, output: Output) -> None:
        """After a read: once the agent has ended, wait for more only as long as another holder may be given."""
        if output.overdue:
            self._let_go(output)
        elif self._status is not None:
            self._timers.set(output.name, GRACE, lambda: self._let_go(output))

    def _let_go(self, output: Output) -> None:
        self._timers.cancel(output.name)
        output.close()
        self._settle()

    def _closed_output(self) -> None:
        if self._status is None:
            self._begin_climb(self._ladder, "it had closed its output", asked=False)

    def _agent_ended(self, status: int) -> None:
        self._status = status
        self._timers.cancel("orphan")
        self._timers.cancel("rung")
        self._stdin.close("the agent has ended")
        self._written = self._stdin.written
        for output in (self._stdout, self._stderr):
            if not output.closed:
                output.agent_ended()
                self._expect_more(output)
        if self._blocked:
            self._retry()
        if self._climb.begun and not self._climb.sweeping:
            self._sweep()
        self._settle()

    def _settle(self) -> None:
        """See whether all is over: the agent, its output, and the stop if there is one."""
        climb = self._climb
        if self._status is None or self._exit or not (self._stdout.closed and self._stderr.closed):
            return
        if climb.begun and not climb.done:
            return
        status, named = self._status, _signal_name(-self._status)
        self._left = list(self._living().values())
        self._journal.finish_errors()
        self._exit = {
            "code": status if status >= 0 else None,
            "signal": named if status < 0 else "",
            "stderr_tail": self._journal.error_tail.decode("utf-8", "replace"),
            "stopped": climb.asked,
            "note": climb.note,
        }
        self._tell_end()

    def _tell_end(self) -> None:
        try:
            self._journal.sync()
            _write(STATE, self._state(), sync=True)
        except OSError as error:
            complain(f"{STATE}: {error}")
            if error.errno in _FULL and not self._leaving:
                self._timers.set("tell end", self._retry_after, self._tell_end)
                return
        self._ended = True
        self._note(note="ended", exit=self._exit)
        self._timers.set("retention", self._retention, self._retired)

    def _retired(self) -> None:
        self._released = True

    # ----------------------------------------------------------------------------------------------------------- state

    def _state(self) -> dict[str, object]:
        state: dict[str, object] = {
            "version": VERSION,
            "boot": boot_id(),
            "agent": [self.agent, self._agent_started],
            "blocked": self._blocked,
            "step": self._climb.step,
        }
        if self._exit:
            left = {process.identity for process in self._left}
            ended = {process.identity: process.name for process in self._climb.signalled.values()}
            state |= {
                "exit": self._exit,
                "time": time.time(),
                "written": list(self._written),
                "printed": self._journal.stored,
                "stored": self._journal.stored,
                "left": [[process.pid, process.started, process.name] for process in self._left],
                "ended": [[*who, name] for who, name in ended.items() if who not in left and who[0] != self.agent],
            }
        return state

    def _save(self) -> None:
        try:
            _write(STATE, self._state())
        except OSError as error:
            complain(f"{STATE}: {error}")

    # ------------------------------------------------------------------------------------------------- the stop ladder

    def _begin_climb(self, ladder: Rungs, why: str = "", asked: bool = True) -> None:
        climb = self._climb
        if self._status is not None:
            return  # what an agent that ended by itself has left stays
        climb.asked = climb.asked or asked
        if not climb.begun:
            climb.begun, climb.why, climb.rungs = True, why, list(ladder)
            self._next_rung()

    def _next_rung(self) -> None:
        climb = self._climb
        if not climb.rungs:
            self._sweep()
            return
        # Once it has ended, nothing tells whose orphans they are, where there is no subreaper.
        climb.known |= {process.identity for process in self._living().values()}
        climb.step, seconds = climb.rungs.pop(0)
        self._timers.set("rung", seconds, self._next_rung)
        self._save()
        match climb.step:
            case "close_stdin":
                self._timers.set("close stdin", seconds / 2, lambda: self._stdin.close("stdin is closed"))
                self._stdin.end()
            case "SIGINT" | "SIGTERM":
                # To the agent alone: it cleans up after its tools, which its group would take from under it.
                os.kill(self.agent, signal.Signals[climb.step])
            case _:
                self._hunt(signal.SIGKILL, lambda: None)

    def _sweep(self) -> None:
        """End what the agent has left, with a chance to end by itself; and the agent, if no rung has."""
        self._climb.sweeping = True
        self._timers.set("sweep", _SWEEP, self._sweep_hard)
        self._hunt(signal.SIGKILL if self._status is None else signal.SIGTERM, self._climbed)

    def _sweep_hard(self) -> None:
        self._timers.set("sweep", _SWEEP, self._climbed)
        self._hunt(signal.SIGKILL, self._climbed)

    def _hunt(self, number: int, none_left: Callable[[], None]) -> None:
        """Signal all that lives, each process once, until nothing does: while we look, something may be started."""
        self._timers.cancel("hunt")
        living = self._living()
        for process in living.values():
            if (process.identity, number) not in self._climb.signalled:
                self._climb.signalled[process.identity, number] = process
                send(process, number)
        if living or self._status is None:
            self._timers.set("hunt", _ROUND, lambda: self._hunt(number, none_left))
        else:
            none_left()

    def _climbed(self) -> None:
        self._timers.cancel("hunt")
        self._timers.cancel("sweep")
        self._climb.done = True
        for call in self._climb.waiting:
            self._reply_stopped(call)
        self._climb.waiting.clear()
        self._settle()

    def _living(self) -> dict[int, Process]:
        mine = {self._pid}
        if self._subreaper:  # then all of it is below us
            return living(self._process_id, mine, self._climb.known, set(), mine)
        agent = {self.agent}
        return living(self._process_id, agent if self._status is None else set(), self._climb.known, agent, mine)

    def _reply_stopped(self, call: Call) -> None:
        call.reply("alive" if self._status is None else "ended", step=self._climb.step)

    # --------------------------------------------------------------------------------------------------------- clients

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # it went away again
        client = Client(connection)
        reason = self._objection(connection)
        if reason:
            complain(f"refused a connection: {reason}")
            client.say(state="error", error="peer", reason=reason)
            client.flush()
            connection.close()
            return
        self._clients.append(client)
        self._selector.register(connection, selectors.EVENT_READ, lambda mask: self._serve(client, mask))

    def _objection(self, connection: socket.socket) -> str:
        """Why the peer may not talk to us, or empty."""
        try:
            pid, user = _peer(connection)
        except OSError:
            pid, user = 0, os.getuid()
        if user != os.getuid():
            return "another user"
        line = lineage(pid) if pid > 0 else None
        if line is None:
            return "it cannot be told where the caller comes from"
        # On Linux all that the agent starts stays below us. Elsewhere an orphan is known by the id it carries.
        if self._pid in line or self.agent in line or carriers(self._process_id, line):
            return "the caller belongs to the agent of this process"
        return ""

    def _serve(self, client: Client, mask: int) -> None:
        if client not in self._clients:
            return
        try:
            if mask & selectors.EVENT_READ and not client.receive():
                self._drop(client)
            while client in self._clients and not client.closing:
                found = client.next_call(_FRAME_LIMIT if client is self._controller else 0)
                if found is None:
                    break
                self._obey(*found)
        except (ValueError, RecursionError) as error:
            client.say(state="error", error="frame", reason=str(error))
            client.closing = True
        except Exception:  # a fault of ours in one call must not cost the agent its life
            sys.__excepthook__(*sys.exc_info())
            self._drop(client)

    def _obey(self, call: Call, data: bytes) -> None:
        match call.name:
            case "attach":
                self._attach(call)
            case "observe":
                self._welcome(call)
            case "stop":
                self._stop(call)
            case _ if call.client is not self._controller:
                call.reply("error", error="control", reason="only the bridge that is attached may do that")
                call.client.closing = True
            case "write":
                self._stdin.write(call.place(), data, call, bool(call.get("again")))
            case "close_stdin":
                within = _number(call.get("within"))
                self._timers.set("close stdin", within, lambda: self._stdin.close("stdin is closed"))
                self._stdin.end(call)
            case "release":
                self._released = True
                call.reply("released")
            case other:
                call.reply("error", error="call", reason=f"this keeper does not know {other!r}")

    def _attach(self, call: Call) -> None:
        epoch = call.whole("epoch")
        if epoch < self._epoch:
            call.reply("error", error="epoch", reason="a newer bridge has attached", epoch=self._epoch)
            call.client.closing = True
            return
        former, self._controller, self._epoch = self._controller, call.client, epoch
        self._timers.cancel("orphan")
        if former is not None and former is not call.client:
            former.say(note="replaced", epoch=epoch)
            former.closing = True
        self._welcome(call)

    def _welcome(self, call: Call) -> None:
        call.client.attached = True
        exit = self._exit if self._ended else None
        call.reply("attached", version=VERSION, agent=self.agent, blocked=self._blocked, exit=exit)

    def _stop(self, call: Call) -> None:
        asked = call.get("ladder")
        self._begin_climb(self._ladder if asked is None else _rungs(asked))
        if self._climb.begun and not self._climb.done:
            self._climb.waiting.append(call)
        else:
            self._reply_stopped(call)

    def _tell_clients(self) -> None:
        for client in tuple(self._clients):
            if not self._tell(client):
                self._drop(client)
                continue
            mask = (0 if client.closing else selectors.EVENT_READ) | (0 if client.idle else selectors.EVENT_WRITE)
            if self._selector.get_key(client.socket).events != mask:
                self._selector.modify(client.socket, mask, lambda mask, client=client: self._serve(client, mask))

    def _tell(self, client: Client) -> bool:
        """Send what waits for a client, and then how far the output has grown. False when it is gone."""
        if not client.flush():
            return False
        if client.attached and client.idle and client.offset < self._journal.told:
            client.offset = self._journal.told
            client.say(note="grown", offset=client.offset)
            return client.flush()
        return True

    def _note(self, **message: object) -> None:
        for client in self._clients:
            if client.attached:
                client.say(**message)

    def _drop(self, client: Client) -> None:
        self._clients.remove(client)
        self._selector.unregister(client.socket)
        client.socket.close()
        if client is self._controller:
            self._controller = None
            self._expect_bridge()

    def _expect_bridge(self) -> None:
        if self._status is None:
            why = f"no bridge came for {self._orphan / 3600:g} hours"
            self._timers.set("orphan", self._orphan, lambda: self._begin_climb(self._ladder, why))


# ---------------------------------------------------------------------------------------------------------- small parts


def complain(text: str) -> None:
    """Leave a word in keeper.log."""
    try:
        os.write(2, f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n".encode())
    except OSError:
        return  # nobody can be told


def _prctl(option: int, value: int) -> bool:
    """prctl(2); False where there is none."""
    return sys.platform == "linux" and bool(_LIBC.prctl(option, value, 0, 0, 0) == 0)


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end; 0 for a process that we cannot see. Raises OSError."""
    if sys.platform == "linux":
        pid, user, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    else:
        # <sys/un.h> of macOS: SOL_LOCAL 0, LOCAL_PEERPID 2. The mode of the socket has kept other users out.
        (pid,), user = struct.unpack("i", connection.getsockopt(0, 2, 4)), os.getuid()
    return pid, user


def _digest(data: bytes) -> tuple[int, int]:
    # Python's own hash is keyed and 64 bits wide, lives as long as it is compared, and spares us OpenSSL's 4 MB.
    return len(data), hash(data)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError("a whole number is missing")
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not value >= 0:
        raise ValueError("a number of seconds is missing")
    return float(value)


def _rungs(value: object) -> Rungs:
    """A ladder from JSON. Steps that we do not know are passed over: the last resort comes after any ladder."""
    if not isinstance(value, list):
        raise ValueError("a ladder is a list")
    return [(act, _number(seconds)) for act, seconds in value if act in _ACTS]


def _open_to_append(name: str) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _write(name: str, content: dict[str, object], *, sync: bool = False) -> None:
    """Write a file, whole or not at all; `sync` sees it to the disk. Raises OSError."""
    new = name + ".new"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        data = json.dumps(content).encode()
        while data:
            data = data[os.write(fd, data) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(new, name)
    if sync:
        folder = os.open(".", os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _remove(name: str) -> None:
    try:
        os.unlink(name)
    except FileNotFoundError:
        return


def _read_all(fd: int) -> bytes:
    chunks = []
    while chunk := os.read(fd, _READ):
        chunks.append(chunk)
    return b"".join(chunks)


def _claim() -> None:
    """Take the folder, for as long as we live. Raises Refusal."""
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(10):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(0.02)  # somebody looks whether it is held, or holds it
    else:
        raise Refusal("taken", OSError(errno.EBUSY, "another keeper has this folder"))
    if os.path.exists(STARTED):
        raise Refusal("used", OSError(errno.EEXIST, "an agent was already started in this folder"))


def _report(message: dict[str, object]) -> None:
    """Tell the starter how it went, and stay without its pipes."""
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except OSError as error:
        complain(f"the one who started us is gone: {error}")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def main() -> int:
    """Keep one agent; the plan comes on stdin."""
    plan = json.loads(_read_all(0))
    if os.fork():
        os._exit(0)  # so the bridge is not the parent
    os.setsid()
    umask = os.umask(0o077)
    keeper = Keeper(plan, umask)
    try:
        _claim()
        log = _open_to_append(LOG)
        os.dup2(log, 2)
        os.close(log)
        keeper.start()
    except (Refusal, OSError) as error:
        refusal = error if isinstance(error, Refusal) else Refusal("journal", error)
        _report({"refused": refusal.kind, "errno": refusal.number, "reason": refusal.reason})
        return 1
    _report({"agent": keeper.agent})
    keeper.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
