"""A batch whose frame is lost inside a segment hides nothing of what is whole behind it, from a start or a cut."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.log import holes
from odradek.log.holes import Hole
from odradek.log.log import Log
from odradek.log.opening import close_log
from odradek.log.producer_state import ProducerState
from odradek.log.repair import find_hole, finish_repair
from odradek.log.rolling import roll
from odradek.log.search import aborted_transactions, search_timestamp
from odradek.log.segment import Segment
from odradek.log.segment_file import MAX_RELATIVE_OFFSET
from odradek.log.segment_holes import headers_from
from odradek.log.transactions import rebuild_transactions
from odradek.log.truncation import truncate_fully_and_start_at, truncate_to
from odradek.record.batch import HEADER_BYTES, BatchHeader, patch_base_offset
from tests.support.models.batches import NOW_MS, batch
from tests.unit.log.test_log import Home, append, values
from tests.unit.log.test_log_transactions import marker, sent

COUNT, LOST = 20, 6
INTERVALS = pytest.mark.parametrize("interval", [100, 4096], ids=["index entries behind it", "none"])
# The damages of a batch header: zeros, a wrong length, another format.
HARMS: dict[str, Callable[[bytearray, int], None]] = {}


def harm(change: Callable[[bytearray, int], None]) -> Callable[[bytearray, int], None]:
    HARMS[change.__name__] = change
    return change


@harm
def zeros(data: bytearray, position: int) -> None:
    data[position : position + HEADER_BYTES] = bytes(HEADER_BYTES)


@harm
def a_length_too_large(data: bytearray, position: int) -> None:
    data[position + 10] ^= 0x01


@harm
def another_format(data: bytearray, position: int) -> None:
    data[position + 16] = 9


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def record(number: int) -> bytes:
    """A record of one of two alternating producers, a second after the one before."""
    value, time = b"%05d" % number + bytes(95), NOW_MS + 1000 * number
    return batch(value, producer_id=7 + number % 2, sequence=number // 2, timestamp_ms=time)


def filled(home: Home, interval: int, count: int = COUNT) -> Log:
    """Two batches in each leader epoch."""
    log = home.open(index_interval_bytes=interval)
    for number in range(count):
        append(log, record(number), epoch=number // 2)
    return log


def damage(home: Home, offset: int, change: Callable[[bytearray, int], None] = zeros) -> bytes:
    """Harm one batch of the only segment; returns what the file was."""
    (path,) = home.directory.glob("*.log")
    whole = path.read_bytes()
    data = bytearray(whole)
    change(data, offset * len(record(0)))
    path.write_bytes(data)
    return whole


def stop_and_damage(home: Home, log: Log, *lost: int, change: Callable[[bytearray, int], None] = zeros) -> None:
    close_log(log)
    for offset in lost:
        damage(home, offset, change)


def remove_files(home: Home, pattern: str) -> None:
    for path in home.directory.glob(pattern):
        path.unlink()


def sequences(log: Log) -> dict[int, int]:
    return {producer_id: entry.last_sequence for producer_id, entry in log.producers.producers.items()}


def windows(log: Log) -> list[list[int]]:
    return [[each.last_sequence for each in entry.batches] for entry in log.producers.producers.values()]


def stop_with_two_segments(home: Home, *lost: int) -> None:
    """Stop a log with two segments of ten batches each, and overwrite the lost ones with zeros."""
    log = home.open()
    for number in range(COUNT):
        if number == 10:
            roll(log, NOW_MS)
        append(log, record(number))
    close_log(log)
    for offset in lost:
        path = home.directory / f"{offset // 10 * 10:020}.log"
        data = bytearray(path.read_bytes())
        zeros(data, offset % 10 * len(record(0)))
        path.write_bytes(data)


@pytest.mark.parametrize("lost", [(LOST,), (12,), (LOST, 12)])
def test_producers_are_missed_from_the_first_hole_on(home: Home, lost: tuple[int, ...]) -> None:
    stop_with_two_segments(home, *lost)
    remove_files(home, "*.snapshot")
    log = home.open(clean=True)
    assert log.producers.unreplayed_from == lost[0]
    assert len([note for note in home.notes if "no whole batch at byte" in note]) == len(lost)


@pytest.mark.parametrize(("recovery_point", "end"), [(9, LOST), (10, COUNT), (11, COUNT)])
def test_a_start_verifies_segments_that_reach_beyond_the_recovery_point(
    home: Home, recovery_point: int, end: int
) -> None:
    """Damage below the recovery point truncates nothing: the batches can be fetched from another replica."""
    stop_with_two_segments(home, LOST)
    assert home.open(recovery_point=recovery_point).log_end_offset == end


@INTERVALS
@pytest.mark.parametrize("change", HARMS.values(), ids=HARMS)
class TestProducers:
    def test_a_start_knows_all_behind_a_hole(
        self, home: Home, interval: int, change: Callable[[bytearray, int], None]
    ) -> None:
        stop_and_damage(home, filled(home, interval), LOST, change=change)
        remove_files(home, "*.snapshot")
        log = home.open(clean=True, index_interval_bytes=interval)
        assert (log.log_end_offset, sequences(log)) == (COUNT, {7: 9, 8: 9})
        assert windows(log) == [[5, 6, 7, 8, 9]] * 2
        assert any("no whole batch at byte" in note for note in home.notes)

    @pytest.mark.parametrize("cut_to", [7, 8, 16])
    def test_a_cut_leaves_what_is_before_it(
        self, home: Home, interval: int, change: Callable[[bytearray, int], None], cut_to: int,
        caplog: pytest.LogCaptureFixture,
    ) -> None:  # fmt: skip
        stop_and_damage(home, filled(home, interval), LOST, change=change)
        log = home.open(clean=True, index_interval_bytes=interval)
        with caplog.at_level(logging.WARNING):
            truncate_to(log, cut_to)
        assert log.log_end_offset == cut_to
        assert log.segments.active.size_bytes == cut_to * len(record(0)), "nothing comes back behind what follows"
        is_lost = cut_to <= LOST + 2  # the last batch of its producer, and no one remembers it
        assert sequences(log) == {7: (cut_to - 1) // 2 - is_lost, 8: cut_to // 2 - 1}
        assert [entry.getMessage() for entry in caplog.records].count("log recovery") == 1
        truncate_fully_and_start_at(log, 99)
        assert sequences(log) == {}


@INTERVALS
def test_a_window_is_filled_across_a_hole(home: Home, interval: int) -> None:
    """The snapshot has each producer's last batch alone."""
    stop_and_damage(home, filled(home, interval), COUNT - 5)
    log = home.open(clean=True, index_interval_bytes=interval)
    assert windows(log) == [[5, 6, 7, 8, 9], [8, 9]]


@INTERVALS
def test_a_clean_start_ends_where_the_log_did(home: Home, interval: int) -> None:
    stop_and_damage(home, filled(home, interval), LOST, LOST + 3)
    log = home.open(clean=True, index_interval_bytes=interval, recovery_point=COUNT)
    assert log.log_end_offset == COUNT and log.segments.active.size_bytes == COUNT * len(record(0))
    assert append(log, record(COUNT), epoch=COUNT).base_offset == COUNT


@INTERVALS
def test_epochs_behind_a_hole_are_known(home: Home, interval: int) -> None:
    stop_and_damage(home, filled(home, interval), LOST)
    remove_files(home, "leader-epoch-checkpoint")
    log = home.open(clean=True, index_interval_bytes=interval)
    # The first of the two batches of an epoch is lost.
    assert log.epochs.entries() == [(each, each * 2 + (each * 2 == LOST)) for each in range(COUNT // 2)]


@INTERVALS
def test_indexes_that_are_made_again_reach_behind_a_hole(home: Home, interval: int) -> None:
    stop_and_damage(home, filled(home, interval, 200), LOST)
    remove_files(home, "*index")
    log = home.open(clean=True, index_interval_bytes=interval)
    assert values(log.read(190, max_bytes=1))[0] == b"00190" + bytes(95)
    found = search_timestamp(log, None).run()
    assert found is not None and found.offset == 199


def test_an_index_stays_where_damage_is_at_its_entry(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_and_damage(home, filled(home, 100), LOST)
    log = home.open(clean=True, index_interval_bytes=100)
    monkeypatch.setattr(log.segments.active.indexes, "rebuild", None)
    assert log.segments.active.locate(LOST) is None
    assert log.segments.active.scan_end == LOST * len(record(0))


def test_the_newest_time_is_found_behind_a_hole(home: Home) -> None:
    stop_and_damage(home, filled(home, 4096), COUNT - 2)
    log = home.open(clean=True)
    log.segments.active.indexes.load()
    assert log.segments.active.indexes.max_timestamp_ms == NOW_MS + 1000 * (COUNT - 1)
    truncate_to(log, COUNT - 1)
    assert log.segments.active.indexes.max_timestamp_ms == NOW_MS + 1000 * (COUNT - 3), "of what is left and whole"


def test_a_cut_that_a_hole_may_hide_comes_before_the_hole(home: Home) -> None:
    """It is unknown which batch of the hole had the offset, so the log is truncated to the start of the hole."""
    stop_and_damage(home, filled(home, 4096), LOST, LOST + 1, LOST + 2)
    log = home.open(clean=True)
    truncate_to(log, LOST + 1)
    assert log.log_end_offset == LOST
    assert log.segments.active.size_bytes == LOST * len(record(0))
    assert append(log, record(LOST), epoch=99).base_offset == LOST
    assert sequences(log)[7] == LOST // 2


def test_a_cut_inside_a_hole_at_the_end_comes_before_it(home: Home) -> None:
    log = filled(home, 4096)
    for offset in (COUNT - 2, COUNT - 1):
        damage(home, offset)
    truncate_to(log, COUNT - 1)
    assert log.log_end_offset == COUNT - 2
    assert log.segments.active.size_bytes == (COUNT - 2) * len(record(0))


@INTERVALS
@pytest.mark.parametrize("copies", [1, 3])
def test_a_batch_inside_a_value_is_not_taken_for_one_of_the_log(home: Home, interval: int, copies: int) -> None:
    log = home.open(index_interval_bytes=interval)
    inner = [bytearray(batch(b"x" * 200, producer_id=666, sequence=0)) for _ in range(copies)]
    for number, each in enumerate(inner):
        patch_base_offset(each, LOST + 1 + number)
    size = len(record(0))
    for number in range(COUNT):
        if number == LOST:
            append(log, batch(b"".join(inner), producer_id=1, sequence=0))
        append(log, record(number))
    close_log(log)
    remove_files(home, "*.snapshot")
    (path,) = home.directory.glob("*.log")
    data = bytearray(path.read_bytes())
    zeros(data, LOST * size)
    path.write_bytes(data)
    log = home.open(clean=True, index_interval_bytes=interval)
    assert sequences(log) == {7: 9, 8: 9}


def test_a_flipped_bit_behind_a_hole_does_not_hide_what_is_between(home: Home) -> None:
    log = filled(home, 4096)
    close_log(log)
    remove_files(home, "*.snapshot")
    damage(home, LOST)

    def flipped(data: bytearray, position: int) -> None:
        data[position + HEADER_BYTES + 9] ^= 1

    damage(home, COUNT - 1, flipped)
    log = home.open(clean=True)
    assert [header.base_offset for _, header in headers_from(log.segments.active, 0)] == [
        offset for offset in range(COUNT) if offset != LOST
    ]


def test_batches_behind_a_hole_have_rising_offsets(home: Home) -> None:
    """A batch that stands there once more is not one that follows."""
    log, size = filled(home, 4096), len(record(0))
    (path,) = home.directory.glob("*.log")
    data = bytearray(path.read_bytes())
    data[(LOST + 2) * size : (LOST + 3) * size] = data[(LOST + 1) * size : (LOST + 2) * size]
    zeros(data, LOST * size)
    path.write_bytes(data)
    positions = [position // size for position, _ in headers_from(log.segments.active, 0)]
    assert positions == [each for each in range(COUNT) if each not in (LOST, LOST + 1)]


def test_the_byte_before_the_version_may_look_like_it(home: Home) -> None:
    """The leader epoch 2 ends with it."""
    log = filled(home, 4096)
    damage(home, 3)
    assert len(list(headers_from(log.segments.active, 0))) == COUNT - 1


def test_an_index_that_ended_at_damage_is_made_again_behind_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(home, 100)
    indexes = log.segments.active.indexes
    known, position = len(indexes.offsets), indexes.offsets.last_position()
    indexes.offsets.truncate(LOST, 1 << 30)
    indexes.rebuild_from(LOST * len(record(0)), 100)
    assert len(indexes.offsets) == known
    monkeypatch.setattr(indexes, "rebuild", None)
    indexes.rebuild_from(LOST * len(record(0)), 100)  # it reaches beyond the repair
    indexes.rebuild_from(position, 1 << 20)  # no entry is due


def test_producers_before_a_hole_are_kept() -> None:
    known, read = ProducerState(), ProducerState()

    def seen(state: ProducerState, producer_id: int, sequence: int, offset: int, *, epoch: int = 0) -> None:
        data = bytearray(batch(b"v", producer_id=producer_id, producer_epoch=epoch, sequence=sequence))
        patch_base_offset(data, offset)
        state.update(BatchHeader.read(data))

    for producer_id in range(1, 5):
        for number in range(3):
            seen(known, producer_id, number, 10 * number + producer_id)
        if producer_id > 1:
            seen(read, producer_id, 0, producer_id)
    seen(read, 3, 1, 13)  # as far as it is wanted
    seen(read, 4, 0, 15, epoch=1)  # further
    seen(known, 5, 0, 9, epoch=1)
    seen(read, 5, 7, 8)
    seen(known, 6, 0, 20)  # not below the end
    read.restore_known_batches(known, 20)
    found = {
        key: (each.producer_epoch, [(one.last_sequence, one.last_offset) for one in each.batches])
        for key, each in read.producers.items()
    }
    assert found == {
        1: (0, [(0, 1), (1, 11)]),
        2: (0, [(0, 2), (1, 12)]),
        3: (0, [(0, 3), (1, 13)]),
        4: (1, [(0, 15)]),
        5: (1, [(0, 9)]),
    }


@pytest.mark.parametrize("offset", [LOST - 1, LOST, LOST + 1, COUNT - 1])
def test_a_walk_from_an_offset_begins_with_its_batch(home: Home, offset: int) -> None:
    stop_and_damage(home, filled(home, 4096), LOST, change=a_length_too_large)
    segment = home.open(clean=True).segments.active
    passed: list[Hole] = []
    found = [header.base_offset for _, header in headers_from(segment, offset, passed.append)]
    assert [each for each in found if each != LOST] == [each for each in range(offset, COUNT) if each != LOST]
    size = len(record(0))
    if offset in (LOST - 1, LOST + 1):
        assert passed == [Hole(LOST * size, LOST, (LOST + 1) * size)]


def test_a_batch_one_byte_behind_its_place_is_found(home: Home) -> None:
    close_log(filled(home, 4096))
    position = LOST * len(record(0))
    (path,) = home.directory.glob("*.log")
    path.write_bytes(path.read_bytes()[:position] + b"\0" + path.read_bytes()[position:])
    segment = home.open(clean=True).segments.active
    passed: list[Hole] = []
    found = [header.base_offset for _, header in headers_from(segment, LOST, passed.append)]
    assert found == list(range(LOST, COUNT))
    assert passed == [Hole(position, LOST, position + 1)]


def test_aborted_transactions_behind_a_hole_are_found_again(home: Home) -> None:
    log = home.open()
    append(log, record(0), record(1), sent(), marker(), sent(1), marker())
    damage(home, 1)
    rebuild_transactions(log.segments)
    assert [entry[:3] for entry in aborted_transactions(log, 0, 99)] == [(5, 2, 3), (5, 4, 5)]


def test_a_search_has_a_limit(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives up where too much looked like a batch and was none."""
    log = filled(home, 4096)
    damage(home, LOST)

    def flipped(data: bytearray, position: int) -> None:
        data[position + HEADER_BYTES + 9] ^= 1

    for offset in range(LOST + 1, COUNT - 1):
        damage(home, offset, flipped)
    size = len(record(0))
    segment = log.segments.active
    for limit, count in ((3 * size, LOST), (COUNT * size, LOST + 1)):
        monkeypatch.setattr(holes, "SEARCH_BYTES", limit)
        assert len(list(headers_from(segment, 0))) == count


@pytest.mark.parametrize("windows_bytes", [HEADER_BYTES, 100, 1 << 16])
def test_windows_leave_nothing_out(home: Home, monkeypatch: pytest.MonkeyPatch, windows_bytes: int) -> None:
    monkeypatch.setattr(holes, "WINDOW_BYTES", windows_bytes)
    stop_and_damage(home, filled(home, 4096), LOST, LOST + 1)
    segment = home.open(clean=True).segments.active
    assert len(list(headers_from(segment, 0))) == COUNT - 2


def test_a_long_enough_run_of_batches_need_not_reach_the_end(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(home, 4096)
    for offset in (LOST, LOST + 4):
        damage(home, offset)
    for chain, known in ((4 * len(record(0)), COUNT - 5), (3 * len(record(0)), COUNT - 2)):
        monkeypatch.setattr(holes, "CHAIN_BYTES", chain)
        assert len(list(headers_from(log.segments.active, 0))) == known


@INTERVALS
@pytest.mark.parametrize("rolled", [True, False])
def test_a_repair_gives_back_the_producer_of_the_lost_batch(home: Home, interval: int, rolled: bool) -> None:
    """The snapshots that were written without it are made again, too."""
    log = filled(home, interval)
    extra = batch(b"once" * 24, producer_id=9, sequence=0)
    append(log, extra, epoch=COUNT)
    append(log, record(COUNT), epoch=COUNT)
    close_log(log)
    remove_files(home, "*.snapshot")
    whole = damage(home, COUNT)
    log = home.open(clean=True, index_interval_bytes=interval, segment_bytes=len(whole) + 1 if rolled else 1 << 30)
    if rolled:
        append(log, record(COUNT + 1), epoch=COUNT)
        assert len(log.segments) == 2
    asked = log.producers.begin_verification(7, 0)
    assert 9 not in log.producers.producers
    segment: Segment = log.segments[0]
    hole = find_hole(log, segment, COUNT * len(record(0)))
    assert hole is not None
    segment.path.write_bytes(whole)
    finish_repair(log, hole)
    assert log.producers.producers[9].last_sequence == 0
    assert log.producers.is_verified(7, 0, asked), "what is under way goes on"
    assert sequences(log) == {7: COUNT // 2, 8: COUNT // 2 - 1 + rolled, 9: 0}
    assert log.producers.unreplayed_from is None
    present = log.producers
    finish_repair(log, hole)
    assert log.producers is present, "nothing is missed any more"
    close_log(log)
    again = home.open(clean=True, index_interval_bytes=interval)
    assert sequences(again) == sequences(log)


@pytest.mark.parametrize(("more", "is_found"), [(0, True), (1, False)])
def test_behind_a_hole_is_no_batch_that_an_index_cannot_count(home: Home, more: int, is_found: bool) -> None:
    log = filled(home, 4096, 3)
    (segment,) = log.segments
    size = segment.size_bytes // 3
    data = bytearray(segment.path.read_bytes())
    zeros(data, size)
    last = bytearray(data[2 * size :])
    patch_base_offset(last, segment.base_offset + MAX_RELATIVE_OFFSET + more)
    segment.path.write_bytes(bytes(data[: 2 * size] + last))
    found = [header.base_offset for _, header in segment.indexes.surviving_headers(0)]
    assert found == [0, MAX_RELATIVE_OFFSET][: 1 + is_found]
