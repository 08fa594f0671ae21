"""The tools of the demo agent: which calls may run unasked, and what each really does.

What runs unasked in each mode follows Claude Code 2.1.332: reading always, writing in `acceptEdits`, everything in
`bypassPermissions` and `auto`; in `plan` a command that changes something is asked for only with the setting
`useAutoModeDuringPlan: false`, and refused without it.
"""

from __future__ import annotations

import os
import re
import time

from .wire import Terminated, kill_group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAX_OUTPUT = 30_000
MAX_FILE = 256_000
SLOW_AFTER = 3.0  # seconds until a running command gets a `task_started`
HEARTBEAT = 30.0
READ_ONLY = re.compile(
    r"(?:ls|pwd|date|echo|cat|wc|sleep)\b[^;&|<>$`\n]*"
    r'|for i in \$\(seq \d+\); do echo "step \$i of \d+"; sleep [\d.]+; done'
)
EDIT_COMMAND = re.compile(r"(?:touch|mkdir) [\w.-]+")
DONT_ASK = "Permission to use {} has been denied because the agent is running in don't ask mode."
NO_CHECK = (
    "Auto mode is unavailable: its safety check does not run for this session, so Bash was not run. "
    "Finish what you can without it, then tell the user what is blocked."
)


class Verdict:
    """What is to be done with a tool call: `run` it, `ask` the person, or refuse it with `text`."""

    def __init__(self, act: str, reason_type: str = "", *, text: str = "", code: str = "", reason: str = "") -> None:
        self.act = act
        self.reason_type = reason_type
        self.text = text
        self.code = code
        self.reason = reason


class Outcome:
    """What came of a tool call: `text` for the model, `detail` for the host (`tool_use_result`).

    `error` is None for the tools whose success says nothing of errors (all but Bash). `refused`: it did not run.
    """

    def __init__(self, text: Any, detail: Any = None, error: bool | None = None, *, refused: bool = False) -> None:
        self.text = text
        self.error = error or (True if refused else error)
        self.detail = f"Error: {text}" if self.error else detail
        self.refused = refused


def judge(
    name: str, call: dict[str, Any], mode: str, rules: list[str], plan_path: str, *, ask_in_plan: bool
) -> Verdict:
    """Decide whether a call runs, is asked for or is refused. `rules` are like `Bash`, `Bash(touch *)`, `Write`."""
    command = str(call.get("command", ""))
    writes = name in ("Write", "Edit")
    if name in ("AskUserQuestion", "ExitPlanMode"):
        return Verdict("ask")
    if name in ("Read", "Agent", "EnterPlanMode"):
        return Verdict("run", "mode")
    if name == "Bash" and READ_ONLY.fullmatch(command):
        return Verdict("run", "subcommandResults")
    if writes and call.get("file_path") == plan_path:
        return Verdict("run", "other")
    if any(_matches(rule, name, command) for rule in rules):
        return Verdict("run", "rule")
    if mode in ("bypassPermissions", "auto"):
        return Verdict("run", "mode")
    if mode == "acceptEdits" and (writes or EDIT_COMMAND.fullmatch(command)):
        return Verdict("run", "mode")
    if mode == "dontAsk":
        return Verdict("refuse", "mode", text=DONT_ASK.format(name))
    if mode == "plan" and name == "Bash" and not ask_in_plan:
        code = "auto_mode_no_check_in_session"
        return Verdict("refuse", "classifier", text=NO_CHECK, code=code, reason="Classifier unavailable")
    if mode == "plan" and writes:
        return Verdict("ask", "mode")
    return Verdict("ask")


def _matches(rule: str, name: str, command: str) -> bool:
    tool, _, content = rule.partition("(")
    pattern = content.removesuffix(")")
    if tool != name:
        return False
    if pattern.endswith("*"):
        return command.startswith(pattern[:-1].removesuffix(":"))
    return not content or command == pattern


def suggestions(name: str, call: dict[str, Any], mode: str, cwd: str) -> dict[str, Any]:
    """The fields of `can_use_tool` beside name, input and id: what to show, and which wider grants are on offer."""
    accept_edits = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    if name in ("AskUserQuestion", "ExitPlanMode"):
        return {"requires_user_interaction": True}
    if name == "Bash":
        command = str(call.get("command", ""))
        rule = {"toolName": "Bash", "ruleContent": command}
        grants: list[dict[str, Any]] = [
            {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "localSettings"}
        ]
        fields = {"description": call.get("description", ""), "permission_suggestions": grants}
        if EDIT_COMMAND.fullmatch(command):
            grants += [{"type": "addDirectories", "directories": [cwd], "destination": "session"}, accept_edits]
            return fields | {"blocked_path": os.path.join(cwd, command.split()[1])}
        return fields | {"decision_reason": "This command requires approval", "decision_reason_type": "other"}
    description = {"description": os.path.relpath(str(call.get("file_path", "")), cwd)}
    if mode == "plan":
        return description | {"decision_reason_type": "mode"}
    return description | {"permission_suggestions": [accept_edits]}


def read(call: dict[str, Any]) -> Outcome:
    path = str(call["file_path"])
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            content = file.read(MAX_FILE)
    except OSError as error:
        return Outcome(f"{path}: {error.strerror}", error=True)
    lines = content.split("\n")
    numbered = "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, 1))
    facts = {"filePath": path, "content": content, "numLines": len(lines), "startLine": 1, "totalLines": len(lines)}
    return Outcome(numbered, {"type": "text", "file": facts})


def write(call: dict[str, Any]) -> Outcome:
    path, content = os.path.abspath(str(call["file_path"])), str(call["content"])
    try:
        before = read_text(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
    except OSError as error:
        return Outcome(f"{path}: {error.strerror}", error=True)
    detail: dict[str, Any] = {"type": "create" if before is None else "update", "filePath": path, "content": content}
    detail |= {"structuredPatch": _patch(before or "", content) if before is not None else []}
    if before is None:
        text = f"File created successfully at: {path} (file state is current in your context)"
    else:
        text = f"The file {path} has been updated successfully. (file state is current in your context)"
    return Outcome(text, detail | {"originalFile": before, "userModified": False})


def edit(call: dict[str, Any]) -> Outcome:
    path, old, new = str(call["file_path"]), str(call["old_string"]), str(call["new_string"])
    try:
        before = read_text(path)
        if before is None:
            return Outcome("File does not exist.", error=True)
        if not old or old not in before:
            return Outcome(f"String to replace not found in file.\nString: {old}", error=True)
        after = before.replace(old, new) if call.get("replace_all") else before.replace(old, new, 1)
        with open(path, "w", encoding="utf-8") as file:
            file.write(after)
    except OSError as error:
        return Outcome(f"{path}: {error.strerror}", error=True)
    detail: dict[str, Any] = {"filePath": path, "oldString": old, "newString": new, "originalFile": before}
    detail |= {"structuredPatch": _patch(before, after), "userModified": False}
    text = f"The file {path} has been updated successfully. (file state is current in your context)"
    return Outcome(text, detail | {"replaceAll": bool(call.get("replace_all"))})


def read_text(path: str) -> str | None:
    """The content of a text file; None when there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _patch(before: str, after: str) -> list[dict[str, Any]]:
    """One hunk over the whole text: the demo's files have a few lines."""
    old, new = before.splitlines(), after.splitlines()
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    tail = 0
    while tail < min(len(old), len(new)) - same and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    removed = ["-" + line for line in old[same : len(old) - tail]]
    added = ["+" + line for line in new[same : len(new) - tail]]
    context = [" " + line for line in old[:same]], [" " + line for line in old[len(old) - tail :]]
    lines = [*context[0], *removed, *added, *context[1]]
    return [{"oldStart": 1, "oldLines": len(old), "newStart": 1, "newLines": len(new), "lines": lines}]


def bash(
    call: dict[str, Any],
    cwd: str,
    wait: Callable[[float, int], bool],
    started: Callable[[int], None],
    slow: Callable[[float], None],
) -> Outcome:
    """Run a command with /bin/sh in `cwd`, in a session of its own, and give its output.

    `wait(seconds, fd)` is how it waits (true when fd is readable); what it raises ends the command and its children.
    `started(pid)` is called with the process group, and with 0 at the end; `slow(seconds)` now and then.
    """
    import subprocess  # only here: it would cost 5 ms at every start

    process = subprocess.Popen(
        ["/bin/sh", "-c", str(call["command"])],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    started(process.pid)
    output = bytearray()
    begun = time.monotonic()
    fd = process.stdout.fileno()
    try:
        open_ = True
        while open_ or process.poll() is None:
            readable = wait(0.2 if open_ else 0.02, fd if open_ else -1)
            if readable:
                data = os.read(fd, 1 << 16)
                open_ = bool(data)
                output += data[: max(0, MAX_OUTPUT - len(output))]
            elif process.poll() is not None:
                break  # a child that it left behind may hold its output open for ever
            slow(time.monotonic() - begun)
    except BaseException as error:
        kill_group(process.pid)
        process.wait()
        if isinstance(error, Terminated):
            return Outcome("Exit code 137", error=True)
        raise
    finally:
        started(0)
        process.stdout.close()
    text = output.decode("utf-8", "replace").rstrip("\n")
    if process.wait() != 0:
        return Outcome(f"Exit code {process.returncode}\n{text}".rstrip("\n"), error=True)
    detail = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
    return Outcome(text or "(Bash completed with no output)", detail, error=False)


def answers(call: dict[str, Any]) -> Outcome:
    """What the model reads once AskUserQuestion was answered; `call` is the input that the host sent back."""
    questions = [question for question in call.get("questions", []) if isinstance(question, dict)]
    given = call.get("answers") if isinstance(call.get("answers"), dict) else {}
    notes = call.get("annotations") if isinstance(call.get("annotations"), dict) else {}
    detail = {"questions": questions, "answers": given or {}}
    detail |= {key: call[key] for key in ("annotations", "response") if key in call}
    if call.get("response"):
        return Outcome(f"The user responded: {call['response']}", detail)
    parts, free = [], False
    for question in questions:
        text = question.get("question", "")
        answer = (given or {}).get(text)
        if answer is None:
            continue
        chosen = ",".join(map(str, answer)) if isinstance(answer, list) else str(answer)
        labels = {str(option.get("label")) for option in question.get("options", [])}
        note = ((notes or {}).get(text) or {}).get("notes")
        own_words = chosen not in labels and not set(re.split(", ?", chosen)) <= labels
        free = free or own_words or bool(note)
        parts.append(f'"{text}"="{chosen}"' + (f" notes: {note}" if note else ""))
    if not parts:
        return Outcome("The user did not answer the questions.", detail)
    said = ", ".join(parts)
    if free:
        return Outcome(f"The user answered: {said}. Read the answers carefully and follow what they say.", detail)
    closing = "You can now continue with these answers in mind."
    return Outcome(f"Your questions have been answered: {said}. {closing}", detail)
