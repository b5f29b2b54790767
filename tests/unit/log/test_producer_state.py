"""The state of each producer, rule by rule: sequences, epochs, transactions, verifications, expiry, snapshots."""

from __future__ import annotations

import struct

import pytest
from aiokafka.record.util import calc_crc32c_py

from odradek.common.errors import ApiError, ErrorCode
from odradek.log.index import AbortedTransaction
from odradek.log.producer_state import (
    BY_COORDINATOR,
    NOT_REQUIRED,
    BatchMetadata,
    CorruptSnapshotError,
    ProducerEntry,
    ProducerState,
    Verification,
)
from odradek.record.batch import BatchHeader
from odradek.record.control import ControlType
from tests.support.models.hand_made import header_fields

ID = 5
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
INVALID_STATE = ErrorCode.INVALID_TXN_STATE


def sent(
    sequence: int,
    *,
    offset: int = 0,
    count: int = 1,
    epoch: int = 3,
    txn: bool = False,
    producer_id: int = ID,
    time: int = 70,
) -> BatchHeader:
    return header_fields(
        base_offset=offset,
        last_offset_delta=count - 1,
        record_count=count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=0x10 if txn else 0,
        max_timestamp=time,
    )


def marker_header(offset: int, *, epoch: int = 3, producer_id: int = ID, time: int = 80) -> BatchHeader:
    return sent(-1, offset=offset, epoch=epoch, producer_id=producer_id, time=time)._replace(attributes=0x30)


def state_of(*headers: BatchHeader) -> ProducerState:
    state = ProducerState()
    for header in headers:
        state.update(header)
    return state


def ended(
    state: ProducerState, offset: int, *, abort: bool = True, epoch: int = 3, by: int = 1, stable: int = 0
) -> AbortedTransaction | None:
    kind = ControlType.ABORT if abort else ControlType.COMMIT
    return state.end_transaction(marker_header(offset, epoch=epoch), kind, by, stable)


def outcome(
    state: ProducerState, header: BatchHeader, verification: Verification | None = NOT_REQUIRED
) -> ErrorCode | BatchMetadata | None:
    try:
        return state.check(header, verification)
    except ApiError as error:
        return error.code


# -- sequences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (sent(8), None),
        (sent(7), OUT_OF_ORDER),
        (sent(9), OUT_OF_ORDER),
        (sent(0), OUT_OF_ORDER),
        (sent(6, count=2), BatchMetadata(6, 7, 13, 1, 70)),
        (sent(6), OUT_OF_ORDER),
        (sent(5), BatchMetadata(5, 5, 11, 0, 70)),
        (sent(5, count=2), OUT_OF_ORDER),
        (sent(0, epoch=4), None),
        (sent(1, epoch=4), OUT_OF_ORDER),
        (sent(8, epoch=4), OUT_OF_ORDER),
        (sent(5, epoch=4), OUT_OF_ORDER),
        (sent(8, epoch=2), FENCED),
        (sent(5, epoch=2), FENCED),
        (sent(77, producer_id=6), None),
    ],
)
def test_the_next_sequence_is_taken_and_a_known_batch_named(
    header: BatchHeader, expected: ErrorCode | BatchMetadata | None
) -> None:
    state = state_of(sent(5, offset=11), sent(6, offset=12, count=2))
    assert outcome(state, header) == expected
    if header.producer_epoch == 3:
        assert outcome(state, header, BY_COORDINATOR) is None, "a coordinator gives no sequence"


def test_a_known_batch_has_its_place() -> None:
    known = BatchMetadata.of(sent(2**31 - 1, offset=40, count=3, time=9))
    assert known == BatchMetadata(2**31 - 1, 1, 42, 2, 9)
    assert known.base_offset == 40
    entry = ProducerEntry(ID)
    assert (entry.last_sequence, entry.last_offset, entry.producer_epoch, entry.transaction_start) == (-1, -1, -1, -1)
    assert (entry.last_timestamp_ms, entry.coordinator_epoch, entry.silent_since_ms) == (-1, -1, -1)
    entry.batches = (BatchMetadata.of(sent(1, offset=1)), known)
    assert (entry.last_sequence, entry.last_offset) == (1, 42)


def test_the_last_five_batches_are_known() -> None:
    state = state_of(*(sent(each, offset=each) for each in range(7)))
    assert [each.first_sequence for each in state.producers[ID].batches] == [2, 3, 4, 5, 6]
    assert outcome(state, sent(1)) is OUT_OF_ORDER
    assert state.producers[ID].last_timestamp_ms == 70
    state.update(sent(0, offset=7, epoch=4, time=75))
    assert [each.first_sequence for each in state.producers[ID].batches] == [0], "an epoch begins without any"
    assert state.producers[ID].producer_epoch == 4 and state.producers[ID].last_timestamp_ms == 75


def test_batches_without_a_producer_only_move_the_end() -> None:
    state = state_of(header_fields(base_offset=4, last_offset_delta=2))
    assert state.map_end_offset == 7 and not state.producers
    state.update(sent(-1, offset=7, count=2, txn=True))
    assert state.map_end_offset == 9
    assert state.producers[ID].batches == (), "a group coordinator's batch has no sequence"


@pytest.mark.parametrize(
    ("by", "epoch", "sequence", "expected"),
    [(1, 3, 0, None), (1, 3, 4, OUT_OF_ORDER), (1, 4, 0, None), (1, 4, 4, OUT_OF_ORDER), (-1, 3, 4, None)],
)
def test_behind_a_marker_alone_sequences_begin_at_zero(
    by: int, epoch: int, sequence: int, expected: ErrorCode | None
) -> None:
    state = ProducerState()
    ended(state, 4, by=by)
    assert outcome(state, sent(sequence, epoch=epoch)) == expected


# -- windows that are widened ----------------------------------------------------------------------------------------


def widened(*earlier: BatchHeader) -> list[int]:
    """First sequences of what is known of a producer whose batch of sequence 10 is at offset 20."""
    state = state_of(sent(10, offset=20))
    state.restore_dedup_window(earlier)
    return [each.first_sequence for each in state.producers[ID].batches]


def test_batches_that_join_are_put_before_the_oldest() -> None:
    assert widened(sent(7, offset=15, count=2), sent(9, offset=18)) == [7, 9, 10]
    assert widened(sent(9, offset=18), sent(10, offset=20)) == [9, 10], "what is known is passed over"
    assert widened(*(sent(each, offset=each) for each in range(10))) == [6, 7, 8, 9, 10]
    assert widened(sent(9, offset=19)) == [9, 10]
    for other in (
        sent(8, offset=18),
        sent(9, offset=20),
        sent(9, offset=18, epoch=2),
        sent(9, offset=18, epoch=4),
        sent(9, offset=18, producer_id=6),
    ):
        assert widened(other) == [10]
    state = ProducerState()
    ended(state, 4)
    state.restore_dedup_window([sent(9, offset=3)])
    assert state.producers[ID].batches == (), "nothing that it could join"


# -- transactions ----------------------------------------------------------------------------------------------------


def test_a_transaction_is_written_in_while_it_is_open() -> None:
    state = state_of(sent(0, offset=10, txn=True))
    assert outcome(state, sent(1, txn=True), None) is None, "it is open: nothing needs to be verified"
    assert outcome(state, sent(1)) is INVALID_STATE
    assert outcome(state, sent(0, epoch=4, txn=True), None) is INVALID_STATE, "that of another epoch"
    assert state.has_open_transaction(ID, 3)
    assert not state.has_open_transaction(ID, 4) and not state.has_open_transaction(6, 3)
    ended(state, 11)
    assert not state.has_open_transaction(ID, 3)
    assert outcome(state, sent(1)) is None
    assert outcome(state, sent(1, txn=True), None) is INVALID_STATE
    assert outcome(state, sent(1, txn=True)) is None


def test_the_first_offset_of_what_is_open_stays() -> None:
    state = state_of(sent(0, offset=10, txn=True), sent(1, offset=11, txn=True))
    assert state.producers[ID].transaction_start == 10
    assert state.first_unstable_offset(100) == 10


@pytest.mark.parametrize(
    ("abort", "stable", "others", "expected"),
    [
        (True, 50, (), AbortedTransaction(ID, 10, 12, 13)),
        (True, 9, (), AbortedTransaction(ID, 10, 12, 9)),
        (True, 50, (11,), AbortedTransaction(ID, 10, 12, 11)),
        (True, 10, (11,), AbortedTransaction(ID, 10, 12, 10)),
        (False, 50, (), None),
    ],
)
def test_an_abort_is_for_the_index(
    abort: bool, stable: int, others: tuple[int, ...], expected: AbortedTransaction | None
) -> None:
    state = state_of(sent(0, offset=10, txn=True))
    for number, offset in enumerate(others):
        state.update(sent(0, offset=offset, txn=True, producer_id=100 + number))
    assert ended(state, 12, abort=abort, stable=stable) == expected
    assert state.map_end_offset == 13
    assert ended(state, 13, abort=abort, stable=stable) is None, "nothing is open any more"


def test_a_marker_raises_epochs_and_never_lowers_them() -> None:
    state = state_of(sent(0, offset=10))
    ended(state, 11, epoch=3, by=7)
    entry = state.producers[ID]
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.last_timestamp_ms) == (3, 7, 80)
    assert len(entry.batches) == 1, "batches of the marker's epoch stay known"
    ended(state, 12, epoch=4, by=6)
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.batches) == (4, 7, ())
    ended(state, 13, epoch=2, by=6)
    assert (entry.producer_epoch, entry.coordinator_epoch) == (4, 7)


def test_an_ended_transaction_is_unstable_until_its_marker_is_replicated() -> None:
    state = state_of(sent(0, offset=10, txn=True), sent(0, offset=11, txn=True, producer_id=6))
    assert state.first_unstable_offset(0) == 10
    ended(state, 12)
    assert state.first_unstable_offset(12) == 10
    assert state.first_unstable_offset(13) == 11, "the other one is open"
    state.end_transaction(marker_header(13, producer_id=6), ControlType.COMMIT, 1, 0)
    assert state.first_unstable_offset(13) == 11
    assert state.first_unstable_offset(14) is None


@pytest.mark.parametrize(("high_watermark", "unstable"), [(12, 10), (13, 11), (14, None)])
def test_of_two_ended_transactions_each_is_unstable_to_its_marker(high_watermark: int, unstable: int | None) -> None:
    """Both have ended before the high watermark has reached either marker."""
    state = state_of(sent(0, offset=10, txn=True), sent(0, offset=11, txn=True, producer_id=6))
    ended(state, 12)
    state.end_transaction(marker_header(13, producer_id=6), ControlType.COMMIT, 1, 0)
    assert state.first_unstable_offset(high_watermark) == unstable


def test_the_stable_offset_is_of_the_first_open_transaction() -> None:
    state = state_of(sent(0, offset=10, txn=True), sent(0, offset=11, txn=True, producer_id=6))
    state.end_transaction(marker_header(12, producer_id=6), ControlType.COMMIT, 1, 0)
    assert state.first_unstable_offset(12) == 10
    ended(state, 13)
    assert state.first_unstable_offset(13) == 10, "though the marker of the other one is replicated"
    assert state.first_unstable_offset(14) is None
    state.update(sent(1, offset=14, txn=True))
    assert state.first_unstable_offset(14) == 14


def test_an_open_transaction_of_a_silent_producer_is_late() -> None:
    state = state_of(sent(0, offset=9, time=0, producer_id=6), sent(0, offset=10, txn=True, time=1000))
    assert not state.has_late_transaction(1500, 500)
    assert state.has_late_transaction(1501, 500)
    ended(state, 11)
    assert not state.has_late_transaction(10**6, 500)


# -- markers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(
    ("epoch", "by", "version", "when_open", "when_not"),
    [
        (2, 9, 2, FENCED, FENCED),
        (2, 9, 1, FENCED, FENCED),
        (3, 6, 1, ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (4, 6, 2, ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (4, 7, 2, True, True),
        (4, 7, 1, True, True),
        (3, 7, 1, True, False),
        (3, 8, 1, True, True),
        (3, 7, 2, FENCED, False),
        (3, 8, 2, FENCED, False),
    ],
)
def test_a_marker_is_written_where_it_ends_or_fences_something(
    is_open: bool, epoch: int, by: int, version: int, when_open: ErrorCode | bool, when_not: ErrorCode | bool
) -> None:
    state = ProducerState()
    ended(state, 9, by=7)
    if is_open:
        state.update(sent(0, offset=10, txn=True))
    try:
        found: ErrorCode | bool = state.must_write_marker(ID, epoch, by, version)
    except ApiError as error:
        found = error.code
    assert found is (when_open if is_open else when_not)
    assert state.must_write_marker(6, epoch, by, version) is True, "nothing is known of that producer"


# -- verifications ---------------------------------------------------------------------------------------------------


def test_only_a_verification_that_no_end_came_between_opens_a_transaction() -> None:
    state = ProducerState()
    asked = state.begin_verification(ID, 3)
    assert state.is_verified(ID, 3, asked)
    assert not state.is_verified(ID, 4, asked) and not state.is_verified(6, 3, asked)
    assert not state.is_verified(ID, 3, Verification(3)) and not state.is_verified(ID, 3, None)
    assert state.is_verified(ID, 3, NOT_REQUIRED) and state.is_verified(ID, 3, BY_COORDINATOR)
    assert outcome(state, sent(0, txn=True), asked) is None
    ended(state, 4)
    assert not state.is_verified(ID, 3, asked)
    assert outcome(state, sent(0, txn=True), asked) is INVALID_STATE


def test_a_transaction_that_is_open_needs_no_verification_any_more() -> None:
    state = ProducerState()
    asked = state.begin_verification(ID, 3)
    state.update(sent(0, txn=True))
    assert not state.is_verified(ID, 3, asked)
    other = state.begin_verification(ID, 3)
    state.update(sent(1, offset=1, txn=True))
    assert state.is_verified(ID, 3, other), "it was open before"


def test_equal_verification_requests_share_one() -> None:
    state = ProducerState()
    first = state.begin_verification(ID, 3)
    assert state.begin_verification(ID, 3) is first
    assert state.begin_verification(6, 3) is not first
    assert state.begin_verification(ID, 3, supports_epoch_bump=True) is not first
    newer = state.begin_verification(ID, 4)
    assert newer is not first and state.is_verified(ID, 4, newer)
    older = state.begin_verification(ID, 3)
    assert older not in (first, newer) and not state.is_verified(ID, 3, older)
    assert state.is_verified(ID, 4, newer), "a late question of an earlier epoch does not take its place"


def test_a_verification_denied_to_all_is_removed() -> None:
    state = ProducerState()
    asked = state.begin_verification(ID, 3)
    state.begin_verification(ID, 3)
    state.end_verification(ID, asked, is_confirmed=False)
    assert state.is_verified(ID, 3, asked), "the other one waits for its answer"
    state.end_verification(ID, asked, is_confirmed=False)
    assert not state.is_verified(ID, 3, asked)
    asked = state.begin_verification(ID, 3)
    state.begin_verification(ID, 3)
    state.end_verification(ID, asked, is_confirmed=True)
    state.end_verification(ID, asked, is_confirmed=False)
    assert state.is_verified(ID, 3, asked), "it was confirmed to one"
    old, new = state.begin_verification(6, 3), state.begin_verification(6, 4)
    state.end_verification(6, old, is_confirmed=False)
    assert state.is_verified(6, 4, new)


@pytest.mark.parametrize(
    ("bumped", "version", "marker_epoch", "stays"),
    [
        (False, 1, 3, False),
        (False, 2, 3, False),
        (True, 1, 3, False),
        (True, 2, 3, True),
        (True, 2, 2, True),
        (True, 2, 4, False),
        (True, 1, 2, False),
    ],
)
def test_an_end_of_the_transaction_before_leaves_a_verification(
    bumped: bool, version: int, marker_epoch: int, stays: bool
) -> None:
    state = ProducerState()
    asked = state.begin_verification(ID, 3, supports_epoch_bump=bumped)
    state.clear_verification(6, 9, 1)
    state.clear_verification(ID, marker_epoch, version)
    assert state.is_verified(ID, 3, asked) is stays


# -- refusals --------------------------------------------------------------------------------------------------------


def test_retriable_refusals_are_kept_for_idempotent_producers() -> None:
    full, invalid = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_RECORD
    state = state_of(sent(0))
    for header, code in (
        (sent(1), invalid),
        (header_fields(), full),
        (sent(-1), full),
        (sent(0, epoch=2), full),
    ):
        state.record_refused([header], code)
        assert not state.refusals
    state.record_refused([sent(1), sent(0, producer_id=6)], full)
    assert len(state.refusals) == 2
    assert outcome(state, sent(2)) is full
    state.update(sent(1, offset=1))
    assert len(state.refusals) == 1
    assert outcome(state, sent(2)) is None
    state.record_refused([sent(0, epoch=4)], full)
    assert len(state.refusals) == 2, "a new epoch"


# -- silence ---------------------------------------------------------------------------------------------------------


def test_a_producer_that_is_silent_for_so_long_expires() -> None:
    state = state_of(sent(0), sent(0, offset=1, producer_id=6, txn=True))
    assert state.expire(1000, 500) == 0, "it is counted from the first look"
    assert state.expire(1499, 500) == 0
    state.update(sent(1, offset=2))
    assert state.expire(1500, 500) == 0, "it wrote"
    assert state.expire(1999, 500) == 0
    assert state.expire(2000, 500) == 1
    assert list(state.producers) == [6], "a transaction is open"
    state.end_transaction(marker_header(3, producer_id=6), ControlType.COMMIT, 1, 0)
    assert state.expire(9000, 500) == 0
    assert state.expire(9500, 500) == 1 and not state.producers


def test_verifications_and_refusals_expire_at_the_second_check() -> None:
    state = ProducerState()
    asked = state.begin_verification(ID, 3)
    state.record_refused([sent(0, producer_id=6)], ErrorCode.KAFKA_STORAGE_ERROR)
    state.expire(0, 10)
    assert state.is_verified(ID, 3, asked) and state.refusals
    state.expire(0, 10)
    assert not state.is_verified(ID, 3, asked) and not state.refusals


# -- snapshots -------------------------------------------------------------------------------------------------------


def snapshot_bytes(
    *entries: tuple[int, ...], version: int = 1, count: int | None = None, crc: int | None = None
) -> bytes:
    body = struct.pack(">i", len(entries) if count is None else count)
    body += b"".join(struct.pack(">qhiqiqiq", *entry) for entry in entries)
    return struct.pack(">hI", version, calc_crc32c_py(body) if crc is None else crc) + body


# id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of what is open
WRITER = (ID, 3, 9, 20, 2, 70, -1, -1)
IN_TRANSACTION = (6, 3, 0, 30, 0, 70, -1, 30)
FENCE = (7, 4, -1, -1, 0, 80, 8, -1)


def test_the_bytes_of_a_snapshot_are_kafkas() -> None:
    state = state_of(sent(3, offset=9), sent(7, offset=18, count=3), sent(0, offset=30, producer_id=6, txn=True))
    state.end_transaction(marker_header(31, epoch=4, producer_id=7), ControlType.ABORT, 8, 0)
    assert state.snapshot() == snapshot_bytes(WRITER, IN_TRANSACTION, FENCE)
    assert ProducerState().snapshot() == snapshot_bytes()


def test_a_snapshot_is_read_again() -> None:
    data = snapshot_bytes(WRITER, (8, 0, 4, 40, 0, 70, -1, 25), IN_TRANSACTION, FENCE)
    state = ProducerState.from_snapshot(data, 32)
    assert state.map_end_offset == 32 and state.snapshot() == data
    assert state.producers[ID] == ProducerEntry(ID, 3, (BatchMetadata(7, 9, 20, 2, 70),), 70)
    assert state.producers[7] == ProducerEntry(7, 4, (), 80, 8)
    assert state.first_unstable_offset(32) == 25, "the oldest that is open, whatever their order in the file"
    assert outcome(state, sent(10)) is None and outcome(state, sent(7, count=3)) == BatchMetadata(7, 9, 20, 2, 70)
    assert ProducerState.from_snapshot(snapshot_bytes((ID, 3, 0, 0, 0, 70, -1, 0)), 1).first_unstable_offset(1) == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        snapshot_bytes()[:-1],
        snapshot_bytes(version=0),
        snapshot_bytes(version=2),
        snapshot_bytes(WRITER, crc=7),
        snapshot_bytes(WRITER, count=0),
        snapshot_bytes(WRITER, count=2),
        snapshot_bytes(count=-1),
        snapshot_bytes(WRITER)[:-1],
        snapshot_bytes(WRITER) + b"\0",
    ],
)
def test_a_malformed_snapshot_is_damaged(data: bytes) -> None:
    with pytest.raises(CorruptSnapshotError):
        ProducerState.from_snapshot(data, 0)


@pytest.mark.parametrize("epochs", [(3, 5), (5, 3)])
def test_of_a_state_that_is_read_again_the_newest_coordinator_counts(epochs: tuple[int, int]) -> None:
    """A marker of an older one is refused after a repair, too."""
    read, before = (state_of(sent(0)) for _ in range(2))
    read.producers[ID].coordinator_epoch, before.producers[ID].coordinator_epoch = epochs
    before.producers[ID].silent_since_ms = 7
    read.inherit_from(before)
    assert (read.producers[ID].coordinator_epoch, read.producers[ID].silent_since_ms) == (5, 7)
