"""One settings text together with the environment: parsed, merged, validated, its problems told in a person's words."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace
from pydantic import ValidationError

from . import schema
from .environment import EnvironmentSource
from .errors import ConfigError, Problem
from .keys import KeyPath, Location, join_key, key_lines, line_of, value_at
from .model import FLAT_ENGINES, Root

AnyKey = TypeVar("AnyKey", KeyPath, Location)

_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

_WHAT = {
    "missing": "is required",
    "extra_forbidden": "is not a known key",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "path_type": "must be text",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "literal_error": "has an unknown value",
    "greater_than_equal": "is too small",
    "less_than_equal": "is too large",
}
"""Pydantic's error types in our words; they finish the sentence "KEY …"."""

_HINT = {
    "string_type": "Write it in quotes.",
    "path_type": "Write it in quotes.",
    "tuple_type": "Write the values in brackets.",
}
_UNQUOTED = ("bool_type", "int_type", "float_type")


class Document:
    """One settings text with the environment, checked. Raises `ConfigError` when the text is not TOML.

    Keys are canonical here: an engine table written as `[claude]` is found under `engines`.
    `file` is what the text says, `merged` has the overrides of the environment on top, `variables` tells which variable
    overrides which key. `root` is the validated model, None when there are `problems`.
    """

    def __init__(self, path: Path, text: str, environ: Mapping[str, str]) -> None:
        raw = _parse(path, text)
        self._lines = key_lines(text)
        self.flat = tuple(name for name in FLAT_ENGINES if name in raw)
        self.file, problems = self._canonical(raw)
        source = EnvironmentSource(environ, self.file)
        self.variables = source.variables
        self.merged = _merge(self.file, source())
        # Two kinds of unknown keys never reach the model: the library ignores the first in silence and takes the second
        # for arguments of its own.
        hidden = {key[0] for key in self.variables} - set(Root.model_fields)
        hidden |= {name for name in self.merged if name.startswith("_")}
        problems += [self._unknown_key((str(name),)) for name in sorted(hidden, key=str)]
        problems += _cross_check(self)
        self.root: Root | None = None
        try:
            root = Root(**{name: value for name, value in self.merged.items() if name not in hidden})
        except ValidationError as error:
            problems += self._explain(error)
        else:
            self.root = None if problems else _with_absolute_paths(root, path.parent)
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))

    def problem(self, key: Location, what: str, hint: str | None = None) -> Problem:
        """A problem of a canonical key, told with the key, line or variable that the person wrote."""
        written = self.as_written(key)
        variable = self.variable_of(key)
        line = None if variable else line_of(self._lines, written)
        return Problem(key=join_key(written), what=what, line=line, variable=variable, hint=hint)

    def variable_of(self, key: Location) -> str | None:
        """The variable that gives a canonical key its value, or that alone gives its table one."""
        holders = (key[:length] for length in range(len(key), 0, -1))
        if variable := next((self.variables[holder] for holder in holders if holder in self.variables), None):
            return variable
        if value_at(self.file, key) is not None:
            return None
        return next((name for path, name in self.variables.items() if path[: len(key)] == key), None)

    def as_written(self, key: AnyKey) -> AnyKey:
        """A canonical key as it stands, or would stand, in this file: `engines.claude` is short unless written out."""
        if len(key) < 2 or key[0] != "engines" or key[1] not in FLAT_ENGINES:
            return key
        written_out = key[1] not in self.flat and value_at(self.file, key[:2]) is not None
        return key if written_out else key[1:]

    def _canonical(self, raw: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
        file = {name: value for name, value in raw.items() if name not in self.flat}
        engines = file.get("engines", {})
        if not self.flat or not isinstance(engines, dict):
            return file, []  # validation says that `engines` must be a table
        problems = []
        for name in self.flat:
            if name in engines:
                what = f"and engines.{name} are the same table"
                line = self._lines.get(("engines", name))
                problems.append(Problem(key=name, what=what, line=line, hint=f"Keep [{name}] or [engines.{name}]."))
        file["engines"] = _merge({name: raw[name] for name in self.flat}, engines)
        return file, problems

    def _explain(self, error: ValidationError) -> list[Problem]:
        problems = []
        for item in error.errors(include_url=False):
            key: Location = tuple(item["loc"])
            kind = item["type"]
            if kind == "extra_forbidden":
                problems.append(self._unknown_key(tuple(map(str, key))))
            elif kind == "value_error":
                problems.append(self.problem(key, str(item["ctx"]["error"])))
            else:
                hint = _HINT.get(kind) or _allowed_hint(key, item["input"])
                problem = self.problem(key, _WHAT.get(kind, "is not valid"), hint)
                if kind in _UNQUOTED and isinstance(item["input"], str) and not problem.variable:
                    problem = replace(problem, hint="Write it without quotes.")
                problems.append(problem)
        return problems

    def _unknown_key(self, key: KeyPath) -> Problem:
        return self.problem(key, _WHAT["extra_forbidden"], known_keys_hint(key))


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """`Did you mean X?` when one of the known names is near."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return f"Did you mean {by_lower[near[0]]}?" if near else None


def known_keys_hint(key: KeyPath) -> str | None:
    """For an unknown canonical key: the near one, else where a key of this name belongs, else all of its table."""
    known = schema.names_in(key[:-1]) + (FLAT_ENGINES if len(key) == 1 else ())
    if near := suggestion(key[-1], known):
        return near
    home = schema.home_of(key[-1])
    if home:
        return f"Did you mean {join_key(home)}?"
    return f"Known keys here: {', '.join(sorted(known))}." if known else None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:
        what, line, column = str(error), None, None
        if place := re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", what, re.DOTALL):
            what = place[1]
            line = int(place[2]) if place[2] else text.rstrip("\n").count("\n") + 1
            column = int(place[3]) if place[3] else None
        what = f"this is not valid TOML: {what[:1].lower()}{what[1:]}"
        raise ConfigError(path, [Problem(what=what, line=line, column=column)]) from None


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key; anything else of `above` replaces what is `below`."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _cross_check(document: Document) -> list[Problem]:
    """The rules between sections, on the unchecked tables, so that they are told together with everything else."""
    projects = document.merged.get("projects")
    projects = projects if isinstance(projects, dict) else {}
    problems = []
    default = document.merged.get("default_project")
    if isinstance(default, str) and default not in projects:
        hint = suggestion(default, projects) or "Add the project with untether init, or remove this key."
        problems.append(document.problem(("default_project",), "names no project of this file", hint))
    spelled: dict[str, str] = {}
    telegram = _table(_table(document.merged, "transports"), "telegram")
    owners: dict[object, str] = {}
    if type(telegram.get("chat_id")) is int:
        owners[telegram["chat_id"]] = "transports.telegram"
    for alias in projects:
        key = ("projects", alias)
        if not _ALIAS.fullmatch(alias):
            hint = "Use letters, digits, dot, dash and underscore, at most 64, starting with a letter or digit."
            problems.append(document.problem(key, "is not a usable alias", hint))
        if (twin := spelled.setdefault(alias.lower(), alias)) != alias:
            problems.append(document.problem(key, f"differs from projects.{twin} only in capitals"))
        chat_id = _table(projects, alias).get("chat_id")
        if type(chat_id) is int and (owner := owners.setdefault(chat_id, join_key(key))) != join_key(key):
            problems.append(document.problem((*key, "chat_id"), f"is already the chat of {owner}"))
    return problems


def _table(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    return value if isinstance(value, dict) else {}


def _allowed_hint(key: Location, value: object) -> str | None:
    allowed = schema.allowed(key)
    if allowed is None:
        return None
    near = suggestion(value, schema.choices(key)) if isinstance(value, str) else None
    return f"Allowed: {allowed}." + (f" {near}" if near else "")


def _with_absolute_paths(root: Root, folder: Path) -> Root:
    projects = {
        alias: project.model_copy(update={"path": Path(os.path.normpath(folder / project.path))})
        for alias, project in root.projects.items()
    }
    return root.model_copy(update={"projects": projects})
