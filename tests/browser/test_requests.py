"""Choices and questions in a browser: they fit a phone, and what is typed beside a button outlives a change."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_console import PHONE, WIDE, Console, calm, console, no_sideways_scroll, paired
from tests.unit.web.shown import NOW, asked, run, shown, thread, tracker
from untether.conversation import views
from untether.model import Choice, Content, Interaction, Question
from untether.store.interactions import Given, Pending
from untether.transport import TapIn

__all__ = ["calm", "console", "paired"]

RULE = "Bash(git push --force origin fix-cart " + "x" * 200 + ")"
PUSH = Interaction(
    "r1",
    "permission",
    "Run a command?",
    (Content("command", "git push --force"),),
    (Choice("session:0", f"This session: {RULE}"), Choice("mode:1", "Accept edits this session")),
    editable="command",
)
PLAN = Interaction(
    "r2",
    "plan",
    "Leave plan mode?",
    (Content("markdown", "# The plan\n\n1. Do it"),),
    (
        Choice("accept_edits", "Approve, accept edits"),
        Choice("revise", "Revise…", decides="deny", wants_text=True),
        Choice("outline", "Outline first", decides="deny"),
    ),
)
EXTRAS = Question("Which extras?", "", (Choice("1", "Docs", "A page each"), Choice("2", "CI")), multiple=True)
ASK = Interaction("r3", "question", "Answer a question?", questions=(EXTRAS,))


def page_with(*requests: Interaction, answers: Sequence[Given] = ()) -> views.Page:
    rows = [
        Pending(f"k{number}", "p1", 2, one, "open", None, None, "", None, NOW, tuple(answers))
        for number, one in enumerate(requests, 1)
    ]
    done = tracker(*map(asked, rows))
    return views.Page(thread(1), "shop", (shown(run(2, "running", title="Go"), done=done, asked=tuple(rows)),), ())


@pytest.mark.parametrize("page_size", [PHONE, WIDE])
def test_all_of_it_fits(paired: Page, console: Console) -> None:
    console.show(page_with(PUSH, PLAN, ASK))
    paired.goto(f"{console.address}/run/2#end")
    expect(paired.get_by_role("button", name="Accept edits this session")).to_be_visible()
    paired.evaluate("document.querySelectorAll('details').forEach(it => it.open = true)")
    assert no_sideways_scroll(paired)


@pytest.mark.parametrize("page_size", [PHONE])
def test_what_is_typed_outlives_a_change(paired: Page, console: Console) -> None:
    console.show(page_with(PLAN))
    paired.goto(f"{console.address}/run/2#end")
    paired.get_by_text("Revise…").click()
    box = paired.get_by_label("Revise…")
    box.fill("and add tests")
    console.show(page_with(PLAN, PUSH))
    expect(paired.get_by_role("article", name="Run a command?")).to_be_visible()
    expect(box).to_have_value("and add tests")
    box.locator("xpath=..").get_by_role("button", name="Send").click()
    assert console.received(paired, TapIn).data == "i:k1:c:1:and add tests"


def test_an_edit_begins_with_what_was_asked(paired: Page, console: Console) -> None:
    console.show(page_with(PUSH))
    paired.goto(f"{console.address}/run/2#end")
    paired.get_by_text("Edit…").click()
    box = paired.get_by_label("The new text")
    expect(box).to_have_value("git push --force")
    box.fill("git push\n  --dry-run")
    paired.get_by_role("button", name="Run this").click()
    assert console.received(paired, TapIn).data == "i:k1:e:git push\n  --dry-run"


def test_a_question_is_ticked_and_has_no_keys(paired: Page, console: Console) -> None:
    console.show(page_with(ASK))
    paired.goto(f"{console.address}/run/2#end")
    expect(paired.get_by_role("article", name="Which extras?")).to_be_in_viewport()
    paired.wait_for_timeout(500)
    paired.keyboard.press("a")
    paired.keyboard.press("d")
    console.show(page_with(ASK, answers=(Given((1,)),)))
    expect(paired.get_by_role("button", name="☑ CI")).to_be_visible()
    assert console.inbox.stored == []
    paired.get_by_role("button", name="☐ Docs").click()
    assert console.received(paired, TapIn).data == "i:k1:q:0:0"
