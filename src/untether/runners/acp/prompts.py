"""Messages on their way to the agent: built of content blocks, one turn after the other, and when each was taken.

Pictures go in as blocks where the agent says that it sees them, texts where it takes embedded contents; all else is
linked. Reading a file is I/O, so the session asks for it by a call, and the message leaves when all answers are there.
A message counts as taken when something shows that its turn has begun. In an agent that steers, one that is said
during a turn is a second request that joins it; both are answered at the end (recording opencode_prompt_while_busy).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from ...schemas import acp
from ...schemas.jsonrpc import Failure
from ...session import Attachment, CallResult, Prompt, ReadFile
from ..claude.output import Output
from .wire import Wire

_PICTURE_BYTES = 3_750_000  # 5 MB of base64, what models take at most
_TEXT_BYTES = 100_000
_MIME = {
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "gif": "image/gif",
    "webp": "image/webp",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "log": "text/plain",
}

OnEnd = Callable[[acp.TurnEnd | Failure], None]


class Prompts:
    def __init__(self, output: Output, wire: Wire, on_end: OnEnd) -> None:
        self._output = output
        self._wire = wire
        self._on_end = on_end
        self.session_id = ""
        self.able = acp.PromptCapabilities()
        self.waiting: deque[Prompt] = deque()
        self.in_flight: dict[int, str] = {}  # request id → message id, "" for words of ours
        self._untaken: list[str] = []
        self._reading: Prompt | None = None
        self._missing: dict[str, Attachment] = {}  # by call
        self._read: dict[str, CallResult] = {}  # by call

    @property
    def busy(self) -> bool:
        """A turn was asked for, or is about to be."""
        return bool(self.in_flight) or self._reading is not None

    def next(self) -> None:
        """Let the next message leave, if none is on its way."""
        if self.busy or not self.waiting:
            return
        prompt = self._reading = self.waiting.popleft()
        self._read = {}
        self._missing = {f"{prompt.id}/{number}": file for number, file in self._to_read(prompt)}
        for call, file in self._missing.items():
            picture = _mime(file).startswith("image/")
            self._output.call(ReadFile(call, file.path, _PICTURE_BYTES if picture else _TEXT_BYTES, binary=picture))
        self._send_read()

    def steer(self, prompt: Prompt) -> None:
        """Send a message into the turn that goes on."""
        self._send(prompt.id, self._blocks(prompt, {}))

    def say(self, text: str) -> None:
        """Words of ours, in the turn that goes on."""
        self._send("", [{"type": "text", "text": text}])

    def read(self, call_id: str, result: CallResult) -> None:
        """A file was read, or could not be."""
        file = self._missing.pop(call_id, None)
        if file is None:
            return
        if result.error:
            self._output.warning(f"{file.name} could not be read and is only linked: {result.error}")
        self._read[call_id] = result
        self._send_read()

    def withdraw(self, prompt_id: str) -> bool:
        """True when the message had not left; it never will."""
        for prompt in self.waiting:
            if prompt.id == prompt_id:
                self.waiting.remove(prompt)
                return True
        return False

    def not_sent(self) -> list[str]:
        """The message whose files are being read: it does not leave any more."""
        reading, self._reading = self._reading, None
        self._missing = {}
        return [reading.id] if reading is not None else []

    def take(self) -> list[str]:
        """What was sent has been taken: the ids."""
        taken, self._untaken = self._untaken, []
        return taken

    def left(self) -> list[str]:
        """The messages that were not taken, in their order; the agent has ended."""
        reading = [self._reading.id] if self._reading is not None else []
        left = [*self._untaken, *reading, *(prompt.id for prompt in self.waiting)]
        self._untaken, self._reading = [], None
        self.waiting.clear()
        self.in_flight.clear()
        return left

    # ------------------------------------------------------------------------------------------------------- sending

    def _to_read(self, prompt: Prompt) -> list[tuple[int, Attachment]]:
        found = []
        for number, file in enumerate(prompt.attachments):
            mime = _mime(file)
            if (mime.startswith("image/") and self.able.image) or (
                mime.startswith("text/") and self.able.embedded_context
            ):
                found.append((number, file))
        return found

    def _send_read(self) -> None:
        prompt = self._reading
        if prompt is not None and not self._missing:
            self._reading = None
            self._send(prompt.id, self._blocks(prompt, self._read))

    def _send(self, prompt_id: str, blocks: list[dict[str, Any]]) -> None:
        def ended(end: acp.TurnEnd | Failure) -> None:
            self.in_flight.pop(number, None)
            self._on_end(end)

        def done(result: Any) -> None:
            try:
                ended(acp.read(acp.TurnEnd, {} if result is None else result))
            except ValueError:
                ended(acp.TurnEnd())

        params = {"sessionId": self.session_id, "prompt": blocks}
        number = self._wire.request("session/prompt", params, done, ended)
        self.in_flight[number] = prompt_id
        if prompt_id:
            self._untaken.append(prompt_id)

    def _blocks(self, prompt: Prompt, read: dict[str, CallResult]) -> list[dict[str, Any]]:
        text = prompt.text.replace("\0", "").encode("utf-8", "replace").decode()
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text or not prompt.attachments else []
        for number, file in enumerate(prompt.attachments):
            blocks.append(_block(file, read.get(f"{prompt.id}/{number}")))
        return blocks


def _block(file: Attachment, read: CallResult | None) -> dict[str, Any]:
    """A file as a content block: its picture, its text, or a link to it."""
    mime, uri = _mime(file), f"file://{quote(file.path)}"
    if read is None or read.error or (not mime.startswith("image/") and len(read.text) >= _TEXT_BYTES):
        link = {"type": "resource_link", "uri": uri, "name": file.name}
        return {**link, "mimeType": mime} if mime else link
    if mime.startswith("image/"):
        return {"type": "image", "data": read.text, "mimeType": mime, "uri": uri}
    return {"type": "resource", "resource": {"uri": uri, "text": read.text, "mimeType": mime}}


def _mime(file: Attachment) -> str:
    return file.mime or _MIME.get(file.name.rpartition(".")[2].lower(), "")
