"""Refusals of producers that are remembered before the partition's log is there."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.log.refusals import Refusals
from odradek.record.batch import BatchHeader
from odradek.replica.early_refusals import EarlyRefusals
from tests.support.models.batches import batch, header_of

TOPIC_ID = UUID(int=5)
CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER


def header(producer_id: int, sequence: int) -> BatchHeader:
    return header_of(batch(b"v", producer_id=producer_id, sequence=sequence))


def given(early: EarlyRefusals, partition_id: int = 0) -> Refusals:
    """The refusals that the partition's log gets when it is there."""
    to = Refusals()
    early.move_to("t", TOPIC_ID, partition_id, to)
    return to


def is_refused(refusals: Refusals, producer_id: int, sequence: int) -> bool:
    try:
        refusals.check(header(producer_id, sequence), None)
    except ApiError as error:
        assert error.code is CODE
        return True
    return False


@pytest.mark.parametrize("topic", ["t", TOPIC_ID])
def test_batches_behind_an_early_one_get_the_same_error(topic: str | UUID) -> None:
    early = EarlyRefusals()
    early.record(topic, 3, header(7, 0), CODE)
    early.record(topic, 3, header(8, 4), CODE)
    assert len(given(early, 2)) == 0
    refusals = given(early, 3)
    assert is_refused(refusals, 7, 1) and is_refused(refusals, 8, 5)
    assert len(given(early, 3)) == 0, "it is given once"


def test_names_and_ids_of_one_topic_come_together() -> None:
    early = EarlyRefusals()
    early.record("t", 0, header(7, 0), CODE)
    early.record(TOPIC_ID, 0, header(8, 0), CODE)
    assert len(given(early)) == 2


@pytest.mark.parametrize(
    ("producer_id", "sequence", "code"),
    [(7, 0, ErrorCode.MESSAGE_TOO_LARGE), (-1, 0, CODE), (7, -1, CODE)],
    ids=["it would be refused for ever", "no producer id", "no sequence"],
)
def test_refusals_that_are_not_kept(producer_id: int, sequence: int, code: ErrorCode) -> None:
    early = EarlyRefusals()
    early.record("t", 0, header(producer_id, sequence), code)
    assert len(given(early)) == 0


def test_the_oldest_partition_goes_where_there_are_too_many() -> None:
    early = EarlyRefusals()
    for number in range(101):
        early.record("t", number, header(7, 0), CODE)
    assert [number for number in range(101) if len(given(early, number))] == list(range(1, 101))


def test_a_partition_has_so_many_producers_at_most() -> None:
    early = EarlyRefusals()
    for producer_id in range(101):
        early.record("t", 0, header(producer_id, 0), CODE)
    assert len(given(early)) == 100
