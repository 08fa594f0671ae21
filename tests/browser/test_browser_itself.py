"""The browser shows a page of this machine at the asked width: the ground of the tests beside this."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Page

PAGE = b"<!doctype html><title>Ready</title><p id=w></p><script>w.textContent = innerWidth</script>"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize("page_size", [(360, 740), (1600, 900)])
def test_a_page_is_shown(page: Page, url: str, page_size: tuple[int, int]) -> None:
    page.goto(url)
    assert page.title() == "Ready"
    assert page.text_content("#w") == str(page_size[0])
