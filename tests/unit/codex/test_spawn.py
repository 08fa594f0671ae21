"""How Codex is started: the native program, its arguments and environment, and what the owner may add."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from untether.backends import EngineConfig, Login
from untether.model import ResumeToken
from untether.process.environment import agent_environment
from untether.runner_context import RunOptions
from untether.runners.codex import BACKEND, CodexRunner
from untether.runners.codex.drift import Surface, compare, read
from untether.runners.codex.policies import APP_SERVER, EXEC
from untether.runners.codex.spawn import ENV_NAMES, LADDER, native_program
from untether.schemas import codex_known as known
from untether.session import Prompt, StartFacts

PROMPT = Prompt("aaaaaaaa-0000-4000-8000-000000000001", "do it")


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def npm(tmp_path: Path) -> Path:
    """A launcher as npm installs it; returns the folder that is on PATH."""
    launcher = program(tmp_path / "lib/node_modules/@openai/codex/bin/codex.js")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/codex").symlink_to(launcher)
    return tmp_path / "bin"


@pytest.mark.parametrize("place", ["@openai/codex-linux-x64", "@openai/codex/node_modules/@openai/codex-linux-x64"])
def test_the_native_program_is_started_and_not_its_launcher(npm: Path, place: str) -> None:
    vendor = npm.parent / "lib/node_modules" / place / "vendor/x86_64-unknown-linux-musl"
    native = program(vendor / "bin/codex")
    (vendor / "codex-path").mkdir()
    assert native_program("codex", str(npm)) == (str(native), str(vendor / "codex-path"))
    assert native_program(str(npm / "codex"), "/nowhere") == (str(native), str(vendor / "codex-path"))


def test_a_launcher_without_its_native_program_stays(npm: Path) -> None:
    assert native_program("codex", str(npm)) == ("codex",)
    assert native_program("codex", "/nowhere") == ("codex",)


def launched(config: EngineConfig, resume: bool = False, **options: Any) -> list[str]:
    runner = CodexRunner(config)
    settings = runner.start_settings(RunOptions(**options))
    token = ResumeToken(runner.engine, "t1") if resume else None
    start = StartFacts("p1", "codex", "/repo", resume=token, settings=settings)
    return list(runner.launch(start, PROMPT, environ={"PATH": "/nowhere"}).argv)


def test_arguments() -> None:
    assert launched({}) == ["codex", "app-server"]
    assert launched({"extra_args": ("-c", "a=1")}, resume=True, model="x") == ["codex", "-c", "a=1", "app-server"]
    common = ["--json", "--skip-git-repo-check", "--color=never", "--sandbox"]
    assert launched({"mode": "exec"}) == ["codex", "exec", *common, "read-only", "-"]
    assert launched({"mode": "exec", "permission_mode": "auto"}, resume=True, model="m", reasoning="high") == [
        *["codex", "exec", *common, "workspace-write", "--model", "m"],
        *["-c", 'model_reasoning_effort="high"', "resume", "t1", "-"],
    ]


def test_a_process_is_recovered_in_the_form_that_it_was_started_in() -> None:
    runner = CodexRunner({"mode": "exec"})
    assert (runner.interactive, runner.capabilities) == (False, EXEC)
    live = StartFacts("p1", "codex", "/repo", settings=CodexRunner({}).start_settings(RunOptions()))
    assert runner.session(live).capabilities == APP_SERVER


@pytest.mark.parametrize(
    "words",
    [
        ["--json"],
        ["-C", "/"],
        ["--sandbox", "danger-full-access"],
        ["--dangerously-bypass-approvals-and-sandbox"],
        ["--dangerously-anything"],
        ["--yolo"],
        ["-a", "never"],
        ["-c", 'sandbox_mode="danger-full-access"'],
        ["--config=approval_policy=never"],
        ["--"],
    ],
)
def test_arguments_that_are_not_the_owners_to_give(words: list[str]) -> None:
    with pytest.raises(ValueError, match="extra_args of codex cannot hold"):
        BACKEND.build({"extra_args": words}, Path("untether.toml"))


def test_the_environment() -> None:
    runner = CodexRunner({"env": {"MY": "own"}})
    environ = agent_environment(
        {"PATH": "/bin", "CODEX_HOME": "/h", "OPENAI_API_KEY": "k", "CODEX_THREAD_ID": "t", "SECRET": "s"},
        engine_names=ENV_NAMES,
        process_id="p1",
    )
    start = StartFacts("p1", "codex", "/repo", settings=runner.start_settings(RunOptions()))
    env = runner.launch(start, PROMPT, environ=environ).env
    assert env == {
        "PATH": "/bin",
        "CODEX_HOME": "/h",
        "OPENAI_API_KEY": "k",
        "UNTETHER_SESSION": "1",
        "UNTETHER_PROCESS": "p1",
        "MY": "own",
    }


def test_it_is_never_stopped_by_sigint() -> None:
    """That leaves the commands of an unsandboxed session alive."""
    assert [rung.act for rung in LADDER] == ["close_stdin", "SIGTERM", "SIGKILL"]


def test_logging_in_without_a_browser() -> None:
    assert BACKEND.login == Login(("login", "--device-auth"), takes_code=False)


def test_what_a_release_has_anew_or_no_more() -> None:
    def one_of(field: str, names: frozenset[str], *more: str) -> object:
        return {"oneOf": [{"properties": {field: {"enum": [name]}}} for name in sorted(names | set(more))]}

    newer = {
        "ThreadItem": one_of("type", known.KNOWN_ITEMS, "dream"),
        "CodexErrorInfo": {
            "anyOf": [
                {"type": "string", "enum": sorted(known.KNOWN_ERRORS)},
                {"type": "object", "required": ["brandNew"]},
            ]
        },
    }
    schema = {
        "definitions": {
            "ServerNotification": one_of("method", known.KNOWN_NOTIFICATIONS, "a/new"),
            "ServerRequest": one_of("method", known.KNOWN_REQUESTS, "b/new"),
            "ClientRequest": one_of("method", known.NEEDED_METHODS - {"turn/steer"}),
            "CommandExecutionApprovalDecision": {
                "oneOf": [{"type": "string", "enum": sorted(known.KNOWN_DECISIONS - {"decline"})}]
            },
            "v2": newer,
        }
    }
    assert compare(read(schema)) == (
        "new notifications: a/new",
        "new requests: b/new",
        "new items: dream",
        "new errors: brandNew",
        "decisions that are gone: decline",
        "methods that are gone: turn/steer",
    )
    assert compare(Surface(failure="it did not print its schema")) == ("it did not print its schema",)
