"""Exponential backoff: each pause is twice as long as the previous one, up to a maximum."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

_SHORTEST_MS = 1


class Backoff:
    """The pauses of one sequence of attempts. It uses no clock: `sleep` is the event loop's, which may be simulated."""

    def __init__(self, first_ms: float, last_ms: float, *, jitter: float = 0.0, random: Random | None = None) -> None:
        """
        Args:
            jitter: the random share of each pause, so that clients which failed together do not retry together;
                `random` draws it.
        """
        assert first_ms >= 0 and 0 <= jitter <= 1 and (random is not None or not jitter)
        self._first_ms = first_ms
        self._last_ms = last_ms
        self._jitter = jitter
        self._random = random
        self._pause_ms = first_ms

    @property
    def pause_ms(self) -> float:
        """The next pause, before chance shortens it."""
        return self._pause_ms

    @property
    def at_last(self) -> bool:
        """Whether the pauses grow no more: it has failed for a while."""
        return self._pause_ms >= self._last_ms

    def next_ms(self) -> float:
        """The pause now; the next pause is twice as long."""
        pause_ms = self._pause_ms
        # A first pause of 0 has none that is twice as long.
        self._pause_ms = min(self._last_ms, max(_SHORTEST_MS, 2 * pause_ms))
        if self._random is None:
            return pause_ms
        return self._random.uniform(pause_ms * (1 - self._jitter), pause_ms)

    def reset(self) -> None:
        """An attempt succeeded: the next pause is the first again."""
        self._pause_ms = self._first_ms

    async def sleep(self) -> None:
        """Pause before the next attempt."""
        await asyncio.sleep(self.next_ms() / 1000)
