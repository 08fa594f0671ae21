"""What one run binds for its runner, which is shared by all runs: options, folder, and where to publish its stream.

Bound by context variables, so that concurrent runs of one runner never see each other's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from .jsonl_stream import JsonlStreamState
from .model import Record


class RunOptions(Record, frozen=True):
    """What the owner chose for the runs of a chat. None leaves it to the engine's own settings.

    `attended` False: nobody is there to decide, so nothing in the run waits for a person.
    """

    model: str | None = None
    permission_mode: str | None = None
    reasoning: str | None = None
    attended: bool | None = None

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Self:
        """The options among the settings of a process; those of the wrong type count as unset."""
        kinds = {"attended": bool}
        chosen = {name: settings.get(name) for name in cls.__struct_fields__}
        kept: dict[str, Any] = {n: value for n, value in chosen.items() if isinstance(value, kinds.get(n, str))}
        return cls(**kept)

    def settings(self) -> dict[str, Any]:
        """The options that are set, by name."""
        return dict(msgspec.to_builtins(self))


@dataclass
class RunStreamHandle:
    """Where a runner publishes the stream and the pid of the run that is bound to it. Both come together."""

    stream: JsonlStreamState | None = None
    pid: int | None = None


_options: ContextVar[RunOptions | None] = ContextVar("untether_run_options", default=None)
_folder: ContextVar[str | None] = ContextVar("untether_run_folder", default=None)
_handle: ContextVar[RunStreamHandle | None] = ContextVar("untether_run_stream", default=None)


def run_options() -> RunOptions:
    """The options of the current run, for `build_args` and the other template methods."""
    return _options.get() or RunOptions()


def run_folder() -> str | None:
    """The folder that the current run works in; None means the current one."""
    return _folder.get()


@contextmanager
def bind_run(
    *, options: RunOptions | None = None, folder: str | None = None, handle: RunStreamHandle | None = None
) -> Iterator[None]:
    """Bind what is given for the code inside, and the tasks that it starts."""
    with ExitStack() as bound:
        if options is not None:
            bound.callback(_options.reset, _options.set(options))
        if folder is not None:
            bound.callback(_folder.reset, _folder.set(folder))
        if handle is not None:
            bound.callback(_handle.reset, _handle.set(handle))
        yield


def publish_run_stream(stream: JsonlStreamState, pid: int | None) -> None:
    """Tell whoever bound a `RunStreamHandle` for this run which stream and process it has."""
    handle = _handle.get()
    if handle is not None:
        handle.stream, handle.pid = stream, pid
