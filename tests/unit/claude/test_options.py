"""Flags, files and variables for the keys of the engine's table that have nothing to do with permissions."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from untether.model import ResumeToken
from untether.runner import RunOptions
from untether.runners import claude
from untether.runners.claude.options import flags, mcp_flags, variables
from untether.runners.claude.runner import ClaudeRunner
from untether.runners.claude.spawn import ladder
from untether.session import Prompt, StartFacts


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"fallback_model": "sonnet"}, ["--fallback-model", "sonnet"]),
        ({"max_turns": 3, "max_budget_usd": 0.5}, ["--max-turns", "3", "--max-budget-usd", "0.5"]),
        ({"add_dirs": ["/a", "/b c"]}, ["--add-dir", "/a", "--add-dir", "/b c"]),
        ({"partial_messages": True}, ["--include-partial-messages"]),
        ({"partial_messages": True, "interactive": False}, []),
        ({"reasoning": "high"}, ["--effort", "high"]),
        ({"agents": {"x": {}}, "preamble": "text"}, []),
    ],
)
def test_flags(settings: dict[str, Any], found: list[str]) -> None:
    assert flags(settings, resumed=False) == found


def test_a_resumed_session_keeps_the_name_of_its_model() -> None:
    facts = {"resume_model": "claude-opus-4-8[1m]"}
    assert flags(facts, resumed=True) == ["--model", "claude-opus-4-8[1m]"]
    assert flags(facts, resumed=False) == []
    assert flags({**facts, "model": "haiku"}, resumed=True) == ["--model", "haiku"]


def test_variables() -> None:
    assert variables({}) == {}
    assert variables({"checkpoints": True}) == {"CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "1"}
    assert variables({"disable_cron": True}) == {"CLAUDE_CODE_DISABLE_CRON": "1"}


def test_a_table_of_servers_is_a_file_for_this_user_only(tmp_path: Path) -> None:
    servers = {"db": {"command": "db-mcp", "env": {"TOKEN": "secret"}}}
    flag, path = mcp_flags(servers, tmp_path / "state")
    assert flag == "--mcp-config"
    assert json.loads(Path(path).read_text()) == {"mcpServers": servers}
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert mcp_flags({"mcpServers": servers}, tmp_path / "state") == [flag, path]
    assert [file.name for file in (tmp_path / "state").iterdir()] == [Path(path).name]
    assert mcp_flags("/own.json", tmp_path) == ["--mcp-config", "/own.json"]
    assert mcp_flags(None, tmp_path) == []


def test_the_secrets_of_servers_are_in_no_argument_and_in_no_fact(tmp_path: Path) -> None:
    servers = {"db": {"command": "db-mcp", "env": {"TOKEN": "s3cr3t"}}}
    runner = claude.BACKEND.build_runner({"mcp_config": servers}, tmp_path / "untether.toml")
    settings = runner.start_settings(RunOptions())
    start = StartFacts("p", "claude", "/repo", resume=ResumeToken(runner.engine, "x"), settings=settings)
    launch = runner.launch(start, Prompt("m", "go"), environ={"PATH": "/usr/bin"})
    assert "--mcp-config" in launch.argv
    assert "s3cr3t" not in " ".join(launch.argv) + json.dumps(settings)


def test_hook_events_are_asked_for_where_the_help_lists_them() -> None:
    runner = ClaudeRunner({})
    start = StartFacts("p", "claude", "/repo")
    assert "--include-hook-events" not in runner.launch(start, Prompt("m", "go"), environ={}).argv
    runner.help_text = "  --include-hook-events   Include all hook lifecycle events"
    assert "--include-hook-events" in runner.launch(start, Prompt("m", "go"), environ={}).argv


@pytest.mark.parametrize(
    ("version", "signals"),
    [
        ("2.1.197", ["SIGINT", "SIGTERM", "SIGKILL"]),
        ("2.1.332", ["SIGTERM", "SIGKILL"]),
        ("2.2.0", ["SIGTERM", "SIGKILL"]),
        ("", ["SIGINT", "SIGTERM", "SIGKILL"]),
    ],
)
def test_the_stop_ladder_depends_on_the_release(version: str, signals: list[str]) -> None:
    rungs = ladder(version)
    assert [rung.act for rung in rungs] == ["close_stdin", *signals]
    assert all(rung.wait <= 3 for rung in rungs)
    assert sum(rung.wait for rung in rungs) <= 10
