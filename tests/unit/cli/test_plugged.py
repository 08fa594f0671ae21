"""Transports and commands of packages: found, built, contained."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from untether.cli import plugged
from untether.clock import SystemClock
from untether.settings import load
from untether.transports import TransportContext

TRANSPORTS = """
from untether.api import TransportBackend


class Pigeon:
    def __init__(self, context):
        self.name = context.settings["name"]


def build(context):
    if "name" not in context.settings:
        raise ValueError("transports.pigeon needs a name.")
    return Pigeon(context)


BACKEND = TransportBackend("pigeon", "Pigeon post", build)
"""


class NoFacts:
    def get(self, key: str) -> str | None:
        return None

    async def put(self, key: str, value: str) -> None:
        return


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs a package into a place of its own, as the only one that brings plugins."""
    place = tmp_path / "packages"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))
    real = importlib.metadata.entry_points

    def entry_points(*, group: str) -> list[importlib.metadata.EntryPoint]:
        return [each for each in real(group=group) if each.dist and str(each.dist.locate_file("")) == str(place)]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)

    def install(group: str, id: str, module: str, source: str) -> None:
        info = place / "untether_pigeon-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: untether-pigeon\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[untether.{group}]\n{id} = {module}:BACKEND\n")
        (place / f"{module}.py").write_text(source)

    yield install
    for name in ("pigeon_transport", "pigeon_command"):
        sys.modules.pop(name, None)


def built(tmp_path: Path, toml: str) -> tuple[Any, list[str]]:
    config = tmp_path / "untether.toml"
    config.write_text(toml)
    settings = load(environ={"UNTETHER_CONFIG_PATH": str(config)})

    def context(id: str) -> TransportContext:
        return TransportContext(settings.transport(id), SystemClock(), None, NoFacts())

    made, errors = plugged.build_transports(settings, context)
    return made, [error.message for error in errors]


def test_a_transport_is_built_from_its_table(install: Callable[..., None], tmp_path: Path) -> None:
    install("transport_backends", "pigeon", "pigeon_transport", TRANSPORTS)
    made, errors = built(tmp_path, '[transports.pigeon]\nname = "pigeon"\n')
    assert (list(made), errors) == (["pigeon"], [])


@pytest.mark.parametrize(
    ("toml", "messages"),
    [
        ("", []),  # installed and not set up
        ("[transports.pigeon]\n", ["It could not be started: transports.pigeon needs a name."]),
        ('[transports.pigeon]\nname = "dove"\n', ["Its transport is named 'dove' instead."]),
        ('[plugins]\nenabled = ["other"]\n[transports.pigeon]\nname = "pigeon"\n', []),
    ],
)
def test_a_transport_that_is_not_started(
    install: Callable[..., None], tmp_path: Path, toml: str, messages: list[str]
) -> None:
    install("transport_backends", "pigeon", "pigeon_transport", TRANSPORTS)
    assert built(tmp_path, toml) == ({}, messages)


@pytest.mark.parametrize("word", ["cancel", "sessions", "plugins", "Shout", "a-b"])
def test_words_that_no_package_may_take(install: Callable[..., None], tmp_path: Path, word: str) -> None:
    source = f"from untether.api import CommandBackend\nBACKEND = CommandBackend({word!r}, 'x', None)\n"
    install("command_backends", word, "pigeon_command", source)
    config = tmp_path / "untether.toml"
    config.write_text("")
    commands, errors = plugged.commands(load(environ={"UNTETHER_CONFIG_PATH": str(config)}))
    assert word not in commands
    assert [error.id for error in errors] == [word]
    assert "cannot be a command id" in errors[0].message
