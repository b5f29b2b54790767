"""The states of a transactional id: every pair of them, and the fields after each change."""

from __future__ import annotations

import pytest

from odradek.coordinator.transaction import state as states
from odradek.coordinator.transaction.metadata import NO_PRODUCER_ID, TransactionMetadata
from odradek.coordinator.transaction.state import BY_LABEL, TRANSITIONS, TransactionState
from tests.support.models.transitions import check_every_pair, written_transitions


def moved(before: TransactionState, after: TransactionState) -> TransactionMetadata:
    """The change that leads to `after`."""
    present = TransactionMetadata(7, 3, 1000, state=before, partitions=frozenset({("t", 0)}), next_producer_id=8)
    match after:
        case TransactionState.EMPTY:
            return present.initialized(epoch=4, last_epoch=3, timeout_ms=1000, now_ms=5)
        case TransactionState.ONGOING:
            return present.ongoing(frozenset({("t", 1)}), version=2, now_ms=5)
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
            commit = after is TransactionState.PREPARE_COMMIT
            return present.ending(commit=commit, epoch=4, last_epoch=3, version=2, now_ms=5)
        case _:
            return present.completed(5)


def check(before: TransactionState, after: TransactionState) -> None:
    reachable_from = {
        # `completed` ends what is decided: which of the two follows is no choice.
        TransactionState.COMPLETE_COMMIT: TransactionState.PREPARE_COMMIT,
        TransactionState.COMPLETE_ABORT: TransactionState.PREPARE_ABORT,
    }
    in_memory_alone = (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
    if after in in_memory_alone or reachable_from.get(after, before) is not before:
        TransactionMetadata(7, 3, 1000, state=before)._check_transition(after)
        return
    metadata = moved(before, after)
    assert metadata.state is after
    if after in states.AT_REST:
        assert (metadata.partitions, metadata.next_producer_id) == (frozenset(), NO_PRODUCER_ID)


def test_transaction_states_change_only_as_the_table_says() -> None:
    check_every_pair(TRANSITIONS, check, name=lambda state: state.label)


def test_the_head_of_the_module_lists_these_transitions() -> None:
    assert states.__doc__ is not None
    assert written_transitions(states.__doc__, BY_LABEL) == {each: set(TRANSITIONS[each]) for each in TransactionState}


@pytest.mark.parametrize("epoch", [2, 5])
def test_an_end_keeps_the_epoch_or_raises_it_by_one(epoch: int) -> None:
    ongoing = TransactionMetadata(7, 3, 1000, state=TransactionState.ONGOING)
    with pytest.raises(AssertionError, match="epoch 3 to"):
        ongoing.ending(commit=True, epoch=epoch, last_epoch=3, version=2, now_ms=5)
