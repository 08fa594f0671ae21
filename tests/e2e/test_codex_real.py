"""Codex, the real program, behind a session and without a chat: what it asks, and what it makes of our answers."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.support.claude_real import Real
from tests.support.clis import pinned
from tests.support.codex_home import codex_home, says, shell, uses
from tests.support.codex_real import real
from untether.model import (
    Allow,
    Answers,
    CompletedEvent,
    Deny,
    Interaction,
    ResumeToken,
    SessionChangedEvent,
    StartedEvent,
    TextEvent,
    Usage,
)
from untether.runners.codex import CodexRunner
from untether.runners.codex.drift import compare, look
from untether.runners.codex.spawn import native_program
from untether.session import Attachment, Prompt, Say, SetEffort, SetModel, SetPermissionMode, StopTask

pytestmark = pytest.mark.anyio

PLAN = "Words.\n<proposed_plan>\n# Plan\n- make it\n</proposed_plan>"
WRITE = uses("$write", path="new.txt", content="x")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
MCP_SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    match asked.get("method"):
        case "initialize":
            result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "demo", "version": "1"}}
        case "tools/list":
            result = {"tools": [{"name": "add", "inputSchema": {"type": "object", "properties": {}}}]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": "3"}]}
        case _:
            result = {}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.fixture(params=pinned("codex"))
def codex(request: pytest.FixtureRequest, agent_cli: Callable[..., Path]) -> Path:
    return agent_cli("codex", request.param)


def heard(agent: Real) -> str:
    """All that the model was told."""
    return json.dumps(agent.model.bodies, ensure_ascii=False)


async def asked_or_answered(agent: Real) -> Interaction:
    found = await agent.asked_or_answered()
    assert isinstance(found, Interaction), found
    return found


async def completed(agent: Real) -> CompletedEvent:
    """The end of the run."""
    found = await agent.answered()
    assert isinstance(found, CompletedEvent)
    return found


async def release(agent: Real, gate: str) -> None:
    url = agent.model.base_url.removesuffix("/v1") + "/__release"
    request = urllib.request.Request(url, json.dumps({"gate": gate}).encode(), method="POST")
    await anyio.to_thread.run_sync(lambda: urllib.request.urlopen(request).close())


# -------------------------------------------------------------------------------------------------------- asking


async def test_by_default_nothing_changes_without_being_asked(codex: Path) -> None:
    """A command may only read; a patch asks, and so does a command that is to run outside the sandbox."""
    async with real(codex, shell("touch made.txt"), WRITE, shell("touch made.txt", "Why"), says("End.")) as agent:
        patch = await asked_or_answered(agent)
        assert (patch.act, patch.body[0].text) == ("Write a file?", "+x")
        assert not (agent.project / "made.txt").exists()
        await agent.decide(patch, Deny())
        command = await asked_or_answered(agent)
        assert (command.act, command.body[0].text, command.note) == ("Run a command?", "touch made.txt", "Why")
        await agent.decide(command, Deny())
        assert (await agent.answered()).answer == "End."
        assert not (agent.project / "made.txt").exists()
        assert not (agent.project / "new.txt").exists()
        assert agent.warnings == []


async def test_edits_may_be_allowed_beforehand(codex: Path) -> None:
    outside = shell("touch ../outside.txt", "Why")
    async with real(codex, WRITE, outside, says("End."), permission_mode="acceptEdits") as agent:
        command = await asked_or_answered(agent)
        assert command.body[0].text == "touch ../outside.txt"
        assert (agent.project / "new.txt").exists()
        await agent.decide(command, Allow())
        assert (await agent.answered()).ok
        assert (agent.project.parent / "outside.txt").exists()


async def test_every_command_asks_when_nothing_is_trusted(codex: Path) -> None:
    async with real(codex, shell("echo hello"), says("End."), permission_mode="untrusted") as agent:
        command = await asked_or_answered(agent)
        await agent.decide(command, Allow())
        assert (await agent.answered()).ok


async def test_scopes(codex: Path) -> None:
    one, two = shell("touch ../one", "Why"), shell("touch ../two", "Why")
    async with real(codex, one, one, two, two, says("End.")) as agent:
        await agent.decide(await asked_or_answered(agent), Allow("session"))
        command = await asked_or_answered(agent)
        assert command.body[0].text == "touch ../two"
        rules = agent.project.parent / "home" / ".codex" / "rules" / "default.rules"
        assert [choice.label for choice in command.choices] == [
            "This command, this session",
            f"Always “touch ../two …” (for ever, in {rules})",
        ]
        await agent.decide(command, Allow("always"))
        assert (await agent.answered()).answer == "End."
        assert rules.read_text() == 'prefix_rule(pattern=["touch", "../two"], decision="allow")\n'


async def test_the_reason_of_a_denial_reaches_the_next_model_call(codex: Path) -> None:
    async with real(codex, WRITE, says("Understood.")) as agent:
        await agent.decide(await asked_or_answered(agent), Deny("use make"))
        assert (await agent.answered()).answer == "Understood."
        assert "I refused this: use make" in json.dumps(agent.model.bodies[1])


async def test_denying_and_stopping(codex: Path) -> None:
    async with real(codex, WRITE, says("Never said."), says("Next.")) as agent:
        await agent.decide(await asked_or_answered(agent), Deny(interrupt=True))
        assert (await agent.answered()).outcome == "stopped"
        await agent.say("go on")
        assert (await agent.answered()).ok


async def test_unattended_it_is_refused_and_said(codex: Path) -> None:
    async with real(codex, WRITE, says("Without it."), settings={"attended": False}) as agent:
        answer = await agent.answered()
        assert answer.answer == (
            "Without it.\n\nNobody could be asked, so this was refused:\n- Write a file: Write new.txt"
        )
        assert "Nobody is there to approve this" in heard(agent)
        assert not (agent.project / "new.txt").exists()


@pytest.mark.parametrize("scope", ["session", "always"])
async def test_a_tool_of_an_mcp_server(codex: Path, tmp_path: Path, scope: str) -> None:
    server = tmp_path / "server.py"
    server.write_text(MCP_SERVER)
    toml = f'[mcp_servers.demo]\ncommand = "python3"\nargs = ["{server}"]\n'
    call = {"steps": [{"tool": "add", "namespace": "mcp__demo", "args": {"a": 1}}]}
    async with real(codex, call, call, says("It is 3."), toml=toml) as agent:
        tool = await asked_or_answered(agent)
        assert (tool.act, json.loads(tool.body[0].text)) == ("Use add of demo?", {"a": 1})
        await agent.decide(tool, Allow(scope))
        assert (await agent.answered()).answer == "It is 3."  # the second call asked nobody
        config = (agent.project.parent / "home" / ".codex" / "config.toml").read_text()
        assert ('approval_mode = "approve"' in config) == (scope == "always")


async def test_a_question_and_a_plan_that_is_carried_out(codex: Path) -> None:
    question = uses("$ask", question="Which colour?", options=["Red", "Blue"])
    async with real(codex, question, says(PLAN), WRITE, says("Done."), permission_mode="plan") as agent:
        asked = await asked_or_answered(agent)
        assert [option.label for option in asked.questions[0].options] == ["Red", "Blue"]
        await agent.decide(asked, Answers({"Which colour?": "Blue"}))
        plan = await asked_or_answered(agent)
        assert (plan.kind, plan.body[0].text) == ("plan", "# Plan\n- make it\n")
        await agent.decide(plan, Allow())
        patch = await asked_or_answered(agent)
        assert patch.act == "Write a file?"  # out of plan mode it asks as before
        await agent.decide(patch, Allow())
        answer = await agent.answered()
        assert (answer.ok, answer.answer) == (True, "Done.")
        assert isinstance(answer.usage, Usage)
        assert answer.usage.input_tokens == 4 * 1200  # of the whole run
        assert (agent.project / "new.txt").read_text() == "x\n"


async def test_a_plan_that_is_sent_back(codex: Path) -> None:
    shorter = says("<proposed_plan>\n# Short\n</proposed_plan>")
    async with real(codex, says(PLAN), shorter, permission_mode="plan") as agent:
        await agent.decide(await asked_or_answered(agent), Deny("shorter", choice="revise"))
        plan = await asked_or_answered(agent)
        assert plan.body[0].text == "# Short\n"
        await agent.decide(plan, Deny())
        assert (await agent.answered()).answer == "# Short"


# ---------------------------------------------------------------------------------------------------------- turns


async def test_a_message_while_the_answer_is_written(codex: Path) -> None:
    held = {"steps": [{"text": "Before."}, {"hold": "go"}]}
    async with real(codex, held, says("And left.")) as agent:
        await agent.until(lambda: agent.of(TextEvent) or None)
        await agent.driver.submit(Say(Prompt("11111111-0000-4000-8000-000000000009", "look left"), "now"))
        await release(agent, "go")
        answer = await agent.answered()
        assert (answer.answer, len(answer.prompts)) == ("Before.\n\nAnd left.", 2)
        assert "look left" in heard(agent)


async def test_a_terminal_in_the_background(codex: Path) -> None:
    left = uses("exec_command", cmd="sleep 1235", yield_time_ms=250)
    async with real(codex, left, says("It runs."), permission_mode="acceptEdits") as agent:
        assert (await agent.answered()).answer == "It runs."
        [wait] = agent.session.waits
        assert (wait.kind, wait.label) == ("background", "sleep 1235")
        await agent.configure(StopTask(wait.id))
        await agent.until(lambda: True if agent.session.waits == () else None)


async def test_resume_latest_and_fork(codex: Path, tmp_path: Path) -> None:
    async with real(codex, says("First."), home=tmp_path) as agent:
        token = (await completed(agent)).resume
        assert token is not None
    async with real(codex, WRITE, says("Second."), home=tmp_path, resume=token) as agent:
        await agent.decide(await asked_or_answered(agent), Deny())  # the policy holds in a resumed session too
        second = await completed(agent)
        assert (second.answer, second.resume) == ("Second.", token)
        assert isinstance(second.usage, Usage)
        assert second.usage.input_tokens == 2 * 1200  # without what was before
        assert "First." in heard(agent)
    async with real(codex, says("Third."), home=tmp_path, latest=True) as agent:
        assert (await completed(agent)).resume == token
        assert "Second." in heard(agent)
    async with real(codex, says("Fourth."), home=tmp_path, resume=token, settings={"fork": True}) as agent:
        fork = (await completed(agent)).resume
        assert fork not in (None, token)
        assert [event.resume for event in agent.of(SessionChangedEvent)] == [fork]
        assert "Third." in heard(agent)


async def test_sessions_that_cannot_be_resumed(codex: Path, tmp_path: Path) -> None:
    missing = ResumeToken(CodexRunner.engine, "00000000-0000-7000-8000-000000000000")
    async with real(codex, says("x"), home=tmp_path, resume=missing) as agent:
        failed = await completed(agent)
        assert (failed.error, failed.resume) == ("The session to continue was not found.", None)
    async with real(codex, says("x"), home=tmp_path) as first:
        token = (await completed(first)).resume
        async with real(codex, says("x"), home=tmp_path, resume=token) as second:
            failed = await completed(second)
            assert failed.error == "This session is open in another Codex."
            assert failed.resume == token


async def test_changes_of_a_live_session(codex: Path) -> None:
    replies = [says(text) for text in ("One.", "Two.", "Three.", "Summary.", "Five.")]
    async with real(codex, *replies, reasoning="low") as agent:
        await agent.answered()
        assert agent.model.bodies[0]["reasoning"]["effort"] == "low"
        for change in (SetModel("gpt-5.4"), SetEffort("high"), SetPermissionMode("acceptEdits")):
            await agent.configure(change)
        await agent.say("two")
        await agent.answered()
        assert agent.model.bodies[-1]["model"] == "gpt-5.4"
        assert agent.model.bodies[-1]["reasoning"]["effort"] == "high"
        picture = agent.project / "a.png"
        picture.write_bytes(base64.b64decode(PIXEL))
        files = (Attachment(str(picture), "a.png", "image/png"),)
        await agent.driver.submit(Say(Prompt("11111111-0000-4000-8000-000000000009", "look", files)))
        assert (await agent.answered()).answer == "Three."
        assert "input_image" in json.dumps(agent.model.bodies[-1])
        await agent.say("/compact")
        assert (await agent.answered()).answer == "The conversation was compacted."
        assert (agent.of(StartedEvent)[-1].meta or {})["permission_mode"] == "acceptEdits"
        assert agent.session.unknown == {}


# --------------------------------------------------------------------------------------------------------- errors


async def test_calls_to_the_provider_again(codex: Path) -> None:
    broken = {"http_error": {"status": 500, "message": "no"}, "times": 2}
    async with real(codex, broken, says("Got through.")) as agent:
        assert (await agent.answered()).answer == "Got through."
    cut = {"steps": [{"text": "half an"}, {"hangup": True}]}
    async with real(codex, cut, says("Whole answer.")) as agent:
        assert (await agent.answered()).answer == "Whole answer."


async def test_a_spent_limit(codex: Path) -> None:
    headers = {
        "x-codex-primary-used-percent": "100",
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": "1896102061",
    }
    spent = {"error": {"type": "usage_limit_reached", "message": "no", "resets_at": 1896102061}}
    reply = {"http_error": {"status": 429, "body": spent}, "headers": headers, "times": -1}
    async with real(codex, reply) as agent:
        failed = await agent.answered()
        assert failed.error == "The usage limit is reached."
        assert failed.detail == {"quota": True, "resets_at": 1896102061}


# ------------------------------------------------------------------------------------------------------- releases


@pytest.mark.parametrize("version", pinned("codex"))
async def test_nothing_of_a_release_is_unknown(version: str, agent_cli: Callable[..., Path], tmp_path: Path) -> None:
    """A release that is pinned anew fails here and prints what is new: each name is looked at, and then listed."""
    program = agent_cli("codex", version)
    environ = codex_home(tmp_path / "home", "http://127.0.0.1:1/v1", tmp_path)
    runner = CodexRunner({"command": str(program)})
    assert await runner.check(environ) is None
    assert runner.cli_version == version
    assert await runner.handshake(environ) == ""
    surface = await look(str(program), environ)
    # The probe itself reads something.
    assert "turn/completed" in surface.notifications
    assert "item/commandExecution/requestApproval" in surface.requests
    assert {"turn/steer", "thread/resume"} <= surface.methods
    assert {"commandExecution", "plan"} <= surface.items
    assert {"acceptForSession", "decline"} <= surface.decisions
    assert {"unauthorized", "httpConnectionFailed"} <= surface.errors
    assert compare(surface) == ()


def test_the_native_program_is_the_one_that_runs(codex: Path) -> None:
    program, tools = native_program(str(codex), "/nowhere")
    assert Path(program).read_bytes()[:4] == b"\x7fELF"
    assert Path(tools).is_dir()
