"""Long work as a generator: it yields where other tasks may run, and returns its result.

Functions that decide need no event loop for that: the caller runs the steps, and decides what happens between them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def next_step(steps: Generator[None, None, T]) -> T | None:
    """Run one step; returns the result, which is not None, after the last one."""
    try:
        next(steps)
    except StopIteration as ended:
        result: T = ended.value
        return result
    return None


def all_steps(steps: Generator[None, None, T]) -> T:
    """Do every step at once."""
    while (result := next_step(steps)) is None:
        pass
    return result
