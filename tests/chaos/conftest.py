"""Rounds, the seed of the random choices, and the log with one line for each scenario and round.

CHAOS_ROUNDS   how often each scenario runs (1)
CHAOS_SEED     what the random choices come from; printed at the start
CHAOS_LOG_FILE where the log is appended (build/chaos.log)
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "1"))
# In the environment, so that the workers of a parallel run choose alike.
SEED = os.environ.setdefault("CHAOS_SEED", str(random.SystemRandom().randrange(1 << 32)))
LOG = Path(os.environ.get("CHAOS_LOG_FILE", "build/chaos.log"))
HERE = Path(__file__).parent


def pytest_report_header() -> str:
    return f"chaos: CHAOS_SEED={SEED}, rounds: {ROUNDS}, log: {LOG}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"chaos: CHAOS_SEED={SEED}, rounds: {ROUNDS}, log: {LOG}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "chance" in metafunc.fixturenames:
        metafunc.parametrize("chaos_round", range(1, ROUNDS + 1), ids=lambda number: f"round{number}")


@pytest.fixture
def chance(chaos_round: int, request: pytest.FixtureRequest) -> random.Random:
    """The random choices of one scenario in one round: the same again with the same seed."""
    scenario = request.node.originalname, *(str(value) for value in request.node.callspec.params.values())
    return random.Random(f"{SEED}/{scenario}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Only where results come together: workers of a parallel run have no terminal."""
    if "PYTEST_XDIST_WORKER" in os.environ or Path(report.fspath).parent.name != HERE.name:
        return
    if report.when == "call" or (report.outcome != "passed" and report.when == "setup"):
        LOG.parent.mkdir(parents=True, exist_ok=True)
        facts = "".join(f" {name}={value}" for name, value in report.user_properties)
        name = report.nodeid.rpartition("::")[2]
        with LOG.open("a") as file:
            file.write(f"{report.outcome:7} {report.duration:6.1f}s seed={SEED} {name}{facts}\n")
