"""The rule that import-linter cannot state: engine sessions are deterministic and do no I/O.

The layers themselves are contracts in pyproject.toml (`make check`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"
RUNNERS = SRC / "untether" / "runners"

# The parts of a session, in the folder of every engine that has one of its own (demo goes through Claude's).
SESSION_PARTS = ("session*.py", "turns.py", "interactions.py", "actions.py", "frames.py")
# What they use of ours has to keep the same rule.
FOLLOWED = ("untether.runners", "untether.schemas", "untether.session", "untether.model", "untether.events")

FORBIDDEN = (
    *("anyio", "asyncio", "threading", "selectors", "signal", "socket", "subprocess"),
    *("glob", "io", "open", "builtins.open", "os", "pathlib", "shutil", "sqlite3", "tempfile"),
    *("time", "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.date.today"),
    *("random", "secrets", "uuid.getnode", "uuid.uuid1", "uuid.uuid4"),
)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


def module_path(name: str) -> Path | None:
    base = SRC.joinpath(*name.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.exists()), None)


def used_names(tree: ast.Module, module: str, *, package: bool) -> Iterator[tuple[str, int]]:
    """Every imported name and every attribute chain or call on one, as a dotted name with its line."""
    bound: dict[str, str] = {"open": "open"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            up = parts[: len(parts) - node.level + package] if node.level else []
            source = ".".join([*up, *([node.module] if node.module else [])])
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{source}.{alias.name}"
                yield f"{source}.{alias.name}", node.lineno
    for node in ast.walk(tree):
        chain: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            chain.insert(0, inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load) and inner.id in bound:
            yield ".".join([bound[inner.id], *chain]), inner.lineno


def is_within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def breaches(source: str, module: str, *, package: bool = False) -> set[str]:
    """The forbidden names that a module uses, each with its line."""
    names = used_names(ast.parse(source), module, package=package)
    return {f"{module}:{line} {name}" for name, line in names if is_within(name, FORBIDDEN)}


def followed(path: Path, seen: set[Path]) -> set[Path]:
    """``path`` and the modules of the rooms in FOLLOWED that it imports, directly or through each other."""
    seen.add(path)
    tree = ast.parse(path.read_text("utf-8"))
    for name, _ in used_names(tree, module_name(path), package=path.name == "__init__.py"):
        if is_within(name, FOLLOWED):
            target = module_path(name) or module_path(name.rpartition(".")[0])
            if target and target not in seen:
                followed(target, seen)
    return seen


def session_modules() -> list[Path]:
    engines = {path.parent for path in RUNNERS.glob("*/session*.py")}
    return sorted(path for engine in engines for part in SESSION_PARTS for path in engine.glob(part))


@pytest.mark.parametrize("path", session_modules(), ids=module_name)
def test_sessions_know_no_clock_no_chance_and_no_files(path: Path) -> None:
    found: set[str] = set()
    for module in followed(path, set()):
        found |= breaches(module.read_text("utf-8"), module_name(module), package=module.name == "__init__.py")
    assert not found, "\n".join(sorted(found))


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import time", "time"),
        ("import os.path", "os.path"),
        ("from pathlib import Path", "pathlib.Path"),
        ("from uuid import uuid4 as new", "uuid.uuid4"),
        ("import uuid\n\n\ndef make() -> str:\n    return str(uuid.uuid4())", "uuid.uuid4"),
        ("from datetime import datetime\nx = datetime.now()", "datetime.datetime.now"),
        ("def read() -> str:\n    return open('x').read()", "open"),
    ],
)
def test_the_check_finds(source: str, name: str) -> None:
    assert {breach.split(" ")[1] for breach in breaches(source, "untether.runners.x.session")} == {name}


@pytest.mark.parametrize(
    "source",
    [
        "import uuid\nx = uuid.uuid5(uuid.NAMESPACE_OID, 'process/3')",
        "from datetime import datetime, UTC\nx = datetime.fromtimestamp(1.0, UTC)",
        "now = 1.0\ntime = now",
        "from untether.model import Action",
    ],
)
def test_the_check_lets_pass(source: str) -> None:
    assert not breaches(source, "untether.runners.x.session")


def test_relative_imports_are_followed() -> None:
    tree = ast.parse("from . import frames\nfrom ..tool_actions import kind")
    names = {name for name, _ in used_names(tree, "untether.runners.claude.session", package=False)}
    assert names == {"untether.runners.claude.frames", "untether.runners.tool_actions.kind"}
