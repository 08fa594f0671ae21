"""Finding engines in the installed packages."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract import toy_engine
from untether.backends import BackendError, EngineBackend, LoadError, discover, engine_ids, load_backend
from untether.runner import JsonlSubprocessRunner
from untether.session import Capabilities

Install = Callable[..., None]
PLUGIN = """
from tests.contract.toy_engine import build_runner
from untether.backends import EngineBackend
BACKEND = EngineBackend(id={id!r}, build_runner=build_runner)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs packages into a place of their own, as the only ones that bring engines."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    real = importlib.metadata.entry_points

    def entry_points(*, group: str) -> list[importlib.metadata.EntryPoint]:
        here = str(tmp_path)
        return [entry for entry in real(group=group) if entry.dist and str(entry.dist.locate_file("")) == here]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)

    def install(dist: str, engines: dict[str, str], **modules: str) -> None:
        info = tmp_path / f"{dist.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
        lines = [f"{id} = {value}" for id, value in engines.items()]
        (info / "entry_points.txt").write_text("\n".join(["[untether.engine_backends]", *lines]))
        for name, source in modules.items():
            (tmp_path / f"{name}.py").write_text(source)

    yield install
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_engines_of_packages_are_found(install: Install) -> None:
    install("untether-zed", {"zed": "zed_plugin:BACKEND"}, zed_plugin=PLUGIN.format(id="zed"))
    install("untether-toy", {"toy": "tests.contract.toy_engine:BACKEND"})
    found = discover()
    assert list(found.backends) == ["toy", "zed"]
    assert found.backends["toy"] is toy_engine.BACKEND
    assert found.errors == ()
    assert found.backends["zed"].title == "zed"


def test_ids_are_known_and_one_is_loaded_without_importing_the_others(install: Install) -> None:
    install("a", {"one": "plugin_one:BACKEND"}, plugin_one=PLUGIN.format(id="one"))
    install("b", {"two": "plugin_two:BACKEND"}, plugin_two="raise SystemError('never')")
    assert engine_ids() == ("one", "two")
    assert load_backend("one").id == "one"
    assert "plugin_two" not in sys.modules


def test_a_broken_package_is_told_and_hides_no_other(install: Install) -> None:
    install("good", {"toy": "tests.contract.toy_engine:BACKEND"})
    install("bad-import", {"e1": "bad_plugin:BACKEND"}, bad_plugin="import no_such_module_here")
    install("bad-name", {"e2": "tests.contract.toy_engine:NOTHING"})
    install("bad-type", {"e3": "tests.contract.toy_engine:ToyRunner"})
    install("bad-id", {"e4": "tests.contract.toy_engine:BACKEND"})
    found = discover()
    assert list(found.backends) == ["toy"]
    messages = {error.id: (error.dist, error.message) for error in found.errors}
    assert messages["e1"] == (
        "bad-import",
        "Its code failed to load: ModuleNotFoundError: No module named 'no_such_module_here'",
    )
    assert "NOTHING" in messages["e2"][1]
    assert messages["e3"] == (
        "bad-type",
        "tests.contract.toy_engine:ToyRunner is a type; an EngineBackend is needed.",
    )
    assert messages["e4"] == ("bad-id", "The entry point is named 'e4', but the backend's id is 'toy'.")
    with pytest.raises(BackendError, match="no_such_module_here"):
        load_backend("e1")


@pytest.mark.parametrize(
    ("id", "reason"),
    [
        ("Toy", "use 1 to 32 of a-z, 0-9 and _"),
        ("my-engine", "use 1 to 32"),
        ("x" * 33, "use 1 to 32"),
        ("cancel", "it is a command"),
        ("doctor", "it is a command"),
    ],
)
def test_ids_that_cannot_be(install: Install, id: str, reason: str) -> None:
    install("odd", {id: "tests.contract.toy_engine:BACKEND"})
    found = discover()
    assert found.backends == {}
    [error] = found.errors
    assert (error.id, error.dist) == (id, "odd")
    assert reason in error.message


def test_only_allowed_packages_bring_engines_and_the_own_are_always_allowed(install: Install) -> None:
    install("Untether_Toy", {"toy": "tests.contract.toy_engine:BACKEND"})
    install("other", {"zed": "never_imported:BACKEND"})
    install("untether", {"own": "own_plugin:BACKEND"}, own_plugin=PLUGIN.format(id="own"))
    found = discover(allow=["untether-toy"])
    assert list(found.backends) == ["own", "toy"]
    assert found.errors == ()
    with pytest.raises(BackendError, match=r"There is no engine 'zed'. Installed: own, toy"):
        load_backend("zed", allow=["untether-toy"])


def test_one_id_from_two_packages(install: Install) -> None:
    install("first", {"same": "a:B"})
    install("second", {"same": "a:B"})
    message = "Several packages bring an engine 'same': first, second. Uninstall all but one."
    assert discover().errors == (LoadError("same", "first", message), LoadError("same", "second", message))


def test_a_built_in_engine_wins_over_a_package(install: Install) -> None:
    install("aaa", {"toy": "elsewhere:BACKEND"})
    install("untether", {"toy": "tests.contract.toy_engine:BACKEND"})
    found = discover()
    assert found.backends["toy"] is toy_engine.BACKEND
    assert found.errors == (
        LoadError("toy", "aaa", "The engine 'toy' is built in; the one of this package is not used."),
    )


def test_a_built_runner_knows_what_only_the_backend_says(tmp_path: Path) -> None:
    backend = EngineBackend(
        id="toy",
        build_runner=toy_engine.build_runner,
        install_cmd="pip install toy",
        min_version="1.2",
        capabilities=Capabilities(cost=True),
    )
    runner = backend.build({"command": "/opt/toy"}, tmp_path / "untether.toml")
    assert isinstance(runner, JsonlSubprocessRunner)
    assert (runner.command(), runner.install_cmd, runner.min_version) == ("/opt/toy", "pip install toy", "1.2")
    assert runner.capabilities == Capabilities(cost=True)
