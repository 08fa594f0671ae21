"""Who may use the console: the addresses it answers to, the codes that pair a browser, and the sessions of browsers.

A code is shown where only the owner sees it (the terminal), works once and for ten minutes, and turns into a random
cookie. Only a digest of the cookie is kept. The token that every form carries is derived from the cookie, so another
site can neither read nor guess it.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import urlsplit

import structlog

from ...clock import Clock
from ...store.database import StoreError

log = structlog.get_logger(__name__)

CODE_LIFE: Final = 600.0  # seconds that a pairing code is good for
SESSION_LIFE: Final = 60 * 86_400.0  # seconds of absence after which a browser must pair again
_SESSION_TOUCH: Final = 86_400.0  # how often a visit is noted
_FREE_TRIES: Final = 5
_LONGEST_DELAY: Final = 300.0

# Without vowels and signs that look alike: easy to read from a screen and to type on a phone.
_CODE_LETTERS: Final = "bcdfghjkmnpqrstvwxz23456789"


def random_token() -> str:
    """256 random bits for a cookie."""
    return secrets.token_urlsafe(32)


def random_code() -> str:
    """A pairing code of 57 random bits, as `kx4w-9mzt-2pqr`."""
    return "-".join("".join(secrets.choice(_CODE_LETTERS) for _ in range(4)) for _ in range(3))


# --------------------------------------------------------------------------------------------------- addresses


class Addresses:
    """The names under which browsers reach the console. Any other name is refused, which stops DNS rebinding."""

    def __init__(self, host: str, port: int, public_url: str | None = None, *, allow_insecure: bool = False) -> None:
        self._origins: dict[str, str] = {}  # by host as it stands in a request
        for name in {"127.0.0.1", "localhost", "[::1]", _bracketed(host.lower())}:
            self._origins[f"{name}:{port}"] = f"http://{name}:{port}"
            if port == 80:
                self._origins[name] = f"http://{name}"
        self._any_address = allow_insecure
        self._port = port
        if public_url:
            scheme, netloc = urlsplit(public_url.lower())[:2]
            default = {"http": "80", "https": "443"}.get(scheme, "")
            name = netloc.removesuffix(f":{default}")
            for spelling in (name, f"{name}:{default}"):
                self._origins[spelling] = f"{scheme}://{name}"

    def origin(self, host: str) -> str | None:
        """The origin of a request with this Host header, None when it is no name of ours."""
        host = host.lower()
        if (known := self._origins.get(host)) is not None:
            return known
        # A numeric address cannot be rebound. It is accepted where plain http from the network was asked for.
        if self._any_address and _is_numeric(host, self._port):
            return f"http://{host}"
        return None

    def is_ours(self, origin: str) -> bool:
        """Whether an Origin header names one of our own pages."""
        scheme, netloc = urlsplit(origin)[:2]
        return bool(netloc) and self.origin(netloc) == f"{scheme}://{netloc}".lower()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _is_numeric(host: str, port: int) -> bool:
    name, _, tail = host.rpartition(":")
    if tail != str(port):
        return False
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


# ----------------------------------------------------------------------------------------------------- pairing


class CodeRefused(Exception):
    """A code that does not count. The text says why and what to do; `retry_after` is in seconds, 0 for at once."""

    def __init__(self, text: str, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after = retry_after


_AGAIN: Final = "Restart Untether on that machine, or send it SIGUSR1: it prints a new link."


class Pairing:
    """The one code that is good now. Wrong ones are slowed down: after five, each costs twice the wait of the last."""

    def __init__(self, clock: Clock, make: Callable[[], str] = random_code) -> None:
        self._clock = clock
        self._make = make
        self._code = ""
        self._until = 0.0
        self._wrong = 0
        self._locked_until = 0.0

    def new_code(self) -> str:
        """Make a code; the one before is void."""
        self._code = self._make()
        self._until = self._clock.monotonic() + CODE_LIFE
        self._wrong = 0
        self._locked_until = 0.0
        return self._code

    def code(self) -> str:
        """The code that is good now, a new one when the last was used or has expired."""
        return self._code if self._code and self._clock.monotonic() < self._until else self.new_code()

    def redeem(self, typed: str) -> None:
        """Use the code up. Raises CodeRefused."""
        now = self._clock.monotonic()
        if now < self._locked_until:
            left = self._locked_until - now
            raise CodeRefused(f"Too many wrong codes. Wait {max(1, round(left))} seconds, then try again.", left)
        if not self._code or not hmac.compare_digest(_plain(typed), _plain(self._code)):
            self._wrong += 1
            if self._wrong >= _FREE_TRIES:
                self._locked_until = now + min(2.0 ** (self._wrong - _FREE_TRIES), _LONGEST_DELAY)
            raise CodeRefused(f"This code is not the current one; each works once. {_AGAIN}")
        expired = now >= self._until
        self._code = ""
        if expired:
            raise CodeRefused(f"This code has expired; each is good for 10 minutes. {_AGAIN}")
        self._wrong = 0


def _plain(code: str) -> bytes:
    """A code as it is compared: dashes, spaces and capitals do not matter when it is typed."""
    return "".join(code.split()).replace("-", "").lower().encode("utf-8", "replace")


# ---------------------------------------------------------------------------------------------------- sessions


class SessionStore(Protocol):
    """Where the sessions of browsers are kept: texts by key. They hold no secret, only digests and times."""

    def get(self, key: str) -> str | None: ...

    async def put(self, key: str, value: str) -> None: ...


class MemoryStore:
    """Sessions that end with the program."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        return self._values.get(key)

    async def put(self, key: str, value: str) -> None:
        self._values[key] = value


class Sessions:
    """Browsers that were paired. The value of a session is the time of its last visit, "" once it is signed out."""

    def __init__(self, store: SessionStore, clock: Clock, make: Callable[[], str] = random_token) -> None:
        self._store = store
        self._clock = clock
        self._make = make

    async def open(self) -> str:
        """Make a session and return its cookie. Raises what the store raises."""
        token = self._make()
        await self._store.put(_key(token), f"{self._clock.now():.0f}")
        return token

    async def known(self, token: str) -> bool:
        """Whether this is the cookie of a session that is still good. Notes the visit, about once a day."""
        if not token:
            return False
        seen = self._store.get(_key(token))
        if not seen:
            return False
        absent = self._clock.now() - float(seen)
        if absent >= SESSION_LIFE:
            return False
        if absent >= _SESSION_TOUCH:
            try:
                await self._store.put(_key(token), f"{self._clock.now():.0f}")
            except StoreError as error:
                # A full disk must not lock people out of the page that tells them about it.
                log.warning("web.visit_not_noted", error=str(error))
        return True

    async def close(self, token: str) -> None:
        await self._store.put(_key(token), "")


def _key(token: str) -> str:
    return "web.session:" + hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def form_token(session: str) -> str:
    """The token of a session's forms. It tells nothing about the cookie it is made from."""
    return hmac.new(session.encode("utf-8", "replace"), b"form", hashlib.sha256).hexdigest()


def form_token_ok(session: str, given: str) -> bool:
    return hmac.compare_digest(form_token(session).encode(), given.encode("utf-8", "replace"))
