"""A rate per second, of bytes or whatever is bounded, kept by a bucket that may be overdrawn.

Pure: time is an argument. What passes is not known before it has passed (an answer is as large as the disk makes it),
so tokens are taken off afterwards, and the next taker waits until the debt is paid. Over any time longer than the
burst, no more than the rate and one overdraft passes. Kafka bounds replication (KIP-73) and
clients by samples of a window instead, which let pass up to a tenth more over any longer time.
"""

from __future__ import annotations

from odradek.common.numbers import INT64_MAX

UNLIMITED = INT64_MAX


class TokenBucket:
    """Tokens are what passes: bytes, or a part of a second.

    Attributes:
        tokens: how many there were when the bucket was asked last, less what was debited since; by now it may have
            filled. Where it is 0 or less the next must wait.
    """

    __slots__ = ("_at_ms", "_burst_s", "_room", "is_unlimited", "rate_per_s", "tokens")

    def __init__(self, rate_per_s: float = UNLIMITED, *, burst_s: float = 1.0, start_s: float | None = None) -> None:
        """
        Args:
            rate_per_s: tokens per second; UNLIMITED never runs dry, 0 lets nothing through.
            burst_s: how many seconds' worth may be saved up.
            start_s: how many are there at first; None: as many as may be saved up.
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
        """Go by another rate from now on; debts stay."""
        if rate_per_s != self.rate_per_s:
            was_unlimited = self.is_unlimited
            self.take(0, now_ms)
            self._at_ms = now_ms
            self._set_rate(rate_per_s)
            self.tokens = self._room if was_unlimited else min(self.tokens, self._room)

    def spend(self, amount: float, now_ms: int) -> None:
        """So much has passed."""
        self.take(amount, now_ms)

    def take(self, amount: float, now_ms: int) -> bool:
        """So much has passed; whether the next must wait. Counts each request of a client with a quota."""
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
        """So much has passed as well, since the bucket was asked: it is filled only when it is asked again."""
        self.tokens -= amount

    def is_exhausted(self, now_ms: int) -> bool:
        """Whether the next must wait."""
        return self.take(0, now_ms)

    def ready_in_ms(self, now_ms: int) -> int | None:
        """How long the next must wait; 0 where it need not, None where it would wait for ever."""
        if not self.is_exhausted(now_ms):
            return 0
        if self.rate_per_s <= 0:
            return None
        return int(-self.tokens * 1000 / self.rate_per_s) + 1
