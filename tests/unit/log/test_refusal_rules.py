"""The refused batch that a producer must send again first: each rule of `Refusals` alone."""

from __future__ import annotations

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.log.refusals import Refusals
from odradek.record.batch import MAX_SEQUENCE, BatchHeader
from tests.support.models.hand_made import header_fields

FULL, TOO_FEW = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
HALF = MAX_SEQUENCE // 2


def sent(sequence: int, *, epoch: int = 3, producer_id: int = 5) -> BatchHeader:
    return header_fields(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def answer(refusals: Refusals, sequence: int, *, expected: int | None = 10, epoch: int = 3) -> ErrorCode:
    try:
        refusals.check(sent(sequence, epoch=epoch), expected)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def refused(*sequences: int, expected: int | None = 10) -> Refusals:
    refusals = Refusals()
    for sequence in sequences:
        refusals.record(sent(sequence), expected, FULL)
    return refusals


@pytest.mark.parametrize(
    ("sequence", "expected", "epoch", "code"),
    [
        (11, 10, 3, FULL),
        (10 + HALF, 10, 3, FULL),
        (10, 10, 3, ErrorCode.NONE),
        (9, 10, 3, ErrorCode.NONE),
        (11 + HALF, 10, 3, ErrorCode.NONE),  # half of all sequences are behind one, the others before it
        (11, 9, 3, ErrorCode.NONE),
        (11, 11, 3, ErrorCode.NONE),
        (11, None, 3, FULL),
        (11, 10, 4, ErrorCode.NONE),
        (11, 10, 2, ErrorCode.NONE),
    ],
)
def test_batches_behind_a_refused_one_get_the_same_error(
    sequence: int, expected: int | None, epoch: int, code: ErrorCode
) -> None:
    assert answer(refused(10), sequence, expected=expected, epoch=epoch) is code


def test_sequences_begin_again_behind_the_largest() -> None:
    refusals = refused(MAX_SEQUENCE, expected=MAX_SEQUENCE)
    assert answer(refusals, 0, expected=MAX_SEQUENCE) is FULL
    assert answer(refusals, MAX_SEQUENCE - 1, expected=MAX_SEQUENCE) is ErrorCode.NONE


def test_a_retry_without_its_predecessor_is_out_of_order() -> None:
    refusals = refused(10)
    assert [answer(refusals, each) for each in (11, 12, 12, 11, 13)] == [FULL, FULL, OUT_OF_ORDER, OUT_OF_ORDER, FULL]


@pytest.mark.parametrize(
    ("sequences", "expected", "answers"),
    [
        ((10, 11), 10, {11: OUT_OF_ORDER, 12: FULL}),  # the second was seen behind the first
        ((11, 10), None, {11: FULL}),  # the earlier one is waited for
        ((10, 10), 10, {11: FULL}),
        ((10, 12, 11), None, {12: OUT_OF_ORDER, 13: FULL}),
        ((9,), 10, {10: ErrorCode.NONE, 11: ErrorCode.NONE}),  # what is in the log is no refusal
        ((11,), 10, {12: ErrorCode.NONE}),  # another one must come first
    ],
)
def test_the_earliest_is_waited_for(
    sequences: tuple[int, ...], expected: int | None, answers: dict[int, ErrorCode]
) -> None:
    for sequence, code in answers.items():
        assert answer(refused(*sequences, expected=expected), sequence, expected=expected) is code


def test_one_that_the_log_has_passed_gives_way() -> None:
    refusals = refused(10)
    refusals.record(sent(14), 14, TOO_FEW)
    assert answer(refusals, 15, expected=14) is TOO_FEW
    refusals = refused(10)
    refusals.record(sent(14), 10, TOO_FEW)
    assert answer(refusals, 15) is FULL, "the log has not"


def test_a_later_epoch_takes_the_place_of_an_earlier_one() -> None:
    refusals = refused(10)
    refusals.record(sent(0, epoch=2), None, TOO_FEW)
    assert answer(refusals, 11) is FULL
    refusals.record(sent(0, epoch=4), 0, TOO_FEW)
    assert answer(refusals, 11) is ErrorCode.NONE
    assert answer(refusals, 1, expected=0, epoch=4) is TOO_FEW
    assert len(refusals) == 1


@pytest.mark.parametrize(
    ("epoch", "expected", "is_left"), [(3, 10, True), (3, 11, False), (2, 11, True), (4, 0, False), (4, 10, False)]
)
def test_a_refusal_is_settled_once_the_log_has_passed_it(epoch: int, expected: int, is_left: bool) -> None:
    refusals = refused(10)
    refusals.resolve(6, 9, 11)
    refusals.resolve(5, epoch, expected)
    assert len(refusals) == is_left


def test_there_are_so_many_at_most() -> None:
    refusals = Refusals(2)
    for producer_id in (5, 6, 7):
        refusals.record(sent(10, producer_id=producer_id), 10, FULL)
    assert len(refusals) == 2
    refusals.record(sent(9, producer_id=5), None, TOO_FEW)
    assert answer(refusals, 10, expected=None) is TOO_FEW, "one that is known may change"


def test_refusals_of_the_log_win_over_earlier_ones() -> None:
    now, before = refused(10), Refusals()
    before.record(sent(20), 20, TOO_FEW)
    before.record(sent(20, producer_id=6), 20, TOO_FEW)
    now.merge(before)
    assert len(now) == 2 and len(before) == 2
    assert answer(now, 11) is FULL


def test_a_refusal_expires_at_the_second_check_unless_waited_for() -> None:
    refusals = refused(10)
    refusals.expire()
    assert answer(refusals, 11) is FULL
    refusals.expire()
    assert len(refusals) == 1
    refusals.expire()
    assert len(refusals) == 0
