"""The results of ListTransactions and DescribeTransactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from odradek.common.errors import ErrorCode
from odradek.coordinator import expressions
from odradek.coordinator.transaction.metadata import TransactionMetadata
from odradek.coordinator.transaction.state import BY_LABEL, TransactionState
from odradek.protocol.messages import describe_transactions_response as described
from odradek.protocol.messages import list_transactions_response as listed

# The start time if no transaction is open.
NO_START_MS = -1


def matching(pattern: str, ids: Sequence[str]) -> Callable[[], frozenset[str]]:
    """Return a function that finds the ids that the whole pattern matches; run it in a thread: there may be many ids.

    The function raises ApiError: INVALID_REGULAR_EXPRESSION.
    """

    def work() -> frozenset[str]:
        return frozenset(filter(expressions.matcher(pattern, "TransactionalIdPattern"), ids))

    return work


def list_transactions(
    ids: Mapping[str, TransactionMetadata],
    *,
    states: Sequence[str],
    producer_ids: Sequence[int],
    duration_ms: int,
    now_ms: int,
    names: Collection[str] | None = None,
) -> list[listed.TransactionState]:
    """Filter transactional ids.

    Args:
        states, producer_ids: if not empty, only ids with one of these.
        duration_ms: if not negative, only ids whose transaction has been open for at least this time.
        now_ms: wall clock.
        names: if given, only these transactional ids.
    """
    wanted = {BY_LABEL[state] for state in states if state in BY_LABEL}
    if states and not wanted:
        return []
    producers = set(producer_ids)
    found = []
    for transactional_id, each in ids.items():
        if (wanted and each.state not in wanted) or (producers and each.producer_id not in producers):
            continue
        if names is not None and transactional_id not in names:
            continue
        if duration_ms >= 0 and (each.start_ms < 0 or now_ms - each.start_ms < duration_ms):
            continue
        found.append(
            listed.TransactionState(
                transactional_id=transactional_id, producer_id=each.producer_id, transaction_state=each.state.label
            )
        )
    return found


def describe_transaction(ids: Mapping[str, TransactionMetadata], transactional_id: str) -> described.TransactionState:
    """Describe one transactional id; the result has TRANSACTIONAL_ID_NOT_FOUND if it is unknown."""
    present = ids.get(transactional_id)
    if present is None:
        return described.TransactionState(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    topics: dict[str, list[int]] = {}
    for topic, partition_id in sorted(present.partitions):
        topics.setdefault(topic, []).append(partition_id)
    is_open = present.state is TransactionState.ONGOING or present.is_ending
    return described.TransactionState(
        transactional_id=transactional_id,
        transaction_state=present.state.label,
        transaction_timeout_ms=present.timeout_ms,
        transaction_start_time_ms=present.start_ms if is_open else NO_START_MS,
        producer_id=present.producer_id,
        producer_epoch=present.producer_epoch,
        topics=[described.TopicData(topic=topic, partitions=numbers) for topic, numbers in topics.items()],
    )
