"""The engines that can be used here: their runners, and which one answers by default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..backends import EngineBackend
from ..runner import Runner

CANNOT_ASK = "cannot ask"


@dataclass(frozen=True)
class Engine:
    """One engine. `path` is the program that was found, None when it is missing."""

    id: str
    backend: EngineBackend
    runner: Runner
    path: str | None

    @property
    def label(self) -> str:
        """Its id; one that has no way to ask for permission says so on every run."""
        return engine_label(self.id, not self.runner.interactive)

    @property
    def available(self) -> bool:
        return self.path is not None


class Engines:
    def __init__(self, engines: Mapping[str, Engine], default: str) -> None:
        self._engines = dict(engines)
        self.default = default

    def __iter__(self) -> Iterator[Engine]:
        return iter(self._engines.values())

    def ids(self) -> list[str]:
        return list(self._engines)

    def get(self, engine_id: str) -> Engine | None:
        return self._engines.get(engine_id)


def engine_label(engine_id: str, cannot_ask: bool) -> str:
    """An engine's id as shown on a run."""
    return f"{engine_id} · {CANNOT_ASK}" if cannot_ask else engine_id
