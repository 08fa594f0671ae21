"""What the demo agent does: one function for each of the words that a prompt may hold.

The first word of the table (`WORDS`) that stands in the prompt decides, by its place in the prompt; a number after
`slow`, `huge` and `lines` is the seconds, megabytes or frames. A function drives the turn and returns its last words,
or None when it has none. What was said while it worked, and was folded into the turn, is mentioned at the end.
"""

from __future__ import annotations

import json
import os
import re
import time

from . import frames
from .tools import Outcome
from .wire import complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .turn import Turn

    Script = Callable[[Turn, float | None], str | None]

FILE = "untether-demo.txt"
STEP = 0.4  # seconds between the steps of the shown tasks
MAX_SECONDS = 3_600.0
MAX_MEGABYTES = 256.0
MAX_FRAMES = 100_000.0
ECHO = 500
GREETING = re.compile(r"(?:hi|hello|hey|help|start|/start|/help|ping|test|\?)[\s!.?]*", re.IGNORECASE)


def play(turn: Turn) -> None:
    """Work on the turn's prompt."""
    script, number = choose(turn.prompt)
    last_words = script(turn, number)
    if last_words is not None:
        heard = "".join(f"\n\nWhile I was at it you also said:\n\n{_quote(text)}" for text in turn.heard)
        turn.say(last_words + heard)


def choose(prompt: str) -> tuple[Script, float | None]:
    """The function for a prompt, and the number that follows its word."""
    found = PATTERN.search(prompt)
    if found is None:
        return plain, None
    word = re.sub(r"\s+", " ", found["word"].lower())
    return WORDS[word], float(found["number"]) if found["number"] else None


def plain(turn: Turn, _number: float | None) -> str:
    prompt = turn.prompt.strip()
    if not prompt or GREETING.fullmatch(prompt):
        return f"Hello! {GUIDE}"
    shown = prompt[:ECHO]
    rest = f"\n\n({len(prompt):,} characters in all.)" if len(prompt) > ECHO else ""
    return f"You said:\n\n{_quote(shown)}{rest}\n\nI cannot really answer that. {GUIDE}"


def _quote(text: str) -> str:
    return "\n".join("> " + line for line in text.split("\n"))


GUIDE = """I am the demo agent: no account, no network, only a script. Send me one of these words:

- `tools`: I look around in this folder
- `permission`: I ask before I run a command
- `write`: I ask before I write and edit a file
- `plan`: I make a plan and wait for your approval
- `choice`: I ask you one question; `question`: three of them
- `long`: a long answer with code and a table
- `slow`: I work for 20 seconds (`slow 5`: for 5), so you can stop me or say something meanwhile
- `subagent`: I hand a task to a helper
- `remember`, then `what did I say`: I recall your last message, also after a break

To see what happens when things go wrong: `error`, `crash`, `garbage`, `huge`, `silent`, `half`, `lines 200`.
Tokens and costs are made up."""


# Tasks that show how work looks


def tools(turn: Turn, _number: float | None) -> str:
    turn.think("The person wants to see tools at work. I list the folder, then read a file.")
    turn.say("I will look around in this folder.")
    turn.pause(STEP)
    listing = turn.tool("Bash", {"command": "ls", "description": "List the folder"})
    names = [name for name in str(listing.text).split("\n") if _is_text(turn, name)]
    turn.pause(STEP)
    seen = ""
    if names:
        name = next((name for name in names if name.lower().startswith("readme")), names[0])
        content = turn.tool("Read", {"file_path": os.path.join(turn.agent.cwd, name)})
        seen = f" `{name}` has {len(str(content.text).splitlines())} lines."
        turn.pause(STEP)
    turn.say("Now the date, to be sure.")
    date = turn.tool("Bash", {"command": "date", "description": "Ask for the date"})
    turn.pause(STEP)
    shown = listing.detail["stdout"].splitlines() if isinstance(listing.detail, dict) else []
    return f"Done. Files and folders that I see here: {len(shown)}.{seen} It is {date.text}."


def _is_text(turn: Turn, name: str) -> bool:
    path = os.path.join(turn.agent.cwd, name)
    return name.endswith((".md", ".txt", ".toml", ".py", ".json", ".cfg")) and os.path.isfile(path)


def permission(turn: Turn, _number: float | None) -> str:
    turn.say("I would like to run a command.")
    done = turn.tool("Bash", {"command": f"touch {FILE}", "description": "Create an empty file"})
    if done.refused:
        return f"I did not run the command. The answer was: {done.text}"
    if done.error:
        return f"The command failed:\n\n```\n{done.text}\n```"
    return f"The command ran. `{FILE}` is in this folder now, unless you changed the command."


def write(turn: Turn, _number: float | None) -> str:
    path = os.path.join(turn.agent.cwd, FILE)
    turn.say("I will write a file, then change one line of it.")
    written = turn.tool("Write", {"file_path": path, "content": "one\ntwo\nthree\n"})
    if written.error:
        return f"I did not write `{FILE}`: {written.text}"
    change = {"replace_all": False, "file_path": path, "old_string": "two", "new_string": "2"}
    edited = turn.tool("Edit", change)
    if edited.error:
        return f"I wrote `{FILE}`, but did not edit it: {edited.text}"
    return f"I wrote `{FILE}` and changed its second line:\n\n```diff\n one\n-two\n+2\n three\n```"


def plan(turn: Turn, _number: float | None) -> str:
    """A plan that is denied once comes back revised; denied twice, it is dropped.

    Words in the denial do other things: "outline" gets an outline and the plan again, "not be started" and "talk" end
    the turn to wait and to talk.
    """
    if not turn.agent.can_ask:
        return "I cannot show you a plan here: this run has no way to ask."
    turn.say("Let me make a plan first.")
    if turn.agent.mode != "plan":
        turn.tool("EnterPlanMode", {})
    turn.tool("Bash", {"command": "ls", "description": "Look around"})
    path, changes, outlined = turn.agent.memory.plan_path, "", False
    while True:
        text = PLAN.format(file=FILE, changes=changes)
        turn.tool("Write", {"file_path": path, "content": text})
        answer = turn.tool("ExitPlanMode", {"plan": text, "planFilePath": path})
        if not answer.error:
            break
        said = str(answer.text).lower()
        if "outline" in said and not outlined:
            outlined = True
            turn.say(OUTLINE.format(file=FILE))
        elif "not be started" in said or "do not start" in said:
            return "Understood: the plan stands, and I do not start yet. Say `plan` when I should."
        elif "talk" in said or "discuss" in said:
            return "Let us talk about it: what should be different? Say `plan` when I should propose it again."
        elif changes:
            return f"Then I leave it at that. Your last word was: {answer.text}"
        else:
            changes = f"4. As you said: {answer.text}\n"
            turn.say("I revise the plan.")
    turn.say("The plan is approved; I begin.")
    return write(turn, None)


PLAN = """# A plan for the demo

1. Write `{file}` with three lines
2. Change its second line
3. Say what was done
{changes}
Nothing else is touched.
"""


OUTLINE = """The outline:

1. **Write** `{file}` with three lines: one, two, three. If it is there already, it is replaced as a whole.
2. **Change** its second line, so that there is a change to be seen: two becomes 2.
3. **Report** what was done, with the difference between before and after.

Risk: none but for that one file. How it is checked: by reading it."""


def question(turn: Turn, _number: float | None) -> str:
    return _questions(turn, "Some questions before I start.", QUESTIONS)


def choice(turn: Turn, _number: float | None) -> str:
    return _questions(turn, "One question before I start.", QUESTIONS[:1])


def _questions(turn: Turn, opening: str, questions: list[dict[str, Any]]) -> str:
    if not turn.agent.can_ask:
        return "I cannot ask you anything here: this run has no way to ask."
    turn.say(opening)
    answer = turn.tool("AskUserQuestion", {"questions": questions})
    if answer.refused:
        return f"You did not want to answer. You said: {answer.text}"
    given = answer.detail.get("answers") if isinstance(answer.detail, dict) else None
    if not given:
        return f"{answer.text}"
    lines = [f"- {asked} **{', '.join(said) if isinstance(said, list) else said}**" for asked, said in given.items()]
    return "Thank you. You answered:\n\n" + "\n".join(lines)


QUESTIONS: list[dict[str, Any]] = [
    {
        "question": "Which database?",
        "header": "Database",
        "multiSelect": False,
        "options": [
            {"label": "SQLite", "description": "One file, nothing to run"},
            {"label": "Postgres", "description": "A server, needed for many writers"},
        ],
    },
    {
        "question": "Which extras?",
        "header": "Extras",
        "multiSelect": True,
        "options": [
            {"label": "Docs", "description": "A page for every command"},
            {"label": "Tests", "description": "A test for every function"},
            {"label": "CI", "description": "Run the tests at every push"},
        ],
    },
    {
        "question": "Which layout?",
        "header": "Layout",
        "multiSelect": False,
        "options": [
            {"label": "Flat", "description": "All in one folder", "preview": "app.py\ntest_app.py"},
            {"label": "Nested", "description": "Source and tests apart", "preview": "src/app.py\ntests/test_app.py"},
        ],
    },
]


def long(_turn: Turn, _number: float | None) -> str:
    """About 9,000 characters: longer than two messages of a chat can hold."""
    rows = "\n".join(f"| {n} | step {n} | {n * n} ms | {'ok' if n % 3 else 'slow'} |" for n in range(1, 13))
    parts = [f"# A long answer\n\n| No. | What | Time | State |\n| --- | --- | ---: | --- |\n{rows}"]
    for n in range(1, 8):
        prose = f"Part {n} goes on for a while, so that there is something to split, to scroll and to search. " * 9
        code = "\n".join(f"    total += weights[{line}] * values[{line}]  # term {line}" for line in range(8))
        parts.append(
            f"## Part {n}\n\n{prose.strip()}\n\n```python\ndef part_{n}(weights, values):\n    total = 0\n{code}\n```"
        )
    parts.append("That was *all* of it; the last line is here: **the end**.")
    return "\n\n".join(parts)


def slow(turn: Turn, number: float | None) -> str:
    steps = int(min(20.0 if number is None else number, MAX_SECONDS))
    turn.say(f"This takes {steps} seconds.")
    pace = f'for i in $(seq {steps}); do echo "step $i of {steps}"; sleep {turn.agent.speed:g}; done'
    done = turn.tool("Bash", {"command": pace, "description": f"Work for {steps} seconds"})
    return f"That failed: {done.text}" if done.error else f"Done after {steps} steps."


def subagent(turn: Turn, _number: float | None) -> str:
    turn.say("I hand this to a helper.")
    call = {
        "description": "look around",
        "prompt": "Look at this folder and report.",
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    report = turn.tool("Agent", call, lambda call, tool_id: _helper(turn, call, tool_id))
    return f"The helper is back:\n\n{_quote(report.text[-1]['text'])}"


def _helper(turn: Turn, call: dict[str, Any], parent: str) -> Outcome:
    """The frames of a foreground agent: its task, one tool call of its own, and its report."""
    agent_id = f"a{parent[-8:]}"
    task = {"task_id": agent_id, "run_id": parent[-8:]}
    title = {"tool_use_id": parent, "description": call["description"], "subagent_type": call["subagent_type"]}
    child = {"parent_tool_use_id": parent, "agent_id": agent_id, "subagent_type": call["subagent_type"]}
    child["task_description"] = call["description"]

    def tell(subtype: str, fields: dict[str, Any]) -> None:
        turn.agent.send({"type": "system", "subtype": subtype} | task | fields)

    start = {"is_backgrounded": False, "spawn_depth": 1, "task_type": "local_agent", "prompt": call["prompt"]}
    tell("task_started", title | start)
    turn.subagents += 1
    turn.agent.send(frames.user([{"type": "text", "text": call["prompt"]}]) | child)
    turn.pause(STEP)
    usage = {"total_tokens": 120, "tool_uses": 1, "duration_ms": int(STEP * 1000)}
    tell("task_progress", title | {"description": "Running ls", "usage": usage, "last_tool_name": "Bash"})
    tool_id = f"toolu_demo{frames.new_uuid()[-12:]}"
    step = {"command": "ls", "description": "List the folder"}
    turn.block({"type": "tool_use", "id": tool_id, "name": "Bash", "input": step}, 40, child)
    turn.pause(STEP)
    names = sorted(name for name in os.listdir(turn.agent.cwd) if not name.startswith("."))
    meta = {"permission_decision": {"decision": "accept", "source": "config", "reason_type": "subcommandResults"}}
    turn.send_outcome(tool_id, Outcome("\n".join(names[:1000]), error=False), meta, child)
    turn.pause(STEP)
    report = f"Files and folders that I see here: {len(names)}."
    tell("task_updated", {"patch": {"status": "completed", "end_time": int(time.time() * 1000)}})
    ending = {"tool_use_id": parent, "status": "completed", "output_file": ""}
    tell("task_notification", ending | {"summary": report, "usage": usage})
    detail = {"status": "completed", "prompt": call["prompt"], "agentId": agent_id, "agentType": "general-purpose"}
    content = [{"type": "text", "text": report}]
    return Outcome(content, detail | {"content": content, "totalTokens": 120, "totalToolUseCount": 1})


def remember(_turn: Turn, _number: float | None) -> str:
    return "I will remember that. Ask me `what did I say`, now or when you come back."


def recall(turn: Turn, _number: float | None) -> str:
    if not turn.previous_prompts:
        return "You have not said anything before this."
    return f"Before this you said:\n\n{_quote(turn.previous_prompts[-1])}"


# Trouble, for tests and for the curious


def error(turn: Turn, _number: float | None) -> None:
    text = "API Error: 529 Overloaded. The API is at capacity — this is usually temporary. Try again in a moment."
    turn.api_error(529, "overloaded_error", "server_error", text)


def crash(turn: Turn, _number: float | None) -> None:
    turn.say("I am about to crash.")
    turn.tool("Bash", {"command": "ls", "description": "The last thing I do"})
    complain("demo agent: crashed on purpose")
    raise SystemExit(3)


def garbage(turn: Turn, _number: float | None) -> str:
    """Lines that are not JSON, not objects, or of kinds that nobody knows; then an ordinary answer."""
    for line in (
        "this is not JSON",
        "",
        '{"type": "assistant", "message": {',
        "[1, 2, 3]",
        "null",
        "\x1b[31mred\x1b[0m",
    ):
        turn.agent.wire.write(line.encode() + b"\n")
    turn.agent.send({"type": "weather_report", "sky": "clear"})
    turn.agent.send({"type": "system", "subtype": "mood_changed", "mood": "cheerful"})
    turn.block({"type": "hologram", "depth": 3}, 10)
    return "That was garbage; this is the answer."


def huge(turn: Turn, number: float | None) -> str:
    size = int(min(2.0 if number is None else number, MAX_MEGABYTES) * 1_000_000)
    call = {"file_path": os.path.join(turn.agent.cwd, "huge.txt")}
    turn.tool("Read", call, lambda _call, _id: Outcome("x" * size, {"type": "text"}))
    return f"That was one line of {size:,} bytes."


def silent(turn: Turn, _number: float | None) -> str:
    """Nothing until interrupted; once stdin has ended nobody can, so a minute later it gives up."""
    while not turn.agent.wire.eof:
        turn.wait_for_host()
    turn.pause(60)
    return "Nobody can interrupt me any more, so I end."


def half(turn: Turn, _number: float | None) -> None:
    turn.say("My next line breaks off.")
    line = json.dumps({"type": "result", "subtype": "success", "result": "you will never read this"})
    turn.agent.wire.write(line[: len(line) // 2].encode())
    raise SystemExit(1)


def lines(turn: Turn, number: float | None) -> str:
    """`number` frames as fast as they go: half of them tool calls, half their results."""
    count = int(min(number or 0, MAX_FRAMES))
    call = {"file_path": os.path.join(turn.agent.cwd, "line.txt")}
    facts = {"filePath": "line.txt", "content": "line", "numLines": 1, "startLine": 1, "totalLines": 1}
    for _ in range(count // 2):
        turn.tool("Read", call, lambda _call, _id: Outcome("1\tline", {"type": "text", "file": facts}))
    return f"That were {count} frames."


WORDS: dict[str, Script] = {
    "tools": tools,
    "permission": permission,
    "command": permission,
    "write": write,
    "edit": write,
    "plan": plan,
    "question": question,
    "choice": choice,
    "long": long,
    "slow": slow,
    "subagent": subagent,
    "remember": remember,
    "what did i say": recall,
    "error": error,
    "crash": crash,
    "garbage": garbage,
    "huge": huge,
    "silent": silent,
    "half": half,
    "lines": lines,
}
PATTERN = re.compile(
    r"\b(?:(?P<word>what\s+did\s+i\s+say|lines(?=\s+\d)|"
    + "|".join(word for word in WORDS if word not in ("lines", "what did i say"))
    + r")s?(?:\s+(?P<number>\d+(?:\.\d+)?))?)\b",
    re.IGNORECASE,
)
