"""The console's addresses: what each shows or does. Everything but pairing and files needs a paired browser.

What a person sends becomes a stored update, as in every chat; the router decides what it means.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio
import structlog
from starlette.applications import Starlette
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from ...clock import Clock
from ...conversation.hub import Hub
from ...conversation.router import MAX_PROMPT
from ...conversation.views import Overview, Page
from ...store.database import StoreError
from ...store.threads import Thread
from ...text.clean import clean_text
from ...transport import ChatRef
from .access import SESSION_LIFE, Addresses, CodeRefused, Pairing, Sessions, form_token, form_token_ok
from .guard import Guard, TooLarge, limited
from .said import Notices, Toasts
from .screens import Box, Choices, Frame, Screens

log = structlog.get_logger(__name__)

BODY_LIMIT: Final = 4 * 1024 * 1024  # a prompt of a million characters, at four bytes each, fits
_TOAST_PATIENCE: Final = 5.0
_EVENT_PAUSE: Final = 0.5  # at least between two looks of one page
_HEARTBEAT: Final = 5.0
_LONGEST_DATA: Final = 64
_TAKES_WORDS = re.compile(r"i:[^:]+:(d|e|c:\d+|o:\d+)")  # buttons of requests, see conversation.asked_cards
_BACK = re.compile(r"/(run/\d{1,18}(\?all=1)?|chat/[a-z0-9]{1,32})?")
_THREAD = re.compile(r"[a-z0-9]{1,32}")
_BRANCH = re.compile(r"@?([^\s@]+)")

Handler = Callable[[Request], Awaitable[Response]]
SignedIn = Callable[[Request, str], Awaitable[Response]]  # (request, the session's cookie)


class Shown(Protocol):
    """What the console shows; `conversation.views.Views` is one."""

    def overview(self, recent: int = 30) -> Overview: ...

    def page(self, run_id: int) -> Page | None: ...

    def latest_run_of_chat(self, chat: ChatRef) -> int | None: ...


class Sender(Protocol):
    """What becomes of what a person sends. All raise StoreError when it cannot be kept."""

    async def message(self, text: str, *, thread: str, run_id: int | None) -> None:
        """A message in the chat `thread`, continuing the conversation of a run when there is one."""

    async def tap(self, data: str, *, thread: str, token: str) -> None:
        """A tap on a button; what it is answered goes to `Toasts` under `token`."""


@dataclass
class Console:
    """Everything that the pages need, and the handlers of all addresses."""

    views: Shown
    hub: Hub
    choices: Choices
    sender: Sender
    clock: Clock
    addresses: Addresses
    pairing: Pairing
    sessions: Sessions
    notices: Notices
    toasts: Toasts
    screens: Screens
    new_key: Callable[[], str]
    stopping: anyio.Event
    started: str  # an id of this start, so that states of an earlier one are told from ours
    sent_at: dict[str, float] = field(default_factory=dict)  # new conversations, until their run is found

    def app(self) -> ASGIApp:
        routes = [
            Route("/health", self.health),
            Route("/static/{name}", self.static),
            Route("/login", self.login, methods=["GET"]),
            Route("/login", self.redeem, methods=["POST"]),
            Route("/pair", self.pair, methods=["GET"]),
            Route("/logout", self._signed_in(self.logout), methods=["POST"]),
            Route("/", self._signed_in(self.home), methods=["GET"]),
            Route("/run/{run_id:int}", self._signed_in(self.run), methods=["GET"]),
            Route("/run/{run_id:int}/message", self._signed_in(self.whole_message), methods=["GET"]),
            Route("/chat/{thread}", self._signed_in(self.chat), methods=["GET"]),
            Route("/events", self._signed_in(self.events), methods=["GET"]),
            Route("/send", self._signed_in(self.send), methods=["POST"]),
            Route("/tap", self._signed_in(self.tap), methods=["POST"]),
            Route("/dismiss", self._signed_in(self.dismiss), methods=["POST"]),
        ]
        handlers = {404: self._not_found, 405: self._not_found, 500: self._broken}
        app = Starlette(routes=routes, exception_handlers=handlers)
        return Guard(app, self.addresses, self.screens)

    # ------------------------------------------------------------------------------------------ without pairing

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("ok")

    async def static(self, request: Request) -> Response:
        found = self.screens.static.get(request.path_params["name"])
        if found is None:
            return self._trouble(404, "Not found", "There is no such file.")
        # The link carries a digest of the content, so what was fetched once stays right.
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(found.content, media_type=found.media_type, headers=headers)

    async def login(self, request: Request) -> Response:
        return HTMLResponse(self.screens.login())

    async def redeem(self, request: Request) -> Response:
        try:
            form = await _form(request)
        except TooLarge:
            return self._trouble(413, "Too long", "This is no code.")
        return await self._redeem(request, _text(form, "code"), "/")

    async def pair(self, request: Request) -> Response:
        code = request.query_params.get("code", "")
        if not code or request.method == "HEAD" or "prefetch" in request.headers.get("sec-purpose", ""):
            return HTMLResponse(self.screens.login())  # a look ahead must not use the code up
        if await self.sessions.known(self._cookie(request)):
            return RedirectResponse("/", 303)
        return await self._redeem(request, code, "")

    async def _redeem(self, request: Request, code: str, redirect: str) -> Response:
        """Turn a code into a cookie. A link may come from another site, which a strict cookie does not survive as a
        redirect; then a page of ours goes on."""
        try:
            self.pairing.redeem(code)
            token = await self.sessions.open()
        except CodeRefused as refused:
            log.warning("web.code_refused")
            headers = {"retry-after": str(max(1, round(refused.retry_after)))} if refused.retry_after else {}
            status = 429 if refused.retry_after else 403
            return HTMLResponse(self.screens.login(error=str(refused)), status, headers=headers)
        except StoreError as error:
            return self._trouble(503, "Not paired", str(error))
        log.info("web.browser_paired")
        response: Response = (
            RedirectResponse(redirect, 303)
            if redirect
            else HTMLResponse(self.screens.onward("/", "This browser is paired."))
        )
        response.set_cookie(
            self._cookie_name(request),
            token,
            max_age=int(SESSION_LIFE),
            path="/",
            secure=self._is_https(request),
            httponly=True,
            samesite="strict",
        )
        return response

    # --------------------------------------------------------------------------------------------------- pages

    async def home(self, request: Request, session: str) -> Response:
        return self._home(session, Box())

    def _home(self, session: str, box: Box, status: int = 200) -> Response:
        frame = self._frame(session, "/")
        return HTMLResponse(self.screens.home(frame, self.choices, self.notices.all(), box), status)

    async def run(self, request: Request, session: str) -> Response:
        return self._run(session, request.path_params["run_id"], Box(), whole="all" in request.query_params)

    def _run(self, session: str, run_id: int, box: Box, status: int = 200, *, whole: bool = False) -> Response:
        page = self.views.page(run_id)
        if page is None:
            return self._trouble(404, "No such run", "This run is not known here. It may have been removed.")
        frame = self._frame(session, f"/run/{run_id}?all=1" if whole else f"/run/{run_id}")
        notices = self.notices.of(_chat_thread(page.thread))
        return HTMLResponse(self.screens.run(frame, page, run_id, notices, box, whole=whole), status)

    async def whole_message(self, request: Request, session: str) -> Response:
        run_id = request.path_params["run_id"]
        page = self.views.page(run_id)
        message = next((view.message for view in page.runs if view.run.id == run_id), None) if page else None
        if message is None:
            return self._trouble(404, "No such message", "This message is not known here.")
        return PlainTextResponse(clean_text(message.text))

    async def chat(self, request: Request, session: str) -> Response:
        thread = request.path_params["thread"]
        if not _THREAD.fullmatch(thread):
            return await self._not_found(request)
        if (run_id := self._run_of_chat(thread)) is not None:
            return _goto(request, f"/run/{run_id}#end")
        return self._chat(session, thread, Box())

    def _chat(self, session: str, thread: str, box: Box, status: int = 200) -> Response:
        frame = self._frame(session, f"/chat/{thread}")
        waiting = thread in self.sent_at
        page = self.screens.chat(frame, thread, self.notices.of(thread), box, waiting=waiting)
        return HTMLResponse(page, status)

    def _run_of_chat(self, thread: str) -> int | None:
        """The run that a new conversation began, once there is one."""
        return self.views.latest_run_of_chat(ChatRef("web", "console", thread))

    def _frame(self, session: str, here: str) -> Frame:
        seen = f"{self.started}-{self.hub.version}"
        return Frame(form_token(session), here, seen, self.toasts.shown(session), self.views.overview())

    # ------------------------------------------------------------------------------------------------- live

    async def events(self, request: Request, session: str) -> Response:
        start, _, version = request.query_params.get("seen", "").partition("-")
        seen = int(version) if start == self.started and version.isdecimal() else -1
        headers = {"x-accel-buffering": "no"}
        return StreamingResponse(self._changes(seen), media_type="text/event-stream", headers=headers)

    async def _changes(self, seen: int) -> AsyncIterator[bytes]:
        """Tell of every change since the state `seen`, and now and then of the time while something runs."""
        yield b": connected\n\n"
        while True:
            now = await self._version_after(seen)
            if self.stopping.is_set():
                return
            if now != seen or self._something_runs():
                yield b"event: changed\ndata: %d\n\n" % now
            else:
                yield b": still here\n\n"
            seen = now
            await self.clock.sleep(_EVENT_PAUSE)

    async def _version_after(self, seen: int) -> int:
        """The state after the next change; `seen` again after a heartbeat, or when the console stops."""
        found = seen

        async def look(scope: anyio.CancelScope) -> None:
            nonlocal found
            found = await anext(aiter(self.hub.watch(seen)))
            scope.cancel()

        async def stop(scope: anyio.CancelScope) -> None:
            await self.stopping.wait()
            scope.cancel()

        with anyio.move_on_after(_HEARTBEAT):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(look, tasks.cancel_scope)
                tasks.start_soon(stop, tasks.cancel_scope)
        return found

    def _something_runs(self) -> bool:
        overview = self.views.overview(0)
        return bool(overview.running or overview.needs_you)

    # -------------------------------------------------------------------------------------------------- doing

    async def send(self, request: Request, session: str) -> Response:
        form = await self._checked(request, session)
        if isinstance(form, Response):
            return form
        text = _text(form, "text").replace("\r\n", "\n")
        box = Box(text, "", _text(form, "engine"), _text(form, "project"), _text(form, "branch"))
        run_id, thread = _number(form, "run"), _text(form, "thread")
        thread = thread if _THREAD.fullmatch(thread) else ""
        error, status = self._wrong_with(text), 422
        if not error and run_id is None and not thread:
            text, error = self._directed(box)
        if not error:
            try:
                return await self._send(text, run_id, thread)
            except StoreError as failure:
                error, status = f"Not sent, nothing was kept. {failure}", 503
        box = box._replace(error=error)
        if run_id is not None:
            return self._run(session, run_id, box, status)
        return self._chat(session, thread, box, status) if thread else self._home(session, box, status)

    async def _send(self, text: str, run_id: int | None, thread: str) -> Response:
        if run_id is not None:
            page = self.views.page(run_id)
            if page is None:
                return self._trouble(404, "No such run", "This run is not known here, so nothing was sent.")
            await self.sender.message(text, thread=_chat_thread(page.thread), run_id=run_id)
            return RedirectResponse(f"/run/{run_id}", 303)
        thread = thread or self.new_key()
        self.sent_at[thread] = self.clock.now()
        while len(self.sent_at) > 64:
            del self.sent_at[next(iter(self.sent_at))]
        await self.sender.message(text, thread=thread, run_id=None)
        return RedirectResponse(f"/chat/{thread}", 303)

    @staticmethod
    def _wrong_with(text: str) -> str:
        if not text.replace("\0", "").strip():
            return "There is no text in this message. Say what the agent should do."
        if len(text) > MAX_PROMPT:
            return f"This message is too long ({len(text):,} characters, at most {MAX_PROMPT:,})."
        return ""

    def _directed(self, box: Box) -> tuple[str, str]:
        """The text with the directives that were chosen beside it, and what is wrong with them."""
        words = []
        if box.engine in self.choices.engines:
            words.append(f"/{box.engine}")
        if box.project in self.choices.projects:
            words.append(f"/{box.project}")
        if box.branch.strip():
            match = _BRANCH.fullmatch(box.branch.strip())
            if match is None:
                return box.text, "A branch name has no spaces and no @ in it. Correct the branch, then send again."
            words.append(f"@{match[1]}")
        return " ".join([*words, box.text]), ""

    async def tap(self, request: Request, session: str) -> Response:
        form = await self._checked(request, session)
        if isinstance(form, Response):
            return form
        data, run_id = _text(form, "data"), _number(form, "run")
        back = _back(form)
        if not data or len(data.encode("utf-8", "replace")) > _LONGEST_DATA:
            return self._trouble(400, "Unknown button", "This button is not known any more. Go back and try again.")
        typed = _text(form, "text").replace("\r\n", "\n").replace("\0", "")
        if len(typed) > MAX_PROMPT:
            return self._trouble(413, "Too long", f"At most {MAX_PROMPT:,} characters can be typed beside a button.")
        if typed.strip() and _TAKES_WORDS.fullmatch(data):
            data = f"{data}:{typed if data.endswith(':e') else typed.strip()}"  # what is edited runs exactly as typed
        page = self.views.page(run_id) if run_id is not None else None
        thread = _chat_thread(page.thread) if page is not None else back.removeprefix("/chat/").strip("/")
        token = self.new_key()
        self.toasts.expect(token)
        try:
            await self.sender.tap(data, thread=thread if _THREAD.fullmatch(thread) else "", token=token)
            said = await self.toasts.wait(token, _TOAST_PATIENCE)
        except StoreError as error:
            said = f"Not done, nothing was kept. {error}"
        finally:
            self.toasts.forget(token)
        self.toasts.show(session, "…" if said is None else said)
        return RedirectResponse(back, 303)

    async def dismiss(self, request: Request, session: str) -> Response:
        form = await self._checked(request, session)
        if isinstance(form, Response):
            return form
        self.notices.remove(_text(form, "id"))
        return RedirectResponse(_back(form), 303)

    async def logout(self, request: Request, session: str) -> Response:
        form = await self._checked(request, session)
        if isinstance(form, Response):
            return form
        try:
            await self.sessions.close(session)
        except StoreError as error:
            return self._trouble(503, "Not signed out", str(error))
        response = RedirectResponse("/login", 303)
        name, secure = self._cookie_name(request), self._is_https(request)
        response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="strict")
        return response

    # ------------------------------------------------------------------------------------------------ helpers

    def _signed_in(self, handler: SignedIn) -> Handler:
        async def handle(request: Request) -> Response:
            session = self._cookie(request)
            if await self.sessions.known(session):
                return await handler(request, session)
            if request.method == "POST" or request.url.path == "/events":
                return self._trouble(401, "Not paired", "This browser is not paired any more. Nothing was done.")
            if request.headers.get("sec-fetch-site") == "cross-site":
                # Followed from another site: the strict cookie stays behind. A request of our own page brings it.
                path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return HTMLResponse(self.screens.onward(path, "Opening the console…"))
            return _goto(request, "/login")

        return handle

    async def _checked(self, request: Request, session: str) -> FormData | Response:
        """The form of a request, or the refusal of one that is too large or was not made by a page of this session."""
        try:
            form = await _form(request)
        except TooLarge:
            text = f"At most {MAX_PROMPT:,} characters can be sent at once. Go back and shorten the message."
            return self._trouble(413, "Too long", text)
        if not form_token_ok(session, _text(form, "token")):
            text = "This page is out of date, so nothing was done. Open the console and try again."
            return self._trouble(403, "Not done", text)
        return form

    def _cookie_name(self, request: Request) -> str:
        """Cookies do not keep ports apart, so the name does: two bridges on one machine stay two."""
        if self._is_https(request):
            return "__Host-untether"
        return f"untether-{request.url.port or 80}"

    def _cookie(self, request: Request) -> str:
        return request.cookies.get(self._cookie_name(request), "")

    def _is_https(self, request: Request) -> bool:
        return (self.addresses.origin(request.headers.get("host", "")) or "").startswith("https://")

    def _trouble(self, status: int, title: str, text: str) -> Response:
        return HTMLResponse(self.screens.trouble(title, text), status)

    async def _not_found(self, request: Request, error: Exception | None = None) -> Response:
        return self._trouble(404, "Not found", "There is no such page.")

    async def _broken(self, request: Request, error: Exception) -> Response:
        log.error("web.broken", path=request.url.path, exc_info=error)
        response = self._trouble(500, "Something went wrong", "The log has the details. Open the console again.")
        response.headers["hx-reswap"] = "none"  # a page that is open keeps what it shows
        return response


async def _form(request: Request) -> FormData:
    """Raises TooLarge."""
    whole = await limited(request, BODY_LIMIT)
    return await whole.form(max_files=0, max_fields=20, max_part_size=BODY_LIMIT)


def _text(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value if isinstance(value, str) else ""


def _back(form: FormData) -> str:
    """The page to go back to; only pages of ours count."""
    back = _text(form, "back")
    return back if _BACK.fullmatch(back) else "/"


def _number(form: FormData, name: str) -> int | None:
    value = _text(form, name)
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else None


def _goto(request: Request, target: str) -> Response:
    """Open another page: a request of the script must not put it into the page that is open."""
    if request.headers.get("hx-request") == "true":
        return Response(status_code=204, headers={"hx-redirect": target})
    return RedirectResponse(target, 303)


def _chat_thread(thread: Thread) -> str:
    """The console's chat for a conversation: its own when it began here, else one made for it."""
    return thread.chat.thread if thread.chat.transport == "web" else f"t{thread.id}"
