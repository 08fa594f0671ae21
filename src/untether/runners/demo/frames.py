"""The shapes of the frames that the demo agent prints: those of Claude Code 2.1.332, as recorded.

Functions give a frame without `session_id` and `uuid`, which the agent adds when it sends one. Left out are the
fields about things that the demo agent has not got (sockets, plugins, agents of its own), or they are empty.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DIALECT = "2.1.332"
MODEL = "demo-1"
CONTEXT_WINDOW = 200_000
MODES = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan")
TOOLS = ("Task", "Bash", "Edit", "Read", "Write")
ASKING_TOOLS = ("AskUserQuestion", "EnterPlanMode", "ExitPlanMode")
CAPABILITIES = (
    "interrupt_receipt_v1",
    "interrupt_cancel_queued_v1",
    "msg_lifecycle_v1",
    "ask_user_question_unanswered_v1",
)
TOKENS_PER_CALL = 100  # invented, as the prices are; they let costs and budgets be tried
DOLLARS_PER_INPUT_TOKEN = 1e-6
DOLLARS_PER_OUTPUT_TOKEN = 5e-6


def new_uuid() -> str:
    """A random UUID (version 4), without the cost of importing `uuid`."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def timestamp() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"


def dollars(input_tokens: int, output_tokens: int) -> float:
    """What tokens cost; cached ones are free."""
    return input_tokens * DOLLARS_PER_INPUT_TOKEN + output_tokens * DOLLARS_PER_OUTPUT_TOKEN


def init(cwd: str, model: str, mode: str, home: str, *, can_ask: bool) -> dict[str, Any]:
    """`system/init`, sent at the start of every turn."""
    return {
        "type": "system",
        "subtype": "init",
        "cwd": cwd,
        "tools": sorted(TOOLS + ASKING_TOOLS if can_ask else TOOLS),
        "mcp_servers": [],
        "model": model,
        "permissionMode": mode,
        "slash_commands": [],
        "terminal_slash_commands": [],
        "apiKeySource": "none",
        "claude_code_version": DIALECT,
        "output_style": "default",
        "agents": ["general-purpose"],
        "skills": [],
        "plugins": [],
        "capabilities": list(CAPABILITIES),
        "analytics_disabled": True,
        "product_feedback_disabled": True,
        "served_by_anthropic": False,
        "sandbox_enabled": False,
        "memory_paths": {"auto": home},
        "original_cwd": cwd,
        "additional_directories": [],
        "fast_mode_state": "off",
        "fast_mode_disabled_reason": "sdk_opt_in_required",
        "per_turn_effort_active": False,
        "ultrathink_available": False,
        "ultrathink_typed_raises": False,
        "view_mode": "default",
    }


def initialize_response(mode: str, state: str) -> dict[str, Any]:
    """The payload that answers `initialize`."""
    return {
        "commands": [],
        "agents": [{"name": "general-purpose", "description": "A scripted helper of the demo agent."}],
        "output_style": "default",
        "available_output_styles": ["default"],
        "models": models(),
        "account": {"tokenSource": "none", "apiKeySource": "none", "apiProvider": "demo"},
        "pid": os.getpid(),
        "claude_code_version": DIALECT,
        "current_permission_mode": mode,
        "hook_on_failure_supported": False,
        "analytics_disabled": True,
        "sandbox_enabled": False,
        "fast_mode_state": "off",
        "fast_mode_disabled_reason": "sdk_opt_in_required",
        "session_state": state,
        "capabilities": [],
    }


def models() -> list[dict[str, Any]]:
    description = "The scripted model of the demo agent; its tokens and prices are invented"
    return [{"value": "default", "resolvedModel": MODEL, "displayName": "Demo", "description": description}]


def status(mode: str) -> dict[str, Any]:
    return {"type": "system", "subtype": "status", "status": None, "permissionMode": mode}


def lifecycle(uuid: str, state: str) -> dict[str, Any]:
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": state}


def assistant(message_id: str, model: str, block: dict[str, Any], cached_tokens: int) -> dict[str, Any]:
    """One content block of the model's message; all blocks of a message come with the same `message.id`."""
    return {
        "type": "assistant",
        "message": {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [block],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": TOKENS_PER_CALL,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": cached_tokens,
                "output_tokens": 1,
            },
            "context_management": None,
        },
        "parent_tool_use_id": None,
        "timestamp": timestamp(),
        "request_id": f"req_demo{message_id[-12:]}",
    }


def api_error(status: int, kind: str, error: str, text: str) -> dict[str, Any]:
    """The `<synthetic>` message that tells of a failed API call, before the result that says so."""
    frame = assistant(new_uuid(), "<synthetic>", {"type": "text", "text": text}, 0)
    frame["message"]["stop_reason"] = "stop_sequence"
    frame["message"]["stop_sequence"] = ""
    return frame | {"error": error, "is_api_error_message": True, "api_error_status": status, "api_error_type": kind}


def user(content: Any) -> dict[str, Any]:
    """A message on the user's side: a tool result, a note of the program, or a replay of what was sent to us."""
    return {
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
        "timestamp": timestamp(),
    }


def permission_denied(tool: str, tool_id: str, reason_type: str, code: str, reason: str, text: str) -> dict[str, Any]:
    """`system/permission_denied`: a tool call refused without asking anybody."""
    frame = {
        "type": "system",
        "subtype": "permission_denied",
        "tool_name": tool,
        "tool_use_id": tool_id,
        "decision_reason_type": reason_type,
    }
    if code:
        frame["decision_reason_code"] = code
    if reason:
        frame["decision_reason"] = reason
    return frame | {"message": text}


def usage(input_tokens: int, output_tokens: int, cached_tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": input_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens,
        "output_tokens": output_tokens,
        "output_tokens_details": {"thinking_tokens": 0},
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
        "service_tier": "standard",
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
        "inference_geo": "",
        "iterations": [],
        "speed": "standard",
        "fallback_credit": None,
    }


def model_usage(model: str, input_tokens: int, output_tokens: int, cached_tokens: int) -> dict[str, Any]:
    return {
        "inputTokens": input_tokens,
        "outputTokens": output_tokens,
        "cacheReadInputTokens": cached_tokens,
        "cacheCreationInputTokens": 0,
        "webSearchRequests": 0,
        "costUSD": dollars(input_tokens, output_tokens),
        "contextWindow": CONTEXT_WINDOW,
        "maxOutputTokens": 32_000,
        "thinkingTokens": 0,
        "cacheCreationEphemeral5mInputTokens": 0,
        "cacheCreationEphemeral1hInputTokens": 0,
        "canonicalModel": model,
        "provider": "demo",
        "costBasis": "list",
    }


def subagent_stats(spawned: int) -> dict[str, Any]:
    return {
        "spawned": spawned,
        "requested": {"background": 0, "foreground": spawned, "unset": 0},
        "started_in_background": 0,
        "max_depth": min(spawned, 1),
        "spawned_by_subagents": 0,
        "completed": spawned,
        "failed": 0,
        "killed": {"parent": 0, "user": 0, "system": 0},
        "refused": {"depth_limit": 0, "concurrency_limit": 0, "budget": 0},
        "by_type": {"general-purpose": spawned} if spawned else {},
    }
