"""What a request asks for, in whole: the pieces that a person reads before deciding on it.

Nothing of the input is left out. What a tool is known for is shown as what it is (a command, a diff, a page), and all
other keys follow as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from ...model import Choice, Content, InteractionKind, Question
from ...schemas.claude import CanUseTool
from ...text.diff import FileDiff, edit_diff, write_diff
from .frames import encode

_GENERIC_REASONS = ("this command requires approval",)
NO_PLAN_TEXT = "Claude Code gave no text for its plan."


class Asked(NamedTuple):
    """A request in words: see `model.Interaction`."""

    kind: InteractionKind
    act: str
    body: tuple[Content, ...]
    note: str = ""
    questions: tuple[Question, ...] = ()
    editable: str = ""


class Scene(NamedTuple):
    """Where a request is made: the agent's folder, and the last long text that it wrote."""

    root: str
    long_text: str


Describe = Callable[[dict[str, Any], Scene], Asked]


def describe(request: CanUseTool, input: Mapping[str, Any], scene: Scene) -> Asked:
    """`input` is the request's, decoded."""
    rest = dict(input)
    name = request.tool_name
    describer = _DESCRIBERS.get(name)
    server, tool = _mcp_name(name)
    if describer is not None:
        asked = describer(rest, scene)
    elif server:
        asked = Asked("permission", f"Use {tool} of {server}?", ())
    else:
        asked = Asked("permission", f"Use {name or 'a tool'}?", ())
    body = asked.body + _other(rest, even_if_empty=not asked.body)
    editable = _EDITABLE.get(name, "")
    if not isinstance(input.get(editable), str):
        editable = ""
    return asked._replace(body=body, note=asked.note or _note(request), editable=editable)


def _note(request: CanUseTool) -> str:
    reason = (request.decision_reason or "").strip()
    return "" if reason.lower() in _GENERIC_REASONS else reason


# ----------------------------------------------------------------------------------------------------- known tools
# Each takes what it shows out of the input; what is left is shown after it.


def _command(input: dict[str, Any], scene: Scene) -> Asked:
    body = [Content("command", _text(input, "command"))]
    if description := _text(input, "description"):
        body.append(Content("text", description))
    return Asked("permission", "Run a command?", tuple(body))


def _write(input: dict[str, Any], scene: Scene) -> Asked:
    path = _path(input, "file_path", scene)
    return Asked("permission", "Write a file?", (_diff(write_diff(path, _text(input, "content"))),))


def _edit(input: dict[str, Any], scene: Scene) -> Asked:
    path = _path(input, "file_path", scene)
    edits = input.get("edits")
    if not isinstance(edits, list) or not all(isinstance(edit, dict) for edit in edits):
        edits = [{key: input.pop(key) for key in ("old_string", "new_string", "replace_all") if key in input}]
    else:
        del input["edits"]
    pairs = [(_text(dict(edit), "old_string"), _text(dict(edit), "new_string")) for edit in edits]
    body = [_diff(edit_diff(path, pairs))]
    if everywhere := [number for number, edit in enumerate(edits, 1) if edit.get("replace_all")]:
        which = "" if len(edits) == 1 else f" by edit {', '.join(map(str, everywhere))}"
        body.append(Content("text", f"Every occurrence in the file is replaced{which}."))
    return Asked("permission", "Edit a file?", tuple(body))


def _notebook(input: dict[str, Any], scene: Scene) -> Asked:
    path = _path(input, "notebook_path", scene)
    source = Content("code", _text(input, "new_source"), path)
    return Asked("permission", "Edit a file?", (source,))


def _fetch(input: dict[str, Any], scene: Scene) -> Asked:
    body = [Content("text", _text(input, "url"))]
    if prompt := _text(input, "prompt"):
        body.append(Content("text", prompt, "To find out"))
    return Asked("permission", "Fetch a page?", tuple(body))


def _search(input: dict[str, Any], scene: Scene) -> Asked:
    return Asked("permission", "Search the web?", (Content("text", _text(input, "query")),))


def _read(input: dict[str, Any], scene: Scene) -> Asked:
    return Asked("permission", "Read a file?", (Content("text", _path(input, "file_path", scene)),))


def _agent(input: dict[str, Any], scene: Scene) -> Asked:
    body = [Content("text", _text(input, "description")), Content("markdown", _text(input, "prompt"))]
    return Asked("permission", "Start a sub-agent?", tuple(piece for piece in body if piece.text))


def _plan(input: dict[str, Any], scene: Scene) -> Asked:
    """The plan as far as the request has it; the module `plan` looks further."""
    plan = _text(input, "plan").strip()
    input.pop("planFilePath", None)
    note = "It gave no plan; this is what it wrote last." if not plan and scene.long_text else ""
    return Asked("plan", "Leave plan mode?", (Content("markdown", plan or scene.long_text or NO_PLAN_TEXT),), note)


def _question(input: dict[str, Any], scene: Scene) -> Asked:
    questions = input.get("questions")
    if not isinstance(questions, list) or not questions or not all(isinstance(each, dict) for each in questions):
        return Asked("question", "Answer a question?", ())
    del input["questions"]
    pieces = []
    for number, question in enumerate(questions, 1):
        label = str(question.get("header") or "")
        if len(questions) > 1:
            label = f"{label} ({number} of {len(questions)})".lstrip()
        pieces.append(Content("text", _question_text(question), label))
    act = "Answer a question?" if len(questions) == 1 else f"Answer {len(questions)} questions?"
    return Asked("question", act, tuple(pieces), questions=tuple(_structured(question) for question in questions))


def _structured(question: Mapping[str, Any]) -> Question:
    options = question.get("options")
    return Question(
        str(question.get("question") or ""),
        str(question.get("header") or ""),
        tuple(
            Choice(
                str(number),
                str(option.get("label") or number),
                str(option.get("description") or ""),
                preview=str(option.get("preview") or ""),
            )
            for number, option in enumerate(options if isinstance(options, list) else [], 1)
            if isinstance(option, dict)
        ),
        multiple=question.get("multiSelect") is True,
    )


def _question_text(question: Mapping[str, Any]) -> str:
    lines = [str(question.get("question") or "")]
    options = question.get("options")
    for number, option in enumerate(options if isinstance(options, list) else [], 1):
        if isinstance(option, dict):
            description = option.get("description")
            lines.append(f"{number} {option.get('label')}" + (f": {description}" if description else ""))
    if question.get("multiSelect"):
        lines.append("Several answers are possible.")
    return "\n".join(lines)


_DESCRIBERS: Mapping[str, Describe] = {
    "Bash": _command,
    "Monitor": _command,
    "PowerShell": _command,
    "Write": _write,
    "Edit": _edit,
    "MultiEdit": _edit,
    "NotebookEdit": _notebook,
    "WebFetch": _fetch,
    "WebSearch": _search,
    "Read": _read,
    "Agent": _agent,
    "Task": _agent,
    "ExitPlanMode": _plan,
    "AskUserQuestion": _question,
}
# What a person may rewrite before it happens, by tool.
_EDITABLE: Mapping[str, str] = {"Bash": "command", "PowerShell": "command", "Monitor": "command", "WebFetch": "url"}


# ---------------------------------------------------------------------------------------------------------- pieces


def _other(input: dict[str, Any], *, even_if_empty: bool) -> tuple[Content, ...]:
    """What no describer took: texts of several lines as they are, the rest as one JSON object."""
    texts = {key: value for key, value in input.items() if isinstance(value, str) and "\n" in value}
    rest = {key: value for key, value in input.items() if key not in texts}
    pieces = [Content("code", value, key) for key, value in texts.items()]
    if rest or (even_if_empty and not texts):
        pieces.append(Content("json", msgspec.json.format(encode(rest), indent=2).decode(), language="json"))
    return tuple(pieces)


def _diff(diff: FileDiff) -> Content:
    return Content("diff", diff.unified, diff.path, added=diff.added, removed=diff.removed)


def _text(input: dict[str, Any], key: str) -> str:
    """Take a text out of the input; what is not text stays to be shown as it is."""
    return input.pop(key) if isinstance(input.get(key), str) else ""


def _path(input: dict[str, Any], key: str, scene: Scene) -> str:
    """Take a path out, relative to the agent's folder where it lies in it."""
    path = _text(input, key)
    return path.removeprefix(scene.root.rstrip("/") + "/") if scene.root else path


def _mcp_name(name: str) -> tuple[str, str]:
    """Server and tool of `mcp__SERVER__TOOL`, both empty for another name."""
    prefix, _, rest = name.partition("__")
    server, _, tool = rest.partition("__")
    return (server, tool) if prefix == "mcp" and server and tool else ("", "")
