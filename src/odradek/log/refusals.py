"""Refused batches of idempotent producers, so that the batches sent after them are refused for the same reason.

A client has several batches in flight. If one is refused with a retriable error (disk full, too few in-sync replicas,
not the leader), the next ones arrive before the client has the response. They get the same error: with
OUT_OF_ORDER_SEQUENCE_NUMBER the client would take a new epoch, and write batches again that another leader may already
have. The log of an unknown producer must also not accept one of them as the first batch. This state is in memory only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.common.errors import ApiError, ErrorCode
from odradek.record.batch import MAX_SEQUENCE, BatchHeader

MAX_REFUSALS: Final = 10_000


@dataclass(slots=True)
class _Refusal:
    """The refused batch of a producer, which must be the next, and the first sequence of the latest batch after it."""

    epoch: int
    sequence: int
    code: ErrorCode
    last_after: int
    seen_by_expiry: bool = False


class Refusals:
    """At most one refusal for each producer, and `limit` in all.

    `expected` is the next sequence number in the batch's epoch; None if the log accepts any.

    Attributes:
        by_producer: by producer id; in most logs there are none.
    """

    __slots__ = ("_limit", "by_producer")

    def __init__(self, limit: int = MAX_REFUSALS) -> None:
        self._limit = limit
        self.by_producer: dict[int, _Refusal] = {}

    def __len__(self) -> int:
        return len(self.by_producer)

    def record(self, header: BatchHeader, expected: int | None, code: ErrorCode) -> None:
        """Record a batch that was refused with a retriable error; a replica that still follows may expect an earlier
        sequence."""
        producer_id, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
        if expected is not None and _is_after(expected, first):
            return
        present = self.by_producer.get(producer_id)
        if present is None:
            is_first = len(self.by_producer) < self._limit
        elif present.epoch == epoch:
            is_past = expected is not None and _is_after(expected, present.sequence)
            is_first = is_past or not _is_after(first, present.sequence)
            if not is_first and _is_after(first, present.last_after):
                present.last_after = first
        else:
            is_first = present.epoch < epoch
        if is_first:
            self.by_producer[producer_id] = _Refusal(epoch, first, code, first)

    def check(self, header: BatchHeader, expected: int | None) -> None:
        """Check that no earlier batch of the producer is missing.

        Raises:
            ApiError: the error of the refused batch before this one; OUT_OF_ORDER_SEQUENCE_NUMBER if this batch is
                retried and the refused one is not: clients retry in order, so the client has dropped that one.
        """
        refusal, first = self.by_producer.get(header.producer_id), header.base_sequence
        if refusal is None or refusal.epoch != header.producer_epoch or not _is_after(first, refusal.sequence):
            return
        if expected is not None and refusal.sequence != expected:
            return
        if not _is_after(first, refusal.last_after):
            raise out_of_order(header, f"{refusal.sequence} was refused and not retried")
        refusal.last_after = first
        refusal.seen_by_expiry = False
        raise ApiError(
            refusal.code,
            f"Sequence number {refusal.sequence} of producer {header.producer_id}, before {first}, was refused; "
            "retry it first",
        )

    def resolve(self, producer_id: int, epoch: int, expected: int) -> None:
        """Remove the refusal of a producer once a batch is in the log, after which `expected` is the next sequence
        number."""
        refusal = self.by_producer.get(producer_id)
        if refusal is None or refusal.epoch > epoch:
            return
        if refusal.epoch < epoch or _is_after(expected, refusal.sequence):
            del self.by_producer[producer_id]

    def merge(self, earlier: Refusals) -> None:
        """Add the refusals that were recorded before the log existed here."""
        self.by_producer = {**earlier.by_producer, **self.by_producer}

    def expire(self) -> None:
        """Remove the refusals from before the last call: no client retries for so long."""
        for producer_id, refusal in list(self.by_producer.items()):
            if refusal.seen_by_expiry:
                del self.by_producer[producer_id]
            refusal.seen_by_expiry = True


def _is_after(sequence: int, other: int) -> bool:
    """Whether a sequence number comes after another; 0 comes after the largest."""
    return 0 < (sequence - other) & MAX_SEQUENCE <= MAX_SEQUENCE // 2


def out_of_order(header: BatchHeader, expected: str) -> ApiError:
    """The error of a batch; `expected` describes the batch that must be next."""
    return ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number {header.base_sequence} of producer {header.producer_id}: {expected}",
    )
