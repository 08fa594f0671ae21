"""Real ACP agents behind the bridge: their homes, scripted models for them, and one way to write the script for all.

A script is a list of what the model does, call by call: ``says``, ``runs``, ``fails``.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import fake_openai
from fake_anthropic import FakeAnthropic, Scenario
from fake_telegram import FakeTelegram
from tests.support.bridge import API_KEY, QUIET_CLAUDE, AsyncBridge, Bridge, make_project

Move = Mapping[str, Any]


def says(text: str) -> Move:
    return {"says": text}


def runs(command: str) -> Move:
    return {"runs": command}


def fails(status: int, message: str) -> Move:
    return {"fails": status, "message": message}


class Model(Protocol):
    """A scripted model server: its address, and what it was sent."""

    url: str

    def requests(self) -> list[str]:
        """The bodies of the requests, as text."""


@dataclass
class Logged:
    url: str
    log: Path

    def requests(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@contextmanager
def openai(moves: Sequence[Move], folder: Path) -> Iterator[Model]:
    """OpenAI's two protocols and the Gemini API."""

    def reply(move: Move) -> dict[str, Any]:
        if "fails" in move:
            return {"http_error": {"status": move["fails"], "message": move["message"]}, "times": -1}
        if "runs" in move:
            return {"steps": [{"tool": "$shell", "args": {"command": move["runs"], "escalate": "May I?"}}]}
        return {"steps": [{"text": move["says"]}]}

    # OpenCode and codex-acp ask a model for a title of each session.
    titles = [
        {"when": when, "times": -1, "steps": [{"text": "A title"}]}
        for when in ({"has_tools": False}, {"user": "no quotation marks"})
    ]
    scenario = {"name": "test", "replies": [*titles, *map(reply, moves)]}
    log = folder / "model.jsonl"
    server = fake_openai.serve(scenario, log=str(log))
    try:
        yield Logged(f"http://127.0.0.1:{server.server_address[1]}/v1", log)
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def anthropic(moves: Sequence[Move], folder: Path) -> Iterator[Model]:
    def turn(move: Move) -> dict[str, Any]:
        if "fails" in move:
            return {"error": {"status": move["fails"], "message": move["message"]}, "repeat": True}
        if "runs" in move:
            given = {"command": move["runs"], "description": "Do it"}
            return {"blocks": [{"tool_use": {"name": "Bash", "input": given}}]}
        return {"blocks": [{"text": move["says"]}]}

    script = {"name": "main", "turns": list(map(turn, moves)), "exhausted": "repeat_last"}
    log = folder / "model.jsonl"
    scenario = Scenario({"name": "test", "scripts": [script]}, {})
    with FakeAnthropic(scenario, record=log, full_record=True) as fake:
        yield Logged(fake.base_url, log)


@dataclass(frozen=True)
class RealAgent:
    """How a test runs one real agent. ``variables`` makes its home and says its environment."""

    agent: str
    cli: str
    model: Callable[[Sequence[Move], Path], Any]
    variables: Callable[[Path, str, Path], dict[str, str]]
    arguments: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    engine: str = "acp"

    def __str__(self) -> str:
        return self.agent


def _claude(home: Path, url: str, project: Path) -> dict[str, str]:
    config = home / ".claude"
    config.mkdir(parents=True)
    own = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": API_KEY, "CLAUDE_CONFIG_DIR": str(config)}
    return {**own, "CLAUDE_CODE_MAX_RETRIES": "1", **QUIET_CLAUDE}


def _gemini(home: Path, url: str, project: Path) -> dict[str, str]:
    config = home / ".gemini"
    config.mkdir(parents=True)
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"disableAutoUpdate": True, "disableUpdateNag": True, "maxAttempts": 1},
    }
    (config / "settings.json").write_text(json.dumps(settings))
    return {
        "GEMINI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": url.removesuffix("/v1"),
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_TELEMETRY_ENABLED": "false",
    }


def _codex(home: Path, url: str, project: Path) -> dict[str, str]:
    config = home / ".codex"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(
        f"""model = "gpt-5.5"
model_provider = "fake"
check_for_update_on_startup = false
[model_providers.fake]
name = "fake"
base_url = "{url}"
wire_api = "responses"
requires_openai_auth = false
request_max_retries = 0
stream_max_retries = 0
[features]
plugins = false
[analytics]
enabled = false
[projects."{project}"]
trust_level = "trusted"
"""
    )
    return {"CODEX_HOME": str(config)}


def _opencode(home: Path, url: str, project: Path) -> dict[str, str]:
    config = home / ".config" / "opencode"
    config.mkdir(parents=True)
    limit = {"context": 128000, "output": 8192}
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
        "model": "fake/fake-model",
        "small_model": "fake/fake-model",
        "enabled_providers": ["fake"],
        "provider": {
            "fake": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Fake",
                "options": {"baseURL": url, "apiKey": "none"},
                "models": {"fake-model": {"name": "Fake", "tool_call": True, "limit": limit}},
            }
        },
    }
    (config / "opencode.json").write_text(json.dumps(settings))
    folders = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
    quiet = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
    return {
        **{f"XDG_{name}_HOME": str(home / folder) for name, folder in folders.items()},
        **{f"OPENCODE_DISABLE_{name}": "1" for name in quiet},
        "OPENCODE_SERVER_PASSWORD": os.urandom(12).hex(),
        "npm_config_offline": "true",
        "npm_config_registry": "http://127.0.0.1:9/",
    }


AGENTS = (
    RealAgent("claude", "claude-agent-acp", anthropic, _claude),
    RealAgent("gemini", "gemini", openai, _gemini, ("--acp", "-m", "gemini-2.5-flash")),
    RealAgent("codex", "codex-acp", openai, _codex),
    RealAgent("opencode", "opencode", openai, _opencode, ("acp", "--port", "0")),
)

GEMINI_ONE_SHOT = RealAgent(
    "gemini", "gemini", openai, _gemini, settings={"model": "gemini-2.5-flash"}, engine="gemini"
)


@dataclass
class World:
    """A bridge with one real agent, a scripted model, and Ann in a chat."""

    telegram: Any
    model: Model
    ann: Any
    bridge: AsyncBridge
    project: Path

    def remembers(self, words: str) -> bool:
        """Whether the latest request that holds tools had these words in it, as a conversation that goes on does."""
        return any(words in request for request in self.model.requests()[-2:])

    async def until_running(self, word: str) -> None:
        await self.bridge.wait_until(lambda: self.left(word), f"a process with {word!r}", 30)

    def left(self, word: str) -> list[str]:
        """The command lines of the agent's processes that hold ``word``."""
        found = []
        for process in self.bridge.sync.descendants():
            try:
                line = " ".join(process.cmdline())
            except Exception:  # it ended while it was looked at
                continue
            if word in line:
                found.append(line)
        return found


@asynccontextmanager
async def world(tmp_path: Path, agent: RealAgent, program: Path, *moves: Move, **settings: str) -> AsyncIterator[World]:
    project = make_project(tmp_path / "project")
    home = tmp_path / "home"
    home.mkdir()
    with agent.model(moves, tmp_path) as model:
        async with FakeTelegram(limits="off") as telegram:
            ann = await telegram.ctl.user(first_name="Ann")
            env = agent.variables(home, model.url, project)
            path = _config(tmp_path / "state", telegram, ann.chat, agent, program, env, project, settings)
            around = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "SHELL": "/bin/bash"}
            around |= {"HOME": str(home), "PYTHONUNBUFFERED": "1"}
            async with AsyncBridge(Bridge(path, env=around)) as bridge:
                yield World(telegram, model, ann, bridge, project)


def _config(
    folder: Path,
    telegram: Any,
    chat: int,
    agent: RealAgent,
    program: Path,
    env: Mapping[str, str],
    project: Path,
    settings: Mapping[str, str],
) -> Path:
    toml = json.dumps
    command = [f"command = {toml([str(program), *agent.arguments])}"]
    table = ["[engines.acp]", 'type = "acp"', f"agent = {toml(agent.agent)}", *command]
    if agent.engine != "acp":
        table = [f"[engines.{agent.engine}]", f"command = {toml(str(program))}"]
    lines = [
        f"default_engine = {toml(agent.engine)}",
        'default_project = "demo"',
        "[transports.telegram]",
        f"bot_token = {toml(telegram.token)}",
        f"chat_id = {chat}",
        f"allowed_user_ids = [{chat}]",
        f"api_base_url = {toml(telegram.url)}",
        'session_mode = "chat"',
        "[transports.web]",
        "port = 0",
        *table,
        *(f"{name} = {toml(value)}" for name, value in {**agent.settings, **settings}.items()),
        "env = { " + ", ".join(f"{name} = {toml(value)}" for name, value in env.items()) + " }",
        "[projects.demo]",
        f"path = {toml(str(project))}",
    ]
    folder.mkdir(parents=True)
    path = folder / "untether.toml"
    path.write_text("\n".join(lines) + "\n")
    return path
