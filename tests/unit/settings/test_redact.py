"""Secrets are masked wherever they turn up, and ordinary text is left alone."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import structlog

from untether.redact import MASK, Redactor, is_secret_name, redact

TOKEN = "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"token 123456789:{TOKEN}.", "token 123456789:•••."),
        (f"https://api.telegram.org/bot123456789:{TOKEN}/getMe", "https://api.telegram.org/bot123456789:•••/getMe"),
        ("key sk-ant-api03-abcdefghijklmnop-1_2", "key sk-•••"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789 x", "ghp_••• x"),
        ("github_pat_11ABCDEFG0123456789_abcdefghij", "github_pat_•••"),
        ("xoxb-123456789012-abcdefghij", "xoxb-•••"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIA•••"),
        (f"jwt={JWT} end", "jwt=••• end"),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer •••"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic •••"),
        ("https://user:pa@ss@host/path?x=1", "https://•••@host/path?x=1"),
        ("https://sometoken@github.com/a/b", "https://•••@github.com/a/b"),
        ("ANTHROPIC_API_KEY=abcdef123 next", "ANTHROPIC_API_KEY=••• next"),
        ('{"bot_token": "1:SHORTTOKEN", "a": 1}', '{"bot_token": "•••", "a": 1}'),
        ("password: hunter22", "password: •••"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, masked: str) -> None:
    assert redact(text) == masked
    assert redact(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12:30:45 run finished in 48s, 61 k tokens",
        "src/untether/settings/load.py:120: error",
        "a risk-assessment-of-the-whole-thing and a task-list-with-a-long-name",
        "git clone ssh://git@github.com/a/b.git",
        "http://127.0.0.1:8420/pair",
        "mail anna@example.org",
        "550e8400-e29b-41d4-a716-446655440000",
        "input_tokens=12345678 cached_tokens: 1234567",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("text", ["1" * 300_000, "eyJ" * 100_000, "sk-" * 100_000, "://" * 100_000, "a-" * 150_000])
def test_hostile_text_takes_no_longer_than_other_text(text: str) -> None:
    started = time.process_time()
    redact(text)
    assert time.process_time() - started < 10  # quadratic matching would take minutes


def test_configured_secrets_are_masked_exactly_and_percent_encoded() -> None:
    redactor = Redactor(["123456:TEST", "123456:TEST-longer", "abc"])

    assert redactor.redact("http://x/bot123456:TEST/getMe") == "http://x/bot•••/getMe"
    assert redactor.redact("http://x/bot123456%3ATEST/getMe") == "http://x/bot•••/getMe"
    assert redactor.redact("123456:TEST-longer") == MASK
    assert redactor.redact("abc is too short to be masked") == "abc is too short to be masked"
    assert Redactor().redact("nothing configured") == "nothing configured"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("bot_token", True),
        ("ANTHROPIC_API_KEY", True),
        ("ANTHROPIC_AUTH_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("DB_PASSWORD", True),
        ("SERVICE_KEY", True),
        ("cookie", True),
        ("resume_token", False),
        ("MAX_MCP_OUTPUT_TOKENS", False),
        ("interaction_key", False),
        ("author", False),
        ("ANTHROPIC_BASE_URL", False),
        ("", False),
    ],
)
def test_names_tell_secrets_apart(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


class Opaque:
    def __repr__(self) -> str:
        return "<Opaque 123456:TESTING>"


def test_a_log_line_is_masked_in_every_corner() -> None:
    lines: list[str] = []

    class Sink:
        def info(self, line: str) -> None:
            lines.append(line)

    log: Any = structlog.wrap_logger(
        Sink(),
        processors=[
            structlog.processors.format_exc_info,
            Redactor(["123456:TESTING"]),
            structlog.processors.JSONRenderer(default=repr),
        ],
    )
    try:
        raise RuntimeError("failed at /bot123456:TESTING/getMe")
    except RuntimeError:
        log.info(
            "sent to 123456:TESTING",
            exc_info=True,
            bot_token="short",
            nested={"api_key": "x", "urls": ["https://u:123456:TESTING@h", 5]},
            pair=("123456:TESTING", None),
            thing=Opaque(),
            path=Path("/srv/demo"),
            count=3,
        )

    (line,) = lines
    assert "TESTING" not in line
    event = json.loads(line)
    assert event["event"] == "sent to •••"
    assert "RuntimeError: failed at /bot•••/getMe" in event["exception"]
    assert event["bot_token"] == MASK
    assert event["nested"] == {"api_key": MASK, "urls": ["https://•••@h", 5]}
    assert event["pair"] == [MASK, None]
    assert event["thing"] == "<Opaque •••>"
    assert event["path"] == "PosixPath('/srv/demo')"
    assert event["count"] == 3
