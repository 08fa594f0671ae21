"""Which variables reach an agent."""

from __future__ import annotations

from typing import Any

import pytest

from untether.process.environment import CLAUDE_NAMES, Names, agent_environment


def made(environ: dict[str, str], **how: Any) -> dict[str, str]:
    settings: dict[str, Any] = {"engine_names": CLAUDE_NAMES, "process_id": "p1"} | how
    return agent_environment(environ, **settings)


@pytest.mark.parametrize(
    "name",
    [
        *[
            "PATH",
            "HOME",
            "USER",
            "SHELL",
            "TERM",
            "LANG",
            "LC_ALL",
            "TZ",
            "TMPDIR",
            "XDG_CONFIG_HOME",
            "XDG_RUNTIME_DIR",
            "SSH_AUTH_SOCK",
        ],
        "HTTP_PROXY",
        "https_proxy",
        "NO_PROXY",
        "no_proxy",
        "ALL_PROXY",
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        *[
            "NODE_EXTRA_CA_CERTS",
            "CURL_CA_BUNDLE",
            "GIT_SSL_CAINFO",
            "GIT_AUTHOR_NAME",
            "GIT_COMMITTER_EMAIL",
            "NVM_DIR",
        ],
        *[
            "PYENV_ROOT",
            "CARGO_HOME",
            "RUSTUP_HOME",
            "GOPATH",
            "JAVA_HOME",
            "VIRTUAL_ENV",
            "CONDA_PREFIX",
            "DOCKER_HOST",
            "KUBECONFIG",
        ],
        "DBUS_SESSION_BUS_ADDRESS",
        "DISPLAY",
        "ANTHROPIC_BASE_URL",
        "CLAUDE_CONFIG_DIR",
        "CLAUDE_CODE_USE_BEDROCK",
        "AWS_PROFILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "CLOUD_ML_REGION",
        "DISABLE_TELEMETRY",
        "MCP_TOOL_TIMEOUT",
    ],
)
def test_what_works_in_a_terminal_passes(name: str) -> None:
    assert made({name: "value"})[name] == "value"


@pytest.mark.parametrize(
    "name",
    [
        "UNTETHER__TRANSPORTS__TELEGRAM__BOT_TOKEN",
        "UNTETHER_CONFIG_PATH",
        "UNTETHER_FAULTS",
        "NOTIFY_SOCKET",
        *[
            "LISTEN_FDS",
            "LISTEN_PID",
            "INVOCATION_ID",
            "JOURNAL_STREAM",
            "WATCHDOG_USEC",
            "WATCHDOG_PID",
            "MAINPID",
            "MANAGERPID",
            "MANAGERPIDFDID",
            "SYSTEMD_EXEC_PID",
            "CREDENTIALS_DIRECTORY",
            "XPC_SERVICE_NAME",
        ],
    ],
)
def test_what_is_the_bridges_never_passes(name: str) -> None:
    asked_for: dict[str, Any] = {"extra_allow": [name], "extra_prefix_allow": [name[:4]], "overrides": {name: "x"}}
    assert name not in made({name: "value"})
    assert name not in made({name: "value"}, **asked_for)


@pytest.mark.parametrize("name", ["DATABASE_PASSWORD", "TELEGRAM_TOKEN", "OPENAI_API_KEY", "GIT_DIR", "CLAUDECODE"])
def test_what_nobody_named_does_not_pass(name: str) -> None:
    assert name not in made({name: "value"})


def test_settings_add_names_and_prefixes() -> None:
    environ = {"DATABASE_URL": "a", "ACME_ONE": "b", "ACME_TWO": "c", "OTHER": "d"}
    result = made(environ, extra_allow=["DATABASE_URL"], extra_prefix_allow=["ACME_", ""])
    assert {"DATABASE_URL", "ACME_ONE", "ACME_TWO"} <= result.keys()
    assert "OTHER" not in result


def test_another_engines_variables_do_not_pass() -> None:
    names = Names(exact=frozenset({"OPENAI_API_KEY"}))
    environ = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "b"}
    assert "ANTHROPIC_API_KEY" not in made(environ, engine_names=names)
    assert made(environ, engine_names=names)["OPENAI_API_KEY"] == "b"


def test_stripped_names_are_inherited_no_more_but_may_be_set() -> None:
    environ = {"ANTHROPIC_API_KEY": "inherited"}
    assert "ANTHROPIC_API_KEY" not in made(environ, strip=["ANTHROPIC_API_KEY"])
    set_by_hand = made(environ, strip=["ANTHROPIC_API_KEY"], overrides={"ANTHROPIC_API_KEY": "set"})
    assert set_by_hand["ANTHROPIC_API_KEY"] == "set"


def test_a_secret_of_ours_passes_under_no_name() -> None:
    token = "123456:AAE-secret-token"
    environ = {"PATH": "/bin", "HTTPS_PROXY": f"http://{token}@proxy", "XDG_NOTE": token}
    result = made(environ, secrets=[token, ""], overrides={"MY_BOT": token})
    assert result == {"PATH": "/bin", "UNTETHER_SESSION": "1", "UNTETHER_PROCESS": "p1"}


def test_the_agent_is_marked() -> None:
    outer = {"UNTETHER_SESSION": "0", "UNTETHER_PROCESS": "outer"}
    assert made(outer) == {"UNTETHER_SESSION": "1", "UNTETHER_PROCESS": "p1"}
