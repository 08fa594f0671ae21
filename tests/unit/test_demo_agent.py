"""The demo agent, driven as a process over pipes, frame by frame, as the Claude session drives it."""

from __future__ import annotations

import json
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Frame = dict[str, Any]
MODULE = "untether.runners.demo.agent"
CONTROL = ["--output-format", "stream-json", "--input-format", "stream-json", "--verbose"]
ASKING = [*CONTROL, "--permission-prompt-tool", "stdio"]
ONE_SHOT = ["-p", "--output-format", "stream-json", "--verbose"]
NO_AUTO = ["--settings", '{"useAutoModeDuringPlan": false}']
RECORDINGS = Path(__file__).parent.parent / "transcripts" / "claude-2.1.332"
TIMEOUT = 20.0
ONE, TWO, THREE, FOUR = (f"{n * 8}-0000-4000-8000-000000000000" for n in "1234")


class Host:
    """The other side of a demo agent: writes frames to its stdin and reads its lines in a thread."""

    def __init__(self, folder: Path, home: Path, args: list[str], **env: str) -> None:
        self.seen: list[Frame] = []
        self.lines: list[bytes] = []
        self._frames: queue.Queue[Frame | None] = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULE, *args],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "UNTETHER_DEMO_HOME": str(home), "UNTETHER_DEMO_SPEED": "0", **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            try:
                frame = json.loads(line)
            except ValueError:
                continue
            if isinstance(frame, dict):
                self._frames.put(frame)
        self._frames.put(None)

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def say(self, text: Any, uuid: str = "", **fields: Any) -> None:
        frame = {"type": "user", "message": {"role": "user", "content": text}, **fields}
        self.write(json.dumps(frame | ({"uuid": uuid} if uuid else {})))

    def control(self, subtype: str, **fields: Any) -> Frame:
        """Send a control request and give the `response` that answers it."""
        request = {"subtype": subtype, **fields}
        self.write(json.dumps({"type": "control_request", "request_id": f"r-{subtype}", "request": request}))
        answer: Frame = self.until(is_answer(f"r-{subtype}"))["response"]
        return answer

    def answer(self, request: Frame, **payload: Any) -> None:
        response = {"subtype": "success", "request_id": request["request_id"], "response": payload}
        self.write(json.dumps({"type": "control_response", "response": response}))

    def until(self, wanted: Callable[[Frame], bool]) -> Frame:
        """Read until a frame is as wanted, and give it; everything read is in `seen`."""
        while True:
            frame = self._frames.get(timeout=TIMEOUT)
            assert frame is not None, f"stdout ended; seen: {[kind(seen) for seen in self.seen]}"
            self.seen.append(frame)
            if wanted(frame):
                return frame

    def result(self) -> Frame:
        return self.until(is_type("result"))

    def request(self) -> Frame:
        return self.until(is_type("control_request"))

    def end(self, close: bool = True) -> tuple[int, str]:
        """Close stdin, read all that comes, and give the exit code and stderr."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        if close:
            self.process.stdin.close()
        while (frame := self._frames.get(timeout=TIMEOUT)) is not None:
            self.seen.append(frame)
        self._reader.join(TIMEOUT)
        errors = self.process.stderr.read().decode()
        return self.process.wait(TIMEOUT), errors

    def kinds(self) -> list[str]:
        return [kind(frame) for frame in self.seen]


Spawn = Callable[..., Host]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "README.md").write_text("# Hello\n\nWorld\n")
    return path


@pytest.fixture
def spawn(tmp_path: Path, folder: Path) -> Iterator[Spawn]:
    hosts: list[Host] = []

    def start(*args: str, base: list[str] = ASKING, **env: str) -> Host:
        hosts.append(Host(folder, tmp_path / "home", [*base, *args], **env))
        return hosts[-1]

    yield start
    for host in hosts:
        if host.process.poll() is None:
            host.process.kill()
            host.process.wait()
        for pipe in (host.process.stdin, host.process.stdout, host.process.stderr):
            if pipe is not None and not (pipe is host.process.stdin and pipe.closed):
                pipe.close()


def is_type(name: str) -> Callable[[Frame], bool]:
    return lambda frame: frame["type"] == name


def is_answer(request_id: str) -> Callable[[Frame], bool]:
    return lambda frame: frame["type"] == "control_response" and frame["response"]["request_id"] == request_id


def is_block(block: str) -> Callable[[Frame], bool]:
    return lambda frame: kind(frame).endswith(block)


def kind(frame: Frame) -> str:
    """What a frame is, in one word or two: `assistant text`, `user tool_result`, `system init`, `lifecycle queued`."""
    if frame["type"] in ("assistant", "user"):
        content = frame["message"]["content"]
        block = content[0]["type"] if isinstance(content, list) else "string"
        return f"{frame['type']}{' child' if frame.get('parent_tool_use_id') else ''} {block}"
    if frame["type"] == "command_lifecycle":
        return f"lifecycle {frame['state']}"
    return f"{frame['type']} {frame['subtype']}" if frame["type"] == "system" else str(frame["type"])


def tool_text(frame: Frame) -> str:
    return str(frame["message"]["content"][0]["content"])


def one_shot(folder: Path, home: Path, prompt: bytes, *args: str) -> tuple[int, list[Frame], str]:
    done = subprocess.run(
        [sys.executable, "-m", MODULE, *ONE_SHOT, *args],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "UNTETHER_DEMO_HOME": str(home), "UNTETHER_DEMO_SPEED": "0"},
        input=prompt,
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


# Starting


def test_says_nothing_before_stdin_speaks_and_ends_with_it(spawn: Spawn) -> None:
    host = spawn()
    assert host.end() == (0, "")
    assert host.lines == []


def test_version(folder: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", MODULE, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == "2.1.332 (Untether demo agent)\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([*ASKING, "--nope"], "error: unknown option '--nope'"),
        ([*ASKING, "--nope=3"], "error: unknown option '--nope'"),
        ([*ASKING, "--model"], "error: option '--model <value>' argument missing"),
        ([*ASKING, "--permission-mode", "bogus"], "argument 'bogus' is invalid. Allowed choices are acceptEdits,"),
        ([*ASKING, "--session-id", "not-a-uuid"], "Error: Invalid session ID. Must be a valid UUID."),
        ([*ASKING, "--resume=" + ONE, "--session-id", TWO], "--session-id can only be used with"),
        ([*ASKING, "--settings", "{oops"], "Error: Invalid JSON provided to --settings"),
        ([*ASKING, "--settings", "/no/such/file"], "Error: Settings file not found: /no/such/file"),
        (["--output-format", "stream-json", "--input-format", "stream-json"], "stream-json requires --verbose"),
        (["-p"], "needs --output-format stream-json"),
        (ONE_SHOT, "Error: Input must be provided either through stdin or as a prompt argument"),
    ],
)
def test_bad_command_lines_die_on_stderr(spawn: Spawn, args: list[str], message: str) -> None:
    host = spawn(base=args)
    code, errors = host.end()
    assert code == 1
    assert message in errors
    assert host.lines == []


def test_all_flags_that_untether_uses_are_accepted(spawn: Spawn) -> None:
    host = spawn(
        *["--permission-mode", "manual", "--model", "opus", "--session-id", ONE, "--append-system-prompt", "-x"],
        *["--allowedTools", "Read", "Bash(git *),Write", "--disallowedTools=Edit", *NO_AUTO, "--max-turns", "3"],
    )
    host.say("hello")
    host.result()
    init = host.seen[0]
    assert (init["permissionMode"], init["model"], init["session_id"]) == ("default", "opus", ONE)


def test_the_folder_works_alone_without_the_package(folder: Path, tmp_path: Path) -> None:
    import untether.runners.demo.agent as agent

    shutil.copytree(Path(agent.__file__).parent, tmp_path / "alone" / "demo")
    (tmp_path / "alone" / "demo" / "__init__.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-S", "-m", "demo.agent", *ONE_SHOT, "--", "hello"],
        cwd=tmp_path / "alone",
        env={"UNTETHER_DEMO_HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1])["subtype"] == "success"


# Plain turns


def test_plain_answer_tells_what_can_be_tried(spawn: Spawn) -> None:
    host = spawn()
    assert host.control("initialize")["response"]["current_permission_mode"] == "default"
    host.say("make me a sandwich", ONE)
    result = host.result()
    host.until(is_type("command_lifecycle"))
    assert host.kinds() == [
        "control_response",
        "lifecycle queued",
        "lifecycle started",
        "system init",
        "assistant text",
        "result",
        "lifecycle completed",
    ]
    assert "> make me a sandwich" in result["result"]
    for word in ("tools", "permission", "write", "plan", "question", "long", "slow", "subagent", "what did i say"):
        assert f"`{word}`" in result["result"].lower()
    assert result["user_message_uuids"] == host.seen[3]["user_message_uuids"] == [ONE]
    assert result["result_index"] == 0
    assert "msg_lifecycle_v1" in host.seen[3]["capabilities"]
    assert result["total_cost_usd"] > 0
    assert host.end() == (0, "")


def test_costs_are_sums_over_the_process(spawn: Spawn) -> None:
    host = spawn()
    totals, shares = [], []
    for _ in range(3):
        host.say("hello")
        result = host.result()
        totals.append(result["total_cost_usd"])
        shares.append(sum(usage["costUSD"] for usage in result["model_usage_since_last_result"].values()))
    assert totals == pytest.approx([sum(shares[:n]) for n in (1, 2, 3)])
    assert result["result_index"] == 2


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("a\u2028b\u0085c", "a\u2028b\u0085c"),
        ("nul \x00 and lone \ud800 surrogate", "nul \x00 and lone \ud800 surrogate"),
        ("z" * 100_000, "(100,000 characters in all.)"),
        ("", "Hello!"),
        ([{"type": "text", "text": "look"}, {"type": "image"}], "> look\n> [image]"),
        (7, "(no content)"),
        ("/nope --dash", "> /nope --dash"),
    ],
)
def test_odd_prompts_get_an_answer(spawn: Spawn, prompt: Any, said: str) -> None:
    host = spawn()
    host.say(prompt)
    assert said in host.result()["result"]
    assert host.end() == (0, "")


def test_a_blank_prompt_is_not_sent_to_the_model(spawn: Spawn) -> None:
    host = spawn()
    host.say("  \n", ONE)
    result = host.result()
    assert (result["num_turns"], result["is_error"]) == (0, False)
    assert "system informational" in host.kinds()


def test_tools_really_looks_around(spawn: Spawn, folder: Path) -> None:
    host = spawn()
    host.say("show me your tools")
    result = host.result()
    calls = [frame["message"]["content"][0] for frame in host.seen if kind(frame) == "assistant tool_use"]
    assert [(call["name"], call["input"].get("command")) for call in calls] == [
        ("Bash", "ls"),
        ("Read", None),
        ("Bash", "date"),
    ]
    outcomes = [tool_text(frame) for frame in host.seen if kind(frame) == "user tool_result"]
    assert outcomes[:2] == ["README.md", "1\t# Hello\n2\t\n3\tWorld\n4\t"]
    assert not any(frame["type"] == "control_request" for frame in host.seen)
    assert result["num_turns"] == 4


def test_long_answer(spawn: Spawn) -> None:
    host = spawn()
    host.say("a long one please")
    text = host.result()["result"]
    assert 8_500 < len(text) < 9_500
    assert text.count("```") == 14
    assert "| --- |" in text


# Permissions


def test_a_command_runs_only_when_allowed(spawn: Spawn, folder: Path) -> None:
    host = spawn()
    host.say("permission")
    request = host.request()["request"]
    assert request["tool_name"] == "Bash"
    assert request["input"]["command"] == "touch untether-demo.txt"
    assert [suggestion["type"] for suggestion in request["permission_suggestions"]] == [
        "addRules",
        "addDirectories",
        "setMode",
    ]
    assert not (folder / "untether-demo.txt").exists()
    host.answer(host.seen[-1], behavior="allow", updatedInput=request["input"])
    assert host.result()["permission_denials"] == []
    assert (folder / "untether-demo.txt").exists()


def test_the_deny_message_is_what_the_model_reads(spawn: Spawn, folder: Path) -> None:
    host = spawn()
    host.say("run a command")
    host.answer(host.request(), behavior="deny", message="Not on a Friday.")
    outcome = host.until(is_block("tool_result"))
    assert tool_text(outcome) == "Not on a Friday."
    assert outcome["tool_use_result"] == "Error: Not on a Friday."
    assert outcome["tool_result_meta"][0]["permission_decision"] == {"decision": "reject", "source": "user_reject"}
    result = host.result()
    assert "Not on a Friday." in result["result"]
    assert [denial["tool_name"] for denial in result["permission_denials"]] == ["Bash"]
    assert not (folder / "untether-demo.txt").exists()
    assert host.end()[0] == 0


def test_updated_input_replaces_the_command(spawn: Spawn) -> None:
    host = spawn()
    host.say("permission")
    host.answer(host.request(), behavior="allow", updatedInput={"command": "echo changed; exit 3"})
    assert tool_text(host.until(is_block("tool_result"))) == "Exit code 3\nchanged"


@pytest.mark.parametrize("payload", [{}, {"updatedInput": {}}])
def test_allow_without_input_means_unchanged(spawn: Spawn, folder: Path, payload: Frame) -> None:
    host = spawn()
    host.say("permission")
    host.answer(host.request(), behavior="allow", **payload)
    host.result()
    assert (folder / "untether-demo.txt").exists()


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ({"subtype": "success", "response": {"behavior": "deny"}}, "invalid permission result"),
        ({"subtype": "success", "response": {"behavior": "maybe"}}, "invalid permission result"),
        ({"subtype": "success"}, "invalid permission result"),
        ({"subtype": "error", "error": "bridge failed"}, "Tool permission request failed: Error: bridge failed"),
        ({"subtype": "success", "response": {"behavior": "allow", "updatedInput": {"command": None}}}, "Exit code 127"),
        ({"subtype": "success", "response": {"behavior": "allow", "updatedInput": {"x": 1}}}, "InputValidationError"),
    ],
)
def test_malformed_answers_are_errors_for_the_model(spawn: Spawn, folder: Path, response: Frame, text: str) -> None:
    host = spawn()
    host.say("permission")
    request_id = host.request()["request_id"]
    host.write(json.dumps({"type": "control_response", "response": response | {"request_id": request_id}}))
    assert text in tool_text(host.until(is_block("tool_result")))
    assert host.result()["is_error"] is False
    assert not (folder / "untether-demo.txt").exists()


@pytest.mark.parametrize(
    ("args", "asks", "runs"),
    [
        (["--permission-mode", "default"], True, False),
        (["--permission-mode", "acceptEdits"], False, True),
        (["--permission-mode", "bypassPermissions"], False, True),
        (["--permission-mode", "auto"], False, True),
        (["--permission-mode", "dontAsk"], False, False),
        (["--permission-mode", "plan"], False, False),
        (["--permission-mode", "plan", *NO_AUTO], True, False),
        (["--allowedTools", "Bash"], False, True),
        (["--allowedTools", "Bash(touch *)"], False, True),
        (["--allowedTools", "Bash(ls *)"], True, False),
        (["--settings", '{"permissions": {"allow": ["Bash(touch untether-demo.txt)"]}}'], False, True),
        (["--settings", '{"permissions": {"allow": ["Bash(touch \\\\(x\\\\))", 7]}}'], True, False),
        (["--permission-prompts", "none"], False, False),
    ],
)
def test_who_is_asked_for_a_command(spawn: Spawn, folder: Path, args: list[str], asks: bool, runs: bool) -> None:
    host = spawn(*args)
    host.say("permission")
    if asks:
        host.answer(host.request(), behavior="deny", message="no")
    host.result()
    assert ("control_request" in host.kinds()) == asks
    assert ("system permission_denied" in host.kinds()) == (not asks and not runs)
    assert (folder / "untether-demo.txt").exists() == runs


def test_write_and_edit_ask_and_really_do_it(spawn: Spawn, folder: Path) -> None:
    host = spawn()
    host.say("write something")
    for tool in ("Write", "Edit"):
        request = host.request()
        assert request["request"]["tool_name"] == tool
        assert request["request"]["description"] == "untether-demo.txt"
        host.answer(request, behavior="allow", updatedInput=request["request"]["input"])
    result = host.result()
    assert (folder / "untether-demo.txt").read_text() == "one\n2\nthree\n"
    edited = [frame for frame in host.seen if kind(frame) == "user tool_result"][-1]
    assert edited["tool_use_result"]["structuredPatch"][0]["lines"] == [" one", "-two", "+2", " three"]
    assert "```diff" in result["result"]


def test_a_granted_mode_is_told_before_the_tool_result_and_holds(spawn: Spawn) -> None:
    host = spawn()
    host.say("edit")
    request = host.request()
    grant = request["request"]["permission_suggestions"]
    host.answer(request, behavior="allow", updatedInput=request["request"]["input"], updatedPermissions=grant)
    host.result()
    after = host.kinds()[host.seen.index(request) + 1 :]
    assert after[:2] == ["system status", "user tool_result"]
    assert "control_request" not in after


def test_a_granted_rule_holds_for_the_session(spawn: Spawn) -> None:
    host = spawn()
    host.say("permission")
    request = host.request()
    grants = [request["request"]["permission_suggestions"][0], "nonsense", {"type": "setMode", "mode": "bogus"}]
    host.answer(request, behavior="allow", updatedPermissions=grants)
    host.result()
    host.say("permission")
    host.result()
    assert host.kinds().count("control_request") == 1
    assert "system status" not in host.kinds()


# Plan mode and questions


def test_a_plan_is_asked_for_and_carried_out(spawn: Spawn, folder: Path) -> None:
    host = spawn("--permission-mode", "plan", *NO_AUTO)
    host.say("plan")
    request = host.request()
    asked = request["request"]
    assert asked["tool_name"] == "ExitPlanMode"
    assert asked["requires_user_interaction"] is True
    assert asked["input"]["plan"] == Path(asked["input"]["planFilePath"]).read_text()
    plan = host.control("get_plan")["response"]
    assert plan == {"exists": True, "content": asked["input"]["plan"], "path": asked["input"]["planFilePath"]}
    host.answer(request, behavior="allow", updatedInput=asked["input"] | {"plan": "# Mine\n"})
    status = host.until(is_block("status"))
    assert status["permissionMode"] == "default"
    approved = tool_text(host.until(is_block("tool_result")))
    assert "## Approved Plan (edited by user):\n# Mine\n" in approved
    assert Path(asked["input"]["planFilePath"]).read_text() == "# Mine\n"
    host.answer(host.request(), behavior="deny", message="no file")
    assert "no file" in host.result()["result"]


def test_outside_plan_mode_it_enters_it_first_and_comes_back(spawn: Spawn, folder: Path) -> None:
    host = spawn("--permission-mode", "acceptEdits")
    host.say("make a plan")
    host.answer(host.request(), behavior="allow", updatedInput={})
    host.result()
    modes = [frame["permissionMode"] for frame in host.seen if kind(frame) == "system status"]
    assert modes == ["plan", "acceptEdits"]
    assert (folder / "untether-demo.txt").read_text() == "one\n2\nthree\n"


def test_a_denied_plan_is_outlined_then_revised_then_dropped(spawn: Spawn) -> None:
    host = spawn("--permission-mode", "plan")
    host.say("plan")
    host.answer(host.request(), behavior="deny", message="Show me an outline first.")
    assert "The outline" in host.until(is_block("assistant text"))["message"]["content"][0]["text"]
    host.answer(host.request(), behavior="deny", message="Add tests.")
    request = host.request()
    assert "4. As you said: Add tests." in request["request"]["input"]["plan"]
    host.answer(request, behavior="deny", message="Forget it.")
    result = host.result()
    assert "Forget it." in result["result"]
    assert len(result["permission_denials"]) == 3
    assert host.control("set_permission_mode", mode="plan")["response"] == {"mode": "plan"}  # it is still the mode


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (
            {"answers": {"Which database?": "SQLite", "Which extras?": "Docs, CI"}},
            'Your questions have been answered: "Which database?"="SQLite", "Which extras?"="Docs, CI". ',
        ),
        ({"answers": {"Which extras?": ["Docs", "CI"]}}, 'answered: "Which extras?"="Docs,CI". You can now'),
        ({"answers": {"Which database?": "DuckDB"}}, 'The user answered: "Which database?"="DuckDB". Read'),
        (
            {"answers": {"Which database?": "SQLite"}, "annotations": {"Which database?": {"notes": "for now"}}},
            'The user answered: "Which database?"="SQLite" notes: for now. Read',
        ),
        ({"response": "Ask me tomorrow"}, "The user responded: Ask me tomorrow"),
        ({}, "The user did not answer the questions."),
        ({"answers": "nonsense"}, "The user did not answer the questions."),
    ],
)
def test_questions(spawn: Spawn, payload: Frame, text: str) -> None:
    host = spawn("--permission-mode", "bypassPermissions")
    host.say("ask me a question")
    request = host.request()
    asked = request["request"]["input"]
    assert [question["multiSelect"] for question in asked["questions"]] == [False, True, False]
    host.answer(request, behavior="allow", updatedInput=asked | payload)
    assert text in tool_text(host.until(is_block("tool_result")))
    assert host.result()["is_error"] is False


# Control requests


def test_control_requests(spawn: Spawn) -> None:
    host = spawn()
    assert host.control("no_such_thing") == {
        "subtype": "error",
        "request_id": "r-no_such_thing",
        "error": "Unsupported control request subtype: no_such_thing",
        "error_code": "unsupported_request",
    }
    assert host.control("set_permission_mode", mode="bogus")["error_code"] == "invalid_mode"
    assert host.control("set_permission_mode")["error_code"] == "invalid_mode"
    assert host.control("set_permission_mode", mode="bypassPermissions")["error_code"] == "bypass_not_launched"
    assert host.control("set_permission_mode", mode="plan")["response"] == {"mode": "plan"}
    assert host.until(is_block("status"))["permissionMode"] == "plan"
    assert host.control("set_permission_mode", mode="manual")["response"] == {"mode": "default"}
    assert host.until(is_block("status"))["permissionMode"] == "default"
    assert host.control("set_model", model="demo-2")["response"] == {"model": "demo-2"}
    assert host.control("get_plan")["response"]["exists"] is False
    assert host.control("interrupt")["response"] == {"still_queued": []}
    assert host.control("cancel_async_message", message_uuid="nope")["response"] == {"cancelled": False}
    assert host.control("mcp_status")["response"] == {"mcpServers": []}
    assert host.control("get_context_usage")["response"]["maxTokens"] == 200_000
    host.write('{"type":"keep_alive"}')
    host.write('{"type":"something_new","x":1}')
    host.write("")
    host.say("hello")
    assert host.until(is_block("init"))["model"] == "demo-2"
    host.result()


def test_rules_of_the_settings_are_not_asked_for(spawn: Spawn, folder: Path) -> None:
    host = spawn("--settings", json.dumps({"permissions": {"allow": ["Bash(touch *)"]}}))
    host.say("permission")
    host.result()
    assert (folder / "untether-demo.txt").exists()


@pytest.mark.parametrize(
    ("denial", "said"),
    [("It must not be started yet.", "I do not start yet"), ("The user wants to talk.", "Let us talk about it")],
)
def test_a_plan_that_is_not_started_ends_the_turn(spawn: Spawn, denial: str, said: str) -> None:
    host = spawn("--permission-mode", "plan")
    host.say("plan")
    host.answer(host.request(), behavior="deny", message=denial)
    assert said in host.result()["result"]


def test_settings_can_change_at_run_time(spawn: Spawn) -> None:
    host = spawn("--permission-mode", "plan")
    host.control("apply_flag_settings", settings={"useAutoModeDuringPlan": False})
    host.say("permission")
    host.answer(host.request(), behavior="deny", message="no")
    host.result()


def test_state_events_when_asked_for(spawn: Spawn) -> None:
    host = spawn(CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS="1")
    host.say("permission", ONE)
    host.answer(host.request(), behavior="deny", message="no")
    host.until(lambda frame: frame.get("state") == "idle")
    states = [frame["state"] for frame in host.seen if frame.get("subtype") == "session_state_changed"]
    assert states == ["running", "requires_action", "running", "idle"]
    assert host.kinds()[-2] == "lifecycle completed"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("hello", "Error parsing streaming input line (type=unknown, 5 chars): SyntaxError"),
        ("null", "Error parsing streaming input line"),
        ('{"type":"user","message":null}', "Error parsing streaming input line (type=user"),
        (
            '{"type":"user","message":{"role":"assistant","content":"x"}}',
            "Expected message role 'user', got 'assistant'",
        ),
        ('{"type":"control_request","request_id":"1"}', "Error: Missing request on control_request"),
    ],
)
def test_malformed_input_is_fatal(spawn: Spawn, line: str, message: str) -> None:
    host = spawn()
    host.write(line)
    code, errors = host.end(close=False)
    assert code == 1
    assert message in errors
    assert host.lines == []


# Interrupting


def test_interrupt_withdraws_a_pending_permission(spawn: Spawn, folder: Path) -> None:
    host = spawn()
    host.say("permission", ONE)
    request = host.request()
    assert host.control("interrupt")["response"] == {"still_queued": []}
    result = host.result()
    assert host.kinds()[host.seen.index(request) + 1 :] == [
        "control_cancel_request",
        "control_response",
        "user tool_result",
        "user text",
        "result",
    ]
    assert host.seen[-5]["request_id"] == request["request_id"]
    assert (result["subtype"], result["terminal_reason"]) == ("error_during_execution", "aborted_tools")
    assert "result" not in result
    assert len(result["permission_denials"]) == 1
    host.answer(request, behavior="allow", updatedInput={})  # too late: nothing comes of it
    host.say("hello")
    assert host.result()["is_error"] is False
    assert not (folder / "untether-demo.txt").exists()


def test_deny_with_interrupt_ends_the_turn(spawn: Spawn) -> None:
    host = spawn()
    host.say("permission")
    host.answer(host.request(), behavior="deny", message="stop", interrupt=True)
    result = host.result()
    assert result["terminal_reason"] == "aborted_tools"
    assert "control_cancel_request" not in host.kinds()
    assert host.end()[0] == 1


def running_command(host: Host, folder: Path) -> int:
    """Have the agent run a command that does not end, and give its process id."""
    os.mkfifo(folder / "pid")
    fifo = os.open(folder / "pid", os.O_RDONLY | os.O_NONBLOCK)
    host.say("permission", ONE)
    host.answer(host.request(), behavior="allow", updatedInput={"command": "echo $$ > pid; sleep 300; echo never"})
    assert select.select([fifo], [], [], TIMEOUT)[0]
    return int(os.read(fifo, 100))


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_interrupt_ends_a_running_command(spawn: Spawn, folder: Path) -> None:
    host = spawn()
    pid = running_command(host, folder)
    host.control("interrupt")
    outcome = host.until(is_block("tool_result"))
    assert outcome["tool_use_result"] == "User rejected tool use"
    assert host.result()["terminal_reason"] == "aborted_tools"
    assert is_gone(pid)


def test_sigterm_kills_the_command_and_leaves_without_a_result(spawn: Spawn, folder: Path) -> None:
    host = spawn()
    pid = running_command(host, folder)
    host.process.send_signal(signal.SIGTERM)
    assert host.end(close=False) == (143, "")
    assert tool_text(host.seen[-1]) == "Exit code 137"
    assert is_gone(pid)


def test_sigint_ends_as_an_interrupt_and_exits_with_0(spawn: Spawn, folder: Path) -> None:
    host = spawn()
    pid = running_command(host, folder)
    host.process.send_signal(signal.SIGINT)
    assert host.end(close=False) == (0, "")
    assert host.kinds()[-4:] == ["user tool_result", "user text", "result", "lifecycle cancelled"]
    assert is_gone(pid)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 0)])
def test_signals_while_idle(spawn: Spawn, number: signal.Signals, code: int) -> None:
    host = spawn()
    host.control("initialize")
    host.process.send_signal(number)
    assert host.end(close=False) == (code, "")


def test_sigterm_while_nobody_reads(tmp_path: Path, folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE, *ASKING],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "UNTETHER_DEMO_HOME": str(tmp_path / "home")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"type":"user","message":{"role":"user","content":"huge 4"}}\n')
        process.stdin.flush()
        assert process.stdout.read(1) == b"{"  # it writes, into a pipe that now stays full
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 143


def test_silent_until_interrupted(spawn: Spawn) -> None:
    host = spawn()
    host.say("silent", ONE)
    host.until(is_block("init"))
    host.control("interrupt")
    result = host.result()
    assert host.kinds()[3:] == ["control_response", "user text", "result"]
    assert result["terminal_reason"] == "aborted_streaming"
    assert host.seen[-2]["message"]["content"][0]["text"] == "[Request interrupted by user]"


def test_interrupt_tells_what_stays_queued_and_it_runs_next(spawn: Spawn) -> None:
    host = spawn()
    host.say("silent", ONE)
    host.until(is_block("init"))
    host.say("hello", TWO)
    assert host.control("interrupt")["response"] == {"still_queued": [TWO]}
    assert host.result()["is_error"] is True
    assert host.result()["user_message_uuids"] == [TWO]


def test_interrupt_can_cancel_what_is_queued(spawn: Spawn) -> None:
    host = spawn()
    host.say("silent", ONE)
    host.until(is_block("init"))
    host.say("hello", TWO)
    host.say("no uuid")
    assert host.control("interrupt", cancel_queued=True)["response"] == {"still_queued": [], "cancelled": [TWO]}
    host.result()
    code, _ = host.end()
    assert code == 1
    assert [frame["command_uuid"] for frame in host.seen if kind(frame) == "lifecycle cancelled"] == [TWO, ONE]
    assert host.kinds().count("result") == 1


def test_slow_takes_its_time_and_is_stopped_at_once(spawn: Spawn) -> None:
    host = spawn(UNTETHER_DEMO_SPEED="1")
    host.say("slow 600")
    call = host.until(is_block("tool_use"))["message"]["content"][0]
    assert "step $i of 600" in call["input"]["command"]
    host.control("interrupt")
    assert host.result()["terminal_reason"] == "aborted_tools"


# Messages while a turn runs


def test_a_message_during_a_tool_is_folded_in_at_its_end(spawn: Spawn) -> None:
    host = spawn("--replay-user-messages")
    host.say("permission", ONE)
    request = host.request()
    host.say("and hurry", TWO)
    host.until(is_block("queued"))
    host.answer(request, behavior="allow", updatedInput={"command": "true"})
    result = host.result()
    host.until(is_block("completed"))
    assert host.kinds()[host.seen.index(request) + 1 :] == [
        "lifecycle queued",
        "user tool_result",
        "user string",
        "lifecycle started",
        "assistant text",
        "lifecycle completed",
        "result",
        "lifecycle completed",
    ]
    assert result["user_message_uuids"] == [ONE, TWO]
    assert result["user_message_uuid"] == ONE
    assert "> and hurry" in result["result"]
    assert [frame["command_uuid"] for frame in host.seen if kind(frame) == "lifecycle completed"] == [TWO, ONE]


def test_messages_that_came_too_late_are_merged_into_the_next_turn(spawn: Spawn) -> None:
    host = spawn()
    host.say("permission", ONE)
    request = host.request()
    host.say("first", TWO, priority="later")
    host.say("second", THREE, priority="later")
    host.answer(request, behavior="deny", message="no")
    assert host.result()["user_message_uuids"] == [ONE]
    merged = host.result()
    assert merged["user_message_uuids"] == [TWO, THREE]
    assert merged["user_message_uuid"] == THREE
    assert "> first\n> second" in merged["result"]


def test_an_urgent_message_cuts_the_model_short_and_goes_first(spawn: Spawn) -> None:
    host = spawn()
    host.say("silent", ONE)
    host.until(is_block("init"))
    host.say("hello", TWO)
    host.say("hey", THREE, priority="now")
    cut = host.result()
    assert (cut["is_error"], cut["terminal_reason"], cut["stop_reason"]) == (False, "aborted_streaming", None)
    assert [host.result()["user_message_uuids"] for _ in range(2)] == [[THREE], [TWO]]


def test_a_queued_message_can_be_withdrawn(spawn: Spawn) -> None:
    host = spawn()
    host.say("permission", ONE)
    request = host.request()
    host.say("never mind", TWO)
    answer = host.control("cancel_async_message", message_uuid=TWO)
    assert answer["response"] == {"cancelled": True, "message_uuid": TWO}
    host.answer(request, behavior="deny", message="no")
    host.result()
    host.end()
    assert host.kinds().count("result") == 1
    assert [frame["state"] for frame in host.seen if frame.get("command_uuid") == TWO] == ["queued", "cancelled"]


def test_a_repeated_uuid_is_dropped(spawn: Spawn) -> None:
    host = spawn()
    host.say("hello", ONE)
    host.say("hello", ONE)
    host.result()
    host.end()
    assert host.kinds().count("result") == 1


# The end of stdin


def test_the_turn_is_finished_when_stdin_ends(spawn: Spawn) -> None:
    host = spawn()
    host.say("tools")
    assert host.end()[0] == 0
    assert host.kinds()[-1] == "result"
    assert host.seen[-1]["num_turns"] == 4


def test_a_last_line_without_newline_counts(spawn: Spawn) -> None:
    host = spawn()
    assert host.process.stdin is not None
    host.process.stdin.write(b'{"type":"user","message":{"role":"user","content":"hello"}}')
    assert host.end()[0] == 0
    assert host.kinds()[-1] == "result"


@pytest.mark.parametrize("after_request", [True, False])
def test_a_permission_that_nobody_can_answer_is_denied(spawn: Spawn, folder: Path, after_request: bool) -> None:
    host = spawn()
    host.say("permission")
    if after_request:
        host.request()
    assert host.end()[0] == 0
    refusal = next(frame for frame in host.seen if kind(frame) == "user tool_result")
    assert tool_text(refusal).startswith("Tool permission request failed: AbortError:")
    assert host.seen[-1]["is_error"] is False
    assert not (folder / "untether-demo.txt").exists()


# Sessions


def test_resume_remembers_what_was_said(spawn: Spawn) -> None:
    first = spawn()
    first.say("remember the number 42")
    before = first.result()
    first.end()
    second = spawn(f"--resume={before['session_id']}")
    second.say("what did I say?")
    after = second.result()
    assert after["session_id"] == before["session_id"]
    assert "> remember the number 42" in after["result"]
    assert after["total_cost_usd"] > before["total_cost_usd"]  # as in 2.1.332, the totals go on
    assert after["result_index"] == 0


def test_resume_after_a_kill_knows_the_prompt_that_was_taken(spawn: Spawn) -> None:
    first = spawn("--session-id", ONE)
    first.say("silent", TWO)
    first.until(is_block("init"))
    first.control("initialize")  # answered while it waits, so the prompt is stored by now
    first.process.kill()
    second = spawn(f"--resume={ONE}")
    second.say("silent", TWO)  # taken before: no turn, only its end is told
    assert second.until(is_type("command_lifecycle"))["state"] == "completed"
    second.say("what did i say", THREE)
    assert "> silent" in second.result()["result"]


@pytest.mark.parametrize(
    ("session_id", "text"), [(FOUR, "No conversation found with session ID: " + FOUR), ("x", "Error:")]
)
def test_resume_of_an_unknown_id(spawn: Spawn, session_id: str, text: str) -> None:
    host = spawn(f"--resume={session_id}")
    host.say("hello")
    result = host.result()
    code, errors = host.end(close=False)
    assert (result["subtype"], result["is_error"], result["num_turns"]) == ("error_during_execution", True, 0)
    assert result["errors"][0].startswith(text)
    assert errors.startswith(text)
    assert (code, len(host.seen)) == (1, 1)


def test_a_session_id_can_be_used_once_and_forked(spawn: Spawn) -> None:
    first = spawn("--session-id", ONE)
    first.say("remember me")
    first.result()
    first.end()
    assert spawn("--session-id", ONE).end() == (1, f"Error: Session ID {ONE} is already in use.\n")
    fork = spawn(f"--resume={ONE}", "--fork-session", "--session-id", TWO)
    fork.say("what did I say")
    result = fork.result()
    assert result["session_id"] == TWO
    assert "> remember me" in result["result"]


def test_continue_takes_the_last_conversation_of_the_folder(spawn: Spawn) -> None:
    first = spawn()
    first.say("remember me")
    before = first.result()
    first.end()
    second = spawn("--continue")
    second.say("what did I say")
    assert second.result()["session_id"] == before["session_id"]


def test_memory_that_cannot_be_written_does_not_matter(spawn: Spawn, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file is in the way")
    host = spawn()
    host.say("hello")
    assert host.result()["is_error"] is False


# One-shot


def test_one_shot_reads_the_prompt_from_stdin(folder: Path, tmp_path: Path) -> None:
    code, seen, errors = one_shot(folder, tmp_path / "home", b"- dash first\n")
    assert (code, errors) == (0, "")
    assert [kind(frame) for frame in seen] == ["system init", "assistant text", "result"]
    assert "> - dash first\n\n" in seen[-1]["result"]
    code, again, _ = one_shot(folder, tmp_path / "home", b"what did I say", f"--resume={seen[0]['session_id']}")
    assert "> - dash first" in again[-1]["result"]


@pytest.mark.parametrize(("prompt", "said"), [(b"plan", "no way to ask"), (b"question", "no way to ask")])
def test_one_shot_cannot_ask(folder: Path, tmp_path: Path, prompt: bytes, said: str) -> None:
    _, seen, _ = one_shot(folder, tmp_path / "home", prompt)
    assert "ExitPlanMode" not in seen[0]["tools"]
    assert said in seen[-1]["result"]


def test_one_shot_refuses_what_would_ask(folder: Path, tmp_path: Path) -> None:
    code, seen, _ = one_shot(folder, tmp_path / "home", b"permission")
    denied = next(frame for frame in seen if kind(frame) == "system permission_denied")
    assert denied["message"] == "This command requires approval"
    assert (code, len(seen[-1]["permission_denials"])) == (0, 1)
    assert not (folder / "untether-demo.txt").exists()


# Trouble


def test_error_is_a_failed_api_call(spawn: Spawn) -> None:
    host = spawn()
    host.say("error", ONE)
    result = host.result()
    assert host.seen[-2]["message"]["model"] == "<synthetic>"
    assert (result["subtype"], result["is_error"], result["terminal_reason"]) == ("success", True, "api_error")
    assert result["api_error_status"] == 529
    host.say("hello")
    assert host.result()["is_error"] is False
    host.say("error")
    host.result()
    assert host.end()[0] == 1


def test_crash_dies_in_mid_turn(spawn: Spawn) -> None:
    host = spawn()
    host.say("crash")
    assert host.end(close=False) == (3, "demo agent: crashed on purpose\n")
    assert host.kinds() == ["system init", "assistant text", "assistant tool_use", "user tool_result"]


def test_half_a_line_is_the_last_thing_it_prints(spawn: Spawn) -> None:
    host = spawn()
    host.say("half")
    assert host.end(close=False)[0] == 1
    assert not host.lines[-1].endswith(b"\n")
    assert host.lines[-1].startswith(b'{"type": "result"')


def test_garbage_comes_before_an_ordinary_answer(spawn: Spawn) -> None:
    host = spawn()
    host.say("garbage")
    assert host.result()["result"] == "That was garbage; this is the answer."
    assert b"this is not JSON\n" in host.lines
    assert "weather_report" in host.kinds()
    assert "system mood_changed" in host.kinds()
    assert "assistant hologram" in host.kinds()


@pytest.mark.parametrize(("prompt", "size"), [("huge", 2_000_000), ("huge 5", 5_000_000)])
def test_huge_lines(spawn: Spawn, prompt: str, size: int) -> None:
    host = spawn()
    host.say(prompt)
    assert len(host.result()["result"]) < 100
    assert size < max(map(len, host.lines)) < size + 2_000


def test_many_lines(spawn: Spawn) -> None:
    host = spawn()
    host.say("lines 500")
    host.result()
    assert sum(kind(frame) in ("assistant tool_use", "user tool_result") for frame in host.seen) == 500


def test_subagent_frames_belong_to_its_call(spawn: Spawn) -> None:
    host = spawn()
    host.say("subagent")
    result = host.result()
    assert host.kinds()[1:-1] == [
        "assistant text",
        "assistant tool_use",
        "system task_started",
        "user child text",
        "system task_progress",
        "assistant child tool_use",
        "user child tool_result",
        "system task_updated",
        "system task_notification",
        "user tool_result",
        "assistant text",
    ]
    call = host.seen[2]["message"]["content"][0]
    assert call["name"] == "Agent"
    assert {frame["parent_tool_use_id"] for frame in host.seen if "child" in kind(frame)} == {call["id"]}
    assert result["subagent_stats"]["by_type"] == {"general-purpose": 1}


@pytest.mark.parametrize(
    ("prompt", "word", "number"),
    [
        ("slow 3", "slow", 3.0),
        ("Please be SLOW", "slow", None),
        ("write a plan", "write", None),
        ("what  did I\nsay about the plan?", "recall", None),
        ("remember the command", "remember", None),
        ("Which questions?", "question", None),
        ("lines 200", "lines", 200.0),
        ("read between the lines", "plain", None),
        ("slowly, a longer belongings crashes", "plain", None),
        ("explain the error", "error", None),
        ("huge 0.5", "huge", 0.5),
    ],
)
def test_the_first_word_chooses(prompt: str, word: str, number: float | None) -> None:
    from untether.runners.demo import script

    chosen, found = script.choose(prompt)
    assert (chosen.__name__, found) == (word, number)


# The shapes of the frames, against the recordings of the real CLI

LEFT_OUT = {  # about remote control, styles and hooks, which the demo agent has not got
    "initialize": {
        *["feedback_mode", "hooks_when_unanswered_kept", "ide_rc_auto_enable_gate", "other_hook_ask_outranks_host"],
        *["remote_control_auto_connect_default", "remote_control_auto_enable", "remote_control_auto_on_by_default"],
        *["remote_control_available", "user_output_styles_dir"],
    }
}
UUIDS = {"user_message_uuid", "user_message_uuids"}  # with every message that has a uuid; few recordings have them
UNRECORDED = {"result error_during_execution aborted_tools"}
PARTS = ("message", "request", "response", "usage", "patch", "subagent_stats")


def shapes(frames: list[Frame]) -> dict[str, list[set[str]]]:
    """By kind of frame, and of the objects in it that have a shape of their own: the sets of keys that were seen."""
    found: dict[str, list[set[str]]] = {}
    for frame in frames:
        name = kind(frame)
        if name == "result":
            name += f" {frame['subtype']} {frame.get('terminal_reason')}"
        elif name == "control_request":
            name += f" {frame['request']['subtype']} {frame['request'].get('tool_name')}"
        elif name == "control_response":
            payload = frame["response"].get("response")
            if isinstance(payload, dict) and "pid" in payload:
                found.setdefault("initialize", []).append(set(payload))
            name += f" {frame['response']['subtype']}"
        elif frame.get("isReplay"):
            name += " replay"
        found.setdefault(name, []).append(set(frame))
        for part in PARTS:
            if isinstance(frame.get(part), dict):
                found.setdefault(f"{name}.{part}", []).append(set(frame[part]))
        for usage in (frame.get("modelUsage") or {}).values():
            found.setdefault("modelUsage", []).append(set(usage))
    return found


def recorded() -> list[Frame]:
    rows = [
        json.loads(line) for path in sorted(RECORDINGS.glob("*.jsonl")) for line in path.read_text().split("\n") if line
    ]
    return [row["frame"] for row in rows if row["dir"] == "out" and "frame" in row]


def everything(spawn: Spawn) -> list[Frame]:
    """The frames of a host that tries everything."""
    host = spawn("--replay-user-messages", CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS="1")
    host.control("initialize")
    host.control("set_permission_mode", mode="bogus")
    for word in ("hello", "tools", "subagent", "error", "question", "write", "  "):
        host.say(word, os.urandom(4).hex() + ONE[8:])
        while (frame := host.until(lambda frame: frame["type"] in ("control_request", "result")))["type"] != "result":
            host.answer(frame, behavior="allow", updatedInput=frame["request"]["input"])
    host.say("permission", TWO)
    host.answer(host.request(), behavior="deny", message="no")
    host.result()
    host.control("set_permission_mode", mode="plan")
    host.say("permission")
    host.result()
    host.say("plan", THREE)
    host.control("cancel_async_message", message_uuid="nope")
    host.answer(host.request(), behavior="allow", updatedInput={})
    host.request()
    host.say("queued", FOUR)
    host.control("interrupt", cancel_queued=True)
    host.result()
    host.control("set_permission_mode", mode="default")
    host.say("silent")
    host.until(is_block("init"))
    host.control("interrupt")
    host.result()
    host.end()
    return host.seen


def test_frames_have_the_shapes_of_the_recordings(spawn: Spawn) -> None:
    real, demo = shapes(recorded()), shapes(everything(spawn))
    assert {name for name in demo if name not in real and "." not in name} == UNRECORDED
    for name in sorted(set(real) & set(demo)):
        always, ever = set.intersection(*real[name]), set.union(*real[name]) | UUIDS
        for keys in demo[name]:
            assert always - LEFT_OUT.get(name, set()) <= keys, f"{name} lacks {always - keys}"
            assert keys <= ever, f"{name} has {keys - ever}, which the real one never has"
