"""Pi, the real program, behind a session of ours: what the conversation of all engines does not show."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.codex_home import fake_model, says, shell, uses
from tests.support.pi_home import pi_home
from tests.support.pi_real import real
from untether.model import (
    ActionEvent,
    Allow,
    Answers,
    CompletedEvent,
    InteractionEvent,
    ResumeToken,
    SessionChangedEvent,
    StartedEvent,
    UntetherEvent,
    Usage,
)
from untether.runner_context import bind_run
from untether.runners.pi import PiRunner
from untether.session import Attachment, SetEffort, SetModel

pytestmark = pytest.mark.anyio

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
DIALOGS = """
export default function (pi) {
  pi.registerCommand("quiz", {
    description: "Asks three things",
    handler: async (_args, ctx) => {
      const colour = await ctx.ui.select("Which colour?", ["Red", "Blue"]);
      const sure = await ctx.ui.confirm("Sure?", "It cannot be changed.");
      const name = await ctx.ui.input("Whose?", "Ann");
      ctx.ui.notify(`${colour} ${sure} ${name}`, "info");
    },
  });
}
"""


@pytest.fixture
def pi(agent_cli: Callable[..., Path]) -> Path:
    return agent_cli("pi")


async def test_dialogs_of_an_extension_are_questions(pi: Path, tmp_path: Path) -> None:
    extension = tmp_path / "quiz.ts"
    extension.write_text(DIALOGS)
    async with real(pi, prompt="/quiz", extra_args=["--extension", str(extension)]) as r:
        for answer in ("Blue", "Yes", "Bo"):
            asked = await r.asked()
            assert asked.kind == "question"
            await r.decide(asked, Answers({asked.questions[0].text: answer}))
        assert (await r.answered()).ok
        notes = [event.action.title for event in r.of(ActionEvent) if event.action.kind == "note"]
        assert notes == ["Blue true Bo"]


async def test_unattended_a_command_is_denied_with_a_message(pi: Path) -> None:
    async with real(pi, shell("touch made.txt"), says("I could not."), settings={"attended": False}) as r:
        answer = await r.answered()
        assert answer.ok
        refused = "Nobody could be asked, so this was refused:\n- Run a command: touch made.txt"
        assert answer.answer == f"I could not.\n\n{refused}"
        assert not r.of(InteractionEvent)
        assert "Nobody is there to approve this" in json.dumps(r.model.bodies)
        assert not (r.project / "made.txt").exists()


async def test_a_new_session_has_an_id_of_ours_and_its_usage_is_of_the_run(pi: Path) -> None:
    async with real(pi, says("One."), says("Two.")) as r:
        first = await r.answered()
        (started,) = r.of(StartedEvent)
        assert len(started.resume.value) == 32
        assert started.meta == {"model": "fake-model", "reasoning": "medium", "permission_mode": "default"}
        await r.say("again")
        second = await r.answered()
        assert (first.answer, second.answer) == ("One.", "Two.")
        assert isinstance(first.usage, Usage)
        assert isinstance(second.usage, Usage)
        assert (first.usage.cost_usd, second.usage.cost_usd) == (0.001088, 0.001088)
        assert first.usage.context_window == 128000


async def test_model_and_thinking_change_in_a_live_session(pi: Path) -> None:
    async with real(pi, says("One."), says("Two."), reasoning="low") as r:
        await r.answered()
        await r.configure(SetModel("fake/other-model"))
        await r.configure(SetEffort("high"))
        await r.configure(SetModel("no-such-model"))
        await r.say("again")
        await r.answered()
        assert [(row["model"], row["effort"]) for row in r.model.seen if "effort" in row] == [
            ("fake-model", "low"),
            ("other-model", "high"),
        ]
        assert r.warnings[0].startswith("Pi has no model 'no-such-model'. It has: fake/fake-model, fake/other-model")


async def test_a_picture_reaches_the_model(pi: Path, tmp_path: Path) -> None:
    picture = tmp_path / "dot.png"
    picture.write_bytes(PIXEL)
    async with real(pi, says("A dot."), attachments=(Attachment(str(picture), "dot.png", "image/png"),)) as r:
        assert (await r.answered()).answer == "A dot."
        assert base64.b64encode(PIXEL).decode() in json.dumps(r.model.bodies)


async def test_a_write_is_asked_with_what_it_writes(pi: Path) -> None:
    async with real(pi, uses("$write", path="a.txt", content="one\ntwo\n"), says("Done.")) as r:
        asked = await r.asked()
        assert (asked.act, asked.body[0].label, asked.body[0].text) == ("Write a file?", "a.txt", "+one\n+two")
        await r.decide(asked, Allow())
        assert (await r.answered()).ok
        assert (r.project / "a.txt").read_text() == "one\ntwo\n"


async def test_nothing_of_the_persons_configuration_changes(pi: Path, tmp_path: Path) -> None:
    async with real(pi, says("One."), home=tmp_path) as r:
        await r.answered()
    folder = tmp_path / "home" / ".pi" / "agent"
    assert json.loads((folder / "settings.json").read_text())["defaultModel"] == "fake-model"
    assert not (folder / "extensions").exists()
    assert not (tmp_path / "project" / ".pi").exists()


# ----------------------------------------------------------------------------------------------- the one-shot form


async def one_shot(
    pi: Path, tmp_path: Path, *replies: dict[str, Any], resume: ResumeToken | None = None, **config: Any
) -> tuple[list[UntetherEvent], Any]:
    (tmp_path / "project").mkdir(exist_ok=True)
    with fake_model(*replies) as model:
        environ = pi_home(tmp_path / "home", model.base_url, pi)
        runner = PiRunner({"command": str(pi), "mode": "json", "env": environ, **config})
        with bind_run(folder=str(tmp_path / "project")):
            return [event async for event in runner.run("do it", resume)], model


async def test_the_one_shot_form_refuses_what_would_be_asked(pi: Path, tmp_path: Path) -> None:
    events, model = await one_shot(pi, tmp_path, shell("touch made.txt"), says("Without it."))
    completed = events[-1]
    assert isinstance(completed, CompletedEvent)
    assert (completed.ok, completed.answer) == (True, "Without it.")
    assert "Nobody can be asked in this mode" in json.dumps(model.bodies)
    assert "do it" in json.dumps(model.bodies)
    assert not (tmp_path / "project" / "made.txt").exists()
    told = [event.action.title for event in events if isinstance(event, ActionEvent) and event.action.kind == "warning"]
    assert told == ["This form cannot ask: what needs your permission is refused."]


async def test_the_one_shot_form_resumes_and_does_all_where_the_owner_allows_it(pi: Path, tmp_path: Path) -> None:
    events, _ = await one_shot(pi, tmp_path, says("One."))
    assert isinstance(events[0], StartedEvent)
    token = events[0].resume
    short = ResumeToken(token.engine, token.value[:18])
    allowed = {"permission_mode": "bypassPermissions", "dangerously_skip_permissions": True}
    events, model = await one_shot(pi, tmp_path, shell("touch made.txt"), says("Two."), resume=short, **allowed)
    assert (tmp_path / "project" / "made.txt").exists()
    assert "One." in json.dumps(model.bodies)
    assert isinstance(events[0], StartedEvent)
    assert isinstance(events[1], SessionChangedEvent)
    assert (events[0].resume, events[1].resume) == (short, token)
    assert isinstance(events[-1], CompletedEvent)
    assert (events[-1].answer, events[-1].resume) == ("Two.", token)


# ------------------------------------------------------------------------------------------------------- the program


async def test_the_handshake_sees_the_extension(pi: Path, tmp_path: Path) -> None:
    environ = pi_home(tmp_path, "http://127.0.0.1:9/v1", pi)
    runner = PiRunner({"command": str(pi)})
    assert await runner.check(environ) is None
    assert runner.cli_version == "1.6.0"
    assert await runner.handshake(environ) == ""
    assert not list((tmp_path / ".pi" / "agent").rglob("*_*.jsonl"))  # no session is left


async def test_a_node_that_is_too_old_is_named(pi: Path, tmp_path: Path) -> None:
    old = tmp_path / "bin"
    old.mkdir()
    node = old / "node"
    node.write_text('#!/bin/sh\n[ "$1" = --version ] && echo v20.20.2 && exit\nexit 1\n')
    node.chmod(0o755)
    environ = {**pi_home(tmp_path, "http://127.0.0.1:9/v1", pi), "PATH": f"{old}:/usr/bin:/bin"}
    refusal = await PiRunner({"command": str(pi)}).check(environ)
    assert refusal is not None
    assert refusal.message == "Pi needs Node.js 22.19 or newer, and the one on the PATH is 20.20.2."
