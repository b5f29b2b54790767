"""Batches behind one that was refused with a retriable error: refused alike until that one comes again."""

from __future__ import annotations

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.log.producer_state import ProducerState
from odradek.log.refusals import MAX_REFUSALS
from odradek.record.batch import MAX_SEQUENCE
from tests.support.models.batches import batch, header_of
from tests.unit.log.test_producers import with_producer

FULL, TOO_FEW = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
ID = 7


class Producer:
    """One producer at one log; batches have one record each."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.end = 0

    def sends(self, sequence: int, *, epoch: int = 0, refused: ErrorCode | None = None) -> ErrorCode:
        """A batch comes; `refused` is what passes and keeps it out, where its sequence does not."""
        data = batch(b"v", producer_id=ID, producer_epoch=epoch, sequence=sequence)
        header = header_of(data).with_offset(self.end, 0)
        try:
            if refused is TOO_FEW:
                raise ApiError(TOO_FEW)
            if self.state.check(header) is not None:
                return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            if refused is not None:
                raise ApiError(refused)
        except ApiError as error:
            self.state.record_refused([header], error.code)
            return error.code
        self.state.update(header)
        self.end += 1
        return ErrorCode.NONE


@pytest.fixture
def producer() -> Producer:
    return Producer()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("why", [FULL, TOO_FEW])
def test_batches_behind_a_refused_one_are_refused_until_its_retry(
    producer: Producer, *, known: bool, why: ErrorCode
) -> None:
    if known:
        assert producer.sends(0) is ErrorCode.NONE
    first = 1 if known else 0
    for _ in range(2):
        assert producer.sends(first, refused=why) is why
        assert [producer.sends(first + behind) for behind in (1, 2, 3, 4)] == [why] * 4
    assert [producer.sends(first + number) for number in range(5)] == [ErrorCode.NONE] * 5
    assert not producer.state.refusals
    assert producer.sends(first + 6) is OUT_OF_ORDER, "nothing was refused before it"


def test_a_sequence_that_wraps_is_behind(producer: Producer) -> None:
    assert producer.sends(MAX_SEQUENCE - 1) is ErrorCode.NONE
    assert producer.sends(MAX_SEQUENCE, refused=FULL) is FULL
    assert [producer.sends(0), producer.sends(1)] == [FULL, FULL]
    assert [producer.sends(number) for number in (MAX_SEQUENCE, 0, 1)] == [ErrorCode.NONE] * 3


@pytest.mark.parametrize("known", [True, False])
def test_a_retry_without_the_batch_before_it_is_out_of_order(producer: Producer, *, known: bool) -> None:
    """Clients send again in order: that one was given up, and waiting for it would never end."""
    first = 0
    if known:
        producer.sends(0)
        first = 1
    assert producer.sends(first, refused=FULL) is FULL
    assert [producer.sends(first + 1), producer.sends(first + 2)] == [FULL, FULL]
    assert producer.sends(first + 1) is OUT_OF_ORDER
    assert producer.sends(first + 2) is OUT_OF_ORDER
    assert producer.sends(0, epoch=1) is ErrorCode.NONE, "a new epoch begins afresh"
    assert not producer.state.refusals
    assert producer.sends(1, epoch=1) is ErrorCode.NONE


def test_a_new_epoch_waits_for_its_own_first_batch(producer: Producer) -> None:
    producer.sends(0)
    producer.sends(1, refused=FULL)
    assert producer.sends(0, epoch=1, refused=FULL) is FULL
    assert producer.sends(1, epoch=1) is FULL
    assert producer.sends(2, epoch=0) is OUT_OF_ORDER
    assert [producer.sends(0, epoch=1), producer.sends(1, epoch=1)] == [ErrorCode.NONE] * 2


def test_an_unknown_producer_may_come_with_what_is_before_the_refused_one(producer: Producer) -> None:
    assert producer.sends(5, refused=FULL) is FULL
    assert producer.sends(4, refused=FULL) is FULL
    assert producer.sends(5) is FULL
    assert [producer.sends(3), producer.sends(4), producer.sends(5)] == [ErrorCode.NONE] * 3


def test_a_follower_remembers_the_next_sequence_once_it_leads(producer: Producer) -> None:
    not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
    producer.sends(0)
    behind = header_of(batch(b"v", producer_id=ID, producer_epoch=0, sequence=2))
    producer.state.record_refused([behind], not_leader)
    assert producer.sends(1) is ErrorCode.NONE, "fetched from the leader before"
    assert producer.sends(3) is not_leader
    assert [producer.sends(2), producer.sends(3)] == [ErrorCode.NONE] * 2


def test_stored_or_impossible_batches_are_no_refusals(producer: Producer) -> None:
    producer.sends(0)
    known = header_of(batch(b"v", producer_id=ID, producer_epoch=0, sequence=0))
    producer.state.record_refused([known], FULL)
    late = header_of(batch(b"v", producer_id=ID, producer_epoch=0, sequence=1))
    producer.state.record_refused([late], ErrorCode.MESSAGE_TOO_LARGE)
    assert not producer.state.refusals
    assert producer.sends(2) is OUT_OF_ORDER


def test_refusals_are_bounded_and_expire(producer: Producer) -> None:
    first = header_of(batch(b"v", producer_id=1, producer_epoch=0, sequence=0))
    for number in range(MAX_REFUSALS + 5):
        producer.state.record_refused([with_producer(first, producer_id=number, offset=0)], FULL)
    assert len(producer.state.refusals) == MAX_REFUSALS
    producer.state.expire(0, 1000)
    assert producer.sends(1) is FULL
    producer.state.expire(0, 1000)
    assert len(producer.state.refusals) == 1, "what was waited for since"
    producer.state.expire(0, 1000)
    assert not producer.state.refusals
