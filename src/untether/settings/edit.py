"""Changing the settings file: comments and order stay, the result is checked, the file is replaced in one step."""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from msgspec import Struct
from msgspec.structs import replace
from tomlkit.exceptions import TOMLKitError

from ..redact import MASK, Redactor
from . import schema
from .document import Document, known_keys_hint
from .errors import ConfigError, Problem
from .keys import KeyPath, join_key, split_key, value_at
from .load import read_text
from .model import FLAT_ENGINES
from .tomledit import apply, put, remove, says


class Entry(Struct, frozen=True):
    """A value in force. `variable` is the environment variable it comes from, `is_default` that nobody set it."""

    key: str
    """As the file spells it; `path` is the same, canonical."""
    path: KeyPath
    value: Any
    is_secret: bool = False
    variable: str | None = None
    is_default: bool = False

    @property
    def shown(self) -> Any:
        """The value as it may be shown: secrets masked."""
        return MASK if self.is_secret else Redactor().mask(self.value)

    @property
    def toml(self) -> str:
        """`shown` as it would stand in the file."""
        return MASK if self.is_secret else tomlkit.item(self.shown).as_string()


class UnknownKeyError(ValueError):
    """The text is not a key of the settings; `str()` says so and suggests one."""


class KeyNotSetError(LookupError):
    """The file does not hold the key."""


def list_values(path: Path, *, environ: Mapping[str, str], defaults: bool = False) -> tuple[Entry, ...]:
    """What file and environment set, in the order of the file; with `defaults` also what is in force beyond that.

    The values need not be valid. Raises `ConfigError` when the file cannot be read as TOML.
    """
    document = Document(path, read_text(path) or "", environ)
    entries = {key: _entry(document, key, value) for key, value in _leaves(document.merged)}
    if defaults:
        for key, value in schema.defaults(document.merged):
            entries.setdefault(key, replace(_entry(document, key, value), is_default=True))
    return tuple(entries.values())


def get(path: Path, key: str, *, environ: Mapping[str, str]) -> tuple[Entry, ...]:
    """The value of a key, or all values of a table; empty when it has neither value nor default.

    Raises `UnknownKeyError`, and `ConfigError` when the file cannot be read as TOML.
    """
    wanted = canonical(key)
    entries = list_values(path, environ=environ, defaults=True)
    return tuple(entry for entry in entries if entry.path[: len(wanted)] == wanted)


def set_value(path: Path, key: str, text: str, *, environ: Mapping[str, str]) -> tuple[Problem, ...]:
    """Write `key`; `text` is a TOML value, anything else is taken as a string.

    Returns the problems that the file had before and still has. Raises `ConfigError` when the change would bring a new
    one, `UnknownKeyError` when `key` is no key at all.
    """
    name = canonical(key)
    return change(path, {name: _parse_value(name, text)}, environ=environ)


def unset(path: Path, key: str, *, environ: Mapping[str, str]) -> tuple[Problem, ...]:
    """Remove a key or table from the file. As `set_value`; raises `KeyNotSetError` when the file does not hold it."""
    return change(path, {canonical(key): None}, environ=environ)


def add_project(
    path: Path, alias: str, folder: Path, *, environ: Mapping[str, str], make_default: bool = False
) -> tuple[Problem, ...]:
    """Add `[projects.ALIAS]`; the same folder again changes nothing. Raises `ConfigError`, also for a taken alias."""
    document = Document(path, read_text(path) or "", environ)
    changes: dict[KeyPath, Any] = {}
    present = value_at(document.file, ("projects", alias, "path"))
    if present is None:
        changes["projects", alias, "path"] = os.path.abspath(folder)
    elif os.path.abspath(path.parent / Path(str(present)).expanduser()) != os.path.abspath(folder):
        problem = document.problem(("projects", alias), f"is already {present}", "Choose another alias.")
        raise ConfigError(path, [problem], headline="The project was not added:")
    if make_default:
        changes["default_project",] = alias
    return change(path, changes, environ=environ)


def set_telegram(
    path: Path,
    bot_token: str,
    chat_id: int,
    allowed_user_ids: Sequence[int],
    *,
    environ: Mapping[str, str],
    api_base_url: str | None = None,
) -> tuple[Problem, ...]:
    """Write what pairing found out, leaving the other keys of `[transports.telegram]`. Raises `ConfigError`."""
    table = ("transports", "telegram")
    values: dict[str, Any] = {
        "bot_token": bot_token,
        "chat_id": chat_id,
        "allowed_user_ids": list(allowed_user_ids),
    }
    if api_base_url is not None:
        values["api_base_url"] = api_base_url
    return change(path, {(*table, name): value for name, value in values.items()}, environ=environ)


def change(path: Path, changes: Mapping[KeyPath, Any], *, environ: Mapping[str, str]) -> tuple[Problem, ...]:
    """Set (or, with None, remove) several canonical keys at once: all or nothing. See `set_value`."""
    text = read_text(path) or ""
    before = Document(path, text, environ)
    new_text = text
    expected = tomllib.loads(text)
    for key, value in changes.items():
        spelled = before.as_written(key)
        if value is None and value_at(expected, spelled) is None:
            raise KeyNotSetError(f"{join_key(spelled)} is not set in {path}.")
        new_text = remove(new_text, spelled) if value is None else put(new_text, spelled, value)
        apply(expected, spelled, value)
    if not says(new_text, expected):
        problem = Problem(what="this change is too intricate to be made without an editor", key=join_key(spelled))
        raise ConfigError(path, [problem], headline=f"{path} was not changed:")
    after = Document(path, new_text, environ)
    known = {(problem.key, problem.what) for problem in before.problems}
    new = [replace(problem, line=None) for problem in after.problems if (problem.key, problem.what) not in known]
    if new:
        raise ConfigError(path, new, headline=f"{path} was not changed, because it would not be valid:")
    if new_text != text:
        write_atomically(path, new_text)
    return after.problems


def write_atomically(path: Path, text: str) -> None:
    """Replace the file in one step, readable by its owner only; a symbolic link keeps pointing to it.

    Raises `ConfigError` when the folder cannot be written.
    """
    target = path.resolve()
    temporary = None
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # created with mode 0600
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        problem = Problem(
            what=error.strerror or "the disk did not take it", hint="Check the folder and the free space."
        )
        raise ConfigError(path, [problem], headline=f"{path} could not be written:") from None


def canonical(key: str) -> KeyPath:
    """`claude.model` → `("engines", "claude", "model")`. Raises `UnknownKeyError` when no section has such a key."""
    path = split_key(key.strip())
    if path is None:
        raise UnknownKeyError(f"{key!r} is not a key. A key is written like transports.telegram.chat_id.")
    if path[0] in FLAT_ENGINES:
        path = ("engines", *path)
    for length in range(1, len(path) + 1):
        if not schema.exists(path[:length]):
            hint = known_keys_hint(path[:length]) or f"{join_key(path[: length - 1])} is no table."
            raise UnknownKeyError(f"{key} is not a known key. {hint}")
    return path


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _leaves(table: Mapping[str, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def _entry(document: Document, key: KeyPath, value: Any) -> Entry:
    written = document.as_written(key)
    return Entry(
        key=join_key(written),
        path=key,
        value=value,
        is_secret=schema.is_secret(key),
        variable=document.variable_of(key),
    )


def _parse_value(key: KeyPath, text: str) -> Any:
    try:
        table = tomlkit.parse(f"value = {text}\n")
        value = table["value"] if list(table) == ["value"] else text
    except TOMLKitError:
        value = text
    return text if schema.is_text(key) and not isinstance(value, str) else value
