"""Work that may take long, as a generator: it yields where others may have their turn, and returns what it comes to.

What decides needs no loop for that: its caller runs the steps, and says what happens between two of them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def next_step(steps: Generator[None, None, T]) -> T | None:
    """Do one step; what the work comes to, which is not None, once that was the last."""
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
