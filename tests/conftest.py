"""Fixtures that every tier shares."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from odradek.testing.processes import NodeProcess
from tests.sim import drawn
from tests.support import leaks
from tests.support.nodes.forked import begin_in_a_group
from tests.support.nodes.node import Node
from tests.support.order import UnitScheduling, longest_first

# An example that the scheduler has stopped for a fifth of a second is no failure; a hang meets pytest's timeout.
settings.register_profile("busy", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


Node.forked = True
NodeProcess.begin = staticmethod(begin_in_a_group)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """The facts needed to run a failed simulated world again; only slow tests draw seeds."""
    if config.option.markexpr == "not slow":
        return []
    return [
        f"simulated worlds: seeds from {drawn.first_seed()} on are drawn from the commit ({drawn.FIRST}=… sets them)"
    ]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests and modules live until the end: the garbage collector does not look at them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest files if several workers share the tests."""
    if hasattr(config, "workerinput"):
        items[:] = longest_first(items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Let a leak fail its own test, or the last test of its file, and not a test that runs when it is collected."""
    result = yield
    leaks.check_leaks(item, nextitem)
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> UnitScheduling | None:
    """Files are handed out whole, and Spark's to few workers."""
    return UnitScheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A running node, one for each test module."""
    with Node(tmp_path_factory.mktemp("node")) as running:
        yield running
        assert_no_traceback(running)


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[Node]:
    """A running node for one test alone: to kill, fill and misconfigure."""
    with Node(tmp_path / "node") as running:
        yield running
        assert_no_traceback(running)


def assert_no_traceback(node: Node) -> None:
    """Check that the log of a node has no stack: an error that a client can cause is one line."""
    said = node.log_text()
    assert "Traceback" not in said, said[max(0, said.index("Traceback") - 500) :][:3000]
