"""Framing of the agent's output: nothing lost, exact offsets, whatever the chunks."""

from __future__ import annotations

import json
import time
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untether.process.host import Line
from untether.process.lines import LineReader, json_part


def read(data: bytes, size: int | None = None, *, limit: int = 1 << 20) -> list[Line]:
    reader = LineReader(limit)
    size = size or len(data) or 1
    lines = [line for at in range(0, len(data), size) for line in reader.feed(data[at : at + size], 1.0)]
    return lines + reader.finish(1.0)


def data_of(data: bytes) -> list[bytes]:
    return [line.data for line in read(data)]


def test_lines_and_their_offsets() -> None:
    assert read(b'{"a":1}\n{"b":2}\n') == [Line(8, 1.0, b'{"a":1}'), Line(16, 1.0, b'{"b":2}')]


def test_a_line_carries_the_time_of_the_read_that_ended_it() -> None:
    reader = LineReader()
    assert reader.feed(b"one", 1.0) == []
    assert reader.feed(b"\ntwo", 2.0) == [Line(4, 2.0, b"one")]
    assert reader.finish(3.0) == [Line(7, 3.0, b"two")]
    assert reader.finish(4.0) == []


def test_the_last_line_counts_without_a_newline() -> None:
    assert data_of(b'{"a":1}\n{"b":2}') == [b'{"a":1}', b'{"b":2}']


def test_only_newline_bytes_end_a_line() -> None:
    frame = '{"text":"a\u2028b\u2029c\u0085d\x0b\x0c\x1c\r!"}'.encode()
    assert data_of(frame + b"\r\n" + frame + b"\r\n") == [frame, frame]


def test_only_one_carriage_return_goes() -> None:
    assert data_of(b"a\r\r\n\r\n\r") == [b"a\r", b"", b""]


def test_blank_lines_keep_their_place() -> None:
    assert [(line.end, line.data) for line in read(b"\n\na\n\n")] == [(1, b""), (2, b""), (4, b"a"), (5, b"")]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_byte_order_mark_goes_only_at_the_very_start(size: int) -> None:
    bom = b"\xef\xbb\xbf"
    lines = read(bom + b"{}\n" + bom + b"{}\n", size)
    assert lines == [Line(6, 1.0, b"{}"), Line(12, 1.0, bom + b"{}")]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_line_over_the_limit_is_told_once_and_what_follows_is_read(size: int) -> None:
    lines = read(b"short\n" + b"x" * 500 + b"\nnext\n" + b"y" * 101, size, limit=100)
    assert lines == [
        Line(6, 1.0, b"short"),
        Line(507, 1.0, skipped=500),
        Line(512, 1.0, b"next"),
        Line(613, 1.0, skipped=101),
    ]


def test_a_line_of_exactly_the_limit_is_kept() -> None:
    assert read(b"x" * 100 + b"\n", limit=100) == [Line(101, 1.0, b"x" * 100)]


def test_a_reader_may_start_in_the_middle() -> None:
    reader = LineReader(offset=1000)
    assert reader.feed(b"\xef\xbb\xbfa\n", 1.0) == [Line(1005, 1.0, b"\xef\xbb\xbfa")]


pieces = st.lists(
    st.one_of(
        st.sampled_from([b"\n", b"\r\n", b"\r", b"\0", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b'{"type":"x"}', b" "]),
        st.binary(max_size=30),
    ),
    max_size=30,
).map(b"".join)


@given(pieces, st.lists(st.integers(0, 400)), st.integers(1, 40))
def test_any_chunking_gives_the_same_lines(data: bytes, cuts: list[int], limit: int) -> None:
    reader = LineReader(limit)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    lines = [line for start, end in pairwise(edges) for line in reader.feed(data[start:end], 1.0)]
    lines += reader.finish(1.0)
    assert lines == read(data, limit=limit)


@given(pieces)
def test_offsets_delimit_the_bytes_of_each_line(data: bytes) -> None:
    start = 0
    for line in read(data):
        raw = data[start : line.end]
        expected = raw.removesuffix(b"\n").removesuffix(b"\r")
        assert line.data == (expected.removeprefix(b"\xef\xbb\xbf") if start == 0 else expected)
        assert b"\n" not in line.data
        start = line.end
    assert start == len(data)


def test_a_huge_line_is_read_in_linear_time_and_memory() -> None:
    size, chunk = 64 << 20, b"x" * (64 << 10)
    reader = LineReader()
    tracemalloc.start()
    began = time.process_time()
    for _ in range(size // len(chunk)):
        assert reader.feed(chunk, 1.0) == []
    (line,) = reader.feed(b"\n", 1.0)
    spent, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (line.end, len(line.data)) == (size + 1, size)
    assert spent < 5  # quadratic copying of 1,024 chunks moves 34 GB
    assert peak < 3 * size


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        (b'\0\0{"a":1}\0', {"a": 1}),
        (b'npm warn {old} config {"a":{"b":2}}', {"a": {"b": 2}}),
        (b'\xef\xbb\xbf{ "a":1} \r', {"a": 1}),
        (b'\x1b[0m{"a":"{\\"x\\":1}"}', {"a": '{"x":1}'}),
    ],
)
def test_a_frame_is_found_behind_other_text(line: bytes, frame: object) -> None:
    assert json.loads(json_part(line)) == frame


def test_a_line_without_an_object_has_no_json_part() -> None:
    assert json_part(b"just {text}") == b""
