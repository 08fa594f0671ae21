"""What is stored of a process reads again as it was, also after a crash or a full disk."""

from __future__ import annotations

import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untether.process.host import Line
from untether.process.journal import Excerpt, JournalReader, JournalWriter, ProcessState
from untether.process.lines import LineReader
from untether.session import ProcessExit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "processes" / "p1"


def write(folder: Path, *reads: tuple[bytes, float]) -> None:
    writer = JournalWriter(folder)
    for data, time in reads:
        writer.append(data, time)
    writer.close()


def test_lines_come_back_with_their_times(folder: Path) -> None:
    write(folder, (b"one\ntw", 1.5), (b"o\nthree", 2.25))
    assert list(JournalReader(folder).lines()) == [
        Line(4, 1.5, b"one"),
        Line(8, 2.25, b"two"),
        Line(13, 2.25, b"three"),
    ]


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=20).map(lambda b: b.replace(b"a", b"\n")), st.floats(0, 9e9))))
def test_a_journal_reads_as_the_run_did(
    tmp_path_factory: pytest.TempPathFactory, reads: list[tuple[bytes, float]]
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    write(folder, *reads)
    reader = LineReader()
    live = [line for data, time in reads for line in reader.feed(data, time)]
    live += reader.finish(reads[-1][1] if reads else 0.0)
    assert list(JournalReader(folder).lines()) == live
    for number, line in enumerate(live, 1):
        assert list(JournalReader(folder).lines(line.end)) == live[number:]


def test_an_unfinished_last_line_can_be_left_to_the_agent_at_work(folder: Path) -> None:
    write(folder, (b"one\ntw", 1.0))
    assert [line.data for line in JournalReader(folder).lines(last=False)] == [b"one"]


def test_output_whose_time_was_lost_in_a_crash_is_read(folder: Path) -> None:
    write(folder, (b"one\n", 1.0))
    with (folder / "out.jsonl").open("ab") as out:
        out.write(b"two\nthr")
    with (folder / "out.times").open("ab") as times:
        times.write(struct.pack("<Qd", 11, 2.0)[:9])
    assert list(JournalReader(folder).lines()) == [Line(4, 1.0, b"one"), Line(8, 1.0, b"two"), Line(11, 1.0, b"thr")]


def test_times_of_output_that_was_lost_are_passed_over(folder: Path) -> None:
    write(folder, (b"one\ntwo\n", 1.0), (b"three\n", 2.0))
    with (folder / "out.jsonl").open("r+b") as out:
        out.truncate(6)
    assert [line.data for line in JournalReader(folder).lines()] == [b"one", b"tw"]


def test_a_folder_without_a_journal_is_empty(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path / "none")
    assert (list(reader.lines()), reader.errors(), reader.state()) == ([], "", None)


def test_files_are_private(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o755)
    writer = JournalWriter(folder)
    writer.write_state(ProcessState(ProcessExit(code=0), 1.0, 0, 0))
    writer.close()
    assert folder.stat().st_mode & 0o777 == 0o700
    modes = {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}
    assert modes == dict.fromkeys(["out.jsonl", "out.times", "err.log", "started", "state.json"], 0o600)


def test_the_end_is_stored(folder: Path) -> None:
    state = ProcessState(ProcessExit(signal="SIGKILL", stopped=True), 12.5, 100, 90)
    writer = JournalWriter(folder)
    writer.write_state(state)
    writer.close()
    assert JournalReader(folder).state() == state


def test_a_journal_is_not_written_over(folder: Path) -> None:
    write(folder, (b"one\n", 1.0))
    with pytest.raises(FileExistsError):
        JournalWriter(folder)
    assert [line.data for line in JournalReader(folder).lines()] == [b"one"]


def test_what_did_not_fit_on_the_disk_leaves_a_whole_beginning(folder: Path) -> None:
    writer = JournalWriter(folder)
    writer.append(b"one\n" * 10, 1.0)
    with file_size_limit(100), pytest.raises(OSError, match="File too large"):
        writer.append(b"x" * 200, 2.0)
    assert writer.stored == 40
    writer.append(b"two\n", 3.0)  # there is room again
    writer.close()
    lines = list(JournalReader(folder).lines())
    assert (len(lines), lines[-1]) == (11, Line(44, 3.0, b"two"))


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file grows over `size`: like a full disk, a write stores a part and fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@given(st.lists(st.binary(max_size=12)))
def test_an_excerpt_keeps_head_and_tail(chunks: list[bytes]) -> None:
    excerpt = Excerpt(head=5, tail=7)
    kept = b"".join(excerpt.add(chunk) for chunk in chunks) + excerpt.rest()
    whole = b"".join(chunks)
    assert excerpt.tail == whole[-7:]
    if len(whole) <= 12:
        assert kept == whole
    else:
        assert kept == whole[:5] + b"\n[%d bytes left out]\n" % (len(whole) - 12) + whole[-7:]
