"""Tolerant decoding: reading a frame that does not quite fit its struct, losing only what does not fit.

The usual frame never comes here: it is decoded straight into its struct. When that fails, the frame is decoded
without types and put into the struct piece by piece. A field of the wrong type gets its default, an item of a list
that fits nothing is left out, and a tagged struct of an unknown name becomes `Unknown`, which carries the name.
"""

from __future__ import annotations

import json
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """Something that this version has no name for. `name` says where it stood and what it was called."""

    name: str


class Misfit(ValueError):
    """The value cannot be read as the type at all."""


def loads(data: bytes) -> Any:
    """Decode JSON as leniently as the standard library can: stray bytes and lone surrogates are replaced.

    Raises ValueError when it is not JSON, RecursionError when it is nested too deeply.
    """
    return without_surrogates(json.loads(data.decode("utf-8", "replace"), strict=False))


def salvage(kind: Any, value: Any) -> Any:
    """Read the decoded JSON `value` as `kind`, a type that msgspec could decode; an unknown tag gives `Unknown`.

    Raises Misfit when it cannot be read as that at all.
    """
    if kind is msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(value))
    if _is_struct(kind):
        return _struct(kind, value)
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _union(args, value)
    if origin in (list, tuple) and isinstance(value, list):
        return _items(args[0], value, origin)
    if origin is dict and isinstance(value, dict):
        return _values(args[1], value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Misfit(str(error)) from error


def without_surrogates(value: Any) -> Any:
    """Decoded JSON that every encoder accepts: halves of surrogate pairs become question marks."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    return value


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


@cache
def _fields(kind: Any) -> tuple[tuple[str, str, Any], ...]:
    """Name, name on the wire, and type of each field."""
    return tuple((field.name, field.encode_name, field.type) for field in msgspec.structs.fields(kind))


def _struct(kind: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise Misfit(f"an object is needed for {kind.__name__}")
    found = {}
    for name, wire_name, field_type in _fields(kind):
        if wire_name in value:
            try:
                found[name] = salvage(field_type, value[wire_name])
            except Misfit:
                continue
    return kind(**found)


def _union(members: tuple[Any, ...], value: Any) -> Any:
    tagged = {m.__struct_config__.tag: m for m in members if _is_struct(m) and m.__struct_config__.tag is not None}
    if tagged and isinstance(value, dict):
        tag_field = next(iter(tagged.values())).__struct_config__.tag_field
        tag = value.get(tag_field)
        if isinstance(tag, str) and tag in tagged:
            return _struct(tagged[tag], value)
        return Unknown(tag if isinstance(tag, str) else "")
    for member in sorted(members, key=lambda member: member is not NoneType):
        if member is NoneType and value is not None:
            continue
        try:
            return salvage(member, value)
        except Misfit:
            continue
    raise Misfit("no member fits")


def _items(kind: Any, values: list[Any], container: Any) -> Any:
    found = []
    for value in values:
        try:
            found.append(salvage(kind, value))
        except Misfit:
            continue
    return container(found)


def _values(kind: Any, values: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in values.items():
        try:
            found[name] = salvage(kind, value)
        except Misfit:
            continue
    return found
