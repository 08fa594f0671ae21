"""Diffs of what an agent wants to write."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untether.text.diff import FileDiff, edit_diff, file_diff, write_diff


def test_a_file_diff_has_line_numbers_and_context() -> None:
    old = "".join(f"{n}\n" for n in range(1, 11))
    diff = file_diff("a.txt", old, old.replace("5\n", "five\nand\n"))
    assert diff == FileDiff("a.txt", "@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n+and\n 6\n 7\n 8", added=2, removed=1)
    assert diff.patch == f"--- a.txt\n+++ a.txt\n{diff.unified}\n"


def test_changes_far_apart_are_hunks_of_their_own() -> None:
    old = "".join(f"{n}\n" for n in range(1, 31))
    diff = file_diff("a", old, old.replace("\n2\n", "\ntwo\n").replace("29", "x"))
    assert [line for line in diff.unified.split("\n") if line.startswith("@@")] == [
        "@@ -1,5 +1,5 @@",
        "@@ -26,5 +26,5 @@",
    ]


def test_a_missing_newline_at_the_end_is_told() -> None:
    assert file_diff("a", "x", "x\n").unified == "@@ -1,1 +1,1 @@\n-x\n\\ No newline at end of file\n+x"


def test_new_emptied_and_equal_files() -> None:
    assert file_diff("a", "", "x\ny\n") == FileDiff("a", "@@ -0,0 +1,2 @@\n+x\n+y", added=2, removed=0)
    assert file_diff("a", "x\n", "") == FileDiff("a", "@@ -1,1 +0,0 @@\n-x", added=0, removed=1)
    assert file_diff("a", "x\n", "x\n") == FileDiff("a", "", added=0, removed=0)


def test_edits_are_shown_whole_and_without_invented_line_numbers() -> None:
    diff = edit_diff("a.py", [("def f():\n    return 1", "def f():\n    return 2"), ("x\n", "")])
    assert diff.unified == ("@@ edit 1 of 2 @@\n def f():\n-    return 1\n+    return 2\n@@ edit 2 of 2 @@\n-x")
    assert (diff.added, diff.removed) == (1, 2)


def test_an_edit_that_only_joins_lines_shows_it() -> None:
    assert edit_diff("a", [("x\n", "x")]).unified == "@@ edit 1 of 1 @@\n x\n-"


def test_text_that_looks_like_a_diff_is_counted_as_text() -> None:
    diff = edit_diff("a", [("--- x\n+++ y", "@@ z")])
    assert diff.unified == "@@ edit 1 of 1 @@\n---- x\n-+++ y\n+@@ z"
    assert (diff.added, diff.removed) == (1, 2)


def test_a_write_adds_every_line() -> None:
    assert write_diff("a", "x\n\ny") == FileDiff("a", "+x\n+\n+y", added=3, removed=0)
    assert write_diff("a", "") == FileDiff("a", "", added=0, removed=0)


def test_lines_end_at_newlines_only() -> None:
    assert write_diff("a", "a\x0cb\u2028c\rd\n").added == 1


def test_two_large_files_that_share_nothing_are_replaced_as_a_whole() -> None:
    old, new = "x\ny\n" * 5_000, "y\nz\nx\n" * 5_000
    diff = file_diff("a", f"head\n{old}", f"head\n{new}")
    assert (diff.added, diff.removed) == (15_000, 10_000)


lines = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "+x\n", "-y\n"]), max_size=40).map("".join)


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs the patch program")
@pytest.mark.parametrize("end", ["", "tail"])
def test_patch_accepts_what_we_print(tmp_path: Path, end: str) -> None:
    old = "".join(f"{n % 7}\n" for n in range(60))
    new = old.replace("3\n4\n", "3\nnew\n", 2)[:-6] + "z\n" + end
    (tmp_path / "a").write_text(old)
    patch = file_diff("a", old, new).patch
    subprocess.run(["patch", "-s", "-p0"], cwd=tmp_path, input=patch, text=True, check=True, timeout=30)
    assert (tmp_path / "a").read_text() == new


@given(lines, lines, st.sampled_from(["", "end"]))
def test_applying_the_hunks_gives_the_new_text(old: str, new: str, end: str) -> None:
    new += end
    assert _applied(old, file_diff("a", old, new).unified) == new


def _applied(old: str, unified: str) -> str:
    source = old.splitlines(keepends=True)
    result: list[str] = []
    at = 0
    for line in unified.split("\n") if unified else []:
        if line.startswith("@@"):
            start, count = (int(n) for n in line.split()[1][1:].split(","))
            start -= 1 if count else 0
            result += source[at:start]
            at = start
        elif line.startswith("\\"):
            result[-1] = result[-1].removesuffix("\n")
        elif line.startswith("+"):
            result.append(line[1:] + "\n")
        else:
            assert source[at] == line[1:] + "\n"
            if line.startswith(" "):
                result.append(source[at])
            at += 1
    return "".join(result + source[at:])
