"""What a permission request asks for, in whole, and the answers that the agent offers for it.

The agent's options are told apart by their `kind`; their ids differ from agent to agent. The first one that allows once
is Approve, the first one that rejects once is Deny, all others are choices with the agent's own words.
"""

from __future__ import annotations

from typing import Any, Literal

from ...model import Choice, Content, Interaction, InteractionKind
from ...schemas.acp import Diff, PermissionOption, ToolCall, blocks
from .agents import Agent
from .steps import command_of, diffs_of, path_of, shown_json, texts_of

_ACTS = {
    "read": "Read a file?",
    "edit": "Change a file?",
    "delete": "Delete a file?",
    "move": "Move a file?",
    "search": "Search?",
    "execute": "Run a command?",
    "fetch": "Fetch from the network?",
    "switch_mode": "Leave this mode?",
}
# Keys of the input that say nothing which is not shown: ids and times of the agent's own, what its options repeat.
_SILENT = frozenset(
    [
        "call_id",
        "turn_id",
        "started_at_ms",
        "available_decisions",
        "proposed_execpolicy_amendment",
        "parsed_cmd",
        "reason",
        "cwd",
    ]
)
_EFFECTS = {
    "allow_always": "Holds from now on, as far as the agent takes it.",
    "reject_always": "Holds from now on, as far as the agent takes it.",
}
_REJECTS = {
    "ends": "A denial ends the agent's turn. It is then told to go on without this step, or what you say.",
    "goes_on": "After a denial the agent goes on without this step. It reads your words when it is done.",
    "": "Whether the agent goes on after a denial is not known. It reads your words when it is done.",
}
_NO_REJECT = "This agent cannot refuse a single step: a denial ends the turn."


class Options:
    """The options of one request."""

    def __init__(self, options: list[PermissionOption]) -> None:
        self.all = [option for option in options if option.option_id]
        self.approve = self._first("allow_once")
        self.deny = self._first("reject_once")

    def _first(self, kind: str) -> str:
        return next((option.option_id for option in self.all if option.kind == kind), "")

    def choices(self) -> tuple[Choice, ...]:
        """Those beside a plain approve and deny. One of an unknown kind allows: a person reads what it says."""
        found: dict[str, Choice] = {}
        for option in self.all:
            if option.option_id not in (self.approve, self.deny):
                decides: Literal["allow", "deny"] = "deny" if option.kind.startswith("reject") else "allow"
                label = " ".join(option.name.split()) or option.option_id
                effect = _EFFECTS.get(option.kind, "")
                choice = Choice(option.option_id, label, effect, decides=decides)
                found.setdefault(option.option_id, choice)
        return tuple(found.values())

    def picked(self, id: str, decides: Literal["allow", "deny"]) -> str:
        """The id of a choice that decides so; "" when there is none."""
        return next((choice.id for choice in self.choices() if choice.id == id and choice.decides == decides), "")


def describe(id: str, call: ToolCall, options: Options, *, agent: Agent, step_id: str, asked_by: str) -> Interaction:
    """The interaction for a request. `call` is what is known of the tool call."""
    kind: InteractionKind = "plan" if call.kind == "switch_mode" and texts_of(call.content) else "permission"
    offers: list[Literal["allow", "deny"]] = ["allow"] if options.approve else []
    offers.append("deny")
    note = _REJECTS[agent.reject] if options.deny else _NO_REJECT
    act = "Approve this plan?" if kind == "plan" else _ACTS.get(call.kind or "", "Use a tool?")
    return Interaction(
        id,
        kind,
        act,
        _plan(call) if kind == "plan" else _body(call),
        options.choices(),
        note,
        asked_by,
        step_id,
        offers=tuple(offers),
    )


def _plan(call: ToolCall) -> tuple[Content, ...]:
    return tuple(Content("markdown", text) for text in texts_of(call.content))


def _body(call: ToolCall) -> tuple[Content, ...]:
    """The whole content: nothing of the input is left out, but what is shown already."""
    body: list[Content] = []
    rest = dict(call.raw_input) if isinstance(call.raw_input, dict) else {}
    if command := command_of(call):
        body.append(Content("command", command))
        rest.pop("command", None)
    diffs = diffs_of(call)
    for diff in diffs:
        body.append(Content("diff", diff.unified, diff.path, added=diff.added, removed=diff.removed))
    for text in texts_of(call.content):
        if text.strip() not in command:
            body.append(Content("text", text.strip()))
    if rest.get("description") and any(piece.text == rest["description"] for piece in body):
        del rest["description"]
    if isinstance(reason := rest.get("reason"), str) and not any(reason in piece.text for piece in body):
        body.append(Content("text", reason))
    if not body and call.title:
        body.append(Content("text", call.title))
    if not diffs and (path := path_of(call)) and not any(path in piece.text for piece in body):
        body.append(Content("text", path))
    body += _rest(rest if isinstance(call.raw_input, dict) else call.raw_input, call)
    return tuple(body)


def _rest(rest: Any, call: ToolCall) -> list[Content]:
    """What else the input holds, without the texts that a diff shows."""
    shown = [text for diff in blocks(call.content) if isinstance(diff, Diff) for text in _texts(diff)]
    if isinstance(rest, dict):
        rest = {key: value for key, value in rest.items() if key not in _SILENT}
        rest = {key: value for key, value in rest.items() if not (isinstance(value, str) and _within(value, shown))}
    return [Content("json", shown_json(rest), "Input")] if rest else []


def _texts(diff: Diff) -> tuple[str, str, str]:
    return diff.path, diff.old_text or "", diff.new_text


def _within(value: str, shown: list[str]) -> bool:
    return any(value.strip() in text for text in shown)
