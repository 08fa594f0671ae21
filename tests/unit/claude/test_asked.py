"""What a person reads before deciding: the whole request, each kind as what it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from untether.model import Content
from untether.runners.claude.asked import Asked, Scene, describe
from untether.schemas.claude import CanUseTool


def ask(tool: str, input: dict[str, Any], *, root: str = "/repo", long_text: str = "", **fields: Any) -> Asked:
    return describe(CanUseTool(tool_name=tool, **fields), input, Scene(root, long_text))


def test_a_command_is_whole() -> None:
    command = "git push --force\n" + "x" * 50_000
    asked = ask("Bash", {"command": command, "description": "Push it"})
    body = (Content("command", command), Content("text", "Push it"))
    assert asked == Asked("permission", "Run a command?", body, editable="command")


def test_what_else_a_command_is_given_is_shown() -> None:
    asked = ask("Bash", {"command": "serve", "run_in_background": True, "timeout": 5})
    assert asked.body[1:] == (Content("json", '{\n  "run_in_background": true,\n  "timeout": 5\n}', language="json"),)


def test_a_new_file() -> None:
    asked = ask("Write", {"file_path": "/repo/src/a.py", "content": "one\ntwo\n"})
    assert asked == Asked(
        "permission", "Write a file?", (Content("diff", "+one\n+two", "src/a.py", added=2, removed=0),)
    )


def test_a_path_outside_stays_absolute() -> None:
    asked = ask("Write", {"file_path": "/repository/a.py", "content": "x"})
    assert asked.body[0].label == "/repository/a.py"


def test_an_edit_everywhere_says_so() -> None:
    asked = ask("Edit", {"file_path": "/repo/a", "old_string": "x", "new_string": "y", "replace_all": True})
    assert asked.act == "Edit a file?"
    assert asked.body == (
        Content("diff", "@@ edit 1 of 1 @@\n-x\n+y", "a", added=1, removed=1),
        Content("text", "Every occurrence in the file is replaced."),
    )


def test_several_edits() -> None:
    edits = [{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "", "replace_all": True}]
    asked = ask("MultiEdit", {"file_path": "/repo/a", "edits": edits})
    assert asked.body == (
        Content("diff", "@@ edit 1 of 2 @@\n-a\n+b\n@@ edit 2 of 2 @@\n-c", "a", added=1, removed=2),
        Content("text", "Every occurrence in the file is replaced by edit 2."),
    )


def test_pages_searches_and_reads() -> None:
    fetch = ask("WebFetch", {"url": "https://example.com/a", "prompt": "the price"})
    assert fetch.act == "Fetch a page?"
    assert fetch.body == (Content("text", "https://example.com/a"), Content("text", "the price", "To find out"))
    assert ask("WebSearch", {"query": "anyio"}) == Asked("permission", "Search the web?", (Content("text", "anyio"),))
    assert ask("Read", {"file_path": "/etc/hosts"}).body == (Content("text", "/etc/hosts"),)


def test_an_mcp_tool_is_named_with_its_server() -> None:
    asked = ask("mcp__github__create_issue", {"title": "Bug", "labels": ["a"]})
    assert asked.act == "Use create_issue of github?"
    assert asked.body == (Content("json", '{\n  "title": "Bug",\n  "labels": [\n    "a"\n  ]\n}', language="json"),)


def test_another_tool_shows_its_texts_as_they_are() -> None:
    asked = ask("Workflow", {"script": "one\ntwo", "dry": False})
    assert asked.act == "Use Workflow?"
    assert asked.body == (
        Content("code", "one\ntwo", "script"),
        Content("json", '{\n  "dry": false\n}', language="json"),
    )


def test_a_tool_without_input_shows_that() -> None:
    assert ask("Sync", {}).body == (Content("json", "{}", language="json"),)


@pytest.mark.parametrize(
    ("plan", "long_text", "text", "note"),
    [
        ("# Do it\n", "long", "# Do it", ""),
        ("  ", "What I would do is this.", "What I would do is this.", "It gave no plan; this is what it wrote last."),
        ("", "", "Claude Code gave no text for its plan.", ""),
    ],
)
def test_a_plan(plan: str, long_text: str, text: str, note: str) -> None:
    asked = ask("ExitPlanMode", {"plan": plan, "planFilePath": "/x/plan.md"}, long_text=long_text)
    assert asked == Asked("plan", "Leave plan mode?", (Content("markdown", text),), note)


def test_several_questions() -> None:
    asked = ask(
        "AskUserQuestion",
        {
            "questions": [
                {"question": "Which?", "header": "DB", "options": [{"label": "A", "description": "a"}, {"label": "B"}]},
                {"question": "Extras?", "multiSelect": True, "options": []},
            ]
        },
    )
    assert (asked.kind, asked.act) == ("question", "Answer 2 questions?")
    assert asked.body == (
        Content("text", "Which?\n1 A: a\n2 B", "DB (1 of 2)"),
        Content("text", "Extras?\nSeveral answers are possible.", "(2 of 2)"),
    )


@pytest.mark.parametrize(
    ("reason", "note"),
    [
        ("This command requires approval", ""),
        ("Path is outside allowed working directories", "Path is outside allowed working directories"),
        (None, ""),
    ],
)
def test_a_reason_that_says_something_is_the_note(reason: str | None, note: str) -> None:
    assert ask("Bash", {"command": "x"}, decision_reason=reason).note == note


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["command", "description", "file_path", "content", "old_string", "new_string", "edits", "url", "questions", "plan"]
) | st.text(max_size=8)


@given(
    tool=st.sampled_from(
        [
            "Bash",
            "Write",
            "Edit",
            "MultiEdit",
            "NotebookEdit",
            "WebFetch",
            "ExitPlanMode",
            "AskUserQuestion",
            "Task",
            "X",
        ]
    ),
    input=st.dictionaries(KEYS, JSON, max_size=5),
)
def test_any_input_can_be_asked(tool: str, input: dict[str, Any]) -> None:
    """Whatever the agent sends is shown, and its texts are in what is shown."""
    before = msgspec.json.encode(input)
    asked = ask(tool, input)
    assert asked.body
    assert msgspec.json.encode(input) == before
    if tool == "X":
        shown = "\n".join(piece.text for piece in asked.body)
        for value in input.values():
            if isinstance(value, str):
                assert value in shown or msgspec.json.encode(value).decode() in shown


@pytest.mark.parametrize(
    ("tool", "input", "editable"),
    [
        ("Bash", {"command": "make"}, "command"),
        ("Bash", {"command": 7}, ""),
        ("WebFetch", {"url": "https://example.org", "prompt": "read"}, "url"),
        ("Write", {"file_path": "/repo/a", "content": "x"}, ""),
        ("Edit", {"file_path": "/repo/a", "old_string": "x", "new_string": "y"}, ""),
        ("mcp__s__t", {"command": "x"}, ""),
    ],
)
def test_what_a_person_may_rewrite(tool: str, input: dict[str, Any], editable: str) -> None:
    assert ask(tool, input).editable == editable
