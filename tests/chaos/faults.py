"""The test's end of the faults socket: where the bridge dies, what it passed, and how its time goes."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Self

_PATIENCE_S = 10.0
_BEAT_S = 0.05


class Faults:
    """Serves `UNTETHER_FAULTS` for the bridges of one test, one after the other or at once.

    `passed` counts each point over all starts. Time that was moved on stays moved for a bridge that starts later.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))  # the path of a socket must be short
        self.path = self._folder / "faults"
        self.passed: Counter[str] = Counter()
        self.deaths: list[str] = []
        self.ahead = 0.0
        self._kill: tuple[str, int] | None = None
        self._lock = threading.Lock()
        self._clock_lock = threading.Lock()
        self._clocks: list[socket.socket] = []
        self._closed = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def kill_at(self, name: str, nth: int = 1) -> None:
        """Let the bridge die at the `nth` pass from now of the point `name`, once."""
        with self._lock:
            self._kill = (name, self.passed[name] + nth)

    def advance(self, seconds: float) -> None:
        """Move the bridge's time on, and wait until it has woken whom that concerns."""
        with self._clock_lock:
            self.ahead += seconds
            self._tell(f"advance {seconds}")

    def jump(self, seconds: float) -> None:
        """Set the bridge's wall time forward or back, as a suspend does."""
        with self._clock_lock:
            self.ahead += seconds
            self._tell(f"jump {seconds}")

    def hurry(self, factor: float) -> None:
        """From now on the bridge's time goes `factor` times as fast."""
        threading.Thread(target=self._hurry, args=(factor,), daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._clocks:
            connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------ the socket

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            name = _line(connection)
            if name == "clock":
                with self._clock_lock:
                    connection.sendall(f"{self.ahead}\n".encode())
                    connection.settimeout(_PATIENCE_S)
                    self._clocks.append(connection)
                return
            connection.sendall(f"{self._reply(name)}\n".encode())
        connection.close()

    def _reply(self, name: str) -> str:
        with self._lock:
            self.passed[name] += 1
            if self._kill == (name, self.passed[name]):
                self._kill = None
                self.deaths.append(f"{name}#{self.passed[name]}")
                return "kill"
            return "go"

    def _tell(self, command: str) -> None:
        for connection in list(self._clocks):
            try:
                connection.sendall(f"{command}\n".encode())
                if _line(connection) != "done":
                    raise OSError("hung up")
            except OSError:  # that bridge has gone; the next one learns how late it is when it begins
                self._clocks.remove(connection)
                connection.close()

    def _hurry(self, factor: float) -> None:
        last = time.monotonic()
        while not self._closed.wait(_BEAT_S):
            now = time.monotonic()
            self.advance((now - last) * (factor - 1))
            last = now


def _line(connection: socket.socket) -> str:
    data = b""
    while not data.endswith(b"\n") and (byte := connection.recv(1)):
        data += byte
    return data.decode().strip()
