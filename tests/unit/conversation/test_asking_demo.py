"""What the demo agent asks, answered in every way that it offers: what was chosen is what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chat import FakeChat, Shown, office_with
from untether.store import grants, runs

pytest.importorskip("untether.runners.claude.scopes")  # the session that offers choices
pytestmark = pytest.mark.anyio

FILE = "untether-demo.txt"


async def planned(chat: FakeChat) -> Shown:
    await chat.say("/planmode on")
    await chat.shown("✓ Permission mode of this chat: plan.")
    await chat.say("plan please")
    return await chat.shown("⏸ Leave plan mode?", "Nothing else is touched.", button="Outline first")


async def test_what_is_allowed_here_is_asked_once(tmp_path: Path) -> None:
    chat, file = FakeChat(), tmp_path / "home" / FILE
    async with office_with(tmp_path, chat, idle_close_s=0.0) as office:
        await chat.say("permission please")
        asked = await chat.shown(f"Always here: Bash(touch {FILE})", button="Accept edits this session")
        await chat.tap(asked, next(label for label in asked.labels if label.startswith("Always here")))
        await chat.shown("The command ran.")
        (grant,) = office.services.db.read(grants.all_)
        assert grant.rule == f"Bash(touch {FILE})"
        await chat.until(lambda: not office.scheduler.processes())
        file.unlink()
        before = len(chat.messages)
        await chat.say("/new")  # another session and another process: the rule goes with it
        await chat.say("permission please")
        await chat.shown("The command ran.", after=before)
        assert file.exists()
        await chat.say("/grants")
        await chat.tap(await chat.shown("Allowed for good:"), "Revoke 1")
        await chat.until(lambda: office.services.db.read(grants.all_) == [] and not office.scheduler.processes())
        before = len(chat.messages)
        await chat.say("permission please")
        await chat.tap(await chat.shown("Run a command?", button="Approve", after=before), "Deny")
        await chat.shown("I did not run the command.", after=before)


async def test_for_this_session(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        await chat.say("permission please")
        asked = await chat.shown("Run a command?", button="Approve")
        await chat.tap(asked, next(label for label in asked.labels if label.startswith("This session")))
        await chat.shown("The command ran.")
        before = len(chat.messages)
        await chat.say("permission please")
        await chat.shown("The command ran.", after=before)
        assert office.services.db.read(grants.all_) == []


async def test_an_edited_command_is_what_runs(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("permission please")
        await chat.tap(await chat.shown(f"touch {FILE}", button="Approve"), "Edit…")
        await chat.shown("Send the new text", button="Back")
        await chat.say("touch another.txt")
        await chat.tap(await chat.shown("touch another.txt", button="Run this"), "Run this")
        await chat.shown("✓ Approved as edited by Ann")
        await chat.shown("The command ran.")
        assert (tmp_path / "home" / "another.txt").exists()
        assert not (tmp_path / "home" / FILE).exists()


async def test_deny_and_stop_ends_the_run(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat) as office:
        await chat.say("permission please")
        await chat.tap(await chat.shown("Run a command?", button="Deny and stop"), "Deny and stop")
        await chat.shown("✗ Denied and stopped by Ann")
        await chat.until(lambda: not office.services.db.read(runs.running))
        assert not any("I did not run" in shown.text for shown in chat.messages)
        assert not (tmp_path / "home" / FILE).exists()


async def test_a_plan_with_edits_accepted_asks_no_more(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.tap(await planned(chat), "Approve, accept edits")
        await chat.shown("I wrote", FILE)
        assert not any("Write a file?" in shown.text for shown in chat.messages)


async def test_an_approved_plan_still_asks_for_its_edits(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.tap(await planned(chat), "Approve")
        await chat.tap(await chat.shown("Write a file?", f"{FILE}  +3 −0", button="Approve"), "Approve")
        await chat.tap(await chat.shown("Edit a file?", button="Approve"), "Approve")
        await chat.shown("I wrote", FILE)


async def test_an_outline_comes_before_the_decision(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.tap(await planned(chat), "Outline first")
        outline = await chat.shown("The outline:", "Risk: none", button="Let's discuss")
        assert "Outlining plan…" in chat.toasts
        await chat.tap(outline, "Let's discuss")
        await chat.shown("Let us talk about it")


async def test_a_plan_is_revised(tmp_path: Path) -> None:
    chat = FakeChat()
    async with office_with(tmp_path, chat):
        await chat.say("and add tests", reply_to=await planned(chat))
        revised = await chat.shown("Leave plan mode?", "As you said", "and add tests", button="Approve, but wait")
        await chat.tap(revised, "Approve, but wait")
        await chat.shown("I do not start yet")
        assert not (tmp_path / "home" / FILE).exists()
