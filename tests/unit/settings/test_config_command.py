"""`untether config` as a person or a script uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from untether.cli.config import config

FILE = """\
default_engine = "claude"
[transports.telegram]
bot_token = "123456:HUNTER2"
chat_id = 1001
allowed_user_ids = [1001]
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "untether.toml"
    file.write_text(FILE)
    monkeypatch.setenv("UNTETHER_CONFIG_PATH", str(file))
    return file


def run(*arguments: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(config, arguments, input=stdin)
    assert "HUNTER2" not in result.output
    return result


def test_path_prints_the_place(path: Path, tmp_path: Path) -> None:
    assert run("path").stdout == f"{path}\n"
    assert run("path", "--config-path", str(tmp_path / "x.toml")).stdout == f"{tmp_path}/x.toml\n"


def test_list_prints_toml_and_json_with_secrets_masked(path: Path) -> None:
    assert run("list").stdout == (
        'default_engine = "claude"\n'
        "transports.telegram.bot_token = •••\n"
        "transports.telegram.chat_id = 1001\n"
        "transports.telegram.allowed_user_ids = [1001]\n"
    )
    assert json.loads(run("list", "--json").stdout) == {
        "default_engine": "claude",
        "transports.telegram.bot_token": "•••",
        "transports.telegram.chat_id": 1001,
        "transports.telegram.allowed_user_ids": [1001],
    }
    assert "progress.max_actions = 5  # default\n" in run("list", "--all").stdout


def test_list_says_where_an_override_comes_from(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNTETHER__TRANSPORTS__TELEGRAM__BOT_TOKEN", "1:HUNTER2")

    assert "bot_token = •••  # from UNTETHER__TRANSPORTS__TELEGRAM__BOT_TOKEN\n" in run("list").stdout


def test_get_prints_the_bare_value(path: Path) -> None:
    assert run("get", "default_engine").stdout == "claude\n"
    assert run("get", "default_engine", "--json").stdout == '"claude"\n'
    assert run("get", "transports.telegram.chat_id").stdout == "1001\n"
    assert run("get", "transports.telegram.bot_token").stdout == "•••\n"
    assert run("get", "transports.web.enabled").stdout == "true\n"
    assert "transports.web.port = 8420  # default\n" in run("get", "transports.web").stdout
    assert json.loads(run("get", "transports.web", "--json").stdout)["transports.web.port"] == 8420


def test_get_of_what_is_not_set_and_of_what_does_not_exist(path: Path) -> None:
    unset = run("get", "default_project")
    unknown = run("get", "default_projct")

    assert (unset.exit_code, unset.stdout) == (1, "")
    assert unset.stderr == "default_project is not set.\n"
    assert unknown.exit_code == 2
    assert "default_projct is not a known key. Did you mean default_project?" in unknown.stderr


def test_set_and_unset_change_the_file_silently(path: Path) -> None:
    changed = run("set", "transports.telegram.chat_id", "-1001234567890")

    assert (changed.exit_code, changed.output) == (0, "")
    assert "chat_id = -1001234567890\n" in path.read_text()
    assert run("unset", "default_engine").exit_code == 0
    assert "default_engine" not in path.read_text()
    assert run("unset", "default_engine").exit_code == 1


def test_set_takes_a_secret_from_standard_input(path: Path) -> None:
    assert run("set", "transports.telegram.bot_token", stdin="77:NEWHUNTER2\n").exit_code == 0
    assert '"77:NEWHUNTER2"' in path.read_text()


def test_a_refused_change_says_why(path: Path) -> None:
    result = run("set", "progress.max_actions", "99")

    assert result.exit_code == 1
    assert result.stderr == (
        f"{path} was not changed, because it would not be valid:\n"
        "  progress.max_actions is too large. Allowed: 0 to 50.\n"
    )
    assert path.read_text() == FILE


def test_set_says_that_the_environment_wins(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNTETHER__DEFAULT_ENGINE", "demo")

    result = run("set", "default_engine", "claude")

    assert result.exit_code == 0
    assert result.stderr == "UNTETHER__DEFAULT_ENGINE is set in the environment and overrides default_engine.\n"


def test_what_is_left_to_mend_is_said(path: Path) -> None:
    path.write_text("old_key = 1\n")

    result = run("set", "progress.max_actions", "9")

    assert result.exit_code == 0
    assert result.stderr.startswith(f"Changed. {path} still has a problem:\n  line 1: old_key is not a known key.")


def test_a_file_that_is_not_toml_is_told_with_its_line(path: Path) -> None:
    path.write_text("a = 1\n[b\n")

    for arguments in (["list"], ["get", "default_engine"], ["set", "default_engine", "x"], ["unset", "claude"]):
        result = run(*arguments)
        assert result.exit_code == 1
        assert "line 2, column 3: this is not valid TOML" in result.stderr


def test_wrong_usage_exits_with_2(path: Path) -> None:
    assert run("get").exit_code == 2
    assert run("nonsense").exit_code == 2
