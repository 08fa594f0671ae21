"""The web console in a browser: pair, decide, send, watch; on a phone and on a wide screen, by hand and by keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from tests.unit.web.shown import DIFF, FakeInbox, FakeViews, allowed, asked, pending, run, shown, step, thread, tracker
from untether.clock import SystemClock
from untether.conversation import views
from untether.conversation.hub import Hub
from untether.model import Content
from untether.settings.model import Web
from untether.text.blocks import Line
from untether.transport import Card, ChatRef, MessageIn, Priority, TapIn
from untether.transports.web.screens import Choices
from untether.transports.web.transport import WebTransport

T = TypeVar("T")
PHONE, WIDE = (360, 740), (1600, 900)
ANSWER = """The total ignored the **count** of each item.

```python
def total(cart): return sum(item.price * item.count for item in cart if item.count and item.price is not None)
```

| case | before | after |
|---|---|---|
| a-very-long-name-of-a-test-case-that-does-not-break-by-itself | 1.20 | 2.40 |
"""


class Console:
    """A console that is served in another thread, with conversations made by hand."""

    def __init__(self, portal: BlockingPortal) -> None:
        self.portal = portal
        self.hub = Hub()
        self.views = FakeViews()
        self.transport = WebTransport(Web(port=0), clock=SystemClock())
        self.transport.attach(self.views, self.hub, Choices(("claude", "demo"), "claude", ("shop", "docs"), "shop"))
        self.inbox = FakeInbox(self.transport.decode)
        self.inbox.on_store = self._answer
        self.address = self.transport.bind()
        self._serving = portal.start_task_soon(self.transport.run, self.inbox)

    async def _answer(self, inbound: MessageIn | TapIn) -> None:
        """What the router does, in short."""
        if isinstance(inbound, TapIn):
            key, letter = [*inbound.data.split(":"), "", ""][1:3]
            self.decide(key)
            await self.transport.toast(inbound, {"a": "Approved", "d": "Denied"}.get(letter, "Stopping…"))
        elif inbound.text == "/status":
            await self.transport.send(inbound.chat, Card((Line("Nothing waits."),)), Priority.NOTICE)
        self.hub.changed()

    def decide(self, key: str) -> None:
        """A request is decided: its card becomes a line."""
        for index, page in enumerate(self.views.pages):
            runs = tuple(
                msgspec.structs.replace(
                    view, asked=tuple(allowed(one) if one.key == key else one for one in view.asked)
                )
                for view in page.runs
            )
            self.views.pages[index] = msgspec.structs.replace(page, runs=runs)

    def show(self, *pages: views.Page) -> None:
        """Change what there is to see, and tell it."""

        def change() -> None:
            self.views.pages = list(pages)
            self.hub.changed()

        self.portal.call(change)

    def received(self, page: Page, kind: type[T], count: int = 1) -> T:
        """The newest message or tap, once there are `count` of them. The page goes on meanwhile: its requests pass
        through this thread."""
        for _ in range(250):
            found = [inbound for inbound in self.inbox.stored if isinstance(inbound, kind)]
            if len(found) >= count:
                return found[-1]
            page.wait_for_timeout(20)
        raise AssertionError(f"not received, but: {self.inbox.stored}")

    def stop(self) -> None:
        self._serving.cancel()
        with suppress(Exception):  # cancelled
            self._serving.result(5)


@pytest.fixture
def console() -> Iterator[Console]:
    with start_blocking_portal() as portal:
        made = Console(portal)
        made.show(*conversations())
        yield made
        made.stop()


def conversations() -> tuple[views.Page, ...]:
    push = pending("push", Content("command", "git push --force origin fix-cart " + "x" * 300), run_id=2)
    diff = Content("diff", DIFF + "\n+" + "y" * 300, "src/cart.py", added=2, removed=1)
    edit = pending("edit", diff, act="Edit a file?", run_id=2)
    done = tracker(
        step("a", "Read src/" + "long_name_" * 20 + ".py"),
        step("b", "src/cart.py", kind="file_change", verb="Edit", path="src/cart.py", added=12, removed=3),
        step("c", "pytest -q", kind="command", ok=False, message="1 failed\n" + "z" * 300, description="Run the tests"),
    )
    first = shown(run(1, answer=ANSWER, steps=3, model="claude-opus-5-5", usage={"cost_usd": 0.42}), done=done)
    live = tracker(step("a", "Read src/cart.py"), step("b", "git push", kind="command", ok=None), asked(push))
    second = shown(run(2, "running", title="Now push it"), done=live, asked=(push, edit))
    other = shown(run(3, "failed", title="Deploy", error="The provider refused the key.", raw_error="{" + "e" * 300))
    return (
        views.Page(thread(1), "shop @fix-cart", (first, second), ()),
        views.Page(thread(2, ChatRef("web", "console", "abc")), "docs", (other,), ()),
    )


def one_running(*titles: str) -> views.Page:
    """A running run with these steps."""
    done = tracker(*[step(f"s{number}", title, message="output") for number, title in enumerate(titles)])
    return views.Page(thread(1), "shop @fix-cart", (shown(run(2, "running", title="Now push it"), done=done),), ())


@pytest.fixture
def calm(page: Page) -> Iterator[Page]:
    """A page that must not complain in the browser's console, the content policy included."""
    complaints: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        refused = "status of 422" in message.text  # a message that was not taken, told on the page
        if message.type in ("error", "warning") and not refused:
            complaints.append(message.text)

    page.on("console", listen)
    yield page
    assert not complaints, "\n".join(complaints)


@pytest.fixture
def paired(calm: Page, console: Console) -> Page:
    calm.goto(console.transport.pairing_link())
    calm.wait_for_url(console.address + "/")
    return calm


def no_sideways_scroll(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_an_unpaired_browser_is_asked_for_a_code(calm: Page, console: Console) -> None:
    calm.goto(console.address)
    expect(calm.get_by_role("heading", name="Pair this browser")).to_be_visible()
    expect(calm.get_by_label("Code")).to_be_focused()
    calm.keyboard.type(console.transport.new_code().upper())
    calm.keyboard.press("Enter")
    expect(calm.get_by_role("heading", name="Needs you")).to_be_visible()


@pytest.mark.parametrize("page_size", [PHONE, WIDE])
def test_approve(paired: Page, console: Console) -> None:
    paired.get_by_role("link", name="Now push it").click()
    card = paired.get_by_role("article", name="Run a command?")
    expect(card).to_contain_text("git push --force origin fix-cart")
    card.get_by_role("button", name="Approve").click()
    tap = console.received(paired, TapIn)
    assert tap.data == "i:push:a"
    expect(paired.get_by_text("Approved", exact=True)).to_be_visible()
    expect(card).to_have_count(0)
    expect(paired.get_by_role("article", name="Edit a file?")).to_be_visible()
    assert paired.url.startswith(f"{console.address}/run/2")


def test_deny_and_say_why(paired: Page, console: Console) -> None:
    paired.goto(f"{console.address}/run/2#end")
    card = paired.get_by_role("article", name="Run a command?")
    card.get_by_label("Why you deny it").fill("not on a Friday")
    paired.keyboard.press("Enter")
    assert console.received(paired, TapIn).data == "i:push:d:not on a Friday"


def test_send(paired: Page, console: Console) -> None:
    paired.goto(f"{console.address}/run/2")
    box = paired.get_by_label("Message")
    box.fill("Tell me the commit id\nand the date")
    paired.get_by_role("button", name="Send").click()
    message = console.received(paired, MessageIn)
    assert message.text == "Tell me the commit id\nand the date"
    assert message.reply_to is not None
    assert message.reply_to.message_id == "run:2"
    expect(box).to_have_value("")


def test_a_new_conversation_opens_its_run(paired: Page, console: Console) -> None:
    paired.get_by_label("Engine").select_option("demo")
    paired.get_by_label("Message").fill("Fix the total")
    paired.keyboard.press("Control+Enter")
    message = console.received(paired, MessageIn)
    assert message.text == "/demo Fix the total"
    expect(paired.get_by_text("Sent. The agent starts in a moment.")).to_be_visible()
    begun = shown(run(9, "running", title="Fix the total", started=message.date + 1))
    console.show(views.Page(thread(9, message.chat), "shop", (begun,), ()))
    paired.wait_for_url(f"{console.address}/run/9#end")


def test_the_reply_to_a_command_is_shown_and_dismissed(paired: Page, console: Console) -> None:
    paired.get_by_label("Message").fill("/status")
    paired.get_by_role("button", name="Send").click()
    expect(paired.get_by_text("Nothing waits.")).to_be_visible()
    paired.get_by_role("button", name="Dismiss").click()
    expect(paired.get_by_text("Nothing waits.")).to_have_count(0)


def test_an_empty_message_is_refused_in_place(paired: Page, console: Console) -> None:
    paired.goto(f"{console.address}/run/2")
    paired.get_by_label("Message").fill("   ")
    with paired.expect_response(f"{console.address}/send") as response:
        paired.get_by_role("button", name="Send").click()
    assert response.value.status == 422
    expect(paired.get_by_role("alert")).to_contain_text("There is no text in this message.")


def test_keys(paired: Page, console: Console) -> None:
    paired.goto(f"{console.address}/run/2#end")
    expect(paired.get_by_role("article", name="Run a command?")).to_be_in_viewport()
    paired.wait_for_timeout(500)  # a request counts for keys once it could have been seen
    paired.keyboard.press("?")
    expect(paired.get_by_role("dialog")).to_be_visible()
    paired.keyboard.press("a")  # not while the list is open
    paired.keyboard.press("Escape")
    expect(paired.get_by_role("dialog")).to_be_hidden()
    paired.keyboard.press("/")
    expect(paired.get_by_label("Message")).to_be_focused()
    paired.keyboard.type("a d ?")  # letters in the box are letters
    paired.keyboard.press("Escape")
    assert console.inbox.stored == []
    paired.keyboard.press("a")
    assert console.received(paired, TapIn).data == "i:push:a"
    expect(paired.get_by_role("article", name="Run a command?")).to_have_count(0)
    paired.wait_for_timeout(500)
    paired.keyboard.press("d")
    assert console.received(paired, TapIn, 2).data == "i:edit:d"
    expect(paired.get_by_label("Message")).to_have_value("a d ?")


@pytest.mark.parametrize("page_size", [PHONE, WIDE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits(paired: Page, console: Console, scheme: Any) -> None:
    paired.emulate_media(color_scheme=scheme)
    for path in ("/", "/run/1", "/run/3", "/chat/abc", "/login"):
        paired.goto(console.address + path)
        paired.evaluate("document.querySelectorAll('details').forEach(it => it.open = true)")
        assert no_sideways_scroll(paired), path
        ground = paired.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) < 200) == (scheme == "dark"), ground


def test_a_wide_screen_shows_the_lists_beside_the_run(paired: Page, console: Console) -> None:
    paired.set_viewport_size({"width": 1600, "height": 900})
    paired.goto(f"{console.address}/run/1")
    expect(paired.get_by_role("heading", name="Needs you")).to_be_visible()
    paired.set_viewport_size({"width": 360, "height": 740})
    expect(paired.get_by_role("heading", name="Needs you")).to_be_hidden()
    expect(paired.get_by_role("link", name="All runs")).to_be_visible()


@pytest.mark.parametrize("page_size", [PHONE])
def test_changes_appear_and_disturb_nothing(paired: Page, console: Console) -> None:
    many = [f"Read {number}.py" for number in range(60)]
    console.show(one_running(*many))
    paired.goto(f"{console.address}/run/2")
    paired.get_by_text("Earlier steps").click()
    paired.get_by_text("Read 3.py").click()
    box = paired.get_by_label("Message")
    box.fill("half a thou")
    box.press("Home")
    paired.evaluate("scrollTo(0, 300)")
    console.show(one_running(*many, "Read the last one.py"))
    expect(paired.get_by_text("Read the last one.py")).to_have_count(1)
    assert paired.evaluate("scrollY") == 300
    assert paired.locator("details[open]").count() == 2
    expect(box).to_have_value("half a thou")
    expect(box).to_be_focused()
    assert box.evaluate("it => it.selectionStart") == 0


@pytest.mark.parametrize("page_size", [PHONE])
def test_the_end_is_followed_by_who_reads_it(paired: Page, console: Console) -> None:
    paired.goto(f"{console.address}/run/2#end")
    push = pending("k9", *[Content("command", f"echo {number}") for number in range(30)], act="Run many commands?")
    view = shown(run(2, "running", title="Now push it"), done=tracker(asked(push)), asked=(push,))
    console.show(views.Page(thread(1), "shop", (view,), ()))
    expect(paired.get_by_text("Run many commands?").last).to_have_count(1)
    expect(paired.get_by_role("button", name="Approve")).to_be_in_viewport()
    expect(paired).to_have_title("⏸ 1 · Now push it · Untether")


def test_a_lost_connection_is_said(page: Page, console: Console) -> None:
    page.goto(console.transport.pairing_link())
    page.wait_for_url(console.address + "/")
    expect(page.locator("#offline")).to_be_hidden()
    page.wait_for_timeout(300)
    console.stop()
    expect(page.get_by_text("The connection to Untether is lost.")).to_be_visible()


def test_it_works_without_scripts(browser: Browser, console: Console) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(console.transport.pairing_link())
    page.wait_for_url(console.address + "/")
    page.get_by_role("link", name="Now push it").click()
    page.get_by_role("article", name="Run a command?").get_by_role("button", name="Approve").click()
    assert console.received(page, TapIn).data == "i:push:a"
    expect(page.get_by_text("Approved", exact=True)).to_be_visible()
    page.get_by_label("Message").fill("Go on")
    page.get_by_role("button", name="Send").click()
    assert console.received(page, MessageIn).text == "Go on"
    page.goto(f"{console.address}/run/1")
    page.get_by_text("3 steps", exact=True).click()
    expect(page.get_by_text("Edit src/cart.py")).to_be_visible()
    context.close()
