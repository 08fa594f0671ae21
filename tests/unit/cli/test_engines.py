"""The engines of a configuration: tables with a `type` make engines of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from untether.backends import LoadError
from untether.cli import engines as engine_list
from untether.conversation.engines import Engines
from untether.settings import ConfigError, load

ENVIRON = {"PATH": "/usr/bin:/bin"}


def built(tmp_path: Path, *lines: str) -> tuple[Engines, list[LoadError]]:
    path = tmp_path / "untether.toml"
    path.write_text("\n".join(lines) + "\n")
    return engine_list.build(load(path, ENVIRON), ENVIRON)


def acp(id: str, **table: Any) -> list[str]:
    return [f"[engines.{id}]", 'type = "acp"', *(f"{name} = {json.dumps(value)}" for name, value in table.items())]


def test_any_command(tmp_path: Path) -> None:
    engines, errors = built(tmp_path, 'default_engine = "goose"', *acp("goose", command=["sh", "acp"]))
    engine = engines.get("goose")
    assert errors == []
    assert engine is not None
    assert (engine.path, engine.backend.title, engine.label) == ("/usr/bin/sh", "goose", "goose")
    assert engine.runner.interactive
    assert engine.runner.capabilities.interactive_permissions


@pytest.mark.parametrize(
    ("id", "table", "title", "command"),
    [
        ("gemini", {}, "Gemini CLI", "gemini"),
        ("codex_acp", {}, "Codex (ACP)", "codex-acp"),
        ("mine", {"agent": "claude"}, "Claude Code (ACP)", "claude-agent-acp"),
        ("mine", {"command": ["npx", "/opt/bin/opencode", "acp"]}, "OpenCode (ACP)", "npx"),
    ],
)
def test_ready_made_entries(tmp_path: Path, id: str, table: dict[str, Any], title: str, command: str) -> None:
    engines, errors = built(tmp_path, *acp(id, **table))
    engine = engines.get(id)
    assert errors == []
    assert engine is not None
    assert (engine.backend.title, engine.backend.cli_cmd) == (title, command)
    assert engine.backend.install_cmd is not None
    assert engine.backend.install_cmd.startswith("npm install -g")


@pytest.mark.parametrize(
    ("id", "table", "told"),
    [
        ("goose", {}, 'engines.goose.command is required, such as command = ["goose", "acp"].'),
        ("goose", {"command": []}, "engines.goose.command must be a list of texts"),
        ("goose", {"command": ["x"], "comand": 1}, "engines.goose.comand is not a known key."),
        (
            "goose",
            {"agent": "gemni"},
            "engines.goose.agent names no known agent. Known: gemini, codex, claude, opencode",
        ),
        ("goose", {"command": ["x"], "mode": 1}, "engines.goose.mode must be text."),
        ("status", {"command": ["x"]}, "'status' cannot be an engine id: it is a command."),
        ("gemini", {"command": 3}, "engines.gemini.command must be a list of texts"),
    ],
)
def test_a_wrong_table_is_told_and_makes_no_engine(tmp_path: Path, id: str, table: dict[str, Any], told: str) -> None:
    engines, errors = built(tmp_path, *acp(id, **table))
    assert engines.get(id) is None
    [error] = [error for error in errors if error.id == id]
    assert error.message.startswith(told)


def test_an_unknown_type_and_an_unknown_default(tmp_path: Path) -> None:
    _, errors = built(tmp_path, "[engines.goose]", 'type = "mcp"')
    assert errors[-1].message == "engines.goose.type is not known. Known: acp."
    with pytest.raises(ConfigError, match="Did you mean goose"):
        built(tmp_path, 'default_engine = "gose"', *acp("goose", command=["sh"]))


def test_the_resume_line_names_the_engine(tmp_path: Path) -> None:
    engines, _ = built(tmp_path, *acp("goose", command=["sh"]))
    engine = engines.get("goose")
    assert engine is not None
    token = engine.runner.extract_resume("`goose --resume abc-1`")
    assert token is not None
    assert engine.runner.format_resume(token) == "`goose --resume abc-1`"


def test_variables_of_the_agent_pass_and_its_own_come_on_top(tmp_path: Path) -> None:
    from untether.session import Prompt, StartFacts

    engines, _ = built(tmp_path, *acp("mine", command=["/opt/my-agent"]), 'env = { MY_AGENT_X = "2" }')
    engine = engines.get("mine")
    assert engine is not None
    environ = {"MY_AGENT_X": "1", "MY_AGENT_Y": "1", "OTHER": "1", "PATH": "/bin"}
    launch = engine.runner.launch(StartFacts("p", "mine", "/repo"), Prompt("m", "secret"), environ=environ)
    assert launch.argv == ("/opt/my-agent",)
    assert {name: launch.env.get(name) for name in environ} == {
        "MY_AGENT_X": "2",
        "MY_AGENT_Y": "1",
        "OTHER": None,
        "PATH": "/bin",
    }
