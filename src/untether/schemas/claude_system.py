"""The system frames of Claude Code: one struct for each subtype that is used here, and the names of the others."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Part(msgspec.Struct, frozen=True, gc=False):
    """A struct that is part of a frame. Decoded trees have no cycles, so the collector need not look at them."""


def names(*groups: str) -> frozenset[str]:
    return frozenset(name for group in groups for name in group.split())


class SystemPart(msgspec.Struct, frozen=True, gc=False):
    """A system frame of one subtype."""


class Init(SystemPart, frozen=True):
    """The start of a turn, of every one."""

    session_id: str = ""
    cwd: str = ""
    model: str = ""
    permission_mode: str = msgspec.field(default="", name="permissionMode")
    claude_code_version: str = ""
    capabilities: tuple[str, ...] = ()
    user_message_uuids: tuple[str, ...] = ()


class Status(SystemPart, frozen=True):
    status: str | None = None
    permission_mode: str = msgspec.field(default="", name="permissionMode")
    compact_result: str | None = None
    compact_error: str | None = None


class CompactMetadata(Part, frozen=True):
    trigger: str = ""
    pre_tokens: int | None = None
    post_tokens: int | None = None


class CompactBoundary(SystemPart, frozen=True):
    compact_metadata: CompactMetadata = CompactMetadata()


class ApiRetry(SystemPart, frozen=True):
    """`error_status` None means that there was no HTTP response."""

    attempt: int | None = None
    max_retries: int | None = None
    retry_delay_ms: float | None = None
    error_status: int | None = None
    error: str | None = None


class SessionState(SystemPart, frozen=True):
    """`running`, `requires_action` or `idle`, with CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS=1."""

    state: str = ""


class TaskStarted(SystemPart, frozen=True):
    task_id: str = ""
    tool_use_id: str | None = None
    description: str = ""
    task_type: str = ""
    run_id: str = ""
    is_backgrounded: bool | None = None


class TaskUse(Part, frozen=True):
    total_tokens: int | None = None
    tool_uses: int | None = None


class TaskProgress(SystemPart, frozen=True):
    task_id: str = ""
    tool_use_id: str | None = None
    description: str = ""
    last_tool_name: str | None = None
    usage: TaskUse | None = None


class TaskPatch(Part, frozen=True):
    status: str | None = None
    is_backgrounded: bool | None = None


class TaskUpdated(SystemPart, frozen=True):
    task_id: str = ""
    patch: TaskPatch = TaskPatch()


class TaskNotification(SystemPart, frozen=True):
    task_id: str = ""
    status: str = ""


class BackgroundTask(Part, frozen=True):
    task_id: str = ""
    run_id: str = ""
    task_type: str = ""
    description: str = ""


class BackgroundTasksChanged(SystemPart, frozen=True):
    """All that works in the background now: it replaces what was known (2.1.332)."""

    tasks: tuple[BackgroundTask, ...] = ()


class Informational(SystemPart, frozen=True):
    content: str = ""
    level: str = ""


class ModelFallback(SystemPart, frozen=True):
    """Another model took over, after overload or a refusal."""

    original_model: str = ""
    fallback_model: str = ""
    content: str = ""


class HookStarted(SystemPart, frozen=True):
    hook_id: str = ""
    hook_name: str = ""


class HookResponse(SystemPart, frozen=True):
    hook_id: str = ""


AnySystem: TypeAlias = (
    Init
    | Status
    | CompactBoundary
    | ApiRetry
    | SessionState
    | TaskStarted
    | TaskProgress
    | TaskUpdated
    | TaskNotification
    | BackgroundTasksChanged
    | Informational
    | ModelFallback
    | HookStarted
    | HookResponse
)

SYSTEM: dict[str, type[SystemPart]] = {
    "init": Init,
    "status": Status,
    "compact_boundary": CompactBoundary,
    "api_retry": ApiRetry,
    "session_state_changed": SessionState,
    "task_started": TaskStarted,
    "task_progress": TaskProgress,
    "task_updated": TaskUpdated,
    "task_notification": TaskNotification,
    "background_tasks_changed": BackgroundTasksChanged,
    "informational": Informational,
    "model_fallback": ModelFallback,
    "model_refusal_fallback": ModelFallback,
    "hook_started": HookStarted,
    "hook_response": HookResponse,
}
SYSTEM_DECODERS = {subtype: msgspec.json.Decoder(kind) for subtype, kind in SYSTEM.items()}


# Subtypes that are known and change nothing here. Those of terminals and of the cloud were never seen in this form.
QUIET = names(
    "agents_killed api_error away_summary cloud_session_delta code_change_published commands_changed",
    "control_request_progress dev_intent elicitation_complete feedback_draft_queued file_attachments_missing",
    "file_snapshot files_persisted hook_progress inherited_asks_settled instruction_size_warning late_allow_not_run",
    "local_command_output memory_recall memory_saved mirror_error model_consent_fallback model_refusal_no_fallback",
    "notification peer_message_hold per_turn_effort_changed permission_check_status permission_denied permission_retry",
    "plugin_install post_turn_summary scheduled_task_fire session_metadata session_title_changed session_writes_lost",
    "shell_cwd stop_hook_summary task_list_statuses task_summary thinking thinking_tokens turn_duration",
    "turn_handoff_available turn_preempted upgrade_relay_marker vcs_state_changed worker_shutting_down",
    "ui_focus ui_invalidate ui_log ui_notify ui_notify_cancel ui_panes ui_placed ui_scroll ui_status ui_toast",
)
