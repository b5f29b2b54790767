"""The pytest plugin of a run: deselects slow and foreign tests, orders the rest, records which blocks they enter."""

from __future__ import annotations

import builtins
import json
import os
import resource
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.marks import MARKS

# A mutant that allocates without end ends by itself.
MOST_BYTES = 3 << 30
# Packages that a room's tests must not need.
LEFT_OUT = {"spark", "kafka", "postgres"}


def pytest_configure(config: pytest.Config) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    if "MUTANT_NOTES" in os.environ:
        config.pluginmanager.register(_Notes(Path(os.environ["MUTANT_NOTES"])))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = [item for item in items if not _needs_more(item)]
    if "MUTANT_TESTS" in os.environ:
        order = {name: at for at, name in enumerate(Path(os.environ["MUTANT_TESTS"]).read_text().splitlines())}
        kept = sorted((item for item in kept if item.nodeid in order), key=lambda item: order[item.nodeid])
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def _needs_more(item: pytest.Item) -> bool:
    given = getattr(item, "callspec", None)
    values = {value for value in given.params.values() if isinstance(value, str)} if given else set()
    marked = any(item.get_closest_marker(name) is not None for name in ("slow", "java"))
    return marked or bool(LEFT_OUT & (set(getattr(item, "fixturenames", ())) | values))


class _Notes:
    """Records the seconds of each test and the blocks that it entered, and writes them at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tests: dict[str, dict[str, Any]] = {}
        # Blocks entered on import, by collection and in fixtures of more than one test: any test may depend on them.
        self._shared: dict[str, set[int]] = {}

    def _pop_entered(self) -> dict[str, list[int]]:
        taken = {}
        for module, marks in getattr(builtins, MARKS, {}).items():
            taken[module] = [number for number, mark in enumerate(marks) if mark]
            marks[:] = bytes(len(marks))
        return taken

    def _share(self, taken: dict[str, list[int]]) -> None:
        for module, numbers in taken.items():
            self._shared.setdefault(module, set()).update(numbers)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._share(self._pop_entered())
        note = self._tests[item.nodeid] = {"seconds": 0.0, "blocks": {}}
        result = yield
        note["blocks"] = self._pop_entered()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        result = yield
        if fixturedef.scope != "function":
            marks = getattr(builtins, MARKS, {})
            self._share({module: [n for n, mark in enumerate(each) if mark] for module, each in marks.items()})
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid]["seconds"] += report.duration

    def pytest_sessionfinish(self) -> None:
        shared = {module: sorted(numbers) for module, numbers in self._shared.items()}
        self._path.write_text(json.dumps({"tests": self._tests, "shared": shared}))
