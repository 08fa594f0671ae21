"""What holds for every request: who may be asked for (Host), who may ask (Origin), how much, and what browsers may do.

Pages load nothing from elsewhere, run only our own script file, and cannot be put into a frame.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .access import Addresses
from .screens import Screens

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    # Not no-referrer: browsers would then send `Origin: null` with our own forms. Nothing leaves for other sites.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware around the whole console."""

    def __init__(self, app: ASGIApp, addresses: Addresses, screens: Screens) -> None:
        self._app = app
        self._addresses = addresses
        self._screens = screens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no websockets, and the server has no lifespan

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = None if scope["path"] == "/health" else self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> HTMLResponse | None:
        headers = Headers(scope=scope)
        if self._addresses.origin(headers.get("host", "")) is None:
            text = "The console does not answer to this address. Open the link that Untether printed when it started."
            return HTMLResponse(self._screens.trouble("Unknown address", text), 421)
        if scope["method"] not in ("GET", "HEAD") and not self._from_our_page(headers):
            text = "This was sent from another site, so nothing was done. Open the console and send it from there."
            return HTMLResponse(self._screens.trouble("Not from here", text), 403)
        return None

    def _from_our_page(self, headers: Headers) -> bool:
        """Whether a request that changes something was made by a page of ours. One of the two headers must say so.

        Browsers leave Sec-Fetch-Site out on plain http beyond this machine, and old ones always; they all send Origin.
        """
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is not None and site != "same-origin":
            return False
        if origin is not None and origin != "null":
            return self._addresses.is_ours(origin)
        return site == "same-origin"


class TooLarge(Exception):
    """More was sent than is taken."""


async def limited(request: Request, limit: int) -> Request:
    """The same request with its body read, at most `limit` bytes. Raises TooLarge when it is longer.

    What is too much is read and dropped up to four times the limit, so that the browser gets to see the answer.
    """
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        elif size > 4 * limit:
            break
    if size > limit:
        raise TooLarge
    body = b"".join(chunks)

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(request.scope, receive)
