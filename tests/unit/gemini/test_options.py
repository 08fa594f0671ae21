"""How Gemini CLI is started in its one-shot form."""

from __future__ import annotations

from pathlib import Path

import pytest

from untether.model import EngineId, ResumeToken
from untether.runner import Runner
from untether.runner_context import RunOptions
from untether.runners.gemini import BACKEND
from untether.session import Prompt, StartFacts


def argv(resume: ResumeToken | None = None, model: str | None = None, **config: str) -> list[str]:
    runner: Runner = BACKEND.build(config, Path("untether.toml"))
    settings = runner.start_settings(RunOptions(model=model))
    start = StartFacts("p", "gemini", "/repo", resume=resume, settings=settings)
    return list(runner.launch(start, Prompt("m", "--secret prompt"), environ={"UNTETHER_PROCESS": "p"}).argv)


def test_arguments() -> None:
    assert argv() == ["gemini", "--output-format", "stream-json", "--approval-mode", "default"]
    token = ResumeToken(EngineId("gemini"), "abc")
    assert argv(token, "gemini-2.5-pro", approval_mode="yolo") == [
        "gemini",
        "--resume=abc",
        "--output-format",
        "stream-json",
        "-m",
        "gemini-2.5-pro",
        "--approval-mode",
        "yolo",
    ]


def test_it_is_marked_as_one_that_cannot_ask_and_as_deprecated() -> None:
    assert not BACKEND.build({}, Path("untether.toml")).interactive
    assert not BACKEND.capabilities.interactive_permissions
    assert 'type = "acp"' in BACKEND.note


@pytest.mark.parametrize("config", [{"approval_mode": "wild"}, {"modle": "x"}])
def test_wrong_settings(config: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"engines\.gemini\."):
        BACKEND.build(config, Path("untether.toml"))
