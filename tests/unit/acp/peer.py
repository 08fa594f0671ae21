"""An ACP agent on the package of the protocol's authors, whose schema is strict: what we send it must be right.

What it does is said by the message: `work` asks for a permission, `wait` works until it is cancelled, `files` asks for
a file of the client's; anything else is answered with what came.
"""

from __future__ import annotations

import asyncio
from typing import Any

import acp
from acp import schema


class Peer:
    def __init__(self) -> None:
        self._client: Any = None
        self._cancelled = asyncio.Event()
        self._mode = "auto"
        self._history: list[str] = []

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, client_capabilities: Any = None, **more: Any) -> Any:
        self._offered = client_capabilities
        return schema.InitializeResponse(
            protocol_version=protocol_version,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True),
            ),
            agent_info=schema.Implementation(name="peer", version="1.0"),
        )

    def _modes(self) -> Any:
        modes = [schema.SessionMode(id=id, name=id.title()) for id in ("auto", "ask")]
        return schema.SessionModeState(current_mode_id="auto", available_modes=modes)

    async def new_session(self, cwd: str, mcp_servers: Any = None, **more: Any) -> Any:
        return schema.NewSessionResponse(session_id="peer-1", modes=self._modes())

    async def load_session(self, cwd: str, session_id: str, mcp_servers: Any = None, **more: Any) -> Any:
        await self._client.session_update(session_id, acp.update_agent_message_text("An old answer."))
        self._history.append(session_id)
        return schema.LoadSessionResponse(modes=self._modes())

    async def set_session_mode(self, session_id: str, mode_id: str, **more: Any) -> Any:
        self._mode = mode_id
        return schema.SetSessionModeResponse()

    async def cancel(self, session_id: str, **more: Any) -> None:
        self._cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **more: Any) -> Any:
        self._cancelled.clear()
        word = prompt[0].text
        if word == "wait":
            await self._client.session_update(session_id, acp.start_tool_call("w1", "sleep", kind="execute"))
            await self._cancelled.wait()
            return schema.PromptResponse(stop_reason="cancelled")
        if word == "work":
            answer = await self._work(session_id)
        elif word == "files":
            try:
                await self._client.read_text_file(path="/etc/passwd", session_id=session_id)
                answer = "I could read it"
            except acp.RequestError as error:
                answer = f"refused with {error.code}; offered {self._offered.fs.read_text_file}"
        else:
            kinds = ", ".join(block.type for block in prompt)
            answer = f"mode {self._mode}; got {kinds}; loaded {self._history}"
        await self._client.session_update(session_id, acp.update_agent_message_text(answer))
        usage = schema.Usage(total_tokens=15, input_tokens=10, output_tokens=5)
        return schema.PromptResponse(stop_reason="end_turn", usage=usage)

    async def _work(self, session_id: str) -> str:
        await self._client.session_update(session_id, acp.update_agent_thought_text("Let me see."))
        await self._client.session_update(session_id, acp.update_plan([acp.plan_entry("Edit", status="in_progress")]))
        diff = acp.tool_diff_content("/repo/a.txt", "new\n", "old\n")
        call = acp.start_tool_call("t1", "Edit a.txt", kind="edit", status="pending", content=[diff])
        await self._client.session_update(session_id, call)
        options = [
            schema.PermissionOption(option_id="o1", name="Allow", kind="allow_once"),
            schema.PermissionOption(option_id="o2", name="Allow all edits", kind="allow_always"),
            schema.PermissionOption(option_id="o3", name="Reject", kind="reject_once"),
        ]
        asked = schema.ToolCallUpdate(tool_call_id="t1")
        reply = await self._client.request_permission(session_id=session_id, tool_call=asked, options=options)
        chosen = getattr(reply.outcome, "option_id", "nothing")
        status: Any = "failed" if chosen == "o3" else "completed"
        await self._client.session_update(session_id, acp.update_tool_call("t1", status=status))
        return f"You chose {chosen}."


if __name__ == "__main__":
    peer: Any = Peer()  # what it does not offer is not written out
    asyncio.run(acp.run_agent(peer))
