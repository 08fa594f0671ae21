"""`untether run --unattended`: one run without a chat. Nothing waits for a person, and the answer is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from untether.cli.run import run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with settings of its own."""
    (tmp_path / "untether.toml").write_text('default_engine = "demo"\n[demo]\nenv = { UNTETHER_DEMO_SPEED = "0" }\n')
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("UNTETHER_CONFIG_PATH", str(tmp_path / "untether.toml"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(work)
    return work


def untether_run(*arguments: str) -> Result:
    return CliRunner().invoke(run, arguments)


def test_the_answer_is_printed(folder: Path) -> None:
    result = untether_run("--unattended", "my word is teal")
    assert result.exit_code == 0
    assert "my word is teal" in result.stdout


def test_what_would_wait_for_a_person_is_denied(folder: Path) -> None:
    result = untether_run("--unattended", "--engine", "demo", "permission")
    assert result.exit_code == 0
    assert "I did not run the command" in result.stdout
    assert not list(folder.iterdir())


def test_a_failure_has_its_exit_code_and_words(folder: Path) -> None:
    result = untether_run("--unattended", "error")
    assert result.exit_code == 1
    assert "✗" in result.stderr


@pytest.mark.parametrize("arguments", [("do it",), ("--unattended",), ("--engine", "demo")])
def test_a_prompt_and_unattended_come_together(folder: Path, arguments: tuple[str, ...]) -> None:
    result = untether_run(*arguments)
    assert result.exit_code == 2
    assert "untether run --unattended" in result.stderr


def test_an_unknown_engine_is_named(folder: Path) -> None:
    result = untether_run("--unattended", "--engine", "nope", "hello")
    assert result.exit_code == 2
    assert "Known: " in result.stderr
