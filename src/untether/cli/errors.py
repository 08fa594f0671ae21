"""Errors that a person can mend: told in plain words on stderr, and the program ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def told(*kinds: type[Exception], code: int = 1) -> Iterator[None]:
    """Print an error of one of these kinds, whose text says what to do, and exit with `code`."""
    try:
        yield
    except kinds as error:
        click.echo(str(error), err=True)
        raise SystemExit(code) from error
