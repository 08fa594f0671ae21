"""How Claude Code and the demo agent are started, and what the conversation knows about them before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from untether.backends import EngineBackend
from untether.model import EngineId, ResumeToken
from untether.runner import RunOptions
from untether.runners import claude
from untether.runners.claude.runner import ClaudeRunner
from untether.runners.claude.spawn import arguments
from untether.runners.demo import backend as demo
from untether.session import Prompt, StartFacts

PROMPT = Prompt("aaaaaaaa-0000-4000-8000-000000000001", "the secret plan")
SETTINGS = ["--settings", '{"useAutoModeDuringPlan": false}']
CONTROL = ["--output-format", "stream-json", "--input-format", "stream-json", "--verbose"]
ASKING = ["--permission-prompt-tool", "stdio", "--replay-user-messages"]


def build(backend: EngineBackend = claude.BACKEND, **config: Any) -> ClaudeRunner:
    runner = backend.build_runner(config, Path("/etc/untether.toml"))
    assert isinstance(runner, ClaudeRunner)
    return runner


def launched(runner: ClaudeRunner, environ: dict[str, str] | None = None, **facts: Any) -> Any:
    facts.setdefault("settings", runner.start_settings(RunOptions()))
    start = StartFacts("process-1", runner.engine, "/repo", **facts)
    return runner.launch(start, PROMPT, environ=environ or {"PATH": "/usr/bin"})


def test_control_mode() -> None:
    launch = launched(build())
    assert launch.argv == ("claude", *CONTROL, "--permission-mode", "default", *ASKING, *SETTINGS)
    assert launch.cwd == "/repo"
    assert launch.stdin
    assert PROMPT.text not in " ".join(launch.argv)


def test_the_one_shot_form() -> None:
    launch = launched(build(interactive=False))
    head = ("claude", "-p", "--output-format", "stream-json", "--verbose")
    assert launch.argv == (*head, "--permission-mode", "default", *SETTINGS)


def test_everything_that_can_be_configured() -> None:
    runner = build(
        command="/opt/claude",
        model="opus",
        permission_mode="acceptEdits",
        allowed_tools=("Bash(git log:*)", "Read"),
        extra_args=("--mcp-config", "/x.json"),
    )
    launch = launched(runner, resume=ResumeToken(EngineId("claude"), "-odd"))
    assert launch.argv == (
        "/opt/claude",
        *CONTROL,
        *("--mcp-config", "/x.json"),
        "--resume=-odd",
        *("--model", "opus"),
        *("--allowedTools", "Bash(git log:*),Read"),
        *("--permission-mode", "acceptEdits"),
        *ASKING,
        *SETTINGS,
    )


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({}, ["--permission-mode", "default"]),
        ({"permission_mode": "plan-auto"}, ["--permission-mode", "plan"]),
        ({"permission_mode": "manual"}, ["--permission-mode", "default"]),
        ({"dangerously_skip_permissions": True}, ["--dangerously-skip-permissions"]),
        (
            {"dangerously_skip_permissions": True, "permission_mode": "plan"},
            ["--permission-mode", "plan"],
        ),
        ({"reasoning": "high"}, ["--effort", "high", "--permission-mode", "default"]),
        ({"fork": True}, ["--fork-session", "--permission-mode", "default"]),
    ],
)
def test_flags(settings: dict[str, Any], flags: list[str]) -> None:
    assert arguments(settings) == [*CONTROL, *flags, *ASKING, *SETTINGS]


def test_continue_is_for_when_no_session_is_named() -> None:
    token = ResumeToken(EngineId("claude"), "x")
    assert "--continue" in arguments({}, continue_latest=True)
    assert "--continue" not in arguments({}, token, continue_latest=True)


def test_the_allowlist_is_sent_only_when_it_is_set() -> None:
    assert "--allowedTools" not in arguments({"allowed_tools": None})
    assert "--allowedTools" not in arguments({"allowed_tools": []})


@pytest.mark.parametrize("form", ["inline", "equals", "file"])
def test_settings_of_the_owner_are_joined_with_ours(form: str, tmp_path: Path) -> None:
    own = '{"model": "x", "useAutoModeDuringPlan": true}'
    file = tmp_path / "settings.json"
    file.write_text(own)
    extra = {"inline": ["--settings", own], "equals": [f"--settings={own}"], "file": ["--settings", str(file)]}[form]
    args = arguments({"extra_args": [*extra, "--debug"]})
    assert args.count("--settings") == 1
    assert json.loads(args[-1]) == {"model": "x", "useAutoModeDuringPlan": False}
    assert "--debug" in args


@pytest.mark.parametrize("text", ["{broken", "/no/such/file", "[]"])
def test_settings_that_cannot_be_read_are_refused_when_the_engine_is_loaded(text: str) -> None:
    with pytest.raises(ValueError, match="--settings among extra_args"):
        build(extra_args=("--settings", text))


def test_options_of_the_chat_go_before_the_configuration() -> None:
    runner = build(model="opus", permission_mode="plan")
    settings = runner.start_settings(RunOptions(model="haiku", permission_mode="default"))
    config_dir = settings.pop("config_dir")
    assert config_dir.endswith("/.claude")
    assert settings == {"model": "haiku", "permission_mode": "default", "interactive": True}
    assert runner.start_settings(RunOptions())["permission_mode"] == "plan"


def test_the_folder_of_plans_is_that_of_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    assert build().start_settings(RunOptions())["config_dir"] == "/home/ann/.claude"
    assert build(env={"HOME": "/srv"}).start_settings(RunOptions())["config_dir"] == "/srv/.claude"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/etc/claude")
    assert build().start_settings(RunOptions())["config_dir"] == "/etc/claude"
    assert build(env={"CLAUDE_CONFIG_DIR": "/x"}).start_settings(RunOptions())["config_dir"] == "/x"


def test_grants_go_into_the_settings_of_the_flag() -> None:
    grants = ["Bash(git push *)\nBash(echo 'a, b')", "WebFetch(domain:example.org)", "Bash(git push *)"]
    own = '{"permissions": {"allow": ["Read(//etc/**)"], "deny": ["Bash(rm *)"]}}'
    args = arguments({"grants": grants, "extra_args": ["--settings", own]})
    assert json.loads(args[-1])["permissions"] == {
        "allow": ["Read(//etc/**)", "Bash(git push *)", "Bash(echo 'a, b')", "WebFetch(domain:example.org)"],
        "deny": ["Bash(rm *)"],
    }
    assert "--allowedTools" not in args


def test_a_mode_that_does_not_exist_starts_nothing() -> None:
    with pytest.raises(ValueError, match="no permission mode 'bogus'"):
        arguments({"permission_mode": "bogus"})


def test_the_environment() -> None:
    environ = {
        "PATH": "/usr/bin",
        "ANTHROPIC_API_KEY": "sk-ant-0123456789",
        "ANTHROPIC_BASE_URL": "http://gateway",
        "CLAUDE_CONFIG_DIR": "/c",
        "UNTETHER__TRANSPORTS__TELEGRAM__BOT_TOKEN": "123:secret",
        "SOME_SECRET": "x",
    }
    env = launched(build(env={"EXTRA": "1", "CLAUDE_CONFIG_DIR": "/mine"}), environ).env
    assert env == {
        "PATH": "/usr/bin",
        "ANTHROPIC_BASE_URL": "http://gateway",
        "CLAUDE_CONFIG_DIR": "/mine",
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
        "EXTRA": "1",
        "UNTETHER_SESSION": "1",
        "UNTETHER_PROCESS": "process-1",
    }


def test_an_environment_that_was_made_for_the_agent_passes() -> None:
    environ = {"PATH": "/usr/bin", "ALLOWED_BY_THE_OWNER": "yes", "UNTETHER_PROCESS": "process-1"}
    assert launched(build(), environ).env["ALLOWED_BY_THE_OWNER"] == "yes"


def test_the_api_key_passes_when_it_is_wanted() -> None:
    environ = {"PATH": "/usr/bin", "ANTHROPIC_API_KEY": "sk-ant-0123456789"}
    assert launched(build(use_api_billing=True), environ).env["ANTHROPIC_API_KEY"] == "sk-ant-0123456789"
    own = launched(build(env={"ANTHROPIC_API_KEY": "mine"}), environ)
    assert own.env["ANTHROPIC_API_KEY"] == "mine"


def test_what_the_conversation_may_ask() -> None:
    assert build().capabilities.interactive_permissions
    assert build().interactive
    assert not build(interactive=False).interactive
    assert not build(interactive=False).capabilities.interactive_permissions
    assert claude.BACKEND.install_cmd == "npm install -g @anthropic-ai/claude-code"


# ----------------------------------------------------------------------------------------------------- resume lines


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("`claude --resume abc-1`", "abc-1"),
        ("claude --resume abc-1", "abc-1"),
        ("Claude -r abc-1", "abc-1"),
        ("  claude --resume=abc-1  ", "abc-1"),
        ("first\n`claude --resume one`\nthen\n`claude --resume two`", "two"),
        ("please run claude --resume abc now", None),
        ("claude --resume", None),
        ("codex resume abc", None),
        ("", None),
    ],
)
def test_resume_lines_are_found(text: str, token: str | None) -> None:
    found = build().extract_resume(text)
    assert (found.value if found else None) == token
    if token and "\n" not in text:
        assert build().is_resume_line(text)


def test_resume_lines_are_written() -> None:
    runner, other = build(), build(demo.BACKEND)
    token = ResumeToken(EngineId("claude"), "abc")
    assert runner.format_resume(token) == "`claude --resume abc`"
    assert runner.extract_resume(runner.format_resume(token)) == token
    assert other.format_resume(ResumeToken(EngineId("demo"), "abc")) == "`untether-demo --resume abc`"
    assert other.extract_resume("untether-demo --resume abc") == ResumeToken(EngineId("demo"), "abc")
    assert other.extract_resume("claude --resume abc") is None
    with pytest.raises(RuntimeError):
        other.format_resume(token)


# ------------------------------------------------------------------------------------------------------------- demo


def test_the_demo_agent_is_found_beside_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    monkeypatch.setattr("sys.executable", str(python))
    module = launched(build(demo.BACKEND))
    assert module.argv[:4] == (str(python), "-m", "untether.runners.demo.agent", "--output-format")
    script = python.with_name("untether-demo")
    script.touch()
    assert launched(build(demo.BACKEND)).argv[:2] == (str(script), "--output-format")
    assert launched(build(demo.BACKEND, command="/opt/demo")).argv[0] == "/opt/demo"


def test_the_demo_agent_is_an_engine_of_its_own() -> None:
    runner = build(demo.BACKEND)
    session = runner.session(StartFacts("p", "demo", "/repo"))
    step = session.begin(StartFacts("p", "demo", "/repo"), PROMPT, 0.0)
    assert len(step.writes) == 2
    line = b'{"type":"result","subtype":"success","is_error":false,"result":"Hi.","session_id":"s"}'
    started, completed = session.feed(line, 1.0).events
    assert (started.engine, completed.engine) == ("demo", "demo")
    assert demo.BACKEND.title == "Demo agent"
    assert demo.BACKEND.cli_cmd is None
