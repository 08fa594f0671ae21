"""Makes diffs of what an agent wants to write, for an approval, a message or a file.

A `FileDiff` holds the hunks of a unified diff. They always start with an `@@` line or a sign, never with white space,
which chats cut off at the start of a code block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import msgspec

CONTEXT = 3  # unchanged lines around a change

# difflib takes time quadratic to the lines between the first and the last change. Beyond this many pairs of lines
# that stretch is shown as removed and added as a whole, which is true too.
_MAX_PAIRS = 1_000_000
_NO_NEWLINE = "\n\\ No newline at end of file"


class FileDiff(msgspec.Struct, frozen=True):
    """`unified` is the hunks without the two file lines, with no line end at the end; the counts are lines."""

    path: str
    unified: str
    added: int
    removed: int

    @property
    def patch(self) -> str:
        """The whole diff, with the lines that name the file."""
        return f"--- {self.path}\n+++ {self.path}\n{self.unified}\n"


def file_diff(path: str, old: str, new: str) -> FileDiff:
    """The diff of a whole file, with line numbers and three lines of context. Equal texts give no hunks."""
    lines = _Lines(_file_lines(old), _file_lines(new))
    hunks = (line for group in lines.groups(CONTEXT) for line in (_header(group), *lines.show(group)))
    return _counted(path, list(hunks))


def edit_diff(path: str, edits: Sequence[tuple[str, str]]) -> FileDiff:
    """The diff of edits that give (old, new) text without its place in the file, such as Claude's Edit and MultiEdit.

    Each edit is shown whole, under `@@ edit 1 of 2 @@` since line numbers are not known.
    """
    shown: list[str] = []
    for number, (old, new) in enumerate(edits, 1):
        lines = _Lines(*_edited_lines(old, new))
        shown.append(f"@@ edit {number} of {len(edits)} @@")
        shown += lines.show(lines.opcodes())
    return _counted(path, shown)


def write_diff(path: str, content: str) -> FileDiff:
    """The diff of a file that is written as a whole, when what it held before is not known: every line is added."""
    return _counted(path, ["+" + line for line in _text_lines(content)])


# ----------------------------------------------------------------------------------------------------- lines

_Opcode = tuple[str, int, int, int, int]  # as difflib: what, then from and to in the old and in the new lines


class _Lines:
    def __init__(self, old: list[str], new: list[str]) -> None:
        self._old = old
        self._new = new

    def opcodes(self) -> list[_Opcode]:
        """The changes, after setting the equal ends aside, which makes one edit in a long file cheap."""
        old, new = self._old, self._new
        shorter = min(len(old), len(new))
        head = next((i for i in range(shorter) if old[i] != new[i]), shorter)
        tail = next((i for i in range(shorter - head) if old[-1 - i] != new[-1 - i]), shorter - head)
        old_end, new_end = len(old) - tail, len(new) - tail
        found: list[_Opcode] = [("equal", 0, head, 0, head)] if head else []
        if (old_end - head) * (new_end - head) > _MAX_PAIRS:
            found.append(("replace", head, old_end, head, new_end))
        else:
            matcher = SequenceMatcher(None, old[head:old_end], new[head:new_end])
            for what, a, b, c, d in matcher.get_opcodes():
                found.append((what, a + head, b + head, c + head, d + head))
        if tail:
            found.append(("equal", old_end, len(old), new_end, len(new)))
        return found

    def groups(self, context: int) -> Iterator[list[_Opcode]]:
        """The changes with `context` lines around them; those further apart than that in groups of their own."""
        group: list[_Opcode] = []
        opcodes = self.opcodes()
        for index, (what, a, b, c, d) in enumerate(opcodes):
            if what != "equal":
                group.append((what, a, b, c, d))
                continue
            after = 0 if index == 0 else min(context, b - a)
            before = 0 if index == len(opcodes) - 1 else min(context, b - a)
            if index and b - a <= after + before and before:
                group.append((what, a, b, c, d))
                continue
            if group:
                group.append((what, a, a + after, c, c + after))
                yield group
            group = [(what, b - before, b, d - before, d)] if before else []
        if any(what != "equal" for what, *_ in group):
            yield group

    def show(self, group: Sequence[_Opcode]) -> Iterator[str]:
        for what, a, b, c, d in group:
            if what == "equal":
                yield from (" " + line for line in self._old[a:b])
            else:
                yield from ("-" + line for line in self._old[a:b])
                yield from ("+" + line for line in self._new[c:d])


def _header(group: Sequence[_Opcode]) -> str:
    _, old_start, _, new_start, _ = group[0]
    _, _, old_end, _, new_end = group[-1]
    return f"@@ -{_range(old_start, old_end)} +{_range(new_start, new_end)} @@"


def _range(start: int, end: int) -> str:
    # An empty range names the line before it.
    return f"{start + 1 if end > start else start},{end - start}"


def _counted(path: str, lines: list[str]) -> FileDiff:
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return FileDiff(path, "\n".join(lines), added, removed)


def _text_lines(text: str) -> list[str]:
    """The lines of a stretch of a file. Split at newlines only: a form feed is not the end of a line."""
    if not text:
        return []
    return text.removesuffix("\n").split("\n")


def _edited_lines(old: str, new: str) -> tuple[list[str], list[str]]:
    """The lines of both sides of an edit. When only one side ends its last line, that shows as an empty line more."""
    if old and new and old.endswith("\n") != new.endswith("\n"):
        return old.split("\n"), new.split("\n")
    return _text_lines(old), _text_lines(new)


def _file_lines(text: str) -> list[str]:
    """The lines of a whole file; one that ends without a newline says so, as `diff` does."""
    lines = _text_lines(text)
    if lines and not text.endswith("\n"):
        lines[-1] += _NO_NEWLINE
    return lines
