"""The edges: one room for each way to the outside. A room names itself in its `BACKEND`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransportBackend:
    """What an entry point of the group `untether.transport_backends` gives: cheap to import, unlike the transport.

    `id` is the first part of the transport's `ChatRef`s and its table in the settings; `title` is for people.
    """

    id: str
    title: str
