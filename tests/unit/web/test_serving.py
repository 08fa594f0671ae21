"""The console on a real socket: its port, its live stream, and its end."""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest

from tests.unit.web.shown import FakeInbox, FakeViews, run, shown, thread
from untether.clock import SystemClock
from untether.conversation.hub import Hub
from untether.conversation.views import Page
from untether.settings.model import Web
from untether.transport import ChatRef, Transport
from untether.transports.web import BACKEND
from untether.transports.web.screens import Choices
from untether.transports.web.transport import WebTransport

pytestmark = pytest.mark.anyio


def make(options: Web) -> tuple[WebTransport, Hub, FakeViews]:
    transport, hub, views = WebTransport(options, clock=SystemClock()), Hub(), FakeViews()
    transport.attach(views, hub, Choices(("demo",), "demo"))
    return transport, hub, views


@asynccontextmanager
async def served(transport: WebTransport) -> AsyncIterator[httpx.AsyncClient]:
    """A paired browser on a console that is served."""
    address = transport.bind()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(transport.run, FakeInbox(transport.decode))
        async with httpx.AsyncClient(base_url=address, timeout=5) as browser:
            assert (await browser.get(transport.pairing_link())).status_code == 200
            yield browser
        tasks.cancel_scope.cancel()


def test_the_backend() -> None:
    assert BACKEND.id == "web"
    transport: Transport = make(Web())[0]
    assert transport.name == BACKEND.id


def test_the_next_port_is_taken_and_the_link_is_right() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        transport, _, _ = make(Web(port=port))
        address = transport.bind()
        assert address.startswith("http://127.0.0.1:")
        assert port < int(address.rsplit(":", 1)[1]) <= port + 20
        assert transport.pairing_link().startswith(f"{address}/pair?code=")


def test_a_host_of_another_machine_is_an_error() -> None:
    transport, _, _ = make(Web(host="192.0.2.1", allow_insecure=True))
    with pytest.raises(OSError, match="assign") as failure:
        transport.bind()
    assert failure.value.errno == errno.EADDRNOTAVAIL


def test_a_wildcard_is_told_as_this_machine() -> None:
    transport, _, _ = make(Web(host="0.0.0.0", port=0, allow_insecure=True))
    assert transport.bind().startswith("http://127.0.0.1:")


async def test_it_must_know_what_to_show() -> None:
    with pytest.raises(RuntimeError, match="attach"):
        await WebTransport(Web(port=0), clock=SystemClock()).run(FakeInbox(lambda raw: raw))


async def test_changes_are_told_at_once() -> None:
    transport, hub, views = make(Web(port=0))
    async with served(transport) as browser:
        assert transport.health() == ""
        page = (await browser.get("/")).text
        seen = page.split('hx-sse:connect="/events?seen=')[1].split('"')[0]
        async with browser.stream("GET", f"/events?seen={seen}") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert stream.headers["cache-control"] == "no-store"
            lines = stream.aiter_lines()
            assert await anext(lines) == ": connected"
            views.pages.append(Page(thread(1, ChatRef("web", "console", "a")), "home", (shown(run(1)),), ()))
            hub.changed()
            with anyio.fail_after(3):
                assert [line async for line in _first(lines, 3)] == ["", "event: changed", "data: 1"]
        # A page that shows an older state, or that of an earlier start, is told at once.
        for old in (seen, "earlier-1", ""):
            async with browser.stream("GET", f"/events?seen={old}") as stream:
                with anyio.fail_after(3):
                    assert "event: changed" in [line async for line in _first(stream.aiter_lines(), 3)]


async def _first(lines: AsyncIterator[str], count: int) -> AsyncIterator[str]:
    for _ in range(count):
        yield await anext(lines)


async def test_it_ends_soon_with_open_streams() -> None:
    transport, _, _ = make(Web(port=0))
    address = transport.bind()
    async with httpx.AsyncClient(base_url=address, timeout=5) as browser:
        with anyio.fail_after(2):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(transport.run, FakeInbox(transport.decode))
                await browser.get(transport.pairing_link())
                async with browser.stream("GET", "/events") as stream:
                    assert await anext(stream.aiter_lines()) == ": connected"
                    tasks.cancel_scope.cancel()
        with pytest.raises(httpx.ConnectError):
            await browser.get("/health")
