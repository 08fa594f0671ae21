"""What the console refuses: foreign hosts, cross-site posts, browsers that are not paired, codes that were used."""

from __future__ import annotations

import httpx
import pytest

from tests.unit.web.conftest import HERE, Console
from tests.unit.web.shown import run, shown, thread
from untether.conversation.views import Page
from untether.settings.model import Web

pytestmark = pytest.mark.anyio

PAGES = ["/", "/run/1", "/run/1/message", "/chat/abc", "/events"]


@pytest.mark.parametrize("path", [*PAGES, "/login", "/static/console.css"])
async def test_another_host_is_refused(console: Console, path: str) -> None:
    answer = await console.get(path, host="evil.example:8420")
    assert answer.status_code == 421
    assert "does not answer to this address" in answer.text


@pytest.mark.parametrize("path", PAGES)
async def test_a_browser_that_is_not_paired_sees_nothing(console: Console, path: str) -> None:
    console.show(Page(thread(), "shop", (shown(run(1, title="a secret")),), ()))
    stranger = console.new_browser()
    answer = await stranger.get(path)
    assert answer.status_code in (303, 401)
    assert "secret" not in answer.text
    if answer.status_code == 303:
        assert answer.headers["location"] == "/login"


@pytest.mark.parametrize("path", ["/send", "/tap", "/dismiss", "/logout"])
async def test_a_browser_that_is_not_paired_does_nothing(console: Console, path: str) -> None:
    stranger = console.new_browser(origin=HERE)
    answer = await stranger.post(path, data={"text": "rm -rf /", "token": await console.form_token()})
    assert answer.status_code == 401
    assert console.inbox.stored == []


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:9000"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "origin": HERE},
        {"sec-fetch-site": "same-site", "origin": HERE},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin", "origin": "https://evil.example"},
        {},
    ],
)
async def test_a_post_of_another_site_is_refused(console: Console, headers: dict[str, str]) -> None:
    values = {"text": "hello", "token": await console.form_token()}
    answer = await console.browser.post("/send", data=values, headers=headers)
    assert answer.status_code == 403
    assert "another site" in answer.text
    assert console.inbox.stored == []


@pytest.mark.parametrize("headers", [{"origin": HERE}, {"sec-fetch-site": "same-origin", "origin": "null"}])
async def test_a_post_of_our_own_page_is_taken(console: Console, headers: dict[str, str]) -> None:
    values = {"text": "hello", "token": await console.form_token()}
    answer = await console.browser.post("/send", data=values, headers=headers)
    assert answer.status_code == 303
    assert len(console.inbox.stored) == 1


@pytest.mark.parametrize("path", ["/send", "/tap", "/dismiss", "/logout"])
@pytest.mark.parametrize("form", ["", "0" * 64])
async def test_a_form_without_the_token_of_its_session_is_refused(console: Console, path: str, form: str) -> None:
    answer = await console.post(path, token=form, text="hello", data="i:key:a")
    assert answer.status_code == 403
    assert "out of date" in answer.text
    assert console.inbox.stored == []
    assert (await console.get("/")).status_code == 200


async def test_the_token_of_another_session_is_refused(console: Console) -> None:
    theirs = await console.form_token()
    other = console.new_browser()
    await console.pair(other)
    answer = await other.post("/send", data={"text": "hello", "token": theirs}, headers={"origin": HERE})
    assert answer.status_code == 403


async def test_a_link_pairs_one_browser(console: Console) -> None:
    link = console.transport.pairing_link()
    first, second = console.new_browser(), console.new_browser()
    assert (await first.get(link)).status_code == 200
    assert (await first.get("/")).status_code == 200
    answer = await second.get(link)
    assert answer.status_code == 403
    assert "each works once" in answer.text
    assert (await second.get("/")).status_code == 303


async def test_a_look_ahead_does_not_use_the_code_up(console: Console) -> None:
    link = console.transport.pairing_link()
    browser = console.new_browser()
    await browser.head(link)
    await browser.get(link, headers={"sec-purpose": "prefetch;prerender"})
    assert (await browser.get("/")).status_code == 303
    await browser.get(link)
    assert (await browser.get("/")).status_code == 200


async def test_the_code_can_be_typed(console: Console) -> None:
    browser = console.new_browser(origin=HERE)
    wrong = await browser.post("/login", data={"code": "zzzz"})
    assert wrong.status_code == 403
    assert "✗ This code is not the current one" in wrong.text
    code = console.transport.new_code().upper().replace("-", " ")
    answer = await browser.post("/login", data={"code": code})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert (await browser.get("/")).status_code == 200


async def test_guessing_is_slowed_down(console: Console) -> None:
    browser = console.new_browser(origin=HERE)
    for _ in range(5):
        assert (await browser.post("/login", data={"code": "zzzz"})).status_code == 403
    answer = await browser.post("/login", data={"code": "zzzz"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


async def test_the_cookie(console: Console) -> None:
    answer = await console.pair(console.new_browser())
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("untether-8420=")
    for part in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert part in cookie
    assert "Secure" not in cookie  # plain http on this machine
    assert "Domain" not in cookie


async def test_the_cookie_is_secure_behind_https() -> None:
    console = Console(Web(public_url="https://console.example"), address="https://console.example")
    assert console.transport.pairing_link().startswith("https://console.example/pair?code=")
    answer = await console.pair()
    assert answer.headers["set-cookie"].startswith("__Host-untether=")
    assert "Secure" in answer.headers["set-cookie"]
    assert (await console.post("/send", text="hello")).status_code == 303


async def test_a_session_outlives_a_restart() -> None:
    before = Console()
    await before.pair()
    after = Console(store=before.store)
    after.browser.cookies = before.browser.cookies
    assert (await after.get("/")).status_code == 200


async def test_signing_out(console: Console) -> None:
    kept = httpx.Cookies(console.browser.cookies)
    assert (await console.post("/logout")).headers["location"] == "/login"
    console.browser.cookies = kept  # the cookie itself is worth nothing any more
    assert (await console.get("/")).status_code == 303


async def test_a_link_from_another_site_opens_the_console(console: Console) -> None:
    """A strict cookie stays behind when another site links here; a page of our own then asks again."""
    stranger = console.new_browser()
    answer = await stranger.get("/run/1?all=1", headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 200
    assert '<meta http-equiv="refresh" content="0; url=/run/1?all=1">' in answer.text
    answer = await stranger.get("/run/1?all=1", headers={"sec-fetch-site": "same-origin"})
    assert answer.headers["location"] == "/login"


async def test_a_script_that_is_not_paired_any_more_goes_to_the_login(console: Console) -> None:
    answer = await console.new_browser().get("/", headers={"hx-request": "true"})
    assert answer.headers["hx-redirect"] == "/login"


@pytest.mark.parametrize("path", ["/", "/login", "/nothing", "/health", "/static/console.js"])
async def test_headers(console: Console, path: str) -> None:
    headers = (await console.get(path)).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
    }
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    if not path.startswith("/static/"):
        assert headers["cache-control"] == "no-store"


async def test_health_says_ok_to_everybody_and_nothing_else(console: Console) -> None:
    answer = await console.new_browser().get("/health", headers={"host": "whatever"})
    assert (answer.status_code, answer.text) == (200, "ok")


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e%2fapp.py", "/static/htmx.LICENSE", "/static/"])
async def test_only_the_files_of_pages_are_given(console: Console, path: str) -> None:
    assert (await console.get(path)).status_code == 404


async def test_pages_carry_no_inline_script_or_style(console: Console) -> None:
    console.show(Page(thread(), "shop", (shown(run(1)),), ()))
    for path in ("/", "/run/1", "/chat/abc", "/login"):
        page = (await console.get(path)).text
        assert " style=" not in page
        assert "<style" not in page
        assert page.count("<script") == page.count("<script src=")
        assert "http://" not in page.replace(HERE, "")
        assert "https://" not in page


async def test_too_much_is_refused(console: Console) -> None:
    answer = await console.post("/send", text="x" * 5_000_000)
    assert answer.status_code == 413
    assert "At most 1,000,000 characters" in answer.text
    assert console.inbox.stored == []


async def test_a_defect_shows_a_page_and_keeps_what_is_open(console: Console) -> None:
    def broken(recent: int = 30) -> None:
        raise RuntimeError("inner words")

    console.views.overview = broken  # type: ignore[assignment, method-assign]
    answer = await console.get("/")
    assert answer.status_code == 500
    assert answer.headers["hx-reswap"] == "none"
    assert "inner words" not in answer.text
