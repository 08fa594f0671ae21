"""A page in Debian's chromium, driven by playwright (`make browser` installs it).

Chromium is taken from ``$CHROMIUM`` or from PATH. Its own traffic is switched off; a page that asks for anything
outside this machine, or that reports a script error, fails the test.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
LOCAL = ("127.0.0.1", "localhost", "[::1]", "")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("chromium is not on PATH (Debian: apt-get install chromium), and CHROMIUM does not name one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def page_size() -> tuple[int, int]:
    """Width and height of the window; a test asks for a phone with ``parametrize("page_size", [(360, 740)])``."""
    return 1280, 800


@pytest.fixture
def page(browser: Browser, page_size: tuple[int, int]) -> Iterator[Page]:
    """A fresh page with cookies of its own."""
    complaints: list[str] = []

    def stay_here(route: Route) -> None:
        if urlsplit(route.request.url).hostname in LOCAL or route.request.url.startswith(("data:", "blob:")):
            route.continue_()
        else:
            complaints.append(f"the page asked for {route.request.url}")
            route.abort()

    width, height = page_size
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en-GB")
    context.set_default_timeout(10_000)
    context.route("**/*", stay_here)
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(f"script error: {error}"))
    yield page
    context.close()
    assert not complaints, "\n".join(complaints)
