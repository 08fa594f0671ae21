"""Masking secrets in text that leaves the process: logs, error messages, bug reports.

`redact` knows what secrets look like; a `Redactor` also knows the exact secrets that are configured, and is a structlog
processor (put it after the processors that render exceptions and before the final renderer).
Masking is a net under careful code, not a licence to log secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import quote

MASK: Final = "•••"

_SHORTEST_SECRET = 6
"""A shorter configured secret would mask ordinary words, so it is left to the patterns."""

# Each pattern is linear on hostile text: no two neighbouring repetitions match the same characters, and a look-behind
# keeps a long run of word characters from being tried again at every place.
_PATTERNS: Final = (
    # Telegram bot token; the number before the colon is the bot's public id and helps to tell bots apart.
    (re.compile(r"(?<!\d)(\d{1,20}):[\w-]{30,}"), rf"\1:{MASK}"),
    # Keys with a known prefix: OpenAI and Anthropic, GitHub, GitLab, Slack, Google, AWS.
    (re.compile(r"(?<![\w-])sk-[\w-]{16,}"), f"sk-{MASK}"),
    (re.compile(r"(?<!\w)(gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-)[\w-]{16,}"), rf"\1{MASK}"),
    (re.compile(r"(?<!\w)(AIza|AKIA|ASIA)[\w-]{16,}"), rf"\1{MASK}"),
    # JSON Web Token: base64url of '{"', then at least a payload.
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"), MASK),
    (
        re.compile(r"(?i)(?<!\w)(authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:basic|token)\s{1,3})[^\s\"',]+"),
        rf"\1{MASK}",
    ),
    (re.compile(r"(?i)(?<!\w)(bearer\s{1,3})[\w.~+/=-]{8,}"), rf"\1{MASK}"),
    # NAME=value and "name": "value", where the name says that it is a secret.
    (
        re.compile(
            r"(?i)((?:api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?token|access[_-]?token|oauth[_-]?token|bot[_-]?token"
            r"|secret|password|passwd)[\"']?\s{0,3}[=:]\s{0,3}[\"']?)(?!•)[^\s\"',;&}]{6,}"
        ),
        rf"\1{MASK}",
    ),
    # scheme://user:password@host; `git@` is no secret.
    (re.compile(r"://(?!git@)[^\s/?#]{1,512}@"), f"://{MASK}@"),
)

_SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:token|secret|password|passwd|passphrase|api_?key|access_?key|private_?key|secret_?key|(?-i:KEY)|authorization|auth|cookie"
    r"|credentials?)$",
    re.IGNORECASE,
)
_PUBLIC_NAMES = frozenset({"resume_token"})
"""Names of ours that sound secret: a resume token is the id of an agent's session."""


def is_secret_name(name: str) -> bool:
    """Whether a variable or field of this name holds a secret, by its last word: `GITHUB_TOKEN`, `bot_token`."""
    return name not in _PUBLIC_NAMES and bool(_SECRET_NAME.search(name))


def redact(text: str) -> str:
    """`text` with everything masked that looks like a secret."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


class Redactor:
    """`redact` plus the exact `secrets` of this installation, also in their percent-encoded form."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        exact = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        exact |= {quote(secret, safe="") for secret in exact}
        longest_first = sorted(exact, key=lambda secret: (-len(secret), secret))
        self._exact = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def redact(self, text: str) -> str:
        """`text` with the configured secrets, and all that looks like a secret, masked."""
        return redact(self._exact.sub(MASK, text) if self._exact else text)

    def __call__(self, logger: Any, method: str, event_dict: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """The structlog processor: masks names and values, in nested containers too."""
        for name, value in event_dict.items():
            event_dict[name] = self._field(name, value)
        return event_dict

    def _field(self, name: object, value: object) -> object:
        if isinstance(name, str) and is_secret_name(name) and isinstance(value, str | bytes):
            return MASK
        return self.mask(value)

    def mask(self, value: object) -> object:
        """A log value or setting with every text in it masked."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, Mapping):
            return {name: self._field(name, item) for name, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self.mask(item) for item in value)  # type: ignore[call-arg, attr-defined]
        # Anything else is rendered by its repr; it is replaced only when that holds a secret.
        shown = repr(value)
        masked = self.redact(shown)
        return value if masked == shown else masked
