"""A lost login: told once, messages wait over a restart, and the owner logs in from the private chat."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio.to_thread
import psutil
import pytest
from structlog.testing import capture_logs

from tests.support.chat import FakeChat, Shown, office_with
from tests.support.costly import LOGGED_OUT, CostlyRunner, Turn, costly
from untether.backends import Login
from untether.clock import SteeredClock
from untether.conversation.engines import Engines
from untether.transport import ChatRef

pytestmark = pytest.mark.anyio

OWNER = ChatRef("fake", "7")  # Ann's private chat; she also writes in the chat "1"
LINK = "https://login.example/authorize?code=true&state=abc"
CODE = "Sup3rSecret#st4te"

# As `claude auth login` does over pipes, on 2.1.197 and 2.1.332.
PROGRAM = f"""\
import sys
assert sys.argv[1:] == ["auth", "login"], sys.argv
print("Opening browser to sign in…")
print("\\x1b[1mIf the browser didn't open, visit:\\x1b[0m {LINK}")
print("Paste code here if prompted > ", end="", flush=True)
code = sys.stdin.readline().strip()
if code != {CODE!r}:
    print(f"Login failed: {{code}} is not valid")
    sys.exit(1)
print("Login successful.")
"""


def logins(folder: Path, *turns: Turn, program: str = PROGRAM, takes_code: bool = True) -> tuple[Engines, CostlyRunner]:
    script = folder / "cli"
    script.write_text(f"#!{sys.executable}\n{program}")
    script.chmod(0o700)
    engines, runner = costly(*turns, login=Login(("auth", "login"), takes_code))
    runner.login_program = str(script)
    return engines, runner


async def link_in(chat: FakeChat) -> Shown:
    shown = await chat.shown("⏸ Log in to scripted", LINK, button="Open")
    assert shown.chat == OWNER
    return shown


async def test_messages_wait_and_go_on_after_the_login(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), logins(tmp_path, Turn(detail=LOGGED_OUT))
    async with office_with(tmp_path, chat, engines=engines, owner=OWNER) as office:
        await chat.say("one")
        await chat.shown("✗ It did not work.", "Messages for scripted wait", button="Log in")
        await chat.shown("✗ scripted is not logged in any more.", button="Log in")
        await chat.say("two")
        held = await chat.shown("⏳ waits for the login of scripted", button="Withdraw")
        await chat.say("three", chat="2")
        await chat.until(lambda: sum("⏳ waits for the login" in shown.text for shown in chat.messages) == 2)
        await chat.say("/status")
        await chat.shown("✗ scripted is not logged in: its messages wait")
        assert runner.said == ["one"]
    async with office_with(tmp_path, chat, engines=engines, owner=OWNER) as office:
        with capture_logs() as logs:
            await chat.say("/auth scripted")
            await chat.shown("⏳ Beginning the login of scripted…", "private chat")
            await chat.say(CODE, reply_to=await link_in(chat), chat="7")
            await chat.shown("✓ Code taken.")
            await chat.shown("✓ scripted is logged in. 2 messages that waited go on.")
            await chat.shown("Answer to two.")
            await chat.shown("Answer to three.")
        await chat.until(lambda: held.deleted)
        assert CODE not in str(logs)
        assert sorted(said for said in runner.said if said != "one") == ["three", "two"]
        told = [shown for shown in chat.messages if "is not logged in any more" in shown.text]
        assert len(told) == 1
        kept = office.services.db.read(lambda conn: "\n".join(conn.iterdump()))
        assert "Sup3rSecret" not in kept


async def test_a_single_word_in_the_private_chat_is_the_code(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), logins(tmp_path)
    async with office_with(tmp_path, chat, engines=engines, owner=OWNER):
        await chat.say("/auth scripted", chat="7")
        link = await link_in(chat)
        await chat.say("what is this about", chat="7")
        await chat.shown("Answer to what is this about.")
        await chat.say("elsewhere-is-a-message")
        await chat.shown("Answer to elsewhere-is-a-message.")
        await chat.say(CODE, chat="7")
        await chat.shown("✓ scripted is logged in.")
        await chat.until(lambda: LINK not in link.text)
        assert runner.said == ["what is this about", "elsewhere-is-a-message"]


async def test_a_wrong_code_is_told_without_it(tmp_path: Path) -> None:
    chat, (engines, _) = FakeChat(), logins(tmp_path)
    async with office_with(tmp_path, chat, engines=engines, owner=OWNER):
        await chat.say("/auth scripted", chat="7")
        await chat.say("wrong-code", reply_to=await link_in(chat), chat="7")
        told = await chat.shown("✗ The login of scripted failed: Login failed: ••• is not valid")
        assert "wrong-code" not in "".join(shown.text for shown in chat.messages)
        assert told.chat == OWNER


async def test_only_the_owner(tmp_path: Path) -> None:
    chat, (engines, _) = FakeChat(), logins(tmp_path, Turn(detail=LOGGED_OUT))
    async with office_with(tmp_path, chat, engines=engines, owner=ChatRef("fake", "8")):
        await chat.say("/auth scripted")
        await chat.shown("✗ Only the owner of this Untether may log in.")
        await chat.say("one")
        await chat.tap(await chat.shown("✗ It did not work.", button="Log in"), "Log in")
        await chat.until(lambda: "Only the owner may log in" in chat.toasts)
        assert not any(LINK in shown.text for shown in chat.messages)


async def test_cancel_gives_it_up(tmp_path: Path) -> None:
    chat, (engines, _) = FakeChat(), logins(tmp_path)
    async with office_with(tmp_path, chat, engines=engines, owner=OWNER):
        await chat.say("/auth scripted", chat="7")
        link = await link_in(chat)
        await chat.say("/auth scripted")
        await chat.shown("✗ The login of scripted is under way.")
        await chat.say("/cancel", chat="7")
        await chat.shown("■ The login is given up.")
        await chat.until(lambda: "was given up" in link.text)
        await chat.say(CODE, reply_to=link, chat="7")
        await chat.shown("Not needed any more: no login is under way.")


async def test_it_ends_when_nobody_finishes_it(tmp_path: Path) -> None:
    chat, clock, (engines, _) = FakeChat(), SteeredClock(), logins(tmp_path)
    async with office_with(tmp_path, chat, engines=engines, owner=OWNER, clock=clock):
        await chat.say("/auth scripted", chat="7")
        await link_in(chat)
        await clock.advance(70.0)
        await clock.advance(900.0)
        await chat.shown("✗ The login of scripted failed: nobody finished it in time")


async def test_a_login_that_a_restart_cut(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), logins(tmp_path)
    async with office_with(tmp_path, chat, engines=engines, owner=OWNER):
        await chat.say("/auth scripted", chat="7")
        link = await link_in(chat)
    async with office_with(tmp_path, chat, engines=engines, owner=OWNER):
        await chat.until(lambda: "was cut by a restart" in link.text)
        await chat.say(CODE, reply_to=link, chat="7")
        await chat.shown("Not needed any more: no login is under way.")
        assert runner.said == []


async def test_a_login_whose_page_asks_for_the_code(tmp_path: Path) -> None:
    device = f'print("Open {LINK} and type ABCD-1234", flush=True)\nimport sys; sys.stdin.readline()\n'
    chat, (engines, _) = FakeChat(), logins(tmp_path, program=device, takes_code=False)
    async with office_with(tmp_path, chat, engines=engines, owner=OWNER):
        await chat.say("/auth scripted", chat="7")
        shown = await link_in(chat)
        assert "ABCD-1234" in shown.text
        assert "reply" not in shown.text
        await chat.say("a-single-word", chat="7")
        await chat.shown("Answer to a-single-word.")


async def test_try_now_lets_one_thread_go_first(tmp_path: Path) -> None:
    chat, (engines, runner) = FakeChat(), logins(tmp_path, Turn(detail=LOGGED_OUT), Turn(detail=LOGGED_OUT))
    async with office_with(tmp_path, chat, engines=engines, owner=OWNER):
        await chat.say("one", chat="7")
        await chat.shown("Messages for scripted wait", button="Try now")
        await chat.say("two", chat="7")
        await chat.shown("⏳ waits for the login of scripted")
        await chat.say("three")
        await chat.until(lambda: sum("⏳ waits for the login" in shown.text for shown in chat.messages) == 2)
        first = await chat.shown("Messages for scripted wait", button="Try now")
        await chat.tap(first, "Try now")
        await chat.until(lambda: sum("Messages for scripted wait" in shown.text for shown in chat.messages) == 2)
        assert runner.said == ["one", "two"]  # it did not work: the other still waits
        await chat.tap(await chat.shown("Messages for scripted wait", button="Try now"), "Try now")
        await chat.shown("Answer to three.")


async def test_nothing_is_left_of_a_program_that_is_given_up(tmp_path: Path) -> None:
    program = f'import os, sys\nopen("pid", "w").write(str(os.getpid()))\n{PROGRAM.removeprefix("import sys")}'
    chat, (engines, _) = FakeChat(), logins(tmp_path, program=program)
    async with office_with(tmp_path, chat, engines=engines, owner=OWNER):
        await chat.say("/auth scripted", chat="7")
        await link_in(chat)
        procs = [psutil.Process(int((tmp_path / "home" / "pid").read_text()))]
        await chat.say("/cancel", chat="7")
        await chat.shown("■ The login is given up.")
        await anyio.to_thread.run_sync(lambda: psutil.wait_procs(procs, timeout=10))
        assert not any(one.is_running() for one in procs)


async def test_without_a_messenger_whoever_is_at_the_console_logs_in(tmp_path: Path) -> None:
    chat, (engines, _) = FakeChat("console", shows_all=True), logins(tmp_path, Turn(detail=LOGGED_OUT))
    async with office_with(tmp_path, chat, engines=engines):
        await chat.say("one")
        told = await chat.shown("✗ scripted is not logged in any more.", button="Log in")
        await chat.tap(told, "Log in")
        link = await chat.shown("⏸ Log in to scripted", LINK, button="Open")
        assert link.chat == ChatRef("console", "1")
        await chat.say(CODE)
        await chat.shown("✓ scripted is logged in.")
