"""Which batch of a producer was refused for a reason that passes: what it sent behind that one waits for it.

A client has several batches under way. Where one is refused before it is in the log (no space, too few in sync, not the
leader yet), those behind it come before the client knows. They are refused for the same reason: called out of order, a
client would take a new epoch, and send again under it what other leaders have and have not acknowledged yet. And the
log of a producer that it does not know must not take one of them for the first. All of this is in memory alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.common.errors import ApiError, ErrorCode
from odradek.record.batch import MAX_SEQUENCE, BatchHeader

MAX_REFUSALS: Final = 10_000


@dataclass(slots=True)
class _Refusal:
    """The batch that must come next, and the first sequence of the last one that came behind it since."""

    epoch: int
    sequence: int
    code: ErrorCode
    last_behind: int
    seen_by_expiry: bool = False


class Refusals:
    """No more than one for each producer, and `limit` in all.

    `expected` is the sequence that must come next under the batch's epoch; None where the log takes any.
    """

    __slots__ = ("_by_producer", "_limit")

    def __init__(self, limit: int = MAX_REFUSALS) -> None:
        self._limit = limit
        self._by_producer: dict[int, _Refusal] = {}

    def __len__(self) -> int:
        return len(self._by_producer)

    def note(self, header: BatchHeader, expected: int | None, code: ErrorCode) -> None:
        """A batch is refused for a reason that passes; a replica that still follows may expect an earlier one."""
        producer_id, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
        if expected is not None and _is_behind(expected, first):
            return
        present = self._by_producer.get(producer_id)
        if present is None:
            is_first = len(self._by_producer) < self._limit
        elif present.epoch == epoch:
            is_past = expected is not None and _is_behind(expected, present.sequence)
            is_first = is_past or not _is_behind(first, present.sequence)
            if not is_first and _is_behind(first, present.last_behind):
                present.last_behind = first
        else:
            is_first = present.epoch < epoch
        if is_first:
            self._by_producer[producer_id] = _Refusal(epoch, first, code, first)

    def check(self, header: BatchHeader, expected: int | None) -> None:
        """
        Raises:
            ApiError: why the batch before this one was refused; OUT_OF_ORDER_SEQUENCE_NUMBER where this one comes again
                without the other, which a client sends again in their order: so it has given that one up.
        """
        refusal, first = self._by_producer.get(header.producer_id), header.base_sequence
        if refusal is None or refusal.epoch != header.producer_epoch or not _is_behind(first, refusal.sequence):
            return
        if expected is not None and refusal.sequence != expected:
            return
        if not _is_behind(first, refusal.last_behind):
            raise out_of_order(header, f"{refusal.sequence} was refused and did not come again")
        refusal.last_behind = first
        refusal.seen_by_expiry = False
        raise ApiError(
            refusal.code,
            f"Sequence number {refusal.sequence} of producer {header.producer_id}, before {first}, was refused and may "
            "come again",
        )

    def settle(self, producer_id: int, epoch: int, expected: int) -> None:
        """A batch of the producer is in the log, and `expected` must come next under its epoch."""
        refusal = self._by_producer.get(producer_id)
        if refusal is None or refusal.epoch > epoch:
            return
        if refusal.epoch < epoch or _is_behind(expected, refusal.sequence):
            del self._by_producer[producer_id]

    def take(self, earlier: Refusals) -> None:
        """Those of before the log was here."""
        self._by_producer = {**earlier._by_producer, **self._by_producer}

    def expire(self) -> None:
        """Forget what was refused before the last call: no client waits for so long."""
        for producer_id, refusal in list(self._by_producer.items()):
            if refusal.seen_by_expiry:
                del self._by_producer[producer_id]
            refusal.seen_by_expiry = True


def _is_behind(sequence: int, other: int) -> bool:
    """Whether a sequence comes after another, where after the largest comes 0."""
    return 0 < (sequence - other) & MAX_SEQUENCE <= MAX_SEQUENCE // 2


def out_of_order(header: BatchHeader, expected: str) -> ApiError:
    """The refusal of a batch; `expected` says which one was to come."""
    return ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number {header.base_sequence} of producer {header.producer_id}: {expected}",
    )
