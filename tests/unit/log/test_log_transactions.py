"""Transactions in one log: verified batches, markers that are due, and an index that survives what happens to files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.log.log import Log
from odradek.log.opening import close_log
from odradek.log.producer_state import ProducerState, Verification
from odradek.log.search import aborted_transactions
from odradek.record.control import ControlType, control_key, transaction_marker
from tests.sim.planted_transactions import transaction_bug
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.support.planted.log_bugs import IN_POWER_LOSSES
from tests.unit.log.test_log import Home, append


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def marker(producer_id: int = 5, epoch: int = 0, *, commit: bool = False, coordinator_epoch: int = 0) -> bytes:
    return transaction_marker(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=NOW_MS,
    )


def sent(sequence: int = 0, *, epoch: int = 0, transactional: bool = True) -> bytes:
    return batch(b"v", producer_id=5, producer_epoch=epoch, sequence=sequence, transactional=transactional)


def refusal(log: Log, data: bytes, verification: Verification | None = None) -> str:
    try:
        log.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS, verification=verification)
    except ApiError as error:
        return error.code.name
    log.update_high_watermark(log.log_end_offset)
    return "NONE"


def due(producers: ProducerState, epoch: int, *, coordinator_epoch: int = 0, version: int = 0) -> str:
    try:
        return str(producers.must_write_marker(5, epoch, coordinator_epoch, version))
    except ApiError as error:
        return error.code.name


def test_only_a_verified_batch_opens_a_transaction(home: Home) -> None:
    log = home.open()
    assert refusal(log, sent()) == "INVALID_TXN_STATE"
    assert refusal(log, sent(), Verification()) == "INVALID_TXN_STATE"
    verification = log.producers.begin_verification(5, 0)
    assert log.producers.begin_verification(5, 0) is verification, "those who ask at the same time share it"
    assert refusal(log, sent(), verification) == "NONE"
    assert refusal(log, sent(1)) == "NONE", "it is open"
    assert refusal(log, sent(2, transactional=False)) == "INVALID_TXN_STATE"


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_makes_what_was_verified_before_it_worthless(home: Home, commit: bool) -> None:
    log = home.open()
    verification = log.producers.begin_verification(5, 0)
    append(log, marker(commit=commit))
    assert refusal(log, sent(), verification) == "INVALID_TXN_STATE"
    assert log.last_stable_offset == log.log_end_offset


def test_a_batch_behind_one_that_could_not_be_verified_waits_for_it(home: Home) -> None:
    log = home.open()
    log.producers.record_refused([header_of(sent(0))], ErrorCode.NOT_ENOUGH_REPLICAS)
    assert refusal(log, sent(1), log.producers.begin_verification(5, 0)) == "NOT_ENOUGH_REPLICAS"
    assert refusal(log, sent(0), log.producers.begin_verification(5, 0)) == "NONE"
    assert refusal(log, sent(1)) == "NONE"


def test_the_first_batch_of_an_epoch_that_a_marker_brought_begins_again(home: Home) -> None:
    log = home.open()
    append(log, sent(), marker(epoch=1, commit=True))
    verification = log.producers.begin_verification(5, 1)
    assert refusal(log, sent(1, epoch=1), verification) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert refusal(log, sent(1, epoch=0), verification) == "INVALID_PRODUCER_EPOCH"
    assert refusal(log, sent(0, epoch=1), verification) == "NONE"


@pytest.mark.parametrize("version", [0, 2])
def test_a_verification_during_an_end_is_answered_after_its_marker(home: Home, version: int) -> None:
    """EndTxn is answered before its markers are written; a batch that came before them was once refused."""
    log = home.open()
    producers = log.producers
    first = producers.begin_verification(5, 0, supports_epoch_bump=True)
    assert refusal(log, sent(), first) == "NONE"
    late = producers.begin_verification(5, 0, supports_epoch_bump=True)
    following = producers.begin_verification(5, 1, supports_epoch_bump=True)
    assert producers.begin_verification(5, 0, supports_epoch_bump=True) is not late, "older ones count for nothing"
    producers.clear_verification(5, 1, version)
    append(log, marker(epoch=1, commit=True))
    assert refusal(log, sent(1), late) == "INVALID_PRODUCER_EPOCH"
    if version == 0:  # who ends by hand, as a coordinator of before, ends everything
        assert refusal(log, sent(epoch=1), following) == "INVALID_TXN_STATE"
        return
    assert refusal(log, sent(epoch=1), following) == "NONE"
    following = producers.begin_verification(5, 1, supports_epoch_bump=True)
    producers.clear_verification(5, 2, version)
    append(log, marker(epoch=2))
    assert not producers.is_verified(5, 1, following), "its own end makes it worthless"
    assert not producers.is_verified(5, 2, following)


def test_markers_of_older_transactions(home: Home) -> None:
    log = home.open()
    producers = log.producers
    assert due(producers, 3) == "True", "it fences a producer that never wrote here"
    append(log, sent(epoch=3))
    assert due(producers, 2) == "INVALID_PRODUCER_EPOCH"
    assert due(producers, 3) == "True"
    append(log, marker(epoch=3, coordinator_epoch=7))
    assert due(producers, 3, coordinator_epoch=7) == "False"
    assert due(producers, 3, coordinator_epoch=6) == "TRANSACTION_COORDINATOR_FENCED"
    assert due(producers, 3, coordinator_epoch=8) == "True", "a later coordinator fences the one before"
    assert due(producers, 4, coordinator_epoch=7) == "True"


def test_a_marker_ends_only_transactions_of_older_epochs(home: Home) -> None:
    log = home.open()
    producers = log.producers
    append(log, sent(epoch=3))
    assert due(producers, 3, version=2) == "INVALID_PRODUCER_EPOCH", "the transaction that is open comes after it"
    assert due(producers, 4, version=2) == "True"
    append(log, marker(epoch=4, commit=True))
    assert due(producers, 4, version=2) == due(producers, 4, coordinator_epoch=9, version=2) == "False"
    append(log, sent(epoch=4))
    assert due(producers, 4, version=2) == "INVALID_PRODUCER_EPOCH"


def test_snapshots_keep_open_transactions(home: Home) -> None:
    log = home.open()
    append(log, batch(b"plain"), sent(epoch=2))
    state = ProducerState.from_snapshot(log.producers.snapshot(), log.log_end_offset)
    assert state.has_open_transaction(5, 2) and not state.has_open_transaction(5, 1)
    assert state.first_unstable_offset(log.log_end_offset) == 1


def test_the_stable_offset_does_not_lie_before_the_start(home: Home) -> None:
    log = home.open()
    append(log, sent(), batch(b"a"), batch(b"b"))
    assert log.last_stable_offset == 0
    log.advance_log_start(2)
    assert log.last_stable_offset == 2


def test_a_kill_loses_no_aborted_transaction(home: Home) -> None:
    """Entries of the index are in memory until a flush; the log has all that is needed to make them again."""
    log = home.open(segment_bytes=500)
    for number in range(10):
        append(log, sent(number), marker(), batch(b"beside"))
    expected = aborted_transactions(log, 0, log.log_end_offset)
    assert len(expected) == 10 and len(log.segments.bases) > 2
    for _ in range(2):
        log = home.open(segment_bytes=500)
        log.update_high_watermark(log.log_end_offset)
        assert [entry[:3] for entry in aborted_transactions(log, 0, 99)] == [entry[:3] for entry in expected]
        assert log.last_stable_offset == log.log_end_offset


def test_a_power_loss_takes_index_entries_that_the_log_still_has(home: Home) -> None:
    log = home.open()
    append(log, sent(), marker())
    close_log(log)
    (home.directory / "00000000000000000000.txnindex").unlink()
    log = home.open(recovery_point=0)
    assert [entry[:3] for entry in aborted_transactions(log, 0, 2)] == [(5, 0, 1)]


@pytest.mark.parametrize("damage", [b"\x00" * 33, b"\xff" * 34])
def test_a_damaged_index_is_made_again_from_the_whole_log(home: Home, damage: bytes) -> None:
    log = home.open(segment_bytes=250)
    append(log, sent(0))
    append(log, batch(b"x" * 150))
    append(log, marker())
    append(log, sent(1), marker(commit=True))
    expected = aborted_transactions(log, 0, 99)
    assert [entry[:3] for entry in expected] == [(5, 0, 2)] and len(log.segments.bases) > 1
    close_log(log)
    (index,) = home.directory.glob("*.txnindex")
    index.write_bytes(damage)
    log = home.open(clean=True, segment_bytes=250)
    assert [entry[:3] for entry in aborted_transactions(log, 0, 99)] == [(5, 0, 2)]


@pytest.mark.parametrize("commit", [True, False])
def test_a_start_does_not_believe_a_damaged_marker(home: Home, commit: bool) -> None:
    """The flipped bit makes an abort of a commit, or the other way round, below the recovery point."""
    log = home.open()
    end = append(log, sent(), marker(commit=commit)).last_offset + 1
    close_log(log)
    for snapshot in home.directory.glob("*.snapshot"):
        snapshot.unlink()
    (path,) = home.directory.glob("*.log")
    stored, kinds = path.read_bytes(), [ControlType.ABORT, ControlType.COMMIT]
    # Between the lengths of the key and of the value, 4 and 6 bytes.
    key, flipped = (b"\x08" + control_key(kind) + b"\x0c" for kind in (kinds[::-1] if commit else kinds))
    assert stored.count(key) == 1
    path.write_bytes(stored.replace(key, flipped))
    log = home.open(clean=True, recovery_point=end)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 0, "its transaction stays open"
    assert any("the marker at offset 1 cannot be read: its CRC" in note for note in home.notes)
    # The entry of an abort was flushed before the damage.
    assert len(aborted_transactions(log, 0, 99)) == (not commit)


def test_a_marker_that_a_power_loss_took_leaves_no_entry(home: Home) -> None:
    """The index was written back before the log; the transaction is committed afterwards, at the same offset."""
    log = home.open()
    append(log, sent(), marker())
    close_log(log)
    for snapshot in home.directory.glob("*.snapshot"):
        snapshot.unlink()
    (path,) = home.directory.glob("*.log")
    os.truncate(path, path.stat().st_size - len(marker()))
    log = home.open(recovery_point=0)
    assert log.log_end_offset == 1
    append(log, marker(commit=True))
    assert aborted_transactions(log, 0, 99) == []


def test_an_entry_of_a_lost_marker_is_noticed(home: Home) -> None:
    (bug,) = IN_POWER_LOSSES
    with bug.planted(), pytest.raises(AssertionError):
        test_a_marker_that_a_power_loss_took_leaves_no_entry(home)


def test_old_verifications_are_removed(home: Home) -> None:
    producers = home.open().producers
    verification = producers.begin_verification(5, 0)
    for _ in range(2):
        assert producers.is_verified(5, 0, verification)
        producers.expire(0, 1000)
    assert not producers.is_verified(5, 0, verification)


def test_a_late_batch_that_opens_a_transaction_is_noticed(home: Home) -> None:
    with transaction_bug("late batch opens a transaction").planted(), pytest.raises(AssertionError):
        test_a_marker_makes_what_was_verified_before_it_worthless(home, True)
