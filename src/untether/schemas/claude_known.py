"""What is known of Claude Code by name, to be compared with a release: tools, flags, requests, members of enums.

Being listed does not mean that it is used: it means that somebody looked at it. Sources: the recordings, the help and
the schemas inside the programs of 2.1.197 and 2.1.332.
"""

from __future__ import annotations

from .claude import KNOWN_LIFECYCLE_STATES, KNOWN_MODES, KNOWN_RATE_LIMIT_STATUSES, KNOWN_RESULTS, KNOWN_TASK_STATUSES
from .claude_system import QUIET, SYSTEM, names

TOOLS = names(
    "Task Agent AskUserQuestion Bash CronCreate CronDelete CronList Edit EnterPlanMode EnterWorktree ExitPlanMode",
    "ExitWorktree Glob Grep ListAgents Monitor NotebookEdit Read ReportFindings ScheduleWakeup SendMessage Skill",
    "TaskCreate TaskGet TaskList TaskOutput TaskStop TaskUpdate TodoWrite ToolSearch WebFetch WebSearch Workflow Write",
)
"""Tools of `init`, of both releases and of `--restricted`."""

FLAGS = names(
    "--add-dir --allowedTools --continue --dangerously-skip-permissions --effort --fallback-model --fork-session",
    "--include-hook-events --include-partial-messages --input-format --max-budget-usd --mcp-config --model",
    "--output-format --permission-mode --print --replay-user-messages --resume --settings --verbose",
)
"""Flags that we send and that the help lists. Not listed, and taken all the same: `--max-turns`,
`--permission-prompt-tool`."""

REQUESTS = names(
    "initialize interrupt set_model set_permission_mode stop_task cancel_async_message rewind_files get_context_usage"
)
"""Control requests that we send."""

SUBTYPES = frozenset(SYSTEM) | QUIET

ENUMS = {
    "permission mode": KNOWN_MODES,
    "result": KNOWN_RESULTS | {"success"},
    "task status": KNOWN_TASK_STATUSES,
    "rate limit status": KNOWN_RATE_LIMIT_STATUSES,
    "rate limit": names("five_hour seven_day seven_day_opus seven_day_sonnet seven_day_overage_included overage"),
    "message state": KNOWN_LIFECYCLE_STATES,
    "session state": names("idle running requires_action"),
    "API error": names(
        "authentication_failed oauth_org_not_allowed account_on_hold verification_required billing_error rate_limit",
        "overloaded invalid_request model_not_found server_error unknown max_output_tokens cloud_credential_error",
    ),
}
"""Enums by what they are about. One of a release is recognised by sharing most of its members with one of these."""
