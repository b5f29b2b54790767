"""Places at which a simulator may hold a task up: `await buggify("raft: before an fsync")`.

An interleaving that needs a task to stop for long between two of its steps is rare, for no fault stops it just there.
A point says where that would be worth trying; it stands beside an `await` that is there anyway, so that it adds time
and hardly a place at which others may run. Outside the simulator there is no hook, and a point neither waits nor lets
others run. Deciders have none: they do not await.

Source: FoundationDB's BUGGIFY.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

Hook = Callable[[str], Awaitable[None]]


class _Nothing:
    """What is awaited where there is no simulator: over at once."""

    __slots__ = ()

    def __await__(self) -> Iterator[Any]:
        return _ENDED


# One for all: nothing is made for a point that does nothing, which costs less than a tenth of a microsecond.
_ENDED: Final[Iterator[Any]] = iter(())
_NOTHING: Final = cast(Awaitable[None], _Nothing())
_hook: Hook | None = None


def buggify(point: str) -> Awaitable[None]:
    """Be held up here, if a simulator says so; `point` names the place, and no other."""
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
