"""A console with hand-made views, asked in process."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import tzinfo
from typing import Any

import httpx
import pytest

from tests.unit.web.shown import FakeInbox, FakeViews, StillClock
from untether.conversation.hub import Hub
from untether.conversation.views import Page
from untether.settings.model import Web
from untether.transports.web.access import MemoryStore
from untether.transports.web.screens import Choices
from untether.transports.web.transport import WebTransport

HERE = "http://127.0.0.1:8420"


class Console:
    """The transport under test with all that it is given, and a browser that talks to it."""

    def __init__(
        self,
        options: Web | None = None,
        *,
        address: str = HERE,
        store: MemoryStore | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        self.clock = StillClock()
        self.hub = Hub()
        self.views = FakeViews()
        self.store = store or MemoryStore()
        self.address = address
        self.transport = WebTransport(options or Web(), clock=self.clock, zone=zone, store=self.store)
        choices = Choices(("claude", "demo"), "claude", ("shop", "docs"), "shop")
        self.transport.attach(self.views, self.hub, choices)
        self.inbox = FakeInbox(self.transport.decode)
        self.app = self.transport.app(self.inbox)
        self.browser = self.new_browser()

    def new_browser(self, address: str = "", **headers: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url=address or self.address, headers=headers)

    def show(self, *pages: Page) -> None:
        self.views.pages = list(pages)

    async def pair(self, browser: httpx.AsyncClient | None = None) -> httpx.Response:
        code = self.transport.new_code()
        answer = await (browser or self.browser).get(f"/pair?code={code}")
        assert answer.status_code == 200, answer.text
        return answer

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.browser.get(path, headers=headers)

    async def form_token(self) -> str:
        found = re.search(r'name="token" value="([0-9a-f]{64})"', (await self.get("/")).text)
        assert found is not None
        return found[1]

    async def post(self, path: str, *, origin: str | None = None, **values: Any) -> httpx.Response:
        """Send a form as a page of ours does."""
        values.setdefault("token", await self.form_token())
        headers = {"origin": origin or self.address}
        return await self.browser.post(path, data=values, headers=headers)


@pytest.fixture
async def console() -> AsyncIterator[Console]:
    """A console that the browser is paired with."""
    made = Console()
    await made.pair()
    yield made
    await made.browser.aclose()
