"""The engine in a conversation with an agent on the package of the protocol's authors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from acp import schema

from tests.contract.rules import assert_contract
from tests.support.chat import FakeChat, office_with
from tests.unit.acp.talk import SECOND, Talk
from untether.conversation.engines import Engine, Engines
from untether.model import ActionEvent, CompletedEvent
from untether.runners import acp as engine_acp
from untether.runners.acp import outcomes, steps
from untether.schemas import acp as ours_acp
from untether.session import Attachment, CallResult, Prompt

pytestmark = pytest.mark.anyio
PEER = Path(__file__).with_name("peer.py")


def engines(**more: Any) -> Engines:
    config = {"type": "acp", "command": [sys.executable, str(PEER)], **more}
    backend = engine_acp.backend("peer", config)
    return Engines({"peer": Engine("peer", backend, backend.build(config, Path("untether.toml")), "here")}, "peer")


async def test_it_is_set_to_ask_before_it_gets_a_message(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines()):
        await chat.say("hello")
        await chat.shown("mode ask; got text; loaded []")


def test_files_are_sent_as_the_protocol_has_them() -> None:
    files = (Attachment("/a.png", "a.png"), Attachment("/b.txt", "b.txt"), Attachment("/c.zip", "c.zip"))
    talk = Talk()
    talk.opened()
    talk.ends()
    for call in talk.say(Prompt(SECOND.id, "look", files)).calls:
        talk.took(talk.session.answer(call.call_id, CallResult(text="QUJD"), talk.now))
    request = schema.PromptRequest.model_validate(talk.sent("session/prompt")[-1])
    assert [block.type for block in request.prompt] == ["text", "image", "resource", "resource_link"]


@pytest.mark.parametrize(
    ("button", "chosen", "told"),
    [("Approve", "o1", "✓ Approved"), ("Allow all edits", "o2", "✓"), ("Deny", "o3", "✗ Denied")],
)
async def test_each_answer_reaches_it(tmp_path: Path, button: str, chosen: str, told: str) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines()):
        await chat.say("work")
        asked = await chat.shown("Change a file?", "/repo/a.txt", "-old", "+new", button=button)
        await chat.tap(asked, button)
        await chat.shown(f"You chose {chosen}.")
        await chat.shown(told)


async def test_a_stop_cancels_the_turn_and_the_session_goes_on(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines()):
        await chat.say("wait")
        await chat.shown("sleep")
        await chat.say("/cancel")
        await chat.shown("■ Stopped after")
        await chat.say("hello again")
        await chat.shown("mode ask; got text; loaded []")  # the same process


async def test_files_of_the_client_are_refused(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines()):
        await chat.say("files")
        await chat.shown("refused with -32601; offered False")


async def test_a_session_goes_on_in_another_process(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat, engines=engines()):
        await chat.say("hello")
        first = await chat.shown("loaded []")
    async with office_with(tmp_path, chat, engines=engines()):
        await chat.say("on", reply_to=first)
        again = await chat.shown("loaded ['peer-1']")
        assert "An old answer" not in again.text


async def test_doctor_greets_it() -> None:
    runner = engines().get("peer")
    assert runner is not None
    assert await runner.runner.handshake({"PATH": "/usr/bin:/bin"}) == ""


async def test_doctor_greets_what_is_no_agent(tmp_path: Path) -> None:
    for command, told in (
        ([sys.executable, "-c", "print('hi')"], "it ended without an answer"),
        ([sys.executable, "-c", 'print(\'{"id": 1, "result": {"protocolVersion": 9}}\')'], "speaks version 9"),
        ([str(tmp_path / "none")], "none"),
    ):
        engine = engines(command=command).get("peer")
        assert engine is not None
        assert told in await engine.runner.handshake({"PATH": "/usr/bin:/bin"})


async def test_a_run_without_a_chat_is_denied_and_comes_to_an_end() -> None:
    engine = engines().get("peer")
    assert engine is not None
    events = [event async for event in engine.runner.run("work", None)]
    assert_contract(events)
    [done] = [event for event in events if isinstance(event, CompletedEvent)]
    assert (done.ok, done.answer) == (True, "You chose o3.")
    warnings = [e.action.title for e in events if isinstance(e, ActionEvent) and e.action.kind == "warning"]
    assert warnings == ["Denied, since nobody is there to be asked: /repo/a.txt"]


def test_drift_of_the_protocol() -> None:
    """What the authors' schema has and we do not know. A new name here is to be looked at, then listed or built."""
    ours = {member.__struct_config__.tag for member in get_args(ours_acp.Update)}
    theirs = set()
    for name in dir(schema):
        fields = getattr(getattr(schema, name), "model_fields", {})
        if "session_update" in fields:
            theirs |= set(get_args(fields["session_update"].annotation))
    assert ours <= theirs
    assert theirs - ours == {"plan_update", "plan_removed"}  # not stable yet
    assert set(get_args(schema.StopReason)) - {"end_turn", "cancelled", *outcomes._ENDS} == set()
    assert set(get_args(schema.ToolKind)) - set(steps._KINDS) == {"other"}
    kinds = {"allow_once", "allow_always", "reject_once", "reject_always"}
    assert set(get_args(schema.PermissionOptionKind)) == kinds
