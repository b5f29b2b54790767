"""Fixtures for tests that run worlds."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def no_log_lines() -> Iterator[None]:
    """Seed after seed in one test: what brokers say while they are killed is not kept.

    A captured line costs its formatting and holds its error, and so the frames of a world that is over, until the test
    ends. `python -m tests.sim --seed` shows the lines of a seed that fails.
    """
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
