"""The overrides `UNTETHER__SECTION__KEY` of an environment, as a nested table with the names of the settings model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from .keys import Location
from .model import FLAT_ENGINES, Root

OVERRIDE_PREFIX: Final = "UNTETHER__"


class EnvironmentSource(EnvSettingsSource):
    """The overrides `UNTETHER__SECTION__KEY` of a given environment, as a nested table with canonical keys.

    `variables` maps each overridden key to its variable. Names are matched without regard to case, except below an
    engine's `env`, whose names are kept as they are.
    """

    def __init__(self, environ: Mapping[str, str], document: Mapping[str, Any]) -> None:
        self._environ = environ
        self.variables: dict[Location, str] = {
            _override_key(name, document): name
            for name, value in sorted(environ.items())
            if name.startswith(OVERRIDE_PREFIX) and value
        }
        super().__init__(Root)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        delimiter = str(self.env_nested_delimiter)
        return {
            self.env_prefix + delimiter.join(map(str, key)): self._environ[name] for key, name in self.variables.items()
        }

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value  # not JSON: validation says what it must be, and names the variable


def _override_key(variable: str, document: Mapping[str, Any]) -> Location:
    """`UNTETHER__CLAUDE__MODEL` → `("engines", "claude", "model")`, spelled as in the document where it has the key."""
    words = variable.removeprefix(OVERRIDE_PREFIX).split("__")
    if words[0].lower() in FLAT_ENGINES:
        words.insert(0, "engines")
    table: Any = document
    key: list[str | int] = []
    for word in words:
        name = word if len(key) == 3 and key[0] == "engines" and key[2] == "env" else word.lower()
        if isinstance(table, Mapping):
            name = next((written for written in table if written.lower() == name), name)
            table = table.get(name)
        key.append(name)
    return tuple(key)
