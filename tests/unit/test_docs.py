"""The documents say what the program does: links, settings, commands, module paths and examples are checked."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from pydantic import BaseModel

from untether import api
from untether.backends import EngineBackend
from untether.cli import COMMANDS as CLI_COMMANDS
from untether.conversation.commands import COMMANDS as CHAT_COMMANDS
from untether.model import ActionEvent, CompletedEvent, StartedEvent, UntetherEvent
from untether.settings import model, schema

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))])

# The tables of configuration.md, by the settings model they list, and where in the settings that is.
SECTIONS: Mapping[str, tuple[type[BaseModel], tuple[str, ...]]] = {
    "Top level": (model.Root, ()),
    "`[transports.telegram]`": (model.Telegram, ("transports", "telegram")),
    "`[transports.web]`": (model.Web, ("transports", "web")),
    "`[claude]`": (model.Claude, ("engines", "claude")),
    "`[codex]`": (model.Codex, ("engines", "codex")),
    "`[demo]`": (model.Demo, ("engines", "demo")),
    "`[pi]`": (model.Pi, ("engines", "pi")),
    "`[projects.NAME]`": (model.Project, ("projects", "NAME")),
    "`[progress]`": (model.Progress, ("progress",)),
    "`[chat]`": (model.Chat, ("chat",)),
    "`[preamble]`": (model.Preamble, ("preamble",)),
    "`[loop]`": (model.Loop, ("loop",)),
    "`[watchdog]`": (model.Watchdog, ("watchdog",)),
    "`[reminders]`": (model.Reminders, ("reminders",)),
    "`[cost_budget]`": (model.CostBudget, ("cost_budget",)),
    "`[retention]`": (model.Retention, ("retention",)),
    "`[security]`": (model.Security, ("security",)),
    "`[plugins]`": (model.Plugins, ("plugins",)),
}
# The sections of their own.
TABLES = {
    "transports",
    "engines",
    "projects",
    "progress",
    "chat",
    "preamble",
    "loop",
    "watchdog",
    "reminders",
    "cost_budget",
    "retention",
    "security",
    "plugins",
}


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    missing = [page for page in DOCS.rglob("*.md") if f"({page.relative_to(DOCS)})" not in index]
    assert missing == [DOCS / "README.md"]


# ------------------------------------------------------------------------------------------------------ settings


def rows(section: str) -> dict[str, list[str]]:
    """The cells of a section's table, by key."""
    text = (DOCS / "reference" / "configuration.md").read_text("utf-8")
    body = text.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    found = (re.split(r"(?<!\\)\|", line)[1:-1] for line in body.splitlines() if line.startswith("| `"))
    return {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in found}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_listed_with_its_default_and_what_is_allowed(section: str) -> None:
    settings, path = SECTIONS[section]
    listed = rows(section)
    assert set(listed) == set(settings.model_fields) - (set() if path else TABLES)
    for name, (kind, default, _) in listed.items():
        field = settings.model_fields[name]
        value = field.get_default(call_default_factory=True)
        if field.is_required():
            assert default == "required", name
        elif value is None:
            assert default == "–", name
        else:
            plain = list(value) if isinstance(value, tuple) else value
            assert default == f"`{tomlkit.item(plain).as_string() or '{}'}`", name
        choices = schema.choices((*path, name))
        allowed = schema.allowed((*path, name))
        assert all(f"`{choice}`" in kind for choice in choices), name
        assert choices or allowed is None or allowed in kind, name


# ------------------------------------------------------------------------------------------------------ commands


def test_every_command_is_listed() -> None:
    text = (DOCS / "reference" / "commands.md").read_text("utf-8")
    assert [word for word in CHAT_COMMANDS if f"| `/{word}" not in text] == []
    assert [word for word in CLI_COMMANDS if f"`untether {word}" not in text] == []


# -------------------------------------------------------------------------------------------------- architecture


def test_every_path_in_the_architecture_exists() -> None:
    text = (DOCS / "explanation" / "architecture.md").read_text("utf-8")
    paths = [path for path in re.findall(r"`([\w./]+(?:\.py|\.sql|/))`", text) if not path.startswith("processes/")]
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists() and not (ROOT / "src/untether" / path).exists()] == []


def test_every_module_of_the_conversation_and_the_process_room_is_named() -> None:
    text = (DOCS / "explanation" / "architecture.md").read_text("utf-8")
    package = ROOT / "src" / "untether"
    modules = [path for room in ("conversation", "process") for path in (package / room).glob("[a-z]*.py")]
    assert [path.name for path in modules if f"`{path.relative_to(package)}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_and_file_that_is_named_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    for path in re.findall(r"`((?:src|tests|tools)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
    for name in re.findall(r"`(untether\.[a-z_.]+)(?:[.][A-Z]\w+|\.[a-z_]+\(\))`", text):
        assert importlib.util.find_spec(name) is not None, name


# ---------------------------------------------------------------------------------------------- the plugin example


def examples(page: Path) -> Iterator[tuple[str, str]]:
    """The files that a page shows: a line that begins with the name, then the code."""
    yield from re.findall(r"^`([\w./]+)`[^\n]*\n\n```\w+\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def parrot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineBackend]:
    """The engine of the example; its agent is `parrot` in the working folder."""
    for name, content in examples(DOCS / "how-to" / "write-an-engine-plugin.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert (tmp_path / "pyproject.toml").exists()
    agent = tmp_path / "parrot"
    agent.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} -m untether_parrot.agent "$@"\n')
    agent.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module: Any = importlib.import_module("untether_parrot")
    yield module.BACKEND
    for name in [name for name in sys.modules if name.startswith("untether_parrot")]:
        del sys.modules[name]


@pytest.mark.anyio
async def test_the_plugin_of_the_guide_works(parrot: EngineBackend, tmp_path: Path) -> None:
    runner = parrot.build({"command": str(tmp_path / "parrot")}, tmp_path / "untether.toml")
    events: list[UntetherEvent] = [event async for event in runner.run("hello pretty bird", None)]
    assert [type(event) for event in events] == [StartedEvent, ActionEvent, ActionEvent, CompletedEvent]
    end = events[-1]
    assert isinstance(end, CompletedEvent)
    assert (end.ok, end.answer) == (True, "hello pretty bird! That is 3 words.")
    assert end.resume is not None
    assert runner.extract_resume(runner.format_resume(end.resume)) == end.resume
    again = [event async for event in runner.run("", end.resume)][-1]
    assert isinstance(again, CompletedEvent)
    assert (again.ok, again.error, again.resume) == (False, "There was nothing to repeat.", end.resume)


def test_the_package_of_the_guide_is_the_one_in_the_examples() -> None:
    folder = ROOT / "examples" / "plugin-engine"
    shown = dict(examples(DOCS / "how-to" / "write-an-engine-plugin.md"))
    assert shown
    assert shown == {name: (folder / name).read_text("utf-8") for name in shown}


def test_the_plugin_api_documents_all_that_it_exports() -> None:
    text = (DOCS / "reference" / "plugin-api.md").read_text("utf-8")
    named = set(re.findall(r"\b\w+\b", text))
    assert [name for name in api.__all__ if name not in named] == []


def test_the_tests_that_the_runner_contract_names_exist() -> None:
    text = (DOCS / "reference" / "runner-contract.md").read_text("utf-8")
    short = {
        "runner": "tests/unit/test_runner.py",
        "contract": "tests/contract/test_runner_contract.py",
        "backends": "tests/unit/test_backends.py",
    }
    named = re.findall(r"`([\w/.]+)::(test_\w+)`", text)
    assert len(named) > 30
    for place, test in named:
        assert f"def {test}(" in (ROOT / short.get(place, place)).read_text("utf-8"), f"{place}::{test}"
