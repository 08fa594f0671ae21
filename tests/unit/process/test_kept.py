"""The bridge's side of a keeper: bridges come and go, and each line, either way, arrives once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.process.agents import launch, lives
from tests.unit.process.keepers import end_all, keeper_pid, kill_keeper, output, wait_for
from untether.process import keeper
from untether.process.host import AgentProcess, Launch, Line, Rung, SpawnFailed, Vitals, WriteFailed
from untether.process.journal import JournalReader, JournalTail, JournalWriter
from untether.process.kept import (
    KeeperLimits,
    KeptProcess,
    NotStarted,
    Superseded,
    end_leftovers,
    standing,
)
from untether.session import Place, ProcessExit

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="keepers need Unix sockets"),
]

QUICK = (Rung("close_stdin", 0.1), Rung("SIGINT", 0.1), Rung("SIGTERM", 0.1), Rung("SIGKILL", 2.0))
WAIT = "\nwhile True: time.sleep(60)"
ECHO = "for line in sys.stdin: say(line.strip())"
LIMITS = KeeperLimits(floor=0, retry=0.05)

# A bridge that is killed: it starts an agent, works off a number of lines, writes one, and says how far it came.
BRIDGE = """
import json, os, signal, sys
from pathlib import Path
import anyio
from untether.process.host import Launch
from untether.process.kept import KeptProcess
from untether.session import Place

async def main():
    argv, cwd, env, folder, count = json.loads(sys.argv[1])
    async with KeptProcess.spawned(Launch(tuple(argv), cwd, env), Path(folder), epoch=1) as process:
        lines = []
        await process.write(Place(0, 1), b"go\\n").written()
        async for batch in process.batches():
            lines += batch
            if len(lines) >= count:
                break
        print(json.dumps([[line.end, line.time, line.data.decode()] for line in lines]), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "p"
    end_all(tmp_path / "p")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a keeper has left is asked to end for a shorter time than a person's tools would be."""
    monkeypatch.setattr("untether.process.kept._ASK", 0.2)


def spawned(source: str, folder: Path, **how: Any) -> Any:
    return KeptProcess.spawned(launch(source), folder, epoch=1, limits=how.pop("limits", LIMITS), **how)


def put(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def killed_bridge(source: str, folder: Path, count: int) -> list[Line]:
    """Let a bridge start an agent and be killed after `count` lines or some more; return those."""
    agent = launch(source)
    facts = json.dumps([agent.argv, agent.cwd, agent.env, str(folder), count])
    done = subprocess.run([sys.executable, "-c", BRIDGE, facts], capture_output=True, timeout=20, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    return [Line(end, time, data.encode()) for end, time, data in json.loads(done.stdout)]


async def all_lines(process: AgentProcess) -> list[Line]:
    with anyio.fail_after(20):
        return [line async for batch in process.batches() for line in batch]


async def first_line(process: AgentProcess) -> bytes:
    with anyio.fail_after(10):
        async for batch in process.batches():
            if batch:
                return batch[0].data
    raise AssertionError("the agent ended without a word")


# ------------------------------------------------------------------------------------------------- as any agent process


async def test_lines_both_ways_and_the_end(folder: Path) -> None:
    async with spawned(ECHO + "\nos.write(2, b'last words'); os.write(1, b'half'); sys.exit(3)", folder) as process:
        for n in range(5):
            await process.write(Place(0, 1, n), b"%d\n" % n).written()
        await process.close_stdin()
        lines = await all_lines(process)
        assert [(line.end, line.data) for line in lines] == [(2 * n + 2, b"%d" % n) for n in range(5)] + [(14, b"half")]
        assert await process.wait() == ProcessExit(code=3, stderr_tail="last words")
        with pytest.raises(WriteFailed):
            await process.write(Place(0, 2), b"late\n").written()
    assert list(JournalReader(folder).lines()) == lines


async def test_a_burst_at_exit_is_whole_for_a_slow_consumer(folder: Path) -> None:
    async with spawned('for n in range(40_000): say(f"{n:099d}")', folder) as process:
        with anyio.fail_after(10):
            await process.wait()
        lines = await all_lines(process)
    assert [int(line.data) for line in lines] == list(range(40_000))
    assert lines[-1].end == 4_000_000


async def test_a_line_over_the_limit_is_skipped_and_the_next_one_is_not(folder: Path) -> None:
    size = 64 * 1024 * 1024
    source = f"for n in range(64): os.write(1, b'x' * {size // 64})\nsay('x'); say('next'); say('y' * 20_000_000)"
    async with spawned(source, folder) as process:
        lines = await all_lines(process)
    assert [(line.end, line.skipped, len(line.data)) for line in lines] == [
        (size + 2, size + 1, 0),
        (size + 7, 0, 4),
        (size + 20_000_008, 0, 20_000_000),
    ]


async def test_a_large_line_to_the_agent(folder: Path) -> None:
    async with spawned("say('up'); say(len(sys.stdin.readline()))", folder) as process:
        await process.write(Place(0, 1), b"x" * 10_000_000 + b"\n").written()
        assert [line.data for line in await all_lines(process)] == [b"up", b"10000001"]


async def test_a_keeper_may_be_started_through_another_command(folder: Path) -> None:
    async with spawned("say(os.nice(0))", folder, prefix=("nice", "-n", "5")) as process:
        assert int(await first_line(process)) == os.nice(0) + 5


@pytest.mark.parametrize("prefix", [("false",), ("sh", "-c", "echo no bus >&2; exit 1")])
async def test_a_way_to_start_a_keeper_that_has_gone_costs_no_run(folder: Path, prefix: tuple[str, ...]) -> None:
    async with spawned("say('up')", folder, prefix=prefix) as process:
        assert await first_line(process) == b"up"


async def test_a_place_is_written_once(folder: Path) -> None:
    async with spawned(ECHO, folder) as process:
        first, same = (process.write(Place(0, 1), b"one\n") for _ in range(2))
        await first.written()
        await same.written()
        await process.write(Place(0, 1), b"one\n").written()
        with pytest.raises(WriteFailed, match="another line was accepted for this place"):
            await process.write(Place(0, 1), b"other\n").written()
        await process.close_stdin()
        assert [line.data for line in await all_lines(process)] == [b"one"]


async def test_a_stop_ends_the_agent_and_its_tree(folder: Path) -> None:
    source = "signal.signal(signal.SIGINT, signal.SIG_IGN); say(start('sleep', '60', start_new_session=True))"
    async with spawned(source + WAIT, folder) as process:
        child = int(await first_line(process))
        with anyio.fail_after(5):
            await process.stop(QUICK)
        assert not lives(child)
        end = await process.wait()
    assert (end.signal, end.stopped, end.note) == ("SIGTERM", True, "it ended at SIGTERM")


@pytest.mark.parametrize(
    ("program", "kind", "reason"),
    [
        ("no-such-agent", "program", "no-such-agent was not found."),
        ("{tmp}/text", "program", "{tmp}/text is not executable."),
        ("{tmp}/broken", "other", "{tmp}/broken could not be started: No such file or directory."),
    ],
)
async def test_a_program_that_cannot_be_started(
    folder: Path, tmp_path: Path, program: str, kind: str, reason: str
) -> None:
    (tmp_path / "text").write_text("text")
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    plan = Launch((program.format(tmp=tmp_path),), str(tmp_path), {"PATH": "/usr/bin:/bin"})
    with pytest.raises(SpawnFailed) as failed:
        async with KeptProcess.spawned(plan, folder, epoch=1):
            pass
    assert (failed.value.kind, failed.value.reason) == (kind, reason.format(tmp=tmp_path))


async def test_no_agent_without_a_place_for_its_journal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpawnFailed) as failed:
        async with spawned("say('up')", tmp_path / "file" / "p"):
            pass
    assert failed.value.kind == "journal"


async def test_no_descriptor_is_left_open_and_an_error_of_the_caller_passes_as_it_is(folder: Path) -> None:
    async def work() -> None:
        async with spawned(ECHO, folder) as process:
            await process.write(Place(0, 1), b"x\n").written()
            await first_line(process)
            raise KeyError("mine")

    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyError):
        await work()
    assert sorted(os.listdir("/proc/self/fd")) == before


# ------------------------------------------------------------------------------------------------ bridges come and go


async def test_after_a_kill_of_the_bridge_another_reads_on_where_it_was(folder: Path) -> None:
    source = """
        sys.stdin.readline()
        for n in range(3000): say(f'{n:099d}')
        say(sys.stdin.readline().strip())
        for n in range(3000): say(f'{n:099d}')
    """
    before = killed_bridge(source, folder, 1000)
    assert standing(folder) == "alive"
    async with KeptProcess.attached(folder, epoch=2, from_offset=before[-1].end) as process:
        await process.write(Place(0, 1), b"go\n").written()  # what the other one wrote: it joins
        await process.write(Place(before[-1].end, 2), b"on\n").written()
        after = await all_lines(process)
        assert await process.wait() == ProcessExit(code=0)
        await process.release()
    texts = [b"%099d" % n for n in range(3000)]
    assert [line.data for line in before + after] == [*texts, b"on", *texts]
    assert before + after == list(JournalReader(folder).lines())  # with their offsets and times


async def test_an_agent_that_ended_without_a_bridge_is_read_to_its_end(folder: Path) -> None:
    before = killed_bridge("sys.stdin.readline()\nfor n in range(3000): say(n)\nos.write(1, b'half')", folder, 1)
    wait_for(lambda: JournalReader(folder).state(), "the agent's end")
    for kept in (True, False):
        if not kept:
            kill_keeper(folder)
            assert standing(folder) == "ended"
        async with KeptProcess.attached(folder, epoch=2, from_offset=before[-1].end) as process:
            lines = before + await all_lines(process)
            assert (await process.wait()).code == 0
            await process.stop()
            await process.close_stdin()
            await process.release() if not kept else None
        assert [line.data for line in lines] == [b"%d" % n for n in range(3000)] + [b"half"]


async def test_an_older_bridge_is_refused_and_a_newer_one_takes_over(folder: Path) -> None:
    async with spawned("sys.stdin.readline()" + WAIT, folder) as old:
        await old.write(Place(0, 1), b"go\n").written()
        stuck = old.write(Place(0, 2), b"x" * 1_000_000)
        async with KeptProcess.attached(folder, epoch=2) as new:
            with anyio.fail_after(5), pytest.raises(Superseded):
                await old.wait()
            with pytest.raises(Superseded):
                await all_lines(old)
            with pytest.raises(WriteFailed):
                await stuck.written()
            with pytest.raises(Superseded):
                async with KeptProcess.attached(folder, epoch=1):
                    pass
            await new.stop(QUICK)
            assert (await new.wait()).stopped


async def test_an_observer_reads_and_stops_but_does_not_write(folder: Path) -> None:
    async with spawned(f"say('up'){WAIT}", folder) as process:
        async with KeptProcess.attached(folder, epoch=None) as observer:
            assert await first_line(observer) == b"up"
            with pytest.raises(WriteFailed):
                await observer.write(Place(0, 1), b"x\n").written()
            await observer.stop(QUICK)
        assert (await process.wait()).stopped


async def test_a_broken_connection_is_made_again_and_what_was_open_said_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams: list[anyio.abc.SocketStream] = []
    connect = anyio.connect_unix

    async def remembered(path: Any) -> Any:
        streams.append(await connect(path))
        return streams[-1]

    monkeypatch.setattr(anyio, "connect_unix", remembered)
    source = """
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        say('up')
        signal.sigwait({signal.SIGUSR1})
        for line in sys.stdin: say(len(line))
    """
    async with spawned(source, folder) as process:
        await first_line(process)
        large = process.write(Place(0, 1), b"x" * 1_000_000 + b"\n")
        small = process.write(Place(0, 2), b"small\n")
        streams[0].extra(anyio.abc.SocketAttribute.raw_socket).shutdown(socket.SHUT_RDWR)
        os.kill(process.pid, signal.SIGUSR1)
        with anyio.fail_after(10):
            await large.written()
            await small.written()
            await process.close_stdin()
        assert [line.data for line in await all_lines(process)] == [b"1000001", b"6"]
    assert len(streams) > 1


async def test_a_folder_whose_path_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tempfile.mkdtemp(prefix="links-")
    monkeypatch.setattr(tempfile, "tempdir", links)
    folder = tmp_path / ("long " * 20) / ("ü" * 60) / "p"
    async with spawned(ECHO, folder) as process:
        await process.write(Place(0, 1), b"hello\n").written()
        await process.close_stdin()
        assert [line.data for line in await all_lines(process)] == [b"hello"]
        await process.release()
    os.rmdir(links)  # nothing is left there
    end_all(folder)


async def test_a_folder_is_not_used_twice(folder: Path) -> None:
    async with spawned("say('first')", folder) as process:
        await all_lines(process)
    async with spawned("say('second')", folder) as process:  # attaches
        assert [line.data for line in await all_lines(process)] == [b"first"]


async def test_a_folder_in_which_nothing_was_started(folder: Path) -> None:
    put(folder / "lock", "")
    assert standing(folder) == "new"
    with pytest.raises(NotStarted):
        async with KeptProcess.attached(folder, epoch=1):
            pass


async def test_it_is_told_when_the_agent_has_to_wait_for_the_disk(folder: Path) -> None:
    told: list[str] = []
    limits = KeeperLimits(cap=100, floor=0, retry=0.05)
    source = "for n in range(100): say(f'{n:099d}')\nsys.stdin.read()"
    async with spawned(source, folder, limits=limits, on_blocked=told.append) as process:
        assert await first_line(process) == b"0" * 99
        wait_for(lambda: json.loads((folder / "state.json").read_text())["blocked"], "the cap")
        await process.close_stdin()
        lines = await all_lines(process)
        assert process.blocked == ""
    assert told == ["journal", ""]
    assert len(lines) == 99  # and the first: the agent had its output in the pipe and ended


# ------------------------------------------------------------------------------------------------ keepers that die


async def test_what_a_killed_keeper_has_left_is_ended(folder: Path) -> None:
    deaf = "['sh', '-c', 'trap \"\" TERM INT HUP; while :; do sleep 1; done']"
    source = f"say(start('sleep', '60', start_new_session=True)); say(start(*{deaf}, start_new_session=True)){WAIT}"
    plan = launch(source)
    async with KeptProcess.spawned(plan, folder, epoch=1) as process:
        wait_for(lambda: output(folder).count(b"\n") == 2, "the agent's words")
        waiting = process.write(Place(0, 1), b"x" * 1_000_000)
        os.kill(keeper_pid(folder), signal.SIGKILL)
        children = [int(line.data) for line in await all_lines(process)]
        assert all(map(lives, children))
        assert (await process.wait()).lost
        assert not any(map(lives, children))
        with pytest.raises(WriteFailed):
            await waiting.written()
    assert standing(folder) == "gone"
    assert await end_leftovers(folder, plan.env[keeper.PROCESS_VARIABLE]) == 0


async def test_a_stop_of_a_process_whose_keeper_died_ends_what_is_left(folder: Path) -> None:
    killed_bridge(f"sys.stdin.readline(); say(start('sleep', '60', start_new_session=True)){WAIT}", folder, 1)
    child = int(output(folder))
    kill_keeper(folder)
    async with KeptProcess.attached(folder, epoch=2) as process:
        assert [line.data for line in await all_lines(process)] == [b"%d" % child]
        assert lives(child)
        await process.stop()
    assert not lives(child)


async def test_a_stop_does_not_depend_on_the_keeper(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("untether.process.kept._MARGIN", 0.2)
    async with spawned(f"say(start('sleep', '60', start_new_session=True)){WAIT}", folder) as process:
        child = int(await first_line(process))
        os.kill(keeper_pid(folder), signal.SIGSTOP)
        with anyio.fail_after(8):
            await process.stop([Rung("SIGKILL", 0.2)])
            assert not lives(child)
            assert (await process.wait()).lost


@pytest.fixture
def bystander() -> Iterator[keeper.Process]:
    child = subprocess.Popen(["sleep", "60"])
    found = keeper.look_up(child.pid)
    assert found is not None
    yield found
    child.kill()
    child.wait()


async def test_the_pid_alone_does_not_make_an_agent(folder: Path, bystander: keeper.Process) -> None:
    for boot, started, ended in (
        ("another", bystander.started, 0),
        (keeper.boot_id(), "1", 0),
        (keeper.boot_id(), bystander.started, 1),
    ):
        put(folder / "state.json", json.dumps({"boot": boot, "agent": [bystander.pid, started]}))
        assert lives(bystander.pid)
        assert await end_leftovers(folder, "no-such-process") == ended
    assert not lives(bystander.pid)


# ------------------------------------------------------------------------------------------------------ the journal


@given(st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"x", b"\n")), max_size=12), st.data())
def test_a_growing_journal_gives_the_lines_of_a_whole_one(chunks: list[bytes], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        writer = JournalWriter(folder)
        tail = JournalTail(folder, 0, 8)
        seen: list[Line] = []
        for time, chunk in enumerate(filter(None, chunks)):
            writer.append(chunk, float(time))
            if data.draw(st.booleans()):
                seen += tail.read() or []
        while (more := tail.read()) is not None:
            seen += more
        seen += tail.finish()
        whole = list(JournalReader(folder, 8).lines())
        assert seen == whole
        cut = data.draw(st.integers(0, len(whole)))
        rest = JournalTail(folder, whole[cut - 1].end if cut else 0, 8)
        assert (rest.read() or []) + rest.finish() == whole[cut:]
        for opened in (writer, tail, rest):
            opened.close()


async def test_the_vitals_are_those_of_the_agent_and_not_of_its_keeper(folder: Path) -> None:
    async with spawned("start('sleep', '60'); say('up'); time.sleep(60)", folder) as process:
        wait_for(lambda: output(folder) == b"up\n", "the agent's words")
        vitals = await process.vitals()
        assert vitals is not None
        assert (vitals.alive, vitals.children) == (True, 1)
        await process.stop(QUICK)
        await process.wait()
        assert await process.vitals() == Vitals(alive=False)
