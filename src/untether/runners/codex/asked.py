"""What Codex asks, in whole: the pieces that a person reads before deciding, and the choices that Codex offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ...model import Choice, Content, Interaction, Question
from ...schemas import codex as schema
from ...schemas import codex_items as kinds
from . import changes
from .items import command_text

SESSION = "session"
ALWAYS = "always"
_SESSION_COMMAND = Choice(SESSION, "This command, this session")
_SESSION_PATCH = Choice(SESSION, "These files, this session")


class Scene(NamedTuple):
    """Where a request is made: the agent's folder, Codex's own, and what it is about.

    That is the file changes of a patch, or the tool of an MCP server with its item, which the request does not name.
    """

    root: str
    home: str
    patch: tuple[kinds.FileUpdate, ...] = ()
    tool: str = ""
    step: str = ""


def describe(id: str, asked: schema.Asked, scene: Scene, *, asked_by: str) -> Interaction:
    """A request in words. The ids of choices are read by `replies`."""
    match asked:
        case schema.CommandApproval():
            interaction = _command(id, asked, scene)
        case schema.PatchApproval():
            interaction = _patch(id, asked, scene)
        case schema.PermissionsApproval():
            interaction = _permissions(id, asked)
        case schema.UserInput():
            interaction = _questions(id, asked)
        case schema.Elicitation():
            interaction = _elicitation(id, asked, scene)
    return msgspec.structs.replace(interaction, asked_by=asked_by)


def brief(interaction: Interaction) -> str:
    """What was asked, in a few words, for the list of what was refused."""
    first = next((piece.label or piece.text for piece in interaction.body), "")
    return f"{interaction.act.rstrip('?')}: {' '.join(first.split())[:200]}" if first else interaction.act.rstrip("?")


# ------------------------------------------------------------------------------------------------------ approvals


def _command(id: str, asked: schema.CommandApproval, scene: Scene) -> Interaction:
    body = []
    act = "Run a command?"
    if (network := asked.network_approval_context) is not None:
        act = f"Connect to {network.host}?"
        body.append(Content("text", f"{network.protocol} {network.host}".strip(), "Network"))
    if asked.command:
        body.append(Content("command", command_text(asked.command)))
    if asked.cwd and asked.cwd.rstrip("/") != scene.root:
        body.append(Content("text", asked.cwd, "In the folder"))
    if asked.additional_permissions is not None:
        body.append(_json(asked.additional_permissions, "With these permissions"))
    return Interaction(
        id, "permission", act, tuple(body), _command_choices(asked, scene), asked.reason or "", step_id=asked.item_id
    )


def _command_choices(asked: schema.CommandApproval, scene: Scene) -> tuple[Choice, ...]:
    choices = [_SESSION_COMMAND]
    if prefix := asked.proposed_execpolicy_amendment:
        file = f"{scene.home or '~/.codex'}/rules/default.rules"
        label = f"Always “{' '.join(prefix)} …” (for ever, in {file})"
        choices.append(Choice(ALWAYS, label))
    for number, amendment in enumerate(asked.proposed_network_policy_amendments or ()):
        allows = amendment.action != "deny"
        label = f"{'Always' if allows else 'Never'} {amendment.host} (for ever, in Codex's rules)"
        choices.append(Choice(f"network:{number}", label, decides="allow" if allows else "deny"))
    return tuple(choices)


def _patch(id: str, asked: schema.PatchApproval, scene: Scene) -> Interaction:
    files = scene.patch
    act = "Write a file?" if files and changes.verb(files) == "Write" else "Edit a file?"
    if len(files) > 1:
        act = f"Change {len(files)} files?"
    notes = [asked.reason or ""]
    if asked.grant_root:
        notes.append(f"Approving lets it write anywhere under {asked.grant_root} for this session.")
    body = changes.contents(files, scene.root) or (Content("text", "Codex did not tell the change."),)
    note = " ".join(filter(None, notes))
    return Interaction(id, "permission", act, body, (_SESSION_PATCH,), note, step_id=asked.item_id)


def _permissions(id: str, asked: schema.PermissionsApproval) -> Interaction:
    body = (_json(asked.permissions, "Permissions"),)
    choices = (Choice(SESSION, "For this session"),)
    return Interaction(
        id, "permission", "Grant more permissions?", body, choices, asked.reason or "", step_id=asked.item_id
    )


# ------------------------------------------------------------------------------------------------------ questions


def _questions(id: str, asked: schema.UserInput) -> Interaction:
    questions = tuple(
        Question(
            question.question,
            question.header,
            tuple(
                Choice(str(number), option.label, option.description if option.description != option.label else "")
                for number, option in enumerate(question.options or (), 1)
            ),
        )
        for question in asked.questions
    )
    secret = any(question.is_secret for question in asked.questions)
    note = "It asks for a secret: what you answer here stays readable in the chat." if secret else ""
    return _asking(id, questions, note, asked.item_id)


def _asking(id: str, questions: tuple[Question, ...], note: str, step: str = "") -> Interaction:
    act = "Answer a question?" if len(questions) == 1 else f"Answer {len(questions)} questions?"
    body = tuple(Content("text", _question_text(question), question.header) for question in questions)
    return Interaction(id, "question", act, body, (), note, step_id=step, questions=questions)


def _question_text(question: Question) -> str:
    lines = [question.text]
    for number, option in enumerate(question.options, 1):
        lines.append(f"{number} {option.label}" + (f": {option.description}" if option.description else ""))
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------- MCP servers


def is_tool_call(asked: schema.Elicitation) -> bool:
    """Whether an elicitation is Codex asking to call a tool, and not the server asking for something."""
    return isinstance(asked.meta, Mapping) and asked.meta.get("codex_approval_kind") == "mcp_tool_call"


def _elicitation(id: str, asked: schema.Elicitation, scene: Scene) -> Interaction:
    server = asked.server_name or "an MCP server"
    if is_tool_call(asked):
        meta = asked.meta
        body = [_json(meta.get("tool_params"), "")]
        if text := meta.get("tool_description"):
            body.append(Content("text", str(text)))
        persist = meta.get("persist")
        offered = persist if isinstance(persist, list) else [persist]
        choices = []
        if SESSION in offered:
            choices.append(Choice(SESSION, "This tool, this session"))
        if ALWAYS in offered:
            file = f"{scene.home or '~/.codex'}/config.toml"
            choices.append(Choice(ALWAYS, f"Always this tool (for ever, in {file})"))
        act = f"Use {meta.get('tool_name') or scene.tool or 'a tool'} of {server}?"  # 0.166.0 tells no name
        return Interaction(id, "permission", act, tuple(body), tuple(choices), step_id=scene.step)
    if asked.mode == "url":
        body = [Content("text", asked.message), Content("text", asked.url, "Page")]
        return Interaction(id, "permission", f"Open a page for {server}?", tuple(body))
    if fields := form_fields(asked.schema):
        questions = tuple(
            Question(_field_text(name, field), options=tuple(_field_options(field))) for name, field in fields.items()
        )
        return _asking(id, questions, f"{server}: {asked.message}")
    return Interaction(id, "permission", f"Agree to what {server} asks?", (Content("text", asked.message),))


def form_fields(form: Any) -> dict[str, dict[str, Any]]:
    """The fields of an elicitation's form, by name."""
    found = form.get("properties") if isinstance(form, Mapping) else None
    return {str(name): dict(field) for name, field in found.items() if isinstance(field, Mapping)} if found else {}


def _field_text(name: str, field: Mapping[str, Any]) -> str:
    title = str(field.get("title") or name)
    about = str(field.get("description") or "")
    return f"{title}: {about}" if about else title


def _field_options(field: Mapping[str, Any]) -> list[Choice]:
    values = ["yes", "no"] if field.get("type") == "boolean" else field.get("enum") or []
    return [Choice(str(number), str(value)) for number, value in enumerate(values, 1)]


def field_answers(form: Any, by_question: Mapping[str, str]) -> dict[str, Any]:
    """What was answered, as the form wants it; numbers that are none stay away."""
    found: dict[str, Any] = {}
    for name, field in form_fields(form).items():
        text = by_question.get(_field_text(name, field))
        if text is None:
            continue
        match field.get("type"):
            case "boolean":
                found[name] = text.strip().lower() in ("yes", "true", "1")
            case "integer" | "number":
                try:
                    found[name] = int(text) if field["type"] == "integer" else float(text)
                except ValueError:
                    continue
            case "array":
                found[name] = [part.strip() for part in text.split(",")]
            case _:
                found[name] = text
    return found


def _json(value: Any, label: str) -> Content:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return Content("json", text, label, language="json")
