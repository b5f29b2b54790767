"""A token bucket that limits a rate per second, of bytes or other units, and may be overdrawn.

Pure: time is an argument. The size of a response is known only afterwards, so tokens are debited later, and the next
caller waits until the debt is paid. Over any time longer than the burst, the total is at most the rate and one
overdraft. Kafka limits replication (KIP-73) and clients by samples of a window instead, which allow up to a tenth more
over any longer time.
"""

from __future__ import annotations

from odradek.common.numbers import INT64_MAX

UNLIMITED = INT64_MAX


class TokenBucket:
    """Tokens are bytes, or parts of a second.

    Attributes:
        tokens: the number at the last refill, minus later debits. If it is 0 or less, the next caller must wait.
    """

    __slots__ = ("_at_ms", "_burst_s", "_room", "is_unlimited", "rate_per_s", "tokens")

    def __init__(self, rate_per_s: float = UNLIMITED, *, burst_s: float = 1.0, start_s: float | None = None) -> None:
        """
        Args:
            rate_per_s: tokens per second; UNLIMITED never runs dry, 0 lets nothing through.
            burst_s: the capacity, as seconds of the rate.
            start_s: the tokens at the start, as seconds of the rate; None: the capacity.
        """
        self._burst_s = burst_s
        self._set_rate(rate_per_s)
        self.tokens = 0.0 if self.is_unlimited else rate_per_s * (burst_s if start_s is None else start_s)
        self._at_ms: int | None = None

    def _set_rate(self, rate_per_s: float) -> None:
        self.rate_per_s = rate_per_s
        self.is_unlimited = rate_per_s >= UNLIMITED
        self._room = 0.0 if self.is_unlimited else rate_per_s * self._burst_s

    def change_rate(self, rate_per_s: float, now_ms: int) -> None:
        """Change the rate from now on; debts stay."""
        if rate_per_s != self.rate_per_s:
            was_unlimited = self.is_unlimited
            self.refill_and_debit(0, now_ms)
            self._at_ms = now_ms
            self._set_rate(rate_per_s)
            self.tokens = self._room if was_unlimited else min(self.tokens, self._room)

    def spend(self, amount: float, now_ms: int) -> None:
        """Refill the bucket, and debit tokens."""
        self.refill_and_debit(amount, now_ms)

    def refill_and_debit(self, amount: float, now_ms: int) -> bool:
        """Refill the bucket, and debit tokens; returns whether the next caller must wait."""
        if self.is_unlimited:
            return False
        at_ms, tokens = self._at_ms, self.tokens
        if at_ms is None:
            self._at_ms = now_ms
        elif now_ms > at_ms:
            tokens += self.rate_per_s * (now_ms - at_ms) / 1000
            if tokens > self._room:
                tokens = self._room
            self._at_ms = now_ms
        self.tokens = tokens = tokens - amount
        return tokens <= 0

    def debit(self, amount: float) -> None:
        """Debit tokens without a refill, which the next query does."""
        self.tokens -= amount

    def is_exhausted(self, now_ms: int) -> bool:
        """Whether the next caller must wait."""
        return self.refill_and_debit(0, now_ms)

    def ready_in_ms(self, now_ms: int) -> int | None:
        """The wait of the next caller; 0 if none, None if it would wait forever."""
        if not self.is_exhausted(now_ms):
            return 0
        if self.rate_per_s <= 0:
            return None
        return int(-self.tokens * 1000 / self.rate_per_s) + 1
