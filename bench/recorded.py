"""Long streams of Claude Code's output, made of the recordings."""

from __future__ import annotations

from pathlib import Path

from untether.process.recording import Row, read_rows

_FOLDER = Path(__file__).resolve().parents[1] / "tests" / "transcripts" / "claude"  # of 2.1.197
_CONVERSATION = ("tools_default", "plan_exit", "subagents_parallel", "followup_turns", "text_answer")


def conversation(repeat: int = 200) -> list[bytes]:
    """One `init`, and then `repeat` times what agent and tools said in five recordings: 40 lines with new tool ids."""
    init: bytes | None = None
    talks: list[tuple[list[bytes], set[bytes]]] = []
    for name in _CONVERSATION:
        rows = _printed(name)
        init = init or next(row.data for row in rows if row.frame.get("subtype") == "init")
        talk = [row for row in rows if row.frame["type"] in ("assistant", "user")]
        talks.append(([row.data for row in talk], _tool_ids(talk)))
    assert init is not None
    lines = [init]
    for number in range(repeat):
        for index, (talk_lines, ids) in enumerate(talks):
            lines += [_with_new_ids(line, ids, b"%d%06d" % (index, number)) for line in talk_lines]
    return lines


def partial_messages(length: int = 8_001) -> list[bytes]:
    """One `init`, and then the pieces of an answer as the model writes them, over and over."""
    rows = _printed("partial_messages")
    init = next(row.data for row in rows if row.frame.get("subtype") == "init")
    pieces = [row.data for row in rows if row.frame["type"] == "stream_event"]
    return [init, *(pieces * (length // len(pieces) + 1))[: length - 1]]


def _printed(name: str) -> list[Row]:
    """The frames that the agent printed."""
    with (_FOLDER / f"{name}.jsonl").open("rb") as file:
        return [row for row in read_rows(file) if row.dir == "out" and isinstance(row.frame, dict)]


def _tool_ids(rows: list[Row]) -> set[bytes]:
    contents = [row.frame["message"]["content"] for row in rows]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return {str(block["id"]).encode() for block in blocks if block["type"] == "tool_use"}


def _with_new_ids(line: bytes, ids: set[bytes], suffix: bytes) -> bytes:
    """The line with each tool id made longer, wherever it stands: in calls, results and parents."""
    for id in ids:
        line = line.replace(b'"' + id + b'"', b'"' + id + b"_" + suffix + b'"')
    return line
