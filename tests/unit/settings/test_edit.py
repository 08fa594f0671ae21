"""Changing the settings file without losing what a person wrote in it."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest

from untether.settings import ConfigError, edit, load

FILE = """\
# My settings

default_engine = "claude"  # the one I like

# Telegram
[transports.telegram]
bot_token = "123456:TEST"
chat_id = 1001
allowed_user_ids = [1001]  # me

# The agent
[claude]
model = "opus"
env = { A = "b" }

# Projects
[projects.demo]
path = "/srv/demo"

# The console
[transports.web]
port = 9000
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "untether.toml"
    file.write_text(FILE)
    return file


def set_(path: Path, key: str, value: str) -> str:
    edit.set_value(path, key, value, environ={})
    return path.read_text()


def shown(path: Path, key: str, environ: dict[str, str] | None = None) -> dict[str, object]:
    return {entry.key: entry.shown for entry in edit.get(path, key, environ=environ or {})}


# Setting


def test_a_value_is_replaced_in_place_with_its_comment_kept(path: Path) -> None:
    assert set_(path, "default_engine", "demo") == FILE.replace('"claude"  # the', '"demo"  # the')


@pytest.mark.parametrize(
    ("key", "value", "before", "after"),
    [
        ("transports.telegram.session_mode", "chat", "# me\n", '# me\nsession_mode = "chat"\n'),
        ("transports.telegram.forward_coalesce_s", "0.5", "# me\n", "# me\nforward_coalesce_s = 0.5\n"),
        ("transports.telegram.chat_id", "-5", "chat_id = 1001", "chat_id = -5"),
        ("transports.web.enabled", "false", "port = 9000\n", "port = 9000\nenabled = false\n"),
        ("claude.interactive", "false", '{ A = "b" }\n', '{ A = "b" }\ninteractive = false\n'),
        ("engines.claude.interactive", "false", '{ A = "b" }\n', '{ A = "b" }\ninteractive = false\n'),
        ("default_project", "demo", "I like\n", 'I like\ndefault_project = "demo"\n'),
    ],
)
def test_a_new_key_goes_to_the_keys_of_its_table_and_comments_stay_with_theirs(
    path: Path, key: str, value: str, before: str, after: str
) -> None:
    assert set_(path, key, value) == FILE.replace(before, after)


def test_an_inline_table_grows_in_its_line(path: Path) -> None:
    line = next(line for line in set_(path, "claude.env.B", "c").splitlines() if line.startswith("env"))

    assert line.replace(" ", "") == 'env={A="b",B="c"}'


def test_a_new_table_goes_to_the_end(path: Path) -> None:
    assert set_(path, "progress.max_actions", "9") == FILE + "\n[progress]\nmax_actions = 9\n"
    assert set_(path, "demo.model", "x").endswith('max_actions = 9\n\n[demo]\nmodel = "x"\n')


def test_a_long_engine_table_stays_the_only_one(path: Path) -> None:
    path.write_text('[engines.claude]\nmodel = "opus"\n')

    assert set_(path, "claude.command", "/opt/claude") == '[engines.claude]\nmodel = "opus"\ncommand = "/opt/claude"\n'


def test_a_comment_at_the_top_stays_there(path: Path) -> None:
    path.write_text("# Title\n\n# The console\n[transports.web]\nport = 1\n")

    assert set_(path, "default_engine", "demo") == (
        '# Title\n\ndefault_engine = "demo"\n\n# The console\n[transports.web]\nport = 1\n'
    )


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("default_engine", "claude", "claude"),
        ("default_engine", '"claude"', "claude"),
        ("claude.model", "5", "5"),
        ("claude.model", "true", "true"),
        ("transports.telegram.chat_id", "-1001234", -1001234),
        ("transports.telegram.bot_token", "12:34", "12:34"),
        ("transports.telegram.allowed_user_ids", "[1, 2]", [1, 2]),
        ("transports.telegram.show_resume_line", "false", False),
        ("transports.telegram.forward_coalesce_s", "0.5", 0.5),
        ("claude.env", '{X = "y"}', {"X": "y"}),
        ("engines.other.profile", "fast", "fast"),
        ("engines.other.level", "3", 3),
    ],
)
def test_values_are_toml_else_text(path: Path, key: str, text: str, value: object) -> None:
    edit.set_value(path, key, text, environ={})

    found: object = tomllib.loads(path.read_text())
    for name in key.split("."):
        assert isinstance(found, dict)
        found = found[name]
    assert found == value


@pytest.mark.parametrize("text", ["x\n[security]", "1\nport = 2", "a = b", '"""', "#", "ü", "'", "\t"])
def test_no_text_can_write_another_key(path: Path, text: str) -> None:
    edit.set_value(path, "engines.other.profile", text, environ={})

    assert tomllib.loads(path.read_text())["engines"]["other"] == {"profile": text}


def test_line_ends_are_kept(path: Path) -> None:
    path.write_bytes(FILE.replace("\n", "\r\n").encode())

    edit.set_value(path, "claude.interactive", "false", environ={})
    edit.set_value(path, "progress.max_actions", "9", environ={})

    written = path.read_bytes()
    assert written.count(b"\n") == written.count(b"\r\n")
    assert load(path, {}).progress.max_actions == 9


def test_a_missing_file_is_made_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "untether.toml"

    edit.set_value(path, "default_engine", "demo", environ={})

    assert path.read_text() == 'default_engine = "demo"\n'
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_file_is_private_and_nothing_is_left_beside_it(path: Path) -> None:
    path.chmod(0o644)

    edit.set_value(path, "default_engine", "demo", environ={})

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["untether.toml"]


def test_a_symbolic_link_keeps_pointing_to_the_file(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(path)

    edit.set_value(link, "default_engine", "demo", environ={})

    assert link.is_symlink()
    assert load(path, {}).default_engine == "demo"


# Refusals


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("progress.max_actions", "99", "progress.max_actions is too large. Allowed: 0 to 50."),
        ("claude.extra_args", '["-p"]', "claude.extra_args[0] contains -p (--print), which Untether sets itself."),
        ("transports.telegram.chat_id", "x", "transports.telegram.chat_id must be a whole number."),
        ("default_project", "demmo", "default_project names no project of this file. Did you mean demo?"),
        ("projects.demo.chat_id", "1001", "projects.demo.chat_id is already the chat of transports.telegram."),
    ],
)
def test_a_change_that_would_not_be_valid_is_not_made(path: Path, key: str, value: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        edit.set_value(path, key, value, environ={})

    assert told in str(caught.value)
    assert path.read_text() == FILE


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("progress.max_action", "progress.max_action is not a known key. Did you mean max_actions?"),
        ("telegram.chat_id", "telegram.chat_id is not a known key. Did you mean transports.telegram?"),
        ("default_engine.x", "default_engine.x is not a known key. default_engine is no table."),
        ("a b", "'a b' is not a key. A key is written like transports.telegram.chat_id."),
    ],
)
def test_an_unknown_key_is_refused_with_a_suggestion(path: Path, key: str, told: str) -> None:
    for act in (lambda: set_(path, key, "1"), lambda: shown(path, key), lambda: edit.unset(path, key, environ={})):
        with pytest.raises(edit.UnknownKeyError) as caught:
            act()
        assert str(caught.value) == told
    assert path.read_text() == FILE


def test_a_broken_file_can_be_mended_key_by_key(path: Path) -> None:
    path.write_text("[progress]\nmax_actions = 99\nverbosity = 3\nold_key = 1\n")

    remaining = edit.set_value(path, "progress.max_actions", "9", environ={})

    assert [problem.key for problem in remaining] == ["progress.verbosity", "progress.old_key"]
    assert len(edit.set_value(path, "progress.verbosity", "compact", environ={})) == 1
    with pytest.raises(ConfigError, match="too small"):
        edit.set_value(path, "progress.max_actions", "-1", environ={})


def test_a_file_that_is_not_toml_is_left_alone(path: Path) -> None:
    path.write_text("[broken\n")

    with pytest.raises(ConfigError, match="line 1, column 8: this is not valid TOML"):
        edit.set_value(path, "default_engine", "demo", environ={})
    assert path.read_text() == "[broken\n"


def test_what_cannot_be_edited_safely_is_refused(path: Path) -> None:
    path.write_text("transports = { web = { port = 1 } }\n")

    with pytest.raises(ConfigError, match="too intricate"):
        edit.set_telegram(path, "1:A", 1, [1], environ={})
    assert path.read_text() == "transports = { web = { port = 1 } }\n"


def test_text_that_is_not_unicode_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError):
        edit.set_value(path, "default_engine", "bad\udcff", environ={})
    assert path.read_text() == FILE


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="Not a directory"):
        edit.set_value(tmp_path / "file" / "untether.toml", "default_engine", "demo", environ={})


# Removing


def test_a_removed_key_leaves_the_rest(path: Path) -> None:
    edit.unset(path, "claude.model", environ={})

    assert path.read_text() == FILE.replace('model = "opus"\n', "")


@pytest.mark.parametrize("key", ["claude", "engines.claude"])
def test_a_removed_table_leaves_the_comments(path: Path, key: str) -> None:
    edit.unset(path, key, environ={})

    assert path.read_text() == FILE.replace('[claude]\nmodel = "opus"\nenv = { A = "b" }\n', "")


def test_all_tables_below_a_removed_one_go(path: Path) -> None:
    edit.unset(path, "transports", environ={})

    assert "transports" not in path.read_text()
    assert load(path, {}).telegram is None
    assert "# The console" in path.read_text()


def test_removing_what_is_not_there_is_said(path: Path) -> None:
    with pytest.raises(edit.KeyNotSetError, match=r"progress\.max_actions is not set in"):
        edit.unset(path, "progress.max_actions", environ={})


def test_a_key_that_is_needed_is_not_removed(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"transports.telegram.chat_id is required"):
        edit.unset(path, "transports.telegram.chat_id", environ={})
    assert path.read_text() == FILE


# Showing


def test_the_list_shows_what_is_set_with_secrets_masked(path: Path) -> None:
    environ = {"UNTETHER__CLAUDE__ENV__API_KEY": "HUNTER2", "UNTETHER__TRANSPORTS__WEB__HOST": "::1"}

    entries = edit.list_values(path, environ=environ)

    assert {entry.key: entry.toml for entry in entries} == {
        "default_engine": '"claude"',
        "transports.telegram.bot_token": "•••",
        "transports.telegram.chat_id": "1001",
        "transports.telegram.allowed_user_ids": "[1001]",
        "transports.web.port": "9000",
        "transports.web.host": '"::1"',
        "claude.model": '"opus"',
        "claude.env.A": '"b"',
        "claude.env.API_KEY": "•••",
        "projects.demo.path": '"/srv/demo"',
    }
    assert {entry.key: entry.variable for entry in entries if entry.variable} == {
        "transports.web.host": "UNTETHER__TRANSPORTS__WEB__HOST",
        "claude.env.API_KEY": "UNTETHER__CLAUDE__ENV__API_KEY",
    }


def test_the_full_list_holds_the_defaults_in_force(path: Path) -> None:
    entries = {entry.key: entry for entry in edit.list_values(path, environ={}, defaults=True)}

    assert entries["progress.max_actions"].value == 5
    assert entries["progress.max_actions"].is_default
    assert not entries["transports.web.port"].is_default
    assert entries["transports.telegram.session_mode"].value == "stateless"
    assert entries["projects.demo.worktrees_dir"].value == ".worktrees"
    assert entries["demo.permission_mode"].value == "default"
    path.write_text("")
    assert "transports.telegram.session_mode" not in {
        entry.key for entry in edit.list_values(path, environ={}, defaults=True)
    }


def test_get_gives_a_value_a_default_or_a_table(path: Path) -> None:
    assert shown(path, "claude.model") == {"claude.model": "opus"}
    assert shown(path, "engines.claude.model") == {"claude.model": "opus"}
    assert shown(path, "transports.telegram.bot_token") == {"transports.telegram.bot_token": "•••"}
    assert shown(path, "progress.max_actions") == {"progress.max_actions": 5}
    assert shown(path, "transports.web.public_url") == {}
    assert shown(path, "security") == {"security.env_extra_allow": [], "security.env_extra_prefix_allow": []}
    assert shown(path, "projects") == {"projects.demo.path": "/srv/demo", "projects.demo.worktrees_dir": ".worktrees"}


def test_values_that_look_secret_are_masked_wherever_they_stand(path: Path) -> None:
    edit.set_value(path, "claude.env.PROXY", "http://user:HUNTER2@proxy:8080", environ={})
    edit.set_value(path, "engines.other.client_secret", "HUNTER2", environ={})

    assert "HUNTER2" not in str([(entry.shown, entry.toml) for entry in edit.list_values(path, environ={})])


# For pairing and init


def test_pairing_writes_telegram_into_an_empty_place(tmp_path: Path) -> None:
    path = tmp_path / "untether.toml"

    edit.set_telegram(path, "123456:TEST", 1001, [1001], environ={})

    assert path.read_text() == (
        '[transports.telegram]\nbot_token = "123456:TEST"\nchat_id = 1001\nallowed_user_ids = [1001]\n'
    )


def test_pairing_again_keeps_the_other_keys(path: Path) -> None:
    set_(path, "transports.telegram.session_mode", "chat")

    edit.set_telegram(path, "77:NEW", -5, [7, 8], environ={})

    telegram = load(path, {}).telegram
    assert telegram is not None
    assert (telegram.bot_token.get_secret_value(), telegram.chat_id) == ("77:NEW", -5)
    assert (telegram.allowed_user_ids, telegram.session_mode) == ((7, 8), "chat")
    assert "# me" in path.read_text()


def test_a_project_is_added_once(path: Path) -> None:
    edit.add_project(path, "web.app", Path("/srv/web"), environ={}, make_default=True)

    assert path.read_text().endswith('\n[projects."web.app"]\npath = "/srv/web"\n')
    settings = load(path, {})
    assert settings.projects["web.app"].path == Path("/srv/web")
    assert settings.default_project == "web.app"
    before = path.read_text()
    edit.add_project(path, "web.app", Path("/srv/web"), environ={})
    assert path.read_text() == before


def test_a_taken_alias_and_an_unusable_one_are_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"projects\.demo is already /srv/demo\. Choose another alias\."):
        edit.add_project(path, "demo", Path("/srv/other"), environ={})
    with pytest.raises(ConfigError, match="is not a usable alias"):
        edit.add_project(path, "my app", Path("/srv/other"), environ={})
    assert path.read_text() == FILE
