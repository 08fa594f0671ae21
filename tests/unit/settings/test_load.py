"""Loading the settings: what is accepted, the defaults, and what a person is told about mistakes."""

from __future__ import annotations

import contextlib
import math
from datetime import date
from pathlib import Path

import hypothesis
import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from untether.settings import ConfigError, Settings, default_path, load

EXAMPLE = """\
default_engine = "claude"
default_project = "demo"
[transports.telegram]
bot_token = "123456:TEST"
chat_id = 1001
allowed_user_ids = [1001]
api_base_url = "http://127.0.0.1:8081"
session_mode = "chat"
[claude]                      # or [engines.claude]; both: an error that names both
command = "claude"
permission_mode = "default"
use_api_billing = true        # keep ANTHROPIC_API_KEY in the agent's environment
env = { ANTHROPIC_BASE_URL = "http://127.0.0.1:8899" }
[security]
env_extra_allow = ["CLAUDE_CONFIG_DIR"]
[projects.demo]
path = "/srv/demo"
"""

TELEGRAM = '[transports.telegram]\nbot_token = "123456:TEST"\nchat_id = 1\nallowed_user_ids = [1]\n'


def loaded(folder: Path, text: str, environ: dict[str, str] | None = None) -> Settings:
    path = folder / "untether.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, environ or {})


def problems(folder: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, environ)
    assert str(folder / "untether.toml") in str(caught.value)
    return [str(problem) for problem in caught.value.problems]


# What is accepted


def test_the_documented_example_loads_as_it_stands(tmp_path: Path) -> None:
    settings = loaded(tmp_path, EXAMPLE)

    assert settings.exists
    assert settings.state_dir == tmp_path
    assert settings.default_engine == "claude"
    assert settings.default_project == "demo"
    assert settings.telegram is not None
    assert settings.telegram.bot_token.get_secret_value() == "123456:TEST"
    assert settings.telegram.chat_id == 1001
    assert settings.telegram.allowed_user_ids == (1001,)
    assert settings.telegram.api_base_url == "http://127.0.0.1:8081"
    assert settings.telegram.session_mode == "chat"
    claude = settings.engine("claude")
    assert claude.command == "claude"
    assert claude.permission_mode == "default"
    assert claude.use_api_billing is True
    assert claude.allowed_tools is None
    assert claude.env == {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8899"}
    assert settings.security.env_extra_allow == ("CLAUDE_CONFIG_DIR",)
    assert settings.projects["demo"].path == Path("/srv/demo")


def test_without_a_file_the_defaults_are_in_force(tmp_path: Path) -> None:
    settings = load(tmp_path / "none" / "untether.toml", {})

    assert not settings.exists
    assert settings.telegram is None
    assert (settings.web.enabled, settings.web.host, settings.web.port) == (True, "127.0.0.1", 8420)
    assert settings.default_engine is None
    assert settings.engine("claude").interactive is True
    assert settings.engine("demo").command is None
    assert settings.engine("other") == {}
    assert (settings.progress.max_actions, settings.progress.min_render_interval) == (5, 2.0)
    assert settings.watchdog.post_result_limbo_grace == 60
    assert settings.watchdog.max_line_bytes == 64 * 1024 * 1024
    assert not (tmp_path / "none").exists()


def test_the_place_of_the_file_comes_from_the_environment(tmp_path: Path) -> None:
    chosen = tmp_path / "other.toml"
    chosen.write_text('default_engine = "demo"\n')

    settings = load(environ={"UNTETHER_CONFIG_PATH": str(chosen), "HOME": str(tmp_path)})

    assert settings.path == chosen
    assert settings.default_engine == "demo"
    assert default_path({"HOME": "/home/anna"}) == Path("/home/anna/.untether/untether.toml")


@pytest.mark.parametrize("table", ["claude", "engines.claude"])
def test_an_engine_table_may_be_short_or_long(tmp_path: Path, table: str) -> None:
    assert loaded(tmp_path, f'[{table}]\nmodel = "opus"\n').engine("claude").model == "opus"


def test_tables_of_plugins_are_handed_over_as_they_stand(tmp_path: Path) -> None:
    text = '[engines.other]\nprofile = "fast"\n[transports.matrix]\nroom = 7\n[plugins.notes]\nfolder = "x"\n'

    settings = loaded(tmp_path, text)

    assert settings.engine("other") == {"profile": "fast"}
    assert settings.engine_config("other") == {"profile": "fast"}
    assert settings.transport("matrix") == {"room": 7}
    assert settings.plugins.model_extra == {"notes": {"folder": "x"}}


def test_an_engine_config_is_a_plain_dict_with_defaults(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[claude]\nmodel = "opus"\n').engine_config("claude")

    assert config["model"] == "opus"
    assert config["permission_mode"] == "default"


@pytest.mark.parametrize(
    "mode", ["default", "manual", "plan", "plan-auto", "acceptEdits", "auto", "dontAsk", "bypassPermissions"]
)
def test_every_permission_mode_is_accepted_by_name(tmp_path: Path, mode: str) -> None:
    assert loaded(tmp_path, f'[claude]\npermission_mode = "{mode}"\n').engine("claude").permission_mode == mode


def test_project_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/anna")
    text = '[projects.a]\npath = "../code"\n[projects.b]\npath = "~/code"\n'

    projects = loaded(tmp_path, text).projects

    assert projects["a"].path == tmp_path.parent / "code"
    assert projects["b"].path == Path("/home/anna/code")


def test_a_byte_order_mark_and_crlf_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "untether.toml"
    path.write_bytes(b'\xef\xbb\xbfdefault_engine = "demo"\r\n[progress]\r\nmax_actions = 9\r\n')

    assert load(path, {}).progress.max_actions == 9


def test_settings_cannot_be_changed_in_memory(tmp_path: Path) -> None:
    settings = loaded(tmp_path, EXAMPLE)

    with pytest.raises(ValueError, match="frozen"):
        settings.web.port = 1


# Overrides from the environment


def test_overrides_win_over_the_file_and_keep_its_types(tmp_path: Path) -> None:
    environ = {
        "UNTETHER__DEFAULT_ENGINE": "demo",
        "UNTETHER__TRANSPORTS__TELEGRAM__CHAT_ID": "-1001234",
        "UNTETHER__TRANSPORTS__TELEGRAM__ALLOWED_USER_IDS": "[7, 8]",
        "UNTETHER__TRANSPORTS__TELEGRAM__BOT_TOKEN": "999:OTHER",
        "UNTETHER__TRANSPORTS__WEB__ENABLED": "false",
        "UNTETHER__TRANSPORTS__WEB__PORT": "9000",
        "UNTETHER__PROGRESS__MIN_RENDER_INTERVAL": "0.5",
        "UNTETHER__PROGRESS__MAX_ACTIONS": "",
    }

    settings = loaded(tmp_path, EXAMPLE, environ)

    assert settings.default_engine == "demo"
    assert settings.telegram is not None
    assert settings.telegram.chat_id == -1001234
    assert settings.telegram.allowed_user_ids == (7, 8)
    assert settings.telegram.bot_token.get_secret_value() == "999:OTHER"
    assert settings.telegram.session_mode == "chat"
    assert (settings.web.enabled, settings.web.port) == (False, 9000)
    assert settings.progress.min_render_interval == 0.5
    assert settings.progress.max_actions == 5


@pytest.mark.parametrize("file_table", ["claude", "engines.claude"])
@pytest.mark.parametrize("variable_table", ["CLAUDE", "ENGINES__CLAUDE"])
def test_overrides_of_engine_tables_fit_both_spellings(tmp_path: Path, file_table: str, variable_table: str) -> None:
    text = f'[{file_table}]\nmodel = "opus"\nenv = {{ A = "file" }}\n'
    environ = {f"UNTETHER__{variable_table}__MODEL": "haiku", f"UNTETHER__{variable_table}__ENV__My_Name": "here"}

    claude = loaded(tmp_path, text, environ).engine("claude")

    assert claude.model == "haiku"
    assert claude.env == {"A": "file", "My_Name": "here"}


def test_overrides_find_an_alias_without_regard_to_capitals(tmp_path: Path) -> None:
    text = '[projects.MyApp]\npath = "/a"\n'

    projects = loaded(tmp_path, text, {"UNTETHER__PROJECTS__MYAPP__PATH": "/b"}).projects

    assert {alias: project.path for alias, project in projects.items()} == {"MyApp": Path("/b")}


def test_problems_of_overrides_name_the_variable(tmp_path: Path) -> None:
    environ = {
        "UNTETHER__PROGRES__MAX_ACTIONS": "3",
        "UNTETHER__PROGRESS__MAX_ACTION": "3",
        "UNTETHER__PROGRESS__MAX_ACTIONS": "99",
        "UNTETHER__SECURITY__ENV_EXTRA_ALLOW": "A,B",
        "UNTETHER__TRANSPORTS__WEB__PORT": "secret-looking",
    }

    assert problems(tmp_path, "[progress]\nmax_actions = 5\n", environ) == [
        "UNTETHER__PROGRES__MAX_ACTIONS: progres is not a known key. Did you mean progress?",
        "UNTETHER__TRANSPORTS__WEB__PORT: transports.web.port must be a whole number. Allowed: 0 to 65535.",
        "UNTETHER__PROGRESS__MAX_ACTIONS: progress.max_actions is too large. Allowed: 0 to 50.",
        "UNTETHER__PROGRESS__MAX_ACTION: progress.max_action is not a known key. Did you mean max_actions?",
        "UNTETHER__SECURITY__ENV_EXTRA_ALLOW: security.env_extra_allow must be a list. Write the values in brackets.",
    ]


# Mistakes


def test_all_problems_are_told_at_once_with_line_key_and_what_is_allowed(tmp_path: Path) -> None:
    text = """\
default_projct = "demo"
bot_token = "12:SECRETSECRET"

[transports.telegram]
bot_tokn = "123456:SECRET"
chat_id = "1001"
session_mode = "chats"

[progress]
verbosity = "quiet"
max_actions = 99
heartbeat_interval = nan
[projects.demo]
path = 3
"""

    assert problems(tmp_path, text) == [
        "line 1: default_projct is not a known key. Did you mean default_project?",
        "line 2: bot_token is not a known key. Did you mean transports.telegram.bot_token?",
        "line 4: transports.telegram.bot_token is required.",
        "line 4: transports.telegram.allowed_user_ids must name at least one user (untether chat-id shows the ids), "
        "or set allow_any_user = true.",
        "line 5: transports.telegram.bot_tokn is not a known key. Did you mean bot_token?",
        "line 6: transports.telegram.chat_id must be a whole number. Write it without quotes.",
        "line 7: transports.telegram.session_mode has an unknown value. Allowed: stateless or chat. Did you mean chat?",
        "line 10: progress.verbosity has an unknown value. Allowed: compact or verbose.",
        "line 11: progress.max_actions is too large. Allowed: 0 to 50.",
        "line 12: progress.heartbeat_interval must be a finite number. Allowed: 5 to 120.",
        "line 14: projects.demo.path must be text. Write it in quotes.",
    ]


def test_an_unknown_key_without_a_near_one_lists_the_known_ones(tmp_path: Path) -> None:
    assert problems(tmp_path, "[web]\n") == ["line 1: web is not a known key. Did you mean transports.web?"]
    assert problems(tmp_path, "[security]\nzzz = 1\n") == [
        "line 2: security.zzz is not a known key. Known keys here: env_extra_allow, env_extra_prefix_allow."
    ]
    assert problems(tmp_path, '[other]\nmodel = "x"\n')[0].startswith("line 1: other is not a known key. Known keys")
    assert problems(tmp_path, '_env_file = "x"\n')[0].startswith("line 1: _env_file is not a known key.")


def test_the_memory_warning_must_come_before_the_refusal(tmp_path: Path) -> None:
    text = "[watchdog]\nprespawn_ram_block_mb = 3000\n"
    assert problems(tmp_path, text) == [
        "line 1: watchdog.prespawn_ram_warn_mb must be more than prespawn_ram_block_mb, which is 3000,"
        " or 0 for no warning."
    ]
    assert loaded(tmp_path, text + "prespawn_ram_warn_mb = 0\n").watchdog.prespawn_ram_block_mb == 3000


def test_a_time_zone_is_one_that_exists(tmp_path: Path) -> None:
    assert problems(tmp_path, 'timezone = "Mars/Olympus"\n') == [
        "line 1: timezone must be a time zone such as Europe/Berlin or America/New_York, or UTC."
    ]
    assert str(loaded(tmp_path, 'timezone = "Asia/Kolkata"\n').zone) == "Asia/Kolkata"
    assert loaded(tmp_path, "").zone is None


def test_both_spellings_of_an_engine_table_are_an_error_that_names_both(tmp_path: Path) -> None:
    text = '[claude]\nmodel = "a"\n\n[engines.claude]\nmodel = "b"\ncommnd = "x"\n'

    assert problems(tmp_path, text) == [
        "line 1: claude.commnd is not a known key. Did you mean command?",
        "line 4: claude and engines.claude are the same table. Keep [claude] or [engines.claude].",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1\nb = = 2\n", "line 2, column 5: this is not valid TOML: invalid value."),
        ("[a\n", "line 1, column 3: this is not valid TOML: expected ']' at the end of a table declaration."),
        ("a = 1\na = 2\n", "line 2, column 6: this is not valid TOML: cannot overwrite a value."),
        ('a = 1\nb = "abc', "line 2: this is not valid TOML: unterminated string."),
    ],
)
def test_a_syntax_error_is_told_with_line_and_column(tmp_path: Path, text: str, expected: str) -> None:
    assert problems(tmp_path, text) == [expected]


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    loop = tmp_path / "untether.toml"
    loop.symlink_to(loop)
    with pytest.raises(ConfigError, match="cannot be read: Too many levels of symbolic links"):
        load(loop, {})
    with pytest.raises(ConfigError, match="this is a folder"):
        load(tmp_path, {})
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"# ok\n# caf\xe9\n")
    with pytest.raises(ConfigError, match="line 2: the text is not UTF-8"):
        load(latin, {})


def test_errors_and_representations_never_hold_a_secret(tmp_path: Path) -> None:
    text = TELEGRAM.replace("123456:TEST", "HUNTER2 HUNTER2") + (
        '[claude]\nenv = { ANTHROPIC_API_KEY = "HUNTER2" }\nmodel = "HUNTER2 x"\n'
        '[transports.web]\npublic_url = "https://u:HUNTER2@host:99999/"\nhost = 7\n'
    )
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert "HUNTER2" not in str(caught.value)
    assert "HUNTER2" not in repr(caught.value)

    valid = TELEGRAM.replace("TEST", "HUNTER2") + '[claude]\nenv = { ANTHROPIC_API_KEY = "HUNTER2" }\n'
    valid += '[engines.other]\ntoken = "HUNTER2"\n'
    settings = loaded(tmp_path, valid)
    assert "HUNTER2" not in repr(settings)
    assert settings.secrets == ("123456:HUNTER2", "HUNTER2", "HUNTER2")


# Rules


@pytest.mark.parametrize("listed", ["", "allowed_user_ids = []\n"])
def test_telegram_needs_allowed_users_unless_anyone_may(tmp_path: Path, listed: str) -> None:
    text = '[transports.telegram]\nbot_token = "1:A"\nchat_id = 1\n' + listed

    assert "transports.telegram.allowed_user_ids must name at least one user" in problems(tmp_path, text)[0]
    telegram = loaded(tmp_path, text + "allow_any_user = true\n").telegram
    assert telegram is not None
    assert telegram.allowed_user_ids == ()


@pytest.mark.parametrize("line", ['allowed_user_ids = ["1"]', "allowed_user_ids = [true]", "allowed_user_ids = [1.0]"])
def test_user_ids_are_whole_numbers(tmp_path: Path, line: str) -> None:
    text = '[transports.telegram]\nbot_token = "1:A"\nchat_id = 1\n' + line

    assert "line 4: transports.telegram.allowed_user_ids[0] must be a whole number" in problems(tmp_path, text)[0]


@pytest.mark.parametrize("token", ["", "  ", "1:A B", "1:A/../x", "1:A\\u0000", "1:ä"])
def test_a_bot_token_is_one_word_that_fits_into_an_address(tmp_path: Path, token: str) -> None:
    text = TELEGRAM.replace("123456:TEST", token)

    assert problems(tmp_path, text) == [
        "line 2: transports.telegram.bot_token must be the token that @BotFather gave you, such as 123456:ABC-DEF."
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_the_console_may_listen_on_loopback(tmp_path: Path, host: str) -> None:
    assert loaded(tmp_path, f'[transports.web]\nhost = "{host}"\n').web.host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "box.example"])
def test_the_console_off_loopback_needs_https_or_a_word_that_it_is_meant(tmp_path: Path, host: str) -> None:
    text = f'[transports.web]\nhost = "{host}"\n'

    assert problems(tmp_path, text) == [
        "line 2: transports.web.host is reachable from other machines, so it needs public_url with https://, "
        "or allow_insecure = true."
    ]
    assert len(problems(tmp_path, text + 'public_url = "http://box.example"\n')) == 1
    assert loaded(tmp_path, text + 'public_url = "https://box.example/"\n').web.public_url == "https://box.example"
    assert loaded(tmp_path, text + "allow_insecure = true\n").web.host == host


@pytest.mark.parametrize("address", ["ftp://x", "box.example", "http://", "http://x:70000", "http://[x", "http://a b"])
def test_an_api_address_is_http_or_https(tmp_path: Path, address: str) -> None:
    text = TELEGRAM + f'api_base_url = "{address}"\n'

    assert problems(tmp_path, text) == [
        "line 5: transports.telegram.api_base_url must be an address that starts with http:// or https://."
    ]


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("--print", "contains --print, which Untether sets itself"),
        ("-p", "contains -p (--print), which Untether sets itself"),
        ("-r", "contains -r (--resume), which Untether sets itself"),
        ("-rabc", "contains -r (--resume), which Untether sets itself"),
        ("-c", "contains -c (--continue), which Untether sets itself"),
        ("-hp", "contains -p (--print), which Untether sets itself"),
        ("--resume=abc", "contains --resume, which Untether sets itself"),
        ("--continue", "contains --continue, which Untether sets itself"),
        ("--output-format", "contains --output-format, which Untether sets itself"),
        ("--input-format=text", "contains --input-format, which Untether sets itself"),
        ("--permission-prompt-tool", "contains --permission-prompt-tool, which Untether sets itself"),
        ("--permission-prompts", "contains --permission-prompts, which Untether sets itself"),
        ("--permission-mode=plan", "contains --permission-mode; set permission_mode instead"),
        ("--allowedTools", "contains --allowedTools; set allowed_tools instead"),
        ("--allowed-tools=Bash", "contains --allowed-tools; set allowed_tools instead"),
        (
            "--dangerously-skip-permissions",
            "contains --dangerously-skip-permissions; set dangerously_skip_permissions = true instead",
        ),
        (
            "--allow-dangerously-skip-permissions",
            "contains --allow-dangerously-skip-permissions; set dangerously_skip_permissions = true instead",
        ),
        ("--", "contains a bare --, after which the CLI would read Untether's own flags as text"),
    ],
)
def test_flags_that_carry_our_protocol_are_refused_by_name(tmp_path: Path, argument: str, told: str) -> None:
    text = f'[claude]\nextra_args = ["--add-dir", "{argument}"]\n'

    assert problems(tmp_path, text) == [f"line 2: claude.extra_args[1] {told}."]


def test_other_flags_pass(tmp_path: Path) -> None:
    arguments = ["--add-dir", "/x", "--mcp-config=a.json", "-d", "-n", "name", "--resumes", "--print-it", "plain"]
    text = f"[claude]\nextra_args = {arguments!r}\n"

    assert list(loaded(tmp_path, text).engine("claude").extra_args) == arguments


@pytest.mark.parametrize("model", ["-x", "a b", ""])
def test_a_model_cannot_become_a_flag(tmp_path: Path, model: str) -> None:
    assert len(problems(tmp_path, f'[claude]\nmodel = "{model}"\n[demo]\nmodel = "{model}"\n')) == 2


def test_environment_values_are_text(tmp_path: Path) -> None:
    assert problems(tmp_path, "[claude]\nenv = { PORT = 8080 }\n") == [
        "line 2: claude.env.PORT must be text. Write it in quotes."
    ]


@pytest.mark.parametrize("name", ["lower", "1A", "A-B", "", "UNTETHER__TRANSPORTS__TELEGRAM__BOT_TOKEN"])
@pytest.mark.parametrize("key", ["env_extra_allow", "env_extra_prefix_allow"])
def test_variables_to_pass_on_are_checked(tmp_path: Path, key: str, name: str) -> None:
    (problem,) = problems(tmp_path, f'[security]\n{key} = ["OK", "{name}"]\n')

    assert problem.startswith(f"line 2: security.{key}[1] must")


def test_projects_have_their_own_chats_and_names(tmp_path: Path) -> None:
    text = TELEGRAM + (
        '[projects.a]\npath = "/a"\nchat_id = 1\n'
        '[projects.b]\npath = "/b"\nchat_id = 5\n'
        '[projects.c]\npath = "/c"\nchat_id = 5\n'
        '[projects.B]\npath = "/d"\n'
        '[projects."my app"]\npath = "/e"\n'
    )

    assert problems(tmp_path, "default_project = 'other'\n" + text) == [
        "line 1: default_project names no project of this file. "
        "Add the project with untether init, or remove this key.",
        "line 8: projects.a.chat_id is already the chat of transports.telegram.",
        "line 14: projects.c.chat_id is already the chat of projects.b.",
        "line 15: projects.B differs from projects.b only in capitals.",
        'line 17: projects."my app" is not a usable alias. Use letters, digits, dot, dash and underscore, at most 64, '
        "starting with a letter or digit.",
    ]


def test_rules_between_sections_survive_wrong_types(tmp_path: Path) -> None:
    text = "default_project = 3\nprojects = 4\nengines = 5\n[claude]\n[transports.telegram]\nchat_id = [1]\n"

    told = problems(tmp_path, text)

    assert "line 2: projects must be a table." in told
    assert "line 3: engines must be a table." in told
    assert "line 6: transports.telegram.chat_id must be a whole number." in told


def test_engine_names_are_checked_against_what_is_installed(tmp_path: Path) -> None:
    text = 'default_engine = "cluade"\n[projects.a]\npath = "/a"\ndefault_engine = "other"\n'
    settings = loaded(tmp_path, text)

    with pytest.raises(ConfigError) as caught:
        settings.check_engine_names(["demo", "claude"])

    assert [str(problem) for problem in caught.value.problems] == [
        "line 1: default_engine names no installed engine. Did you mean claude?",
        "line 4: projects.a.default_engine names no installed engine. Installed: claude, demo.",
    ]
    loaded(tmp_path, EXAMPLE).check_engine_names(["demo", "claude"])


def test_tables_that_nothing_reads_are_pointed_out(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "[engines.cluade]\n[engines.other]\n[transports.telegramm]\n")

    told = settings.unread_tables(engines=["claude", "demo", "other"], transports=["telegram", "web"])

    assert [str(problem) for problem in told] == [
        "line 1: engines.cluade is read by no installed engine. Did you mean claude?",
        "line 3: transports.telegramm is read by no installed transport. Did you mean telegram?",
    ]


KEYS = st.sampled_from(
    ["default_engine", "default_project", "transports", "telegram", "web", "engines", "claude", "demo", "projects"]
) | st.sampled_from(["env", "path", "chat_id", "allowed_user_ids", "host", "port", "extra_args", "plugins", "x", "_y"])
VALUES = st.sampled_from([True, 0, -5, 10**30, 1.5, math.nan, "", "x", "\0", [], [1], ["x"], [[]], date(2030, 1, 1)])


@hypothesis.settings(max_examples=150, deadline=None)
@given(st.recursive(st.dictionaries(KEYS, VALUES), lambda inner: st.dictionaries(KEYS, inner | VALUES, max_size=4)))
def test_whatever_a_file_holds_is_loaded_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, object]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text(tomlkit.dumps(content))
    with contextlib.suppress(ConfigError):  # anything else would be a crash
        load(path, {})


def test_a_limit_of_costs_is_a_number_of_dollars(tmp_path: Path) -> None:
    table = loaded(tmp_path, "[cost_budget]\nmax_cost_per_day = 10\nwarn_at_pct = 80\n").cost_budget
    assert (table.enabled, table.max_cost_per_day, table.max_cost_per_run) == (None, 10.0, None)
    assert (table.warn_at_pct, table.auto_cancel) == (80, True)
    with pytest.raises(ConfigError, match="max_cost_per_run"):
        loaded(tmp_path, "[cost_budget]\nmax_cost_per_run = -1\n")
    with pytest.raises(ConfigError, match="warn_at_pct"):
        loaded(tmp_path, "[cost_budget]\nwarn_at_pct = 101\n")
