"""The socket and the HTTP server: the next free port, and an end that does not wait for open streams."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio
import uvicorn
from starlette.types import ASGIApp

_NEXT_PORTS: Final = 20
_GRACE: Final = 1  # seconds for answers that are on their way at the end


def bind(host: str, port: int) -> socket.socket:
    """A listening socket on `port` or, when that is taken, on one of the next 20; on any with port 0.

    :raises OSError: when none is free, or the host is none of this machine
    """
    ports = [0] if port == 0 else range(port, min(port + _NEXT_PORTS, 65_535) + 1)
    for candidate in ports:
        try:
            return _listen(host, candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"no free port from {port} to {ports[-1]} on {host}")


def _listen(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the program's affair."""
        yield


async def serve(app: ASGIApp, listening: socket.socket, stopping: anyio.Event) -> None:
    """Serve until cancelled. At the end `stopping` is set, which ends the streams; then the socket is closed."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE,
    )
    server = _Server(config)

    async def stop_with_us() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopping.set()
            server.should_exit = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop_with_us)
        with anyio.CancelScope(shield=True):
            await server.serve(sockets=[listening])
        tasks.cancel_scope.cancel()
