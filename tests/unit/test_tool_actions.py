"""Tool calls as actions: the whole table, and the facts for rendering."""

from __future__ import annotations

from typing import Any

import pytest

from untether.runners.tool_actions import action_detail, tool_kind_and_title

FILE = {"file_path": "/repo/src/cart.py"}
TABLE: list[tuple[str, Any, str, str]] = [
    # name, input, kind, title (with root /repo)
    ("Bash", {"command": "ls -la"}, "command", "ls -la"),
    ("Bash", {"command": "cat /repo/src/a.py > /repo/b"}, "command", "cat src/a.py > b"),
    ("Bash", {"command": "rm -rf /repo/ && ls /repo2/x"}, "command", "rm -rf /repo/ && ls /repo2/x"),
    ("Bash", {"command": "cd src\n  make \\\n  all\n"}, "command", "cd src make \\ all"),
    ("Bash", {}, "command", "Bash"),
    ("shell", {"command": ["bash", "-lc", "echo 'a b'"]}, "command", """bash -lc 'echo '"'"'a b'"'"''"""),
    ("KillShell", {"shell_id": "x"}, "command", "KillShell"),
    ("Edit", FILE, "file_change", "src/cart.py"),
    ("Write", {"path": "notes.md", "content": ""}, "file_change", "notes.md"),
    ("MultiEdit", {"file_path": "/etc/hosts"}, "file_change", "/etc/hosts"),
    ("NotebookEdit", {"notebook_path": "/repo/a.ipynb"}, "file_change", "a.ipynb"),
    ("edit", {"filePath": "/repo/a.txt", "oldString": "one", "newString": "two"}, "file_change", "a.txt"),
    ("Edit", {"file_path": 7, "path": " "}, "file_change", "Edit"),
    ("Read", FILE, "tool", "Read src/cart.py"),
    ("read", {"path": "/repo"}, "tool", "Read ."),
    ("Read", {}, "tool", "Read"),
    ("Glob", {"pattern": "**/*.py"}, "tool", "**/*.py"),
    ("Grep", {"pattern": "TODO", "path": "/repo/src"}, "tool", "TODO"),
    ("find", {"pattern": "*.md"}, "tool", "*.md"),
    ("ls", {"path": "/repo/src"}, "tool", "src"),
    ("WebSearch", {"query": "anyio semaphore"}, "web_search", "anyio semaphore"),
    ("WebFetch", {"url": "https://example.com/a", "prompt": "x"}, "web_search", "https://example.com/a"),
    ("TodoWrite", {"todos": []}, "note", "update todos"),
    ("TodoRead", {}, "note", "read todos"),
    ("AskUserQuestion", {"questions": []}, "note", "ask user"),
    ("question", {"questions": []}, "note", "ask user"),
    ("Task", {"description": "check the API docs", "prompt": "Look"}, "subagent", "check the API docs"),
    ("Agent", {"prompt": "Look around.\nThen report."}, "subagent", "Look around."),
    ("Agent", None, "subagent", "Agent"),
    ("mcp__github__create_issue", {"title": "x"}, "tool", "github: create_issue"),
    ("mcp__files__read__all", {}, "tool", "files: read__all"),
    ("mcp__", {}, "tool", "mcp__"),
    ("ToolSearch", {"query": "select:Monitor"}, "tool", "ToolSearch"),
    ("", {}, "tool", ""),
]


@pytest.mark.parametrize(("name", "input", "kind", "title"), TABLE)
def test_table(name: str, input: Any, kind: str, title: str) -> None:
    assert tool_kind_and_title(name, input, root="/repo") == (kind, title)


@pytest.mark.parametrize(("name", "input", "kind", "title"), [row for row in TABLE if not row[0].startswith("mcp")])
def test_case_does_not_matter(name: str, input: Any, kind: str, title: str) -> None:
    for spelt in (name.lower(), name.upper()):
        expected = title if title != name else spelt
        assert tool_kind_and_title(spelt, input, root="/repo/") == (kind, expected)


def test_paths_stay_as_they_are_without_a_root() -> None:
    assert tool_kind_and_title("Read", FILE) == ("tool", "Read /repo/src/cart.py")
    assert tool_kind_and_title("Read", FILE, root="/")[1] == "Read /repo/src/cart.py"
    assert tool_kind_and_title("Read", {"path": "/repository/a"}, root="/repo")[1] == "Read /repository/a"


def test_a_title_is_short_whatever_the_command() -> None:
    title = tool_kind_and_title("Bash", {"command": "echo " + "x" * 1_000_000})[1]
    assert len(title) == 1_000
    assert title.endswith("x…")


@pytest.mark.parametrize(
    ("name", "input", "expected"),
    [
        ("Edit", {"old_string": "a\nb\nc", "new_string": "a\nB\nB2\nc"}, {"added": 2, "removed": 1}),
        ("Edit", {"old_string": "", "new_string": "a\nb\n"}, {"added": 2, "removed": 0}),
        ("Edit", {"old_string": "x", "new_string": "x"}, {"added": 0, "removed": 0}),
        ("Edit", {"old_string": "a\na", "new_string": "a"}, {"added": 0, "removed": 1}),
        ("Edit", {"old_string": "a", "new_string": "b", "replace_all": True}, {}),
        ("Write", {"content": "1\n2\n3\n"}, {"added": 3}),
        (
            "MultiEdit",
            {"edits": [{"old_string": "a", "new_string": "b"}, {"old_string": "c\nd", "new_string": ""}]},
            {"added": 1, "removed": 3},
        ),
        ("edit", {"edits": [{"oldText": "one", "newText": "two"}]}, {"added": 1, "removed": 1}),
        ("edit", {"oldString": "one", "newString": "two"}, {"added": 1, "removed": 1}),
        ("Edit", {"edits": ["?"]}, {}),
        ("Edit", {}, {}),
        ("Read", {"content": "x"}, {}),
    ],
)
def test_line_counts(name: str, input: Any, expected: dict[str, int]) -> None:
    detail = action_detail(name, input)
    assert {key: value for key, value in detail.items() if key in ("added", "removed")} == expected


@pytest.mark.parametrize(
    ("name", "input", "expected"),
    [
        ("Bash", {"command": "ls\nps", "description": "Look"}, {"command": "ls\nps", "description": "Look"}),
        ("Read", FILE, {"path": "/repo/src/cart.py"}),
        ("Write", FILE, {"path": "/repo/src/cart.py", "verb": "Write"}),
        ("Grep", {"pattern": "x", "path": "src"}, {"pattern": "x", "path": "src", "verb": "Grep"}),
        ("WebFetch", {"url": "https://example.com"}, {"url": "https://example.com", "verb": "Fetch"}),
        ("mcp__github__search", {"query": "x"}, {"server": "github", "query": "x"}),
        ("Odd", ["not", "a", "mapping"], {}),
    ],
)
def test_facts(name: str, input: Any, expected: dict[str, Any]) -> None:
    assert action_detail(name, input) == {"tool": name, **expected}


def test_facts_are_small() -> None:
    detail = action_detail("Bash", {"command": "x" * 1_000_000})
    assert len(detail["command"]) == 4_000
