"""Pictures that come with a message: read through the driver, and sent in base64 with the message's text."""

from __future__ import annotations

from typing import Any

from ...session import Attachment, Call, CallResult, Prompt, ReadFile
from ..output import Output

_KINDS = ("image/png", "image/jpeg", "image/gif", "image/webp")
_LIMIT = 3_750_000  # bytes: what providers take as 5 MB of base64


class Outgoing:
    """A message whose pictures are being read. `steers`: it goes into the running turn."""

    def __init__(self, prompt: Prompt, *, steers: bool) -> None:
        self.prompt = prompt
        self.steers = steers
        self.missing: dict[str, Attachment] = {}
        self.images: list[dict[str, Any]] = []
        self.named: list[Attachment] = []

    @property
    def text(self) -> str:
        """Its text; files that do not go with it are named behind it."""
        names = [f"- {file.path} ({file.name})" for file in self.named]
        return "\n".join([self.prompt.text, "", "Attached files:", *names]) if names else self.prompt.text


class Pictures:
    """The messages on their way out, by message id."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._outgoing: dict[str, Outgoing] = {}
        self.calls: list[Call] = []

    def prepare(self, prompt: Prompt, *, steers: bool) -> Outgoing | None:
        """The message when it can go at once; None when its pictures are asked for first."""
        outgoing = Outgoing(prompt, steers=steers)
        for number, file in enumerate(prompt.attachments):
            if file.mime in _KINDS:
                id = f"{prompt.id}/{number}"
                outgoing.missing[id] = file
                self.calls.append(ReadFile(id, file.path, _LIMIT, binary=True))
            else:
                outgoing.named.append(file)
        if not outgoing.missing:
            return outgoing
        self._outgoing[prompt.id] = outgoing
        return None

    def read(self, call_id: str, result: CallResult) -> Outgoing | None:
        """A picture was read, or could not be: the message, when this was its last."""
        outgoing = self._outgoing.get(call_id.rpartition("/")[0])
        file = outgoing.missing.pop(call_id, None) if outgoing is not None else None
        if outgoing is None or file is None:
            return None
        if result.error:
            self._output.warning(f"{file.name} could not be read and is only named: {result.error}")
            outgoing.named.append(file)
        else:
            outgoing.images.append({"type": "image", "data": result.text, "mimeType": file.mime})
        if outgoing.missing:
            return None
        del self._outgoing[outgoing.prompt.id]
        return outgoing

    def drop(self) -> None:
        self._outgoing.clear()
