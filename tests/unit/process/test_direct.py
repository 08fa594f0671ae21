"""A child of the bridge: all it prints arrives, all it is told reaches it, and its end is seen."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path

import anyio
import pytest

from tests.unit.process.agents import all_lines, first_line, launch, lives, spawned
from untether.clock import SystemClock
from untether.process.direct import DirectProcess
from untether.process.host import Launch, Rung, SpawnFailed, WriteFailed
from untether.process.journal import JournalReader, JournalWriter
from untether.session import Place, ProcessExit

pytestmark = pytest.mark.anyio


async def test_lines_then_the_end() -> None:
    async with spawned("say('{\"a\":1}'); say('{\"b\":2}'); sys.exit(3)") as process:
        assert [(line.end, line.data) for line in await all_lines(process)] == [(8, b'{"a":1}'), (16, b'{"b":2}')]
        assert await process.wait() == ProcessExit(code=3)


async def test_a_burst_at_exit_is_not_lost_to_a_slow_consumer() -> None:
    async with spawned('for n in range(4000): say(f"{n:099d}")') as process:
        with anyio.fail_after(10):
            await process.wait()  # ended before anyone took a line
        lines = await all_lines(process)
    assert [int(line.data) for line in lines] == list(range(4000))
    assert lines[-1].end == 400_000


async def test_a_huge_line() -> None:
    async with spawned("say('x' * 30_000_000); say('next')") as process:
        lines = await all_lines(process)
    assert [len(line.data) for line in lines] == [30_000_000, 4]


async def test_a_line_over_the_limit_is_told_as_skipped() -> None:
    async with spawned("say('x' * 300_000); say('next')", line_limit=100_000) as process:
        lines = await all_lines(process)
    assert [(line.skipped, line.data) for line in lines] == [(300_000, b""), (0, b"next")]


async def test_half_a_line_at_the_end_and_nul_bytes() -> None:
    async with spawned(r"""os.write(1, b'\0{"a":1}\0\n{"type":"resu')""") as process:
        assert [line.data for line in await all_lines(process)] == [b'\0{"a":1}\0', b'{"type":"resu']


async def test_a_child_that_holds_stdout_does_not_hold_up_the_end_and_is_left_alone() -> None:
    async with spawned("say(start('sleep', '60', start_new_session=True))") as process:
        with anyio.fail_after(5):
            (line,) = await all_lines(process)
            assert await process.wait() == ProcessExit(code=0)
    child = int(line.data)
    assert lives(child)
    os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("talk", ["yes", "while :; do echo y; sleep 0.1; done"])
async def test_a_child_that_goes_on_printing_does_not_hold_up_the_end(
    talk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("untether.process.pipes.DRAIN", 0.6)
    source = f"say('mine ' * 10_000); say(start('sh', '-c', {talk!r}))"
    async with spawned(source) as process:
        with anyio.fail_after(8):
            lines = await all_lines(process)
        os.killpg(process.pid, signal.SIGKILL)
    texts = [line.data for line in lines if line.data not in (b"y", b"")]
    assert (texts[0], len(texts)) == (b"mine " * 10_000, 2)


async def test_stderr_is_drained_and_its_ends_are_kept(tmp_path: Path) -> None:
    source = "os.write(2, b'first words ' + b'x' * 5_000_000 + b' last words'); say('done')"
    async with spawned(source, tmp_path / "p") as process:
        assert [line.data for line in await all_lines(process)] == [b"done"]
        tail = (await process.wait()).stderr_tail
    assert tail.endswith("x last words")
    assert len(tail) == 16 * 1024
    log = JournalReader(tmp_path / "p").errors()
    assert log.startswith("first words x")
    assert log.endswith("x last words")
    assert f"[{5_000_000 + 23 - 24 * 1024} bytes left out]" in log


async def test_an_agent_that_prints_before_it_reads_does_not_block() -> None:
    source = """
        for n in range(20_000): say('x' * 99)
        say(len(sys.stdin.readline()))
    """
    async with spawned(source) as process:
        receipt = process.write(Place(0, 1), b"y" * 1_000_000 + b"\n")
        lines = await all_lines(process)
        await receipt.written()
    assert (len(lines), lines[-1].data) == (20_001, b"1000001")


async def test_lines_leave_in_order_and_a_place_only_once() -> None:
    async with spawned("for line in sys.stdin: say(line.strip())") as process:
        receipts = [process.write(Place(0, 1, n), b"%d\n" % n) for n in (0, 1, 1, 0, 2)]
        for receipt in receipts:
            await receipt.written()
        again = process.write(Place(0, 1, 1), b"1\n")
        await again.written()
        other = process.write(Place(0, 1, 1), b"something else\n")
        with pytest.raises(WriteFailed):
            await other.written()
        await process.close_stdin()
        await process.close_stdin()
        assert [line.data for line in await all_lines(process)] == [b"0", b"1", b"2"]


async def test_a_line_counts_as_written_only_when_it_is_in_the_pipe() -> None:
    source = """
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        say('up')
        signal.sigwait({signal.SIGUSR1})
        say(len(sys.stdin.readline()))
    """
    async with spawned(source) as process:
        await first_line(process)
        receipt = process.write(Place(0, 1), b"x" * 1_000_000 + b"\n")
        with anyio.move_on_after(0.1) as waiting:
            await receipt.written()
        assert waiting.cancelled_caught
        os.kill(process.pid, signal.SIGUSR1)
        with anyio.fail_after(5):
            await receipt.written()
            assert await first_line(process) == b"1000001"


async def test_stdin_is_closed_after_the_accepted_lines() -> None:
    async with spawned("say(len(sys.stdin.read()))") as process:
        process.write(Place(0, 1), b"x" * 1_000_000)
        with anyio.fail_after(5):
            await process.close_stdin()
        late = process.write(Place(0, 2), b"late\n")
        with pytest.raises(WriteFailed):
            await late.written()
        assert [line.data for line in await all_lines(process)] == [b"1000000"]


async def test_a_line_for_an_agent_that_closed_its_stdin_fails() -> None:
    async with spawned("os.close(0); say('closed'); time.sleep(60)") as process:
        await first_line(process)
        receipt = process.write(Place(0, 1), b"hello\n")
        with anyio.fail_after(5), pytest.raises(WriteFailed):
            await receipt.written()
        await process.stop([Rung("SIGKILL", 2.0)])


async def test_lines_that_were_not_read_fail_when_the_agent_ends() -> None:
    async with spawned("say('up'); sys.stdin.readline(); sys.exit(0)") as process:
        process.write(Place(0, 1), b"go\n")
        receipt = process.write(Place(0, 2), b"x" * 1_000_000 + b"\n")
        with anyio.fail_after(5), pytest.raises(WriteFailed):
            await receipt.written()
        await process.wait()
        late = process.write(Place(0, 3), b"late\n")
        with pytest.raises(WriteFailed):
            await late.written()


async def test_an_agent_without_stdin_reads_its_end_at_once() -> None:
    plan = launch("say(repr(sys.stdin.read()))", stdin=False)
    async with DirectProcess.spawned(plan, clock=SystemClock()) as process:
        assert await first_line(process) == b"''"


async def test_the_signal_that_ended_it_is_named() -> None:
    async with spawned("os.kill(os.getpid(), signal.SIGSEGV)") as process:
        end = await process.wait()
    assert (end.code, end.signal, end.stopped) == (None, "SIGSEGV", False)


async def test_it_sees_the_environment_and_folder_of_its_launch(tmp_path: Path) -> None:
    source = launch("say(os.getcwd()); say(sorted(os.environ))")
    plan = Launch(source.argv, str(tmp_path), {"ONLY": "this", "LC_CTYPE": "C.UTF-8"})
    async with DirectProcess.spawned(plan, clock=SystemClock()) as process:
        lines = [line.data.decode() for line in await all_lines(process)]
    assert lines == [str(tmp_path), "['LC_CTYPE', 'ONLY']"]


async def test_the_journal_holds_what_the_run_saw(tmp_path: Path) -> None:
    folder = tmp_path / "processes" / "p1"
    async with spawned("for n in range(5000): say(f'{n:030d}')\nos.write(1, b'half')", folder) as process:
        lines = await all_lines(process)
        end = await process.wait()
    reader = JournalReader(folder)
    assert list(reader.lines()) == lines
    state = reader.state()
    assert state is not None
    assert (state.exit, state.printed, state.stored) == (end, 155_004, 155_004)


async def test_a_full_disk_stops_the_journal_and_not_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(JournalWriter, "append", full)
    async with spawned("for n in range(5000): say(f'{n:099d}')", tmp_path / "p") as process:
        assert len(await all_lines(process)) == 5000
    state = json.loads((tmp_path / "p" / "state.json").read_text())
    assert (state["printed"], state["stored"]) == (500_000, 0)


@pytest.mark.parametrize(
    ("program", "kind", "reason"),
    [
        ("no-such-agent", "program", "no-such-agent was not found."),
        ("/no/such/agent", "program", "/no/such/agent was not found."),
        ("{tmp}/text", "program", "{tmp}/text is not executable."),
        ("{tmp}/broken", "other", "{tmp}/broken could not be started: No such file or directory."),
        ("nul\0byte", "program", "nul\0byte was not found."),
    ],
)
async def test_a_program_that_cannot_be_started(tmp_path: Path, program: str, kind: str, reason: str) -> None:
    (tmp_path / "text").write_text("text")
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    plan = Launch((program.format(tmp=tmp_path),), str(tmp_path), {"PATH": "/usr/bin:/bin"})
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(SpawnFailed) as failed:
        async with DirectProcess.spawned(plan, clock=SystemClock(), folder=tmp_path / "journal"):
            pass
    assert (failed.value.kind, failed.value.reason) == (kind, reason.format(tmp=tmp_path))
    assert len(os.listdir("/proc/self/fd")) == descriptors


async def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    plan = Launch(("sh",), str(tmp_path / "gone"), {"PATH": "/usr/bin:/bin"})
    with pytest.raises(SpawnFailed, match="gone does not exist"):
        async with DirectProcess.spawned(plan, clock=SystemClock()):
            pass


async def test_no_agent_without_a_place_for_its_journal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpawnFailed) as failed:
        async with spawned("say('up')", tmp_path / "file" / "p"):
            pass
    assert failed.value.kind == "journal"


async def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    async with spawned("say('up')", tmp_path / "p") as process:
        await all_lines(process)
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_an_error_of_the_caller_passes_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with spawned("say('up')"):
            raise KeyError("mine")
