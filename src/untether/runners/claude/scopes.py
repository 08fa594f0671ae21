"""How far an approval reaches: what Claude Code suggests beside a plain yes, as choices, and back onto the wire.

Each choice names its whole effect. A rule is only ever added for the session: what is to last is kept by us and given
to every process at its start, so no settings file of the project is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...model import Choice
from ...schemas.claude import JsonObject

_MODES = {"acceptEdits": "Accept edits this session"}


def choices(suggestions: Sequence[JsonObject], *, root: str, planning: bool, rules: bool = True) -> tuple[Choice, ...]:
    """The choices for `permission_suggestions`: `session:N`, `always:N`, `mode:N`, `dir:N`, N its place among them.

    An `always` choice carries its rules as `description`, one a line. While planning no mode is offered, since that
    would leave plan mode without a plan; `rules` False: the request must not become a rule.
    """
    found: list[Choice] = []
    for number, suggestion in enumerate(suggestions):
        match suggestion.get("type"):
            case "addRules" if rules and suggestion.get("behavior", "allow") == "allow":
                found += _for_rules(number, rule_texts(suggestion))
            case "setMode" if not planning and (label := _MODES.get(str(suggestion.get("mode")))):
                found.append(Choice(f"mode:{number}", label))
            case "addDirectories":
                if added := list(_outside(_texts(suggestion.get("directories")), root)):
                    found.append(Choice(f"dir:{number}", f"Also allow {', '.join(added)}"))
    return tuple(found)


def update(scope: str, suggestions: Sequence[JsonObject]) -> JsonObject | None:
    """The permission update for the choice `scope`, None when it is none of `choices`."""
    kind, _, place = scope.partition(":")
    if not place.isascii() or not place.isdigit() or int(place) >= len(suggestions):
        return None
    suggestion = suggestions[int(place)]
    expected = {"session": "addRules", "always": "addRules", "mode": "setMode", "dir": "addDirectories"}.get(kind)
    if expected is None or suggestion.get("type") != expected:
        return None
    return {**suggestion, "destination": "session"}


def to_mode(mode: str) -> JsonObject:
    """The update that changes the permission mode."""
    return {"type": "setMode", "mode": mode, "destination": "session"}


def rule_texts(suggestion: JsonObject) -> list[str]:
    """The rules of a suggestion as they are written in settings, such as `Bash(git push:*)`."""
    rules = suggestion.get("rules")
    return [_rule(rule) for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []


def _rule(rule: JsonObject) -> str:
    """Parentheses within a rule are escaped, as the CLI reads them."""
    name, content = str(rule.get("toolName") or ""), rule.get("ruleContent")
    if not isinstance(content, str) or not content:
        return name
    escaped = content.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
    return f"{name}({escaped})"


def _for_rules(number: int, rules: Sequence[str]) -> Iterator[Choice]:
    if not rules or not all(rules):
        return
    shown = ", ".join(" ".join(rule.split()) for rule in rules)
    yield Choice(f"session:{number}", f"This session: {shown}", "\n".join(rules))
    if not any("\n" in rule for rule in rules):  # a line of `description` is a rule
        yield Choice(f"always:{number}", f"Always here: {shown}", "\n".join(rules))


def _outside(directories: Iterable[str], root: str) -> Iterator[str]:
    """Those that are not within the agent's folder already."""
    for directory in directories:
        if not root or not f"{directory}/".startswith(f"{root}/"):
            yield directory


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str) and item] if isinstance(value, list) else []
