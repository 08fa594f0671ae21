"""Files that come with a message: texts become part of it, pictures and documents lie beside it for the agent."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import anyio
import structlog

from ..store.threads import File
from ..text import words
from ..transport import ChatRef, FileIn, SendFailed
from .engines import Engine
from .services import Services

log = structlog.get_logger(__name__)

_UNHEARD = ("audio/", "video/")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]")
_PAUSES_S = (1.0, 3.0, 9.0)  # before each further try to fetch a file
_LONGEST_PAUSE_S = 60.0
_LONGEST_NAME = 120  # bytes; file systems take 255


class Refused(Exception):
    """A message that is not taken; the text says why and what to do."""


class Taken(NamedTuple):
    """The contents of text files, and the others as they lie on this machine."""

    inlined: str = ""
    attachments: tuple[File, ...] = ()


async def take(
    services: Services, files: Sequence[FileIn], chat: ChatRef, update_id: int, engine: Engine, max_text: int
) -> Taken:
    """Fetch the files of a message. Raises Refused, for all when it cannot take one.

    They go into a folder of their own, named by the update, so that a second attempt replaces those of the first.
    """
    texts, kept = list[str](), list[File]()
    folder = Path(services.options.state_dir, "incoming", str(update_id))
    for file in files:
        is_text = _is_text(file) and file.size <= max_text
        _check(file, engine, services.options.max_file_bytes, is_text=is_text)
        limit = max_text if is_text else services.options.max_file_bytes
        data = await _fetch(services, file, chat, limit)
        if is_text:
            texts.append(data.decode("utf-8", "replace"))
        else:
            path = folder / _free_name(file.name, {Path(other.path).name for other in kept})
            try:
                await anyio.to_thread.run_sync(_write, path, data)
            except OSError as error:
                log.error("files.not_kept", path=str(path), error=str(error))
                raise Refused(f"{file.name} could not be kept here: {error.strerror}. Send it again later.") from error
            kept.append(File(str(path), file.name, file.mime))
    return Taken("\n\n".join(texts), tuple(kept))


async def _fetch(services: Services, file: FileIn, chat: ChatRef, limit: int) -> bytes:
    """What goes wrong in passing is tried again. Raises Refused."""
    for pause in (*_PAUSES_S, None):
        try:
            return await services.transports[chat.transport].fetch(file, limit)
        except SendFailed as failure:
            if pause is None or failure.kind not in ("later", "unknown"):
                raise Refused(f"{file.name} could not be fetched: {failure.detail}. Send it again.") from failure
            await services.clock.sleep(max(pause, min(failure.retry_after or 0.0, _LONGEST_PAUSE_S)))
    raise AssertionError("the last try returns or raises")


def _is_text(file: FileIn) -> bool:
    return file.mime.startswith("text/") or file.name.lower().endswith((".txt", ".md"))


def _check(file: FileIn, engine: Engine, most: int, *, is_text: bool) -> None:
    """Raises Refused for what need not be fetched."""
    if is_text:
        return
    if not _is_text(file) and file.mime.startswith(_UNHEARD):
        raise Refused(f"{file.name} was not taken: only texts, pictures and documents can be sent so far.")
    able = engine.runner.capabilities
    if not (able.images if file.mime.startswith("image/") else able.documents):
        why = "takes only text files" if not _is_text(file) else "takes no text file that long"
        raise Refused(f"{file.name} was not taken: {engine.id} {why}. Send the text itself.")
    if file.size > most:
        size, limit = words.size(file.size), words.size(most)
        raise Refused(f"{file.name} was not taken: it has {size}, and at most {limit} can be sent.")


def _free_name(name: str, taken: set[str]) -> str:
    """A name for a file that no other one of its message has; it cannot lead out of its folder."""
    clean = _UNSAFE.sub("_", name).strip().lstrip(".") or "file"
    stem, ending = os.path.splitext(clean)
    stem = stem.encode()[: _LONGEST_NAME - len(ending.encode())].decode("utf-8", "ignore") or "file"
    free, number = stem + ending, 1
    while free in taken:
        number += 1
        free = f"{stem}-{number}{ending}"
    return free


def _write(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    temporary.replace(path)
