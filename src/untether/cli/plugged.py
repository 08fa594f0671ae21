"""The transports and commands of packages: found, built, and what is wrong with those that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import anyio
import structlog

from .. import command_backends, transports
from ..conversation.commands import COMMANDS, UNAVAILABLE
from ..conversation.plugin_commands import PluginCommands
from ..plugins import LoadError, find, load_all
from ..settings import Settings
from ..transport import Inbox, Transport
from ..transports import TransportContext

log = structlog.get_logger(__name__)

_PAUSE_S = 30.0


def commands(settings: Settings) -> tuple[PluginCommands, list[LoadError]]:
    """The commands of packages that are allowed."""
    found = load_all(command_backends.GROUP, settings.plugins.enabled)
    errors = list(found.errors)
    usable = {}
    for word, backend in found.backends.items():
        if word in COMMANDS or word in UNAVAILABLE:
            errors.append(LoadError(word, "", f"{word!r} cannot be a command id: it is a command of Untether."))
        else:
            usable[word] = backend
    tables = settings.plugins.model_extra or {}
    return PluginCommands(usable, {word: tables.get(word, {}) for word in usable}), errors


def build_transports(
    settings: Settings, context: Callable[[str], TransportContext]
) -> tuple[Mapping[str, Transport], list[LoadError]]:
    """The transports of packages that are allowed and have a table `[transports.ID]`. `context(id)` is for one."""
    found = load_all(transports.GROUP, settings.plugins.enabled)
    errors = list(found.errors)
    made: dict[str, Transport] = {}
    configured = settings.values.transports.model_extra or {}
    for id, backend in found.backends.items():
        if backend.build is None or id not in configured:
            continue
        try:
            transport = backend.build(context(id))
        except Exception as error:  # a package's code: whatever it raises, the others are started
            reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            errors.append(LoadError(id, "", f"It could not be started: {reason}"))
            continue
        if transport.name == id:
            made[id] = transport
        else:
            errors.append(LoadError(id, "", f"Its transport is named {transport.name!r} instead."))
    return made, errors


async def contained(transport: Transport, inbox: Inbox) -> None:
    """Receive for a transport of a package; what it raises ends it for a while, and nothing else."""
    while True:
        try:
            await transport.run(inbox)
        except Exception:  # a package's code: whatever it raises, the other transports go on
            log.exception("transport.failed", transport=transport.name, again_in_s=_PAUSE_S)
        await anyio.sleep(_PAUSE_S)


def transport_ids(settings: Settings) -> tuple[str, ...]:
    """The ids of the transports that are installed, without importing any."""
    return tuple(find(transports.GROUP, settings.plugins.enabled)[0])


def load_errors(settings: Settings) -> list[LoadError]:
    """What is wrong with transports and commands of packages, apart from starting them."""
    return [*load_all(transports.GROUP, settings.plugins.enabled).errors, *commands(settings)[1]]
