"""How far an approval may reach: the choices made of permission suggestions, and what goes back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.claude_talk import Talk
from untether.model import Allow
from untether.runners.claude.scopes import choices, update

PUSH = {
    "type": "addRules",
    "rules": [{"toolName": "Bash", "ruleContent": "git push *"}],
    "behavior": "allow",
    "destination": "localSettings",
}
EDITS = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
FOLDER = {"type": "addDirectories", "directories": ["/srv/data"], "destination": "session"}


def offered(*suggestions: dict[str, Any], planning: bool = False, rules: bool = True) -> list[tuple[str, str, str]]:
    found = choices(suggestions, root="/repo", planning=planning, rules=rules)
    return [(choice.id, choice.label, choice.description) for choice in found]


def test_each_choice_says_its_whole_effect() -> None:
    assert offered(PUSH, EDITS, FOLDER) == [
        ("session:0", "This session: Bash(git push *)", "Bash(git push *)"),
        ("always:0", "Always here: Bash(git push *)", "Bash(git push *)"),
        ("mode:1", "Accept edits this session", ""),
        ("dir:2", "Also allow /srv/data", ""),
    ]


def test_several_rules_are_one_choice() -> None:
    rules = [{"toolName": "Bash", "ruleContent": "touch a *"}, {"toolName": "WebSearch"}]
    assert offered({**PUSH, "rules": rules}) == [
        ("session:0", "This session: Bash(touch a *), WebSearch", "Bash(touch a *)\nWebSearch"),
        ("always:0", "Always here: Bash(touch a *), WebSearch", "Bash(touch a *)\nWebSearch"),
    ]


def test_parentheses_in_a_rule_are_escaped() -> None:
    rule = {"toolName": "Bash", "ruleContent": 'python3 -c "print(1)"'}
    assert offered({**PUSH, "rules": [rule]})[0][2] == 'Bash(python3 -c "print\\(1\\)")'


def test_a_rule_of_several_lines_is_not_kept_for_good() -> None:
    rule = {"toolName": "Bash", "ruleContent": "cat <<X\nhello\nX"}
    assert [id for id, _, _ in offered({**PUSH, "rules": [rule]})] == ["session:0"]


@pytest.mark.parametrize(
    "suggestion",
    [
        {**PUSH, "behavior": "deny"},
        {**PUSH, "rules": []},
        {**PUSH, "rules": [{"toolName": ""}]},
        {"type": "removeRules", "rules": PUSH["rules"]},
        {"type": "setMode", "mode": "bypassPermissions", "destination": "session"},
        {"type": "addDirectories", "directories": ["/repo", "/repo/src"], "destination": "session"},
        {"type": "addDirectories", "directories": "/srv"},
        {"type": "somethingNew"},
        {},
    ],
)
def test_what_is_not_offered(suggestion: dict[str, Any]) -> None:
    assert offered(suggestion) == []


def test_planning_offers_no_way_out_of_plan_mode() -> None:
    assert [id for id, _, _ in offered(PUSH, EDITS, FOLDER, planning=True)] == ["session:0", "always:0", "dir:2"]


def test_no_rule_where_the_cli_wants_none() -> None:
    assert [id for id, _, _ in offered(PUSH, EDITS, rules=False)] == ["mode:1"]


@pytest.mark.parametrize("scope", ["session:0", "always:0"])
def test_a_rule_goes_back_for_the_session_only(scope: str) -> None:
    talk = Talk()
    talk.init()
    talk.ask("r1", "Bash", {"command": "git push"}, permission_suggestions=[PUSH, EDITS])
    talk.decide("r1", Allow(scope=scope))
    assert talk.reply["response"] == {
        "behavior": "allow",
        "updatedInput": {"command": "git push"},
        "updatedPermissions": [{**PUSH, "destination": "session"}],
    }


def test_a_folder() -> None:
    assert update("dir:2", [PUSH, EDITS, FOLDER]) == FOLDER


@pytest.mark.parametrize("scope", ["session:1", "mode:0", "dir:9", "session:", "session:-1", "other:0", "nonsense"])
def test_a_scope_that_was_not_offered_decides_nothing(scope: str) -> None:
    assert update(scope, [PUSH]) is None
    talk = Talk()
    talk.init()
    talk.ask("r1", "Bash", {"command": "git push"}, permission_suggestions=[PUSH])
    assert talk.decide("r1", Allow(scope=scope)) == []
    assert talk.session.waits[0].kind == "human"


def test_suggestions_of_a_strange_shape_cost_no_request() -> None:
    talk = Talk()
    talk.init()
    talk.ask("r1", "Bash", {"command": "x"}, permission_suggestions=["odd", 7, {"type": "addRules", "rules": "odd"}])
    assert talk.asked.interaction.choices == ()
    talk.ask("r2", "Bash", {"command": "x"}, permission_suggestions="odd")
    assert talk.asked.interaction.id == "r2"
