"""A message on its way to Claude Code: its text, a command of the CLI's own, and the files that come with it.

Pictures and PDFs go in as content blocks. Reading them is I/O, which a session may not do: it asks for each by a call,
the answer is an input of the session, and the message leaves when all are there. Messages keep their order meanwhile.
Every file is also named by its path, so that the agent can read what does not fit, or read it again.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from ...session import Attachment, CallResult, Prompt, ReadFile, When
from . import frames
from .output import Output

# What the model's API takes in one block: 5 MB of base64 for a picture, 32 MB for a whole request.
_LIMITS = {
    "image/jpeg": 3_750_000,
    "image/png": 3_750_000,
    "image/gif": 3_750_000,
    "image/webp": 3_750_000,
    "application/pdf": 10_000_000,
}
_BY_ENDING = {
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "gif": "image/gif",
    "webp": "image/webp",
    "pdf": "application/pdf",
}
_LOCAL_COMMAND = re.compile(r"//(?=[a-z][\w:-]*(?:\s|$))")


def for_the_cli(prompt: Prompt) -> Prompt:
    """`//compact` is a command of the CLI's own, which knows it as `/compact`; all else stays as it is."""
    return replace(prompt, text=prompt.text[1:]) if _LOCAL_COMMAND.match(prompt.text) else prompt


class _Outgoing:
    """A message that waits for files of its own, or for those of an earlier one."""

    def __init__(self, prompt: Prompt, priority: str) -> None:
        self.prompt = prompt
        self.priority = priority
        self.missing: dict[str, Attachment] = {}  # by call
        self.blocks: list[dict[str, Any]] = []
        self.failures: dict[str, str] = {}  # by path


class Messages:
    """Writes messages in the order in which they were said."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._outgoing: dict[str, _Outgoing] = {}  # by message id

    def send(self, prompt: Prompt, when: When, *, working: bool) -> None:
        """Without a priority it goes into the running turn with the next result of a tool (claude-protocol §6)."""
        priority = "now" if when == "replace" else "later" if when == "next" and working else ""
        outgoing = self._outgoing[prompt.id] = _Outgoing(prompt, priority)
        for number, file in enumerate(prompt.attachments):
            if (mime := _mime(file)) in _LIMITS:
                call = f"{prompt.id}/{number}"
                outgoing.missing[call] = file
                self._output.call(ReadFile(call, file.path, _LIMITS[mime], binary=True))
        self._flush()

    def read(self, call_id: str, result: CallResult) -> None:
        """A file was read, or could not be."""
        outgoing = self._outgoing.get(call_id.rpartition("/")[0])
        file = outgoing.missing.pop(call_id, None) if outgoing is not None else None
        if outgoing is None or file is None:
            return
        if result.error:
            outgoing.failures[file.path] = result.error
            self._output.warning(f"{file.name} could not be read and is only named: {result.error}")
        else:
            mime = _mime(file)
            source = {"type": "base64", "media_type": mime, "data": result.text}
            kind = "document" if mime == "application/pdf" else "image"
            outgoing.blocks.append({"type": kind, "source": source})
        self._flush()

    def withdraw(self, prompt_id: str) -> bool:
        """True when the message had not left yet; it never will."""
        found = self._outgoing.pop(prompt_id, None) is not None
        self._flush()
        return found

    def drop(self) -> None:
        """The agent has ended."""
        self._outgoing.clear()

    def _flush(self) -> None:
        for id, outgoing in list(self._outgoing.items()):
            if outgoing.missing:
                return
            del self._outgoing[id]
            text = frames.text_of(outgoing.prompt, outgoing.failures)
            content: Any = [*outgoing.blocks, {"type": "text", "text": text}] if outgoing.blocks else text
            self._output.writes.append(frames.user_message(id, content, outgoing.priority))


def _mime(file: Attachment) -> str:
    return file.mime or _BY_ENDING.get(file.name.rpartition(".")[2].lower(), "")
