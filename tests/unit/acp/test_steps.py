"""Tool calls, plans and thoughts of ACP agents as actions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.rules import assert_contract
from tests.unit.acp.talk import Talk


def talking() -> Talk:
    talk = Talk()
    talk.opened()
    return talk


def test_the_life_of_a_tool_call() -> None:
    talk = talking()
    talk.update("tool_call", toolCallId="t1", title="Terminal", kind="execute", status="pending", rawInput={})
    talk.update("tool_call_update", toolCallId="t1", rawInput={"command": "make"}, title="make")
    talk.update("tool_call_update", toolCallId="t1", status="in_progress")
    assert [wait.label for wait in talk.session.waits] == ["make"]
    text = {"type": "content", "content": {"type": "text", "text": "```console\nall fine\n```"}}
    talk.update("tool_call_update", toolCallId="t1", status="completed", content=[text])
    assert [(event.phase, event.action.title, event.ok, event.message) for event in talk.actions] == [
        ("started", "Terminal", None, ""),
        ("updated", "make", None, ""),
        ("completed", "make", True, "all fine"),
    ]
    talk.update("tool_call_update", toolCallId="t1", status="failed")  # after its end
    talk.update("tool_call", toolCallId="t1", title="ls", kind="execute", status="failed", rawOutput={"error": "no"})
    assert [(event.action.id, event.ok, event.message) for event in talk.actions[3:]] == [
        ("t1#2", None, ""),
        ("t1#2", False, "no"),
    ]
    talk.ends()
    talk.exits()
    assert_contract(talk.events)


@pytest.mark.parametrize(
    ("call", "kind", "title", "detail"),
    [
        ({"kind": "read", "title": "Read a.txt"}, "tool", "Read a.txt", {"tool": "read"}),
        (
            {"kind": "edit", "title": "Edit", "locations": [{"path": "/repo/src/a.py", "line": 3}]},
            "file_change",
            "src/a.py",
            {"tool": "edit", "path": "/repo/src/a.py", "verb": "Edit"},
        ),
        (
            {"kind": "edit", "content": [{"type": "diff", "path": "/x", "oldText": None, "newText": "a\nb\n"}]},
            "file_change",
            "/x",
            {"tool": "edit", "path": "/x", "added": 2, "removed": 0, "verb": "Edit"},
        ),
        ({"kind": "fetch", "title": "https://a.b"}, "web_search", "https://a.b", {"tool": "fetch"}),
        ({"kind": "sing", "title": ""}, "tool", "Tool", {"tool": "sing"}),
        ({"kind": "execute", "title": "ls"}, "command", "ls", {"tool": "execute", "command": "ls"}),
    ],
)
def test_kinds_and_titles(call: dict[str, Any], kind: str, title: str, detail: dict[str, Any]) -> None:
    talk = talking()
    talk.update("tool_call", toolCallId="t1", **call)
    action = talk.actions[0].action
    assert (action.kind, action.title, action.detail) == (kind, title, detail)


def test_thoughts_are_one_note() -> None:
    talk = talking()
    for text in ("**Planning", " the work**\n", "I look first."):
        talk.update("agent_thought_chunk", content={"type": "text", "text": text})
    talk.says("Hello.")
    [note] = talk.actions
    assert (note.action.kind, note.action.title) == ("note", "Planning the work")
    assert note.action.detail["text"] == "**Planning the work**\nI look first."


def test_a_plan_is_one_step_that_changes() -> None:
    talk = talking()
    entries = [{"content": "Look", "status": "in_progress"}, {"content": "Act", "status": "pending"}]
    talk.update("plan", entries=entries)
    talk.update("plan", entries=[{**entries[0], "status": "completed"}, {**entries[1], "status": "in_progress"}])
    talk.update("plan", entries=[{**entry, "status": "completed"} for entry in entries])
    assert [(event.phase, event.action.title) for event in talk.actions] == [
        ("started", "Plan 0/2 Look"),
        ("updated", "Plan 1/2 Act"),
        ("updated", "Plan 2/2"),
        ("completed", "Plan 2/2"),
    ]
    talk.ends()
    talk.exits()
    assert_contract(talk.events)
