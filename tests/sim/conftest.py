"""Fixtures for tests that run worlds."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.sim.loop import UNDISPOSED


@pytest.fixture
def no_log_lines() -> Iterator[None]:
    """Disable the log lines of brokers, since a test runs seed after seed.

    A captured line costs its formatting and holds its error, and so the frames of a world that is over, until the test
    ends. `python -m tests.sim --seed` shows the lines of a seed that fails.
    """
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def every_world_is_disposed() -> Iterator[None]:
    """A test that leaves a world behind fails, and not the one whose turn it is when the collector comes by."""
    yield
    left = [*UNDISPOSED]
    for loop in left:
        loop.dispose()
    assert not left, "a world was run, and not in a `with` block"
