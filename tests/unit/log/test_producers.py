"""A log's producer state, its expiry and its memory, in scenarios that other projects met in production."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from odradek.common.errors import ApiError
from odradek.log.opening import close_log
from odradek.log.producer_state import WINDOW_BATCHES, ProducerState, Verification
from odradek.log.retention import delete_old_segments
from odradek.log.rolling import roll
from odradek.log.truncation import truncate_to
from odradek.record.batch import MAX_SEQUENCE, BatchHeader
from odradek.record.control import ControlType
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.unit.log.test_log import Home, append
from tests.unit.log.test_log_transactions import due, marker, refusal

DAY_MS = 86_400_000
MANY = 100_000
# Measured: 342 bytes a producer with one batch, on CPython 3.11.
MOST_BYTES_A_PRODUCER = 500


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def numbered(
    sequence: int, *, count: int = 1, epoch: int = 0, timestamp_ms: int = NOW_MS, producer_id: int = 5
) -> bytes:
    values = [b"v"] * count
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, sequence=sequence, timestamp_ms=timestamp_ms)


def test_sequences_wrap_through_snapshots_and_restarts(home: Home) -> None:
    """KAFKA-7692: a batch that spans 2^31-1 was known under a negative first sequence after a restart."""
    log = home.open()
    spanning = numbered(MAX_SEQUENCE - 1, count=4)
    append(log, numbered(MAX_SEQUENCE - 3, count=2), spanning)
    for known in (log.producers, ProducerState.from_snapshot(log.producers.snapshot(), 6)):
        found = known.check(header_of(spanning))
        assert found is not None and found.base_offset == 2, "sent again it is the same batch"
        assert known.check(header_of(numbered(2))) is None, "two were after the largest"
        for wrong in (3, 0, MAX_SEQUENCE):
            with pytest.raises(ApiError, match="Out of order"):
                known.check(header_of(numbered(wrong)))
    again = home.open(clean=False)
    assert append(again, spanning).duplicate
    assert append(again, numbered(2)).base_offset == 6


def test_a_producer_is_known_after_its_records_are_gone(home: Home) -> None:
    """KAFKA-7190, KAFKA-8483: forgotten with its records, a slow producer's next batch was refused, or stored twice."""
    log = home.open(segment_bytes=100, retention_ms=1000)
    for sequence in range(3):
        append(log, numbered(sequence))
    log.advance_log_start(3)
    for _ in range(5):
        segments = delete_old_segments(log, NOW_MS + DAY_MS)
        if not segments:
            break
    assert log.log_start_offset == 3
    assert append(log, numbered(2)).duplicate, "its last batch is known though it is gone"
    assert refusal(log, numbered(4)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert append(log, numbered(3)).base_offset == 3


def test_silence_counts_and_not_what_records_say_of_time(home: Home) -> None:
    """KAFKA-9144: records with old timestamps had a producer forgotten early, and its coordinator's epoch with it.

    A marker of a coordinator that had been replaced was then taken.
    """
    log = home.open()
    producers = log.producers
    data = batch(b"v", producer_id=5, producer_epoch=0, sequence=0, transactional=True, timestamp_ms=0)
    assert refusal(log, data, producers.begin_verification(5, 0)) == "NONE"
    assert producers.expire(0, DAY_MS) == producers.expire(10 * DAY_MS, DAY_MS) == 0, "its transaction is open"
    append(log, marker(coordinator_epoch=7))
    assert producers.expire(20 * DAY_MS, DAY_MS) == 0, "it was heard of since"
    assert producers.expire(21 * DAY_MS - 1, DAY_MS) == 0
    assert due(producers, 0, coordinator_epoch=6) == "TRANSACTION_COORDINATOR_FENCED"
    assert producers.expire(21 * DAY_MS, DAY_MS) == 1
    assert not producers.producers


def test_an_expired_producer_begins_with_any_sequence(home: Home) -> None:
    """KIP-360: UNKNOWN_PRODUCER_ID is never answered; an expired producer goes on with its next sequence number."""
    log = home.open()
    append(log, numbered(0), numbered(1))
    log.producers.expire(0, DAY_MS)
    assert log.producers.expire(DAY_MS, DAY_MS) == 1
    assert append(log, numbered(2)).base_offset == 2
    assert refusal(log, numbered(4)) == "OUT_OF_ORDER_SEQUENCE_NUMBER", "from then on it is known again"


def test_an_out_of_order_batch_opens_no_transaction(home: Home) -> None:
    """KAFKA-12671: data behind its marker, or with a gap before it, kept the stable offset where it was for ever."""
    log = home.open()
    producers = log.producers

    def sent(sequence: int) -> bytes:
        return batch(b"v", producer_id=5, producer_epoch=0, sequence=sequence, transactional=True)

    verification = producers.begin_verification(5, 0)
    assert refusal(log, sent(0), verification) == "NONE"
    assert refusal(log, sent(2), verification) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    append(log, marker(commit=True))
    assert refusal(log, sent(1), verification) == "INVALID_TXN_STATE", "verified for the transaction before"
    assert refusal(log, sent(2), producers.begin_verification(5, 0)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert log.last_stable_offset == log.log_end_offset == 2


def test_a_fence_outlives_all_that_had_the_epoch_before(home: Home) -> None:
    """Redpanda 996e138f08: the new epoch, which fenced the old one, was dropped with the old epoch's batches."""
    log = home.open(segment_bytes=200)
    for data in (numbered(0), numbered(1), marker(epoch=1)):
        append(log, data)
    for state in (log.producers, ProducerState.from_snapshot(log.producers.snapshot(), 3)):
        with pytest.raises(ApiError, match="Epoch of producer 5 is 0, the last seen was 1"):
            state.check(header_of(numbered(2)))
    roll(log, NOW_MS)
    log.advance_log_start(3)
    delete_old_segments(log, NOW_MS + DAY_MS)
    for clean in (True, False):
        close_log(log, clean=clean)
        log = home.open(clean=clean, recovery_point=3 if clean else 0, log_start=3, segment_bytes=200)
        assert refusal(log, numbered(2)) == "INVALID_PRODUCER_EPOCH"
    assert refusal(log, numbered(0, epoch=1)) == "NONE"


def test_a_cut_takes_producers_back_to_where_they_were(home: Home) -> None:
    """KAFKA-10706, KAFKA-12153: truncated batches were still known, and their replacements counted as duplicates."""
    log = home.open()
    append(log, numbered(0), numbered(1), marker(epoch=2), numbered(0, epoch=2))
    truncate_to(log, 1)
    entry = log.producers.producers[5]
    assert (entry.producer_epoch, entry.last_sequence, entry.coordinator_epoch) == (0, 0, -1)
    assert append(log, numbered(1)).base_offset == 1


def test_a_window_never_holds_more_than_five(home: Home) -> None:
    log = home.open()
    for sequence in range(20):
        append(log, numbered(sequence))
    held = log.producers.producers[5].batches
    assert [each.first_sequence for each in held] == [15, 16, 17, 18, 19]
    assert len(held) == WINDOW_BATCHES


@pytest.mark.slow
def test_a_hundred_thousand_producers_stay_small() -> None:
    """Memory of each, a snapshot of all, and an expiry that forgets all of them in one look (KAFKA-16229)."""
    first = header_of(numbered(0, producer_id=1))
    tracemalloc.start()
    try:
        state = ProducerState()
        for number in range(MANY):
            state.update(with_producer(first, producer_id=number, offset=number))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / MANY < MOST_BYTES_A_PRODUCER, f"{used / MANY:.0f} bytes a producer"
    snapshot = state.snapshot()
    assert len(snapshot) == 10 + 46 * MANY
    again = ProducerState.from_snapshot(snapshot, MANY)
    assert len(again.producers) == MANY
    late = with_producer(first, producer_id=MANY - 1, offset=MANY)
    assert again.check(late) is not None, "each is known by its last batch"
    assert again.expire(0, DAY_MS) == 0
    assert again.expire(DAY_MS, DAY_MS) == MANY
    assert not again.producers


def test_refused_batches_leave_no_producer_state() -> None:
    """Ids that anybody may invent leave nothing behind unless something of theirs is in the log."""
    state = ProducerState()
    first = header_of(batch(b"v", producer_id=1, producer_epoch=0, sequence=0, transactional=True))
    for number in range(1000):
        with pytest.raises(ApiError):
            state.check(with_producer(first, producer_id=number, offset=0), Verification())
        asked = state.begin_verification(number, 0)
        assert state.begin_verification(number, 0) is asked
        state.end_verification(number, asked, is_confirmed=False)
        assert state._verifications, "somebody else still asks"
        state.end_verification(number, asked, is_confirmed=False)
    assert not state.producers and not state._verifications
    assert state.first_unstable_offset(10) is None


def test_one_confirmed_verification_holds_for_all() -> None:
    state = ProducerState()
    first, second = state.begin_verification(1, 0), state.begin_verification(1, 0)
    state.end_verification(1, first, is_confirmed=True)
    state.end_verification(1, second, is_confirmed=False)
    assert state.is_verified(1, 0, first)
    late = state.begin_verification(2, 0)
    for _ in range(2):  # whose answer never came
        state.expire(0, DAY_MS)
    assert not state.is_verified(2, 0, late)
    state.end_verification(2, late, is_confirmed=True)
    assert not state._verifications


def test_a_marker_of_an_unknown_producer_creates_its_entry() -> None:
    state = ProducerState()
    header = header_of(marker(epoch=3))
    assert state.end_transaction(header, ControlType.COMMIT, 4, 0) is None
    entry = state.producers[5]
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.batches) == (3, 4, ())


def with_producer(header: BatchHeader, *, producer_id: int, offset: int) -> BatchHeader:
    return header._replace(producer_id=producer_id, base_offset=offset)


@pytest.mark.parametrize("producer_id", [0, 1])
def test_every_producer_id_is_one(home: Home, producer_id: int) -> None:
    log = home.open()
    first = numbered(0, producer_id=producer_id)
    assert append(log, first).base_offset == 0
    assert append(log, first).duplicate
    with pytest.raises(ApiError, match="Out of order"):
        append(log, numbered(7, producer_id=producer_id))
