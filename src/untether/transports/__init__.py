"""The edges: one room for each way to the outside. A room names itself in its `BACKEND`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Protocol

from ..clock import Clock
from ..plugins import Group
from ..transport import Transport


class Facts(Protocol):
    """Single facts that survive a restart. Both raise StoreError."""

    def get(self, key: str) -> str | None: ...

    async def put(self, key: str, value: str) -> None: ...


@dataclass(frozen=True)
class TransportContext:
    """What a transport of a package is made with.

    `settings` is its table `[transports.ID]`; `zone` the one in which times are shown, None for this machine's; `facts`
    its own store of small texts.
    """

    settings: Mapping[str, Any]
    clock: Clock
    zone: tzinfo | None
    facts: Facts


@dataclass(frozen=True, slots=True)
class TransportBackend:
    """What an entry point of the group `untether.transport_backends` gives: cheap to import, unlike the transport.

    `id` is the first part of the transport's `ChatRef`s and its table in the settings; `title` is for people. `build`
    makes the transport, which has that id as its name; it raises ValueError with a message for the owner when the table
    is wrong. The built-in ones have none: they are made by the program itself.
    """

    id: str
    title: str
    build: Callable[[TransportContext], Transport] | None = None


_RESERVED = ("console", "cli")
GROUP: Group[TransportBackend] = Group(
    "untether.transport_backends",
    "transport",
    TransportBackend,
    lambda id: "it is a name of Untether's own" if id in _RESERVED else "",
)
