"""The settings that `untether.toml` may hold, as frozen models with their limits and rules.

Every known section refuses unknown keys. Values are strict: a number in quotes is an error and not a number.
Rules that need two keys of one section are written as a validator of the key a person would change; it reads the
other one from `info.data`, so that key is declared first. Rules across sections are in `load`.

Validator messages finish the sentence "KEY …" and never repeat the value, which may be a secret.
"""

from __future__ import annotations

import ipaddress
import os
import re
from datetime import time
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    Strict,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

MIB = 1024 * 1024

PermissionMode = Literal[
    "default", "manual", "plan", "plan-auto", "acceptEdits", "auto", "dontAsk", "bypassPermissions"
]

ReadOnlyTool = Literal["Read", "Glob", "Grep", "LS", "NotebookRead", "WebSearch"]
"""Tools of Claude Code that change nothing; `runners/claude/modes.py` has the same list."""

_SET_ITSELF = ", which Untether sets itself"
_DENIED_FLAGS = {
    "--print": _SET_ITSELF,
    "--output-format": _SET_ITSELF,
    "--input-format": _SET_ITSELF,
    "--resume": _SET_ITSELF,
    "--continue": _SET_ITSELF,
    "--permission-prompt-tool": _SET_ITSELF,
    "--permission-prompts": _SET_ITSELF,
    "--permission-mode": "; set permission_mode instead",
    "--allowedtools": "; set allowed_tools instead",
    "--allowed-tools": "; set allowed_tools instead",
    "--dangerously-skip-permissions": "; set dangerously_skip_permissions = true instead",
    "--allow-dangerously-skip-permissions": "; set dangerously_skip_permissions = true instead",
}
_DENIED_SHORT_FLAGS = {"p": "--print", "r": "--resume", "c": "--continue"}


def _plain_text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    if any(ord(char) < 32 or ord(char) == 127 for char in value):
        raise ValueError("must not contain control characters")
    return value


def _program(value: str) -> str:
    return os.path.expanduser(value)


def _flag_value(value: str) -> str:
    if value.startswith("-") or any(char.isspace() for char in value):
        raise ValueError("must not start with a dash and not contain spaces")
    return value


def _extra_arg(value: str) -> str:
    """Refuse the flags that carry Untether's own protocol, as `--flag`, `--flag=value`, `-f` and `-fVALUE`."""
    if value == "--":
        raise ValueError("contains a bare --, after which the CLI would read Untether's own flags as text")
    if value.startswith("--"):
        flag = shown = value.split("=", 1)[0]
    else:
        # -h and -v take no value, so a denied letter may stand behind them.
        letter = value[1:].lstrip("hv")[:1] if value.startswith("-") else ""
        flag = _DENIED_SHORT_FLAGS.get(letter, "")
        shown = f"-{letter} ({flag})"
    if reason := _DENIED_FLAGS.get(flag.lower()):
        raise ValueError(f"contains {shown}{reason}")
    return value


def _http_address(value: str) -> str:
    """An http(s) address without a trailing slash. `urlsplit` quotes its input in errors, so those are replaced."""
    try:
        parts = urlsplit(value)
        well_formed = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        well_formed = False
    if not well_formed or parts.query or parts.fragment or any(char.isspace() for char in value):
        raise ValueError("must be an address that starts with http:// or https://")
    return value.rstrip("/")


def _origin(value: str) -> str:
    """The console stands at the root of its address: links and cookies know no folder above it."""
    if urlsplit(value).path:
        raise ValueError("must be an address without a path, such as https://untether.example.org")
    return value


def _bot_token(value: SecretStr) -> SecretStr:
    token = value.get_secret_value().strip()
    if not re.fullmatch(r"[!-~]+", token) or any(char in token for char in "/?#"):
        raise ValueError("must be the token that @BotFather gave you, such as 123456:ABC-DEF")
    return SecretStr(token)


def _hours(value: str) -> str:
    try:
        quiet_hours(value)
    except ValueError:
        raise ValueError('must be two times, such as "22:00-07:00"') from None
    return value


def quiet_hours(value: str) -> tuple[time, time]:
    """The two times of a text such as `22:00-07:00`. Raises ValueError."""
    start, _, end = value.partition("-")
    return time.fromisoformat(start.strip()), time.fromisoformat(end.strip())


def _not_blank(value: object) -> object:
    """Before it is a path: an empty one and `.` are the same to it."""
    if isinstance(value, str) and not value.strip():
        raise ValueError("must not be empty")
    return value


def _folder(value: Path) -> Path:
    if "\0" in str(value):
        raise ValueError("must not contain control characters")
    try:
        return value.expanduser()
    except RuntimeError:
        raise ValueError("starts with ~ and a user that does not exist here") from None


def _env_name(value: str) -> str:
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", value):
        raise ValueError("must be a variable name in capitals, digits and underscores, such as MY_TOOL_HOME")
    if value.startswith("UNTETHER_"):
        raise ValueError("must not start with UNTETHER_: Untether's own settings never reach an agent")
    return value


def _environment(value: dict[str, str]) -> dict[str, str]:
    if any(not name or "=" in name or "\0" in name for name in value):
        raise ValueError("has a variable name that is empty or contains =")
    if any("\0" in text for text in value.values()):
        raise ValueError("has a value with a NUL character")
    return value


def _zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("must be a time zone such as Europe/Berlin or America/New_York, or UTC") from None
    return value


Text = Annotated[str, AfterValidator(_plain_text)]
Texts = Annotated[tuple[Text, ...], Strict(False)]
"""A TOML list; strictness is lifted for the list itself only, since TOML has no tuples."""
ChatId = Annotated[int, Field(ge=-(2**52), le=2**52)]
"""A Telegram chat: at most 52 significant bits (Bot API, `Chat.id`); groups are negative."""
UserId = Annotated[int, Field(ge=1, le=2**52)]
HttpAddress = Annotated[str, AfterValidator(_http_address)]
Folder = Annotated[Path, Strict(False), BeforeValidator(_not_blank), AfterValidator(_folder)]
Environment = Annotated[dict[str, str], AfterValidator(_environment)]
EnvNames = Annotated[tuple[Annotated[str, AfterValidator(_env_name)], ...], Strict(False)]


class Section(BaseModel):
    """A table of the file: no unknown keys, no conversions, no change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)


class Telegram(Section):
    bot_token: Annotated[SecretStr, AfterValidator(_bot_token)]
    chat_id: ChatId
    allow_any_user: bool = False
    allowed_user_ids: Annotated[tuple[UserId, ...], Strict(False)] = Field(default=(), validate_default=True)
    session_mode: Literal["stateless", "chat"] = "stateless"
    show_resume_line: bool = True
    forward_coalesce_s: float = Field(default=1.0, ge=0)
    """Seconds to wait for the next part of a long text that Telegram cut."""
    message_overflow: Literal["trim", "split"] = "split"
    dated_after_s: float = Field(default=3600.0, ge=0)
    """Seconds after which an answer carries its date: it left that late, or its message had waited that long."""
    """A long answer: split into messages, or trimmed to one with the whole as a file."""
    api_base_url: HttpAddress = "https://api.telegram.org"

    @field_validator("allowed_user_ids")
    @classmethod
    def _someone_is_named(cls, value: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        if not value and info.data.get("allow_any_user") is False:
            raise ValueError(
                "must name at least one user (untether chat-id shows the ids), or set allow_any_user = true"
            )
        return value


class Web(Section):
    enabled: bool = True
    public_url: Annotated[HttpAddress, AfterValidator(_origin)] | None = None
    allow_insecure: bool = False
    host: Text = Field(default="127.0.0.1", validate_default=True)
    port: int = Field(default=8420, ge=0, le=65535)
    """0 takes any free port."""

    @field_validator("host")
    @classmethod
    def _safe_to_listen(cls, value: str, info: ValidationInfo) -> str:
        if "public_url" not in info.data or "allow_insecure" not in info.data or is_loopback(value):
            return value
        public_url = info.data["public_url"] or ""
        if not public_url.startswith("https://") and not info.data["allow_insecure"]:
            raise ValueError(
                "is reachable from other machines, so it needs public_url with https://, or allow_insecure = true"
            )
        return value


class Transports(BaseModel):
    """Tables of other names belong to transport plugins and are handed to them as they are."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, hide_input_in_errors=True)
    __pydantic_extra__: dict[str, dict[str, Any]] = Field(init=False, repr=False)

    telegram: Telegram | None = None
    web: Web = Field(default_factory=Web)


class Claude(Section):
    command: Annotated[Text, AfterValidator(_program)] = "claude"
    model: Annotated[Text, AfterValidator(_flag_value)] | None = None
    permission_mode: PermissionMode = "default"
    allowed_tools: Texts | None = None
    """None: no `--allowedTools` is sent."""
    auto_approve: Annotated[tuple[ReadOnlyTool, ...], Strict(False)] = ()
    """Tools whose requests are approved without asking."""
    interactive: bool = True
    """False: the one-shot form, which cannot ask for permission."""
    extra_args: Annotated[tuple[Annotated[Text, AfterValidator(_extra_arg)], ...], Strict(False)] = ()
    use_api_billing: bool = False
    """True keeps ANTHROPIC_API_KEY in the agent's environment."""
    env: Environment = Field(default_factory=dict, repr=False)
    dangerously_skip_permissions: bool = False
    fallback_model: Annotated[Text, AfterValidator(_flag_value)] | None = None
    max_turns: int | None = Field(default=None, ge=1)
    max_budget_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False, strict=False)
    """US dollars that one process may cost."""
    add_dirs: Texts | None = None
    mcp_config: Text | dict[str, Any] | None = Field(default=None, repr=False)
    """The path of a file, or a table of servers by name."""
    agents: dict[str, dict[str, Any]] | None = None
    """Sub-agents by name, as for `--agents`."""
    partial_messages: bool = False
    """True: the answer comes in pieces while it is written."""
    checkpoints: bool = False
    """True: the CLI keeps what the files were, so that they can be put back."""


class Codex(Section):
    command: Annotated[Text, AfterValidator(_program)] = "codex"
    mode: Literal["app-server", "exec"] = "app-server"
    """`exec`: the one-shot form, which cannot ask for permission."""
    model: Annotated[Text, AfterValidator(_flag_value)] | None = None
    reasoning: Annotated[Text, AfterValidator(_flag_value)] | None = None
    """How hard the model thinks: what it takes is told by Codex, `low` to `xhigh` for most."""
    permission_mode: PermissionMode | Literal["safe", "untrusted"] = "default"
    extra_args: Texts = ()
    env: Environment = Field(default_factory=dict, repr=False)
    dangerously_skip_permissions: bool = False
    """True allows `bypassPermissions`, and makes it the mode when no other is set."""


class Pi(Section):
    command: Annotated[Text, AfterValidator(_program)] = "pi"
    mode: Literal["rpc", "json"] = "rpc"
    """`json`: the one-shot form, which cannot ask for permission."""
    provider: Annotated[Text, AfterValidator(_flag_value)] | None = None
    model: Annotated[Text, AfterValidator(_flag_value)] | None = None
    """By its id, by `PROVIDER/ID`, or by a pattern."""
    reasoning: Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    permission_mode: PermissionMode | Literal["safe"] = "default"
    extra_args: Texts = ()
    env: Environment = Field(default_factory=dict, repr=False)
    dangerously_skip_permissions: bool = False
    """True allows `bypassPermissions`, and makes it the mode when no other is set."""


class Demo(Section):
    command: Annotated[Text, AfterValidator(_program)] | None = None
    """None: the demo agent that comes with Untether."""
    model: Annotated[Text, AfterValidator(_flag_value)] | None = None
    permission_mode: PermissionMode = "default"
    env: Environment = Field(default_factory=dict, repr=False)


class Engines(BaseModel):
    """Tables of other names belong to engine plugins and are handed to them as they are."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, hide_input_in_errors=True)
    __pydantic_extra__: dict[str, dict[str, Any]] = Field(init=False, repr=False)

    claude: Claude = Field(default_factory=Claude)
    codex: Codex = Field(default_factory=Codex)
    demo: Demo = Field(default_factory=Demo)
    pi: Pi = Field(default_factory=Pi)


FLAT_ENGINES = tuple(Engines.model_fields)
"""Engines whose table may also be written without `engines.`, as in `[claude]`."""


class Project(Section):
    path: Folder
    """Absolute once loaded; in the file, relative to the folder of the file."""
    worktrees_dir: Text = ".worktrees"
    worktree_base: Annotated[Text, AfterValidator(_flag_value)] | None = None
    default_engine: Text | None = None
    chat_id: ChatId | None = None


class Progress(Section):
    verbosity: Literal["compact", "verbose"] = "compact"
    max_actions: int = Field(default=5, ge=0, le=50)
    min_render_interval: float = Field(default=2.0, ge=0, le=30)
    group_chat_rps: float = Field(default=0.3333, ge=0, le=10)
    heartbeat_interval: float = Field(default=30.0, ge=5, le=120)


class Chat(Section):
    busy: Literal["queue", "steer", "interrupt"] = "queue"
    """What becomes of a message that is sent while its agent works, where no chat has chosen."""
    auto_continue: bool = False
    """A run that a spent quota cut goes on by itself when the quota is renewed, where no chat has chosen."""
    max_file_mb: int = Field(default=20, ge=1, le=2000)
    """The largest file that may come with a message, in MiB. Bots get 20 from Telegram, more from a server of one's
    own."""


class Preamble(Section):
    enabled: bool = True
    """Agents are told that a person reads along in a chat."""
    text: str | None = None
    """Another text for that; "" tells nothing."""


class Loop(Section):
    own_schedule: bool = True
    """False: nothing looks at the jobs that an agent schedules inside its own program."""


class Watchdog(Section):
    post_result_limbo_grace: float = Field(default=60.0, ge=0, le=600)
    """Seconds after which an idle live process is closed."""
    post_result_bg_max_hold: float = Field(default=1800.0, ge=0, le=86_400)
    """Seconds by which work in the background puts off what follows an answer."""
    liveness_timeout: int = Field(default=600, ge=60, le=3600)
    """Seconds without a sign of life after which a run is said to be perhaps stuck."""
    pre_result_silence_timeout: int = Field(default=3600, ge=0, le=86_400)
    """Seconds without a sign of life after which a run is stopped; 0: never."""
    live_session_max_s: int = Field(default=14_400, ge=600, le=86_400)
    """Seconds after which a run is stopped whatever it does."""
    prespawn_ram_block_mb: int = Field(default=500, ge=0, le=65_536)
    """No agent is started with less free memory; 0: always started."""
    prespawn_ram_warn_mb: int = Field(default=2000, ge=0, le=65_536, validate_default=True)
    """It is said when less is free; 0: never."""
    prespawn_ram_per_run_reserve_mb: int = Field(default=750, ge=0, le=65_536)
    """Kept aside for each agent that lives."""
    max_concurrent_engine_runs: int = Field(default=0, ge=0, le=64)
    """How many agents may live at once; 0: any number."""
    rearm_plan_mode: bool = True
    """False: after an approved plan, the session does not go back to plan mode."""
    max_line_bytes: int = Field(default=64 * MIB, ge=MIB, le=1024 * MIB)
    """A longer line of an agent is skipped and reported."""
    orphan_max_s: int = Field(default=72 * 3600, ge=600, le=30 * 86_400)
    """Seconds after which an agent without a bridge is stopped."""
    process_output_max_bytes: int = Field(default=2048 * MIB, ge=16 * MIB)
    """An agent that has printed as much waits: its journal grows no further."""
    disk_min_free_bytes: int = Field(default=256 * MIB, ge=0)
    """An agent waits while less is free, or than a twentieth of a small disk."""

    @field_validator("prespawn_ram_warn_mb")
    @classmethod
    def _warns_before_it_blocks(cls, value: int, info: ValidationInfo) -> int:
        block = info.data.get("prespawn_ram_block_mb")
        if value and block is not None and value <= block:
            raise ValueError(f"must be more than prespawn_ram_block_mb, which is {block}, or 0 for no warning")
        return value


class Retention(Section):
    journal_days: int = Field(default=30, ge=1, le=36500)
    """What agents printed; that of a session's last run stays for `run_days`."""
    journal_max_bytes: int = Field(default=5 * 1024 * MIB, ge=100 * MIB)
    """All journals together; the oldest go first."""
    message_days: int = Field(default=30, ge=2, le=36500)
    """What came in and went out, as it was sent. Telegram may repeat an update for a day, so not less than two."""
    run_days: int = Field(default=365, ge=1, le=36500)
    """The texts of messages and answers; those of a session's last run stay."""


class Reminders(Section):
    enabled: bool = True
    first_after: float = Field(default=600.0, ge=10)
    """Seconds from a request to its first reminder."""
    every: float = Field(default=1800.0, ge=10)
    """Seconds between further ones."""
    quiet_hours: Annotated[Text, AfterValidator(_hours)] | None = None
    """From when to when there are none, as "22:00-07:00", in `timezone`."""


class CostBudget(Section):
    enabled: bool | None = None
    """None: as soon as a limit is set."""
    max_cost_per_run: float | None = Field(default=None, ge=0, allow_inf_nan=False, strict=False)
    """US dollars; 0: no limit."""
    max_cost_per_day: float | None = Field(default=None, ge=0, allow_inf_nan=False, strict=False)
    warn_at_pct: int = Field(default=70, ge=0, le=100)
    """It is said when so much of a limit is used; 0: never."""
    auto_cancel: bool = True
    """False: reaching a limit is only said."""
    warn_run_above_usd: float = Field(default=20.0, ge=0, allow_inf_nan=False, strict=False)
    """A run that costs more is said to, whatever the limits are; 0: never."""
    notify_run_outlier: bool = True


class Security(Section):
    env_extra_allow: EnvNames = ()
    env_extra_prefix_allow: EnvNames = ()


class Plugins(BaseModel):
    """Tables beside `enabled` belong to command plugins and are handed to them as they are."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, hide_input_in_errors=True)
    __pydantic_extra__: dict[str, dict[str, Any]] = Field(init=False, repr=False)

    enabled: Texts = ()
    """Distributions that may add plugins; empty: all that are installed."""


class Root(BaseSettings):
    """The whole file, with engine tables under `engines`. `load` merges file and environment before it is built."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        hide_input_in_errors=True,
        case_sensitive=True,
        env_prefix="untether__",
        env_nested_delimiter="__",
        env_ignore_empty=True,
    )

    default_engine: Text | None = None
    default_project: Text | None = None
    timezone: Annotated[Text, AfterValidator(_zone)] | None = None
    """An IANA name such as `Europe/Berlin`; None: the zone of this machine."""
    transports: Transports = Field(default_factory=Transports)
    engines: Engines = Field(default_factory=Engines)
    projects: dict[str, Project] = Field(default_factory=dict)
    progress: Progress = Field(default_factory=Progress)
    chat: Chat = Field(default_factory=Chat)
    preamble: Preamble = Field(default_factory=Preamble)
    loop: Loop = Field(default_factory=Loop)
    watchdog: Watchdog = Field(default_factory=Watchdog)
    retention: Retention = Field(default_factory=Retention)
    reminders: Reminders = Field(default_factory=Reminders)
    cost_budget: CostBudget = Field(default_factory=CostBudget)
    security: Security = Field(default_factory=Security)
    plugins: Plugins = Field(default_factory=Plugins)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def is_loopback(host: str) -> bool:
    """Whether `host` (a name or an address) can only be reached from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
