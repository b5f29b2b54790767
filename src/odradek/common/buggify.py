"""Points at which a simulator may delay a task: `await buggify("raft: before an fsync")`.

Interleavings in which a task stops for long between two of its steps are rare, since no fault stops it just there. A
point marks such a place. It is next to another `await`, so that it adds time, and hardly a place at which other tasks
may run. Outside the simulator there is no hook, and a point neither waits nor lets other tasks run. Functions that
decide have no points, since they do not await.

Source: FoundationDB's BUGGIFY.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

Hook = Callable[[str], Awaitable[None]]


class _Nothing:
    """The awaitable without a simulator: it completes at once."""

    __slots__ = ()

    def __await__(self) -> Iterator[Any]:
        return _ENDED


# One object for all points: without a simulator a point allocates nothing, and costs less than 0.1 us.
_ENDED: Final[Iterator[Any]] = iter(())
_NOTHING: Final = cast(Awaitable[None], _Nothing())
_hook: Hook | None = None


def buggify(point: str) -> Awaitable[None]:
    """Wait if the simulator delays this point; `point` is the unique name of the place."""
    return _NOTHING if _hook is None else _hook(point)


@contextmanager
def simulated(hook: Hook) -> Generator[None, None, None]:
    """Let a simulator decide at every point, until the block ends."""
    global _hook
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before
