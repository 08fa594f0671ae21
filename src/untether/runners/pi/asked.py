"""What Pi's extensions ask, in whole: our own about the call of a tool, and the dialogs of others as questions."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ...model import Allow, Answers, Choice, Content, Decision, Deny, Interaction, Question
from ...schemas.pi import UiRequest
from ...text.diff import FileDiff, edit_diff, write_diff

GATE = "gate:"
GATE_COMMAND = "untether-gate"  # what our extension registers, so that it is seen to be there
SESSION = "session"
YES, NO = "Yes", "No"
DIALOGS = ("select", "confirm", "input", "editor")

_LONGEST_REASON = 4_000


class Call(NamedTuple):
    """The call of a tool that our extension asks about."""

    tool: str
    id: str
    input: Any


def gated_call(asked: UiRequest) -> Call | None:
    """The call that a request of our extension is about; None for a request of another."""
    if asked.method != "select" or not asked.title.startswith(GATE):
        return None
    try:
        facts = msgspec.json.decode(asked.title.removeprefix(GATE))
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(facts, dict) or not isinstance(facts.get("tool"), str):
        return None
    return Call(facts["tool"], str(facts.get("id") or ""), facts.get("input"))


def grant(call: Call) -> str:
    """What an approval for the session covers: this very command, or all edits, or all calls of another tool."""
    if call.tool == "bash":
        return f"bash {_field(call, 'command')}"
    return "edits" if call.tool in ("edit", "write") else f"tool {call.tool}"


# ------------------------------------------------------------------------------------------------------- in words


def describe_call(id: str, call: Call, root: str) -> Interaction:
    """A call in words, with the choice to approve more than this one."""
    path = _relative(_field(call, "path"), root)
    match call.tool:
        case "bash":
            body: tuple[Content, ...] = (Content("command", _field(call, "command")), *_rest(call, "command"))
            act, more = "Run a command?", "This command, this session"
        case "edit" if (edits := _edits(call.input)) is not None:
            body, act, more = (_diff(edit_diff(path, edits)),), "Edit a file?", "All edits, this session"
        case "write" if isinstance(_input(call).get("content"), str):
            body = (_diff(write_diff(path, _field(call, "content"))),)
            act, more = "Write a file?", "All edits, this session"
        case "edit" | "write":
            body, act, more = (_json(call.input),), "Edit a file?", "All edits, this session"
        case _:
            body, act, more = (_json(call.input),), f"Use {call.tool}?", "This tool, this session"
    return Interaction(id, "permission", act, body, (Choice(SESSION, more),), step_id=call.id)


def describe_dialog(asked: UiRequest) -> Interaction:
    """A dialog of an extension as one question. Skipping it cancels the dialog."""
    options: tuple[Choice, ...] = ()
    if asked.method == "select":
        options = tuple(Choice(str(number), text) for number, text in enumerate(_options(asked), 1))
    elif asked.method == "confirm":
        options = (Choice("1", YES), Choice("2", NO))
    text = "\n".join(filter(None, (asked.title, asked.message))) or "An extension of Pi asks."
    lines = [text, *(f"{option.id} {option.label}" for option in options)]
    hint = asked.placeholder or asked.prefill
    body = [Content("text", "\n".join(lines))]
    if hint:
        body.append(Content("text", hint, "Suggested"))
    return Interaction(
        asked.id, "question", "Answer a question?", tuple(body), questions=(Question(text, options=options),)
    )


# --------------------------------------------------------------------------------------------------------- replies


def reply(asked: UiRequest, decision: Decision) -> dict[str, Any] | None:
    """The fields of the response to a request; None when the decision makes no sense for it."""
    if gated_call(asked) is not None:
        match decision:
            case Allow():
                return {"value": "Allow"}
            case Deny(reason):
                text = " ".join(reason.split())[:_LONGEST_REASON]
                return {"value": f"Deny: {text}" if text else "Deny"}
        return None
    match decision:
        case Answers(by_question):
            answer = next(iter(by_question.values()), "")
            if asked.method == "confirm":
                return {"confirmed": answer.strip().lower() in ("yes", "y", "true", "1")}
            return {"value": answer}
        case Deny():
            return {"cancelled": True}
    return None


# ---------------------------------------------------------------------------------------------------------- pieces


def _input(call: Call) -> dict[str, Any]:
    return call.input if isinstance(call.input, dict) else {}


def _field(call: Call, name: str) -> str:
    value = _input(call).get(name)
    return value if isinstance(value, str) else ""


def _rest(call: Call, shown: str) -> tuple[Content, ...]:
    """Everything else in an input, so that nothing is approved unseen."""
    rest = {name: value for name, value in _input(call).items() if name != shown}
    return (_json(rest),) if rest else ()


def _edits(input: Any) -> list[tuple[str, str]] | None:
    """The replacements of an edit; None when its input has another form than the tool's own."""
    edits = input.get("edits") if isinstance(input, dict) else None
    if not isinstance(edits, list) or not edits:
        return None
    found = [(edit.get("oldText"), edit.get("newText")) for edit in edits if isinstance(edit, dict)]
    pairs = [(old, new) for old, new in found if isinstance(old, str) and isinstance(new, str)]
    return pairs if len(pairs) == len(edits) else None


def _options(asked: UiRequest) -> list[str]:
    return [option for option in asked.options if isinstance(option, str)]


def _relative(path: str, root: str) -> str:
    return path.removeprefix(root + "/") if root else path


def _diff(diff: FileDiff) -> Content:
    return Content("diff", diff.unified, diff.path, added=diff.added, removed=diff.removed)


def _json(value: Any) -> Content:
    return Content("json", msgspec.json.format(msgspec.json.encode(value), indent=2).decode(), language="json")
