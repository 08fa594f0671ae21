"""Whatever the text, one change does what it says and loses no comment."""

from __future__ import annotations

import tomllib
from collections import Counter

import hypothesis
from hypothesis import given
from hypothesis import strategies as st

from untether.settings.keys import KeyPath, value_at
from untether.settings.tomledit import apply, put, remove, says

NAMES = st.sampled_from(["a", "b", "c"])
KEY_LINES = st.sampled_from(
    ["a = 1", "b = 'x' # with a", "c = [1,\n  2, # inside\n]", 'a.b = """\n[a]\n# text\n"""', "a.c = 5"]
)
OTHER_LINES = st.sampled_from(
    ["", "# comment", "  # indented", "[a]", "[a.b] # header", "[b.c]", "[c]", "['a']", "[[b]]", "[ a . c ]"]
)


def is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


TEXTS = st.lists(KEY_LINES | OTHER_LINES, max_size=8).map(lambda lines: "\n".join([*lines, ""])).filter(is_toml)
KEYS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)


def own_comments(text: str) -> Counter[str]:
    """Comments that stand on a line of their own."""
    return Counter(line.strip() for line in text.splitlines() if line.strip() in ("# comment", "# indented"))


def replaces_a_table(values: dict[str, object], key: KeyPath) -> bool:
    """Whether putting the key would throw away a table, or needs a table where a value stands."""
    at = [value_at(values, key[:length]) for length in range(1, len(key) + 1)]
    is_list_of_tables = isinstance(at[-1], list) and any(isinstance(item, dict) for item in at[-1])
    needs_table = any(value is not None and not isinstance(value, dict) for value in at[:-1])
    return isinstance(at[-1], dict) or is_list_of_tables or needs_table


@hypothesis.settings(max_examples=200, deadline=None)
@given(TEXTS, KEYS, st.sampled_from([5, "text\n# no comment\n", [1, 2], True]))
def test_a_key_is_put_without_touching_anything_else(text: str, key: KeyPath, value: object) -> None:
    wanted = tomllib.loads(text)
    hypothesis.assume(not replaces_a_table(wanted, key))
    apply(wanted, key, value)

    edited = put(text, key, value)

    assert says(edited, wanted)
    assert own_comments(edited) == own_comments(text)
    assert put(edited, key, value) == edited


@hypothesis.settings(max_examples=200, deadline=None, suppress_health_check=[hypothesis.HealthCheck.filter_too_much])
@given(TEXTS, KEYS)
def test_a_key_is_removed_without_touching_anything_else(text: str, key: KeyPath) -> None:
    wanted = tomllib.loads(text)
    hypothesis.assume(value_at(wanted, key) is not None)
    apply(wanted, key, None)

    edited = remove(text, key)

    assert says(edited, wanted)
    assert own_comments(edited) <= own_comments(text)


def test_a_text_that_says_something_else_is_noticed() -> None:
    assert says("a = 1\n[b]\n", {"a": 1})
    assert not says("a = 2\n", {"a": 1})
    assert not says("a = \n", {"a": 1})
    assert not says('a = "\udcff"\n', {"a": "\udcff"})
