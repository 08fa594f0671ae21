"""`python -m bench`: measure against the budgets and print the figures.

python -m bench              all of it (about a minute)
python -m bench feed start   some of it
python -m bench --json       for programs
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Mapping

import structlog

from . import feed, keeper, latency, recovery, start, store
from .figures import Figure, as_json, table

MEASUREMENTS: Mapping[str, Callable[[], list[Figure]]] = {
    "feed": feed.conversation,
    "partials": feed.partials,
    "latency": latency.measure,
    "keeper": keeper.measure,
    "recovery": recovery.measure,
    "store": store.measure,
    "start": start.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser("python -m bench", description="Measure Untether against its budgets.")
    parser.add_argument("what", nargs="*", metavar="WHAT", help=f"{', '.join(MEASUREMENTS)} or all (default)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    chosen = MEASUREMENTS if not arguments.what or "all" in arguments.what else dict.fromkeys(arguments.what)
    if unknown := [name for name in chosen if name not in MEASUREMENTS]:
        parser.error(f"nothing is called {unknown[0]!r}; there are {', '.join(MEASUREMENTS)} and all")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    figures: list[Figure] = []
    for name in chosen:
        measured = MEASUREMENTS[name]()
        figures += measured
        if not arguments.json:
            print(table(measured), flush=True)
    if arguments.json:
        print(as_json(figures))


if __name__ == "__main__":
    main()
