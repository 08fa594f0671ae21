"""The seam between the conversation and the outside world: what comes in, what goes out, and what a transport must do.

A transport turns its updates into `Inbound` records and paints the cards that it is told to. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from .model import Record
from .text.blocks import Block

# ---------------------------------------------------------------------------------------------------- what comes in


class ChatRef(Record, frozen=True):
    """A place where people talk with us: a chat of a transport, or a topic (`thread`) of such a chat."""

    transport: str
    chat: str
    thread: str = ""


class Sender(Record, frozen=True):
    id: str
    name: str = ""


class ReplyTo(Record, frozen=True):
    """The message that is answered: its id, its text (or the quoted part), and whether it is ours."""

    message_id: str
    text: str = ""
    ours: bool = False


class FileIn(Record, frozen=True):
    """A file that came with a message; `id` is what the transport needs to fetch it, `size` is in bytes."""

    id: str
    name: str
    mime: str = ""
    size: int = 0


class MessageIn(Record, frozen=True, tag="message"):
    """A message of a person. `date` is in epoch seconds.

    Messages of one `album` were sent as one; a `forwarded` one was written elsewhere.
    """

    chat: ChatRef
    sender: Sender
    message_id: str
    text: str = ""
    date: float = 0.0
    reply_to: ReplyTo | None = None
    files: tuple[FileIn, ...] = ()
    edited: bool = False
    album: str = ""
    forwarded: bool = False


class TapIn(Record, frozen=True, tag="tap"):
    """A tap on a button. `data` is the button's data, `token` what the transport needs to answer with a toast."""

    chat: ChatRef
    sender: Sender
    message_id: str
    data: str
    token: str = ""
    date: float = 0.0


Inbound: TypeAlias = MessageIn | TapIn


class Inbox(Protocol):
    """Where a transport puts what it received, before it confirms it to the outside."""

    async def store(self, transport: str, updates: Sequence[tuple[str, bytes]]) -> None:
        """Commit raw updates as (key, bytes); known keys are ignored. Raises StoreError: then do not confirm."""

    async def moved(self, transport: str, old: str, new: str) -> None:
        """A chat got a new id: commit that all that is kept for it goes on there. Raises StoreError."""

    async def tell(self, chat: ChatRef, *lines: str) -> None:
        """Commit a notice of the transport's own, to be sent like any other. Raises StoreError."""


# ---------------------------------------------------------------------------------------------------- what goes out


class Button(Record, frozen=True):
    """`data` comes back in a tap, at most 64 bytes. With `copy` it copies that text instead; with `url` it opens it."""

    label: str
    data: str = ""
    style: Literal["plain", "success", "danger"] = "plain"
    copy: str = ""
    url: str = ""


Rows: TypeAlias = tuple[tuple[Button, ...], ...]


class FileOut(Record, frozen=True):
    """A file to send as a document: made from `text`, or the copy at `path`, whose SHA-256 is `digest` (in hex)."""

    name: str
    text: str = ""
    path: str = ""
    digest: str = ""


class Card(Record, frozen=True):
    """One message of ours: its content, its buttons, and how it arrives.

    `whole` says what to do when the content does not fit one message: "split" into several with the buttons under
    the last, or "attach" it as `file_name`, with the buttons coming after the file (for what must be read before a
    decision). `reply_to` is a message id of the same chat. `file` makes the card a document with the blocks as caption.
    """

    blocks: tuple[Block, ...]
    buttons: Rows = ()
    silent: bool = False
    reply_to: str = ""
    whole: Literal["split", "attach"] = "split"
    file_name: str = "message.md"
    file: FileOut | None = None


class SendFailed(Exception):
    """A card, edit or deletion did not get through.

    kind:
        refused   it will never be accepted; `detail` says why
        gone      the message is no longer there
        no_chat   the chat is no longer there, or the bot may not write in it: nothing will arrive
        moved     the chat has the id `moved_to` now; try again when that is noted
        later     nothing was sent, try again after `retry_after` seconds
        unknown   the request left and the answer never came
    """

    def __init__(
        self,
        kind: Literal["refused", "gone", "no_chat", "moved", "later", "unknown"],
        detail: str,
        retry_after: float = 0.0,
        moved_to: str = "",
    ):
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after
        self.moved_to = moved_to


class Priority:
    """Which queued call of a chat goes first; lower numbers go first."""

    INTERACTION = 0
    ANSWER = 1
    NOTICE = 2
    DELETE = 3
    PROGRESS = 4


class Transport(Protocol):
    """One way to the outside."""

    @property
    def name(self) -> str:
        """The first part of its `ChatRef`s."""

    @property
    def shows_all(self) -> bool:
        """Whether it shows the runs of every chat, so that requests of other chats may be decided on it."""

    async def run(self, inbox: Inbox) -> None:
        """Receive until cancelled. Trouble outside is handled inside: pauses that grow, one line in the log."""

    def decode(self, raw: bytes) -> Inbound | None:
        """A stored update as a record; None for what does not concern us (kinds we do not use)."""

    def may_act(self, inbound: Inbound) -> bool:
        """Whether this person may act in this chat. Strangers get silence."""

    def parts(self, card: Card) -> list[Card]:
        """The messages that a card becomes, in order; pure, and each of them fits."""

    async def send(self, chat: ChatRef, card: Card, priority: int) -> str:
        """Send one part and return its message id. Raises SendFailed."""

    async def edit(self, chat: ChatRef, message_id: str, card: Card, priority: int) -> None:
        """Replace a message of ours. Raises SendFailed."""

    async def delete(self, chat: ChatRef, message_id: str) -> None:
        """Remove a message of ours. Raises SendFailed."""

    def paint(self, chat: ChatRef, message_id: str, card: Card) -> None:
        """Show progress in a message of ours when there is room: the newest state wins, older ones are dropped."""

    async def toast(self, tap: TapIn, text: str) -> bool:
        """Answer a tap at once. False when it is too late for a toast."""

    async def fetch(self, file: FileIn, limit: int) -> bytes:
        """The content of a file that came in, at most `limit` bytes. Raises SendFailed."""

    def health(self) -> str:
        """One line for the status page: "" when all is well, else what is wrong."""
