"""What the settings model knows about a key: does it exist, which names stand beside it, what is allowed, its default.

Key paths are canonical here: engine tables are under `engines`.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from ..redact import is_secret_name
from .keys import KeyPath, Location
from .model import Root


def exists(path: KeyPath) -> bool:
    """Whether the file may hold this key, be it in a table that a plugin reads."""
    return _at(path) is not None


def names_in(path: Location) -> tuple[str, ...]:
    """The known keys of the table at `path`; empty where names are free."""
    model = _model_of(_at(path))
    return tuple(model.model_fields) if model else ()


def home_of(name: str) -> KeyPath | None:
    """Where a key of this name belongs, when exactly one section has it."""
    places = [path for path in _declared(Root) if path[-1] == name]
    return places[0] if len(places) == 1 else None


def is_secret(path: KeyPath) -> bool:
    """Whether the value must never be shown: a declared secret, or a free name that sounds like one."""
    annotation = _at(path)
    if annotation is SecretStr:
        return True
    is_free = field_at(path) is None
    return is_free and is_secret_name(path[-1])


def is_text(path: KeyPath) -> bool:
    """Whether the value is text, so that `true` or `12` means these characters."""
    return _at(path) in (str, SecretStr, Path)


def allowed(path: Location) -> str | None:
    """The choices or the range of a key, for a person: `compact or verbose`, `0 to 50`."""
    annotation = _at(path)
    if get_origin(annotation) is Literal:
        return alternatives(get_args(annotation))
    metadata = _metadata_at(path)
    low = next((item.ge for item in metadata if hasattr(item, "ge")), None)
    high = next((item.le for item in metadata if hasattr(item, "le")), None)
    if low is None or high is None:
        return None if low is None else f"{low} or more"
    return f"{low} to {high}" if high < 2**52 else None  # the range of chat ids tells nobody anything


def choices(path: Location) -> tuple[str, ...]:
    """The values of a key that takes one of a few words."""
    annotation = _at(path)
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def defaults(document: Mapping[str, Any], model: type[BaseModel] = Root) -> Iterator[tuple[KeyPath, Any]]:
    """Every key of the sections in force with its default, where it has one; `document` may itself be invalid."""
    for name, field in model.model_fields.items():
        annotation = _bare(field.annotation)
        present = document.get(name)
        table: Mapping[str, Any] = present if isinstance(present, Mapping) else {}
        if inner := _model_of(annotation):
            if name in document or field.default is not None:
                yield from (((name, *path), value) for path, value in defaults(table, inner))
        elif value_model := _model_of(_value_of(annotation)):
            for key, row in table.items():
                rows = defaults(row, value_model) if isinstance(row, Mapping) else ()
                yield from (((name, key, *path), value) for path, value in rows)
        elif not field.is_required():
            default = field.get_default(call_default_factory=True)
            if default is not None and default != {}:
                yield (name,), list(default) if isinstance(default, tuple) else default


def alternatives(words: tuple[str, ...]) -> str:
    """`a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def field_at(path: Location) -> FieldInfo | None:
    """The declaration of a key; None for free names and places in a list."""
    model = _model_of(_at(path[:-1]))
    return model.model_fields.get(str(path[-1])) if model else None


def _declared(model: type[BaseModel]) -> Iterator[KeyPath]:
    for name, field in model.model_fields.items():
        yield (name,)
        if inner := _model_of(_bare(field.annotation)):
            yield from ((name, *path) for path in _declared(inner))


def _at(path: Location) -> Any:
    """The bare type at `path`: `Any` inside a plugin's table, None when there is no such key."""
    annotation: Any = Root
    for part in path:
        annotation = _bare(_child(annotation, part))
        if annotation is None:
            return None
    return annotation


def _child(annotation: Any, part: str | int) -> Any:
    if annotation is Any:
        return Any
    if model := _model_of(annotation):
        if part in model.model_fields:
            return model.model_fields[str(part)].annotation
        return dict[str, Any] if model.model_config.get("extra") == "allow" else None
    return _value_of(annotation)


def _value_of(annotation: Any) -> Any:
    """The type of the values in a table of free names or in a list."""
    arguments = get_args(annotation)
    if get_origin(annotation) is dict:
        return arguments[1]
    return arguments[0] if get_origin(annotation) is tuple else None


def _bare(annotation: Any) -> Any:
    """Without `Annotated[…]` and `… | None`."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, types.UnionType):
            annotation = next(argument for argument in get_args(annotation) if argument is not types.NoneType)
        else:
            return annotation


def _model_of(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _metadata_at(path: Location) -> list[Any]:
    field = field_at(path)
    if field is None:
        return []
    return [*field.metadata, *getattr(field.annotation, "__metadata__", ())]
