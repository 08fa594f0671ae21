"""Telegram: receives by long polling, sends under Telegram's limits. The transport itself is in `transport`."""

from __future__ import annotations

from .. import TransportBackend

BACKEND = TransportBackend(id="telegram", title="Telegram")
