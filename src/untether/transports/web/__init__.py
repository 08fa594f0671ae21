"""The web console: every run of every chat in a browser, with the same words and buttons as in the chats."""

from __future__ import annotations

from .. import TransportBackend

BACKEND = TransportBackend("web", "Web console")
