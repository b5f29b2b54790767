"""The end of a mirror over a real log: open transactions are aborted, producers forgotten, and that once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.ports import Disk
from odradek.common.real_io import RealDisk
from odradek.log.checkpoints import LEADER_EPOCHS, read_lines
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.log import Log
from odradek.log.opening import close_log, open_log
from odradek.log.retention import delete_old_segments, delete_records
from odradek.log.search import aborted_transactions
from odradek.log.truncation import truncate_to
from odradek.metadata.model import PartitionImage
from odradek.record.batch import BatchHeader, patch_base_offset, patch_leader_epoch
from odradek.record.control import ControlType, control_type, transaction_marker
from odradek.record.reader import read_records
from odradek.replica.leadership import apply_image
from odradek.replica.partition import Partition
from odradek.replica.promotion import end_mirror, has_ended
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.models.batches import NOW_MS, batch, header_of

ME, OTHER = 1, 2
FIRST_OWN = 9


class Home:
    """A mirror on broker 1 that may be opened again."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.path = directory / "t-0"
        self.disk = disk or RealDisk(workers=1)
        self.disk.make_dirs(self.path)
        self.partition_epoch = 0
        self.open()

    def open(self, *, clean: bool = False, recovery_point: int = 0) -> None:
        self.files = FileCache(self.disk)
        self.log = open_log(
            self.files, self.path, ("t", 0), LogConfig(),
            now_ms=NOW_MS, clean_shutdown=clean, recovery_point=recovery_point,
        )  # fmt: skip
        self.partition = Partition("t", 0, UUID(int=5), self.log, broker_id=ME)
        self.partition.is_mirror = True

    def reopen(self, *, clean: bool = False) -> None:
        close_log(self.log)
        self.open(clean=clean, recovery_point=self.log.recovery_point if clean else 0)

    def lead(self, leader_epoch: int, *, isr: tuple[int, ...] = (ME,)) -> None:
        image = PartitionImage((ME, OTHER), isr, ME, leader_epoch, self.partition_epoch)
        self.partition_epoch += 1
        apply_image(self.partition, image)

    def follow(self, leader_epoch: int) -> None:
        apply_image(self.partition, PartitionImage((ME, OTHER), (OTHER,), OTHER, leader_epoch, self.partition_epoch))
        self.partition_epoch += 1

    def empty(self) -> None:
        """Delete all records, and the files that have them."""
        delete_records(self.log, self.log.log_end_offset)
        delete_old_segments(self.log, NOW_MS)

    def mirrored(self, data: bytes, leader_epoch: int = 4) -> None:
        mutable = bytearray(data)
        patch_base_offset(mutable, self.log.log_end_offset)
        patch_leader_epoch(mutable, leader_epoch)
        self.partition.append_mirrored(mutable, now_ms=NOW_MS)

    def promote(self, leader_epoch: int = FIRST_OWN) -> None:
        self.partition.first_own_epoch = FIRST_OWN
        self.partition.is_mirror = True
        self.lead(leader_epoch)
        end_mirror(self.partition, NOW_MS)

    def produce(self, producer_id: int, sequence: int, *values: bytes, producer_epoch: int = 0) -> int:
        """The offset that it got."""
        data = batch(*values, producer_id=producer_id, producer_epoch=producer_epoch, sequence=sequence)
        return self.partition.append_as_leader([data], [header_of(data)], required_acks=1, now_ms=NOW_MS).base_offset


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home(tmp_path)
    found.lead(7)
    yield found
    close_log(found.log)


def of_source(producer_id: int, *, sequence: int = 0, epoch: int = 3, transactional: bool = True) -> bytes:
    return batch(
        b"a", b"b", producer_id=producer_id, producer_epoch=epoch, sequence=sequence, transactional=transactional
    )


def controls(log: Log) -> list[tuple[int, int, ControlType | None]]:
    """(offset, producer, type) of each control batch."""
    found = []
    for segment in log.segments:
        for position, header in segment.headers(0):
            if header.is_control:
                record = read_records(segment.batch_bytes(position, header), header)[0]
                found.append((header.base_offset, header.producer_id, control_type(record)))
    return found


def test_open_transactions_are_aborted_and_producers_removed(home: Home) -> None:
    home.mirrored(of_source(1))
    home.mirrored(of_source(2))
    home.mirrored(of_source(3, transactional=False))
    assert home.log.last_stable_offset == 0
    home.promote()
    expected = [(6, 1, ControlType.ABORT), (7, 2, ControlType.ABORT), (8, -1, ControlType.LEADER_CHANGE)]
    assert controls(home.log) == expected
    assert home.log.last_stable_offset == home.log.high_watermark == 9
    assert [(each.producer_id, each.first_offset) for each in aborted_transactions(home.log, 0, 9)] == [(1, 0), (2, 2)]
    assert not home.log.producers.producers
    assert not home.partition.is_mirror


@pytest.mark.parametrize("reopens", [False, True])
def test_ids_that_this_cluster_assigns_again_are_other_producers(home: Home, *, reopens: bool) -> None:
    home.mirrored(of_source(1, transactional=False))
    home.promote()
    if reopens:
        home.reopen()
        home.promote(FIRST_OWN + 1)
    # The same id, epoch and sequence as the source's were no second try of its batch; an older epoch is none either.
    assert home.produce(1, 0, b"a", b"b", producer_epoch=3) == 3
    assert home.produce(5, 0, b"c") == 5
    home.reopen()
    home.promote(FIRST_OWN + 2)
    assert home.produce(1, 0, b"a", b"b", producer_epoch=3) == 3, "what is sent again is known after a restart"
    assert len(controls(home.log)) == 1


def test_windows_of_producers_do_not_reach_over_the_end_of_the_mirror(home: Home) -> None:
    home.mirrored(of_source(1, epoch=0, sequence=2, transactional=False))
    home.promote()
    home.produce(1, 4, b"c")
    home.reopen()
    (only,) = home.log.producers.producers[1].batches
    assert only.first_sequence == 4


def test_a_leader_that_died_before_all_markers_leaves_the_rest_to_the_next(home: Home) -> None:
    home.mirrored(of_source(1))
    home.mirrored(of_source(2))
    home.partition.first_own_epoch = FIRST_OWN
    home.lead(FIRST_OWN)
    marker = transaction_marker(commit=False, producer_id=1, producer_epoch=3, coordinator_epoch=0, timestamp_ms=NOW_MS)
    home.partition.append_control(marker, now_ms=NOW_MS)
    home.reopen()
    assert not has_ended(home.log, FIRST_OWN)
    home.promote(FIRST_OWN + 1)
    expected = [(4, 1, ControlType.ABORT), (5, 2, ControlType.ABORT), (6, -1, ControlType.LEADER_CHANGE)]
    assert controls(home.log) == expected
    home.reopen()
    home.promote(FIRST_OWN + 2)
    assert controls(home.log) == expected, "it ends once"


def test_an_end_that_was_cut_off_again_is_written_again(home: Home) -> None:
    home.mirrored(of_source(1))
    home.promote()
    truncate_to(home.log, 2)
    assert not has_ended(home.log, FIRST_OWN)
    home.promote(FIRST_OWN + 3)
    assert controls(home.log) == [(2, 1, ControlType.ABORT), (3, -1, ControlType.LEADER_CHANGE)]


def test_transactions_of_this_cluster_are_no_sources(home: Home) -> None:
    home.mirrored(of_source(1))
    home.promote()
    own = batch(b"x", producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    home.partition.append_as_leader([own], [header_of(own)], required_acks=1, now_ms=NOW_MS)
    home.promote(FIRST_OWN + 1)
    assert len(controls(home.log)) == 2
    assert home.log.producers.has_open_transaction(1, 0)


def test_an_end_that_retention_took_is_not_written_again(home: Home) -> None:
    home.mirrored(of_source(1))
    home.promote()
    home.produce(1, 0, b"x", b"y")
    delete_records(home.log, 5)
    home.promote(FIRST_OWN + 1)
    assert home.log.log_end_offset == 6
    assert home.produce(1, 0, b"x", b"y") == 4


@pytest.mark.parametrize("reopens", [0, 1, 2])
def test_an_end_is_not_written_again_where_nothing_is_left(home: Home, *, reopens: int) -> None:
    home.mirrored(of_source(1))
    home.promote()
    home.produce(1, 0, b"x", b"y")
    home.empty()
    for _ in range(reopens):
        home.reopen(clean=True)
    home.promote(FIRST_OWN + 1)
    assert home.log.log_start_offset == home.log.log_end_offset == 6
    assert home.produce(1, 0, b"x", b"y") == 4, "it is known for a second try"


def test_the_end_of_a_mirror_of_one_record_is_not_written_again(home: Home) -> None:
    home.mirrored(batch(b"a"))
    home.promote()
    assert controls(home.log) == [(1, -1, ControlType.LEADER_CHANGE)]
    home.empty()
    home.promote(FIRST_OWN + 1)
    assert home.log.log_start_offset == home.log.log_end_offset == 2


@pytest.mark.parametrize("commit", [False, True])
def test_an_end_is_not_written_again_where_markers_are_left(home: Home, *, commit: bool) -> None:
    home.mirrored(of_source(1))
    home.promote()
    own = batch(b"x", producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    home.partition.append_as_leader([own], [header_of(own)], required_acks=1, now_ms=NOW_MS)
    home.partition.append_control(
        transaction_marker(commit=commit, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS),
        now_ms=NOW_MS,
    )
    delete_records(home.log, 5)
    home.promote(FIRST_OWN + 1)
    assert home.log.log_end_offset == 6
    assert 1 in home.log.producers.producers


def test_markers_over_a_source_without_records_are_no_end(home: Home) -> None:
    home.mirrored(of_source(1))
    home.mirrored(of_source(2))
    home.empty()
    home.partition.first_own_epoch = FIRST_OWN
    home.lead(FIRST_OWN)
    marker = transaction_marker(commit=False, producer_id=1, producer_epoch=3, coordinator_epoch=0, timestamp_ms=NOW_MS)
    home.partition.append_control(marker, now_ms=NOW_MS)
    home.promote(FIRST_OWN + 1)
    expected = [(4, 1, ControlType.ABORT), (5, 2, ControlType.ABORT), (6, -1, ControlType.LEADER_CHANGE)]
    assert controls(home.log) == expected


def test_a_disk_that_had_no_space_for_the_end_is_tried_again(tmp_path: Path) -> None:
    disk = SimDisk(Random(1), DiskFaults(), lambda: 0)
    disk.make_dirs(tmp_path / "t-0")
    home = Home(tmp_path, disk)
    home.lead(7)
    home.mirrored(of_source(1, transactional=False))
    home.empty()
    disk.faults = DiskFaults(capacity_bytes=disk.used_bytes())
    with pytest.raises(ApiError) as caught:
        home.promote()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert home.partition.is_mirror
    disk.faults = DiskFaults()
    home.promote(FIRST_OWN + 1)
    assert controls(home.log) == [(2, -1, ControlType.LEADER_CHANGE)]


def test_an_epoch_whose_batch_found_no_space_is_not_kept(tmp_path: Path) -> None:
    """Behind a truncation the epoch is in the checkpoint before its batch, for which there is no space."""
    disk = SimDisk(Random(1), DiskFaults(), lambda: 0)
    disk.make_dirs(tmp_path / "t-0")
    home = Home(tmp_path, disk)
    home.lead(7)
    for _ in range(2):
        home.mirrored(of_source(1, transactional=False))
    truncate_to(home.log, 2)
    disk.faults = DiskFaults(capacity_bytes=disk.used_bytes() + 60)
    with pytest.raises(ApiError):
        home.promote()
    assert read_lines(disk, home.path / LEADER_EPOCHS) == ["4 0", f"{FIRST_OWN} 2"]
    assert home.log.epochs.entries() == [(4, 0)]
    assert not home.log.flush_state.epochs_are_written


def test_a_disk_that_cannot_be_read_does_not_say_whether_it_has_ended(tmp_path: Path) -> None:
    disk = SimDisk(Random(1), DiskFaults(), lambda: 0)
    disk.make_dirs(tmp_path / "t-0")
    home = Home(tmp_path, disk)
    home.lead(7)
    home.mirrored(of_source(1, transactional=False))
    home.promote()
    disk.faults = DiskFaults(read_error=1.0)
    with pytest.raises(StorageError, match="simulated read error") as caught:
        has_ended(home.log, FIRST_OWN)
    assert caught.value.log_dir == tmp_path


def test_a_leader_that_was_cut_while_it_followed_ends_it_again(home: Home) -> None:
    home.mirrored(of_source(1))
    home.promote()
    home.lead(FIRST_OWN + 1)
    end_mirror(home.partition, NOW_MS)
    home.follow(FIRST_OWN + 2)
    truncate_to(home.log, 2)
    delete_records(home.log, 2)
    home.lead(FIRST_OWN + 3)
    end_mirror(home.partition, NOW_MS)
    assert controls(home.log) == [(2, 1, ControlType.ABORT), (3, -1, ControlType.LEADER_CHANGE)]


def test_each_leadership_of_what_was_a_mirror_notes_its_epoch(home: Home) -> None:
    home.mirrored(of_source(1, transactional=False))
    home.promote()
    home.reopen()
    home.promote(FIRST_OWN + 1)
    assert home.log.epochs.entries() == [(4, 0), (FIRST_OWN, 2), (FIRST_OWN + 1, 3)]


def test_an_empty_mirror_ends_too(home: Home) -> None:
    home.promote()
    assert controls(home.log) == [(0, -1, ControlType.LEADER_CHANGE)]
    home.promote(FIRST_OWN + 1)
    assert len(controls(home.log)) == 1


def test_the_next_write_ends_a_mirror_that_could_not_end(home: Home) -> None:
    home.mirrored(of_source(1))
    home.partition.first_own_epoch = FIRST_OWN
    with pytest.raises(ApiError) as caught:
        home.produce(1, 0, b"x")
    assert caught.value.code is ErrorCode.INVALID_REQUEST, "it leads in an epoch of the mirror's"
    home.lead(FIRST_OWN)
    assert home.produce(1, 0, b"x") == 4
    assert not home.partition.is_mirror


def test_a_follower_takes_the_end_as_it_comes(home: Home, tmp_path: Path) -> None:
    home.mirrored(of_source(1))
    home.promote()
    (tmp_path / "other").mkdir()
    follower = Home(tmp_path / "other")
    follower.lead(FIRST_OWN)
    for segment in home.log.segments:
        for position, header in segment.headers(0):
            follower.partition.append_mirrored(segment.batch_bytes(position, header), now_ms=NOW_MS)
    assert not follower.log.producers.producers
    assert follower.log.epochs.entries() == home.log.epochs.entries()
    close_log(follower.log)


def test_the_end_is_one_batch_of_no_producer(home: Home) -> None:
    home.promote()
    (segment,) = home.log.segments
    ((position, _),) = segment.headers(0)
    header = BatchHeader.read(segment.batch_bytes(position, next(segment.headers(0))[1]))
    assert header.is_control
    assert not header.has_producer_id
    assert header.partition_leader_epoch == FIRST_OWN


def test_a_mirror_that_knows_no_epoch_yet_is_followed_from_its_end(home: Home) -> None:
    """Its leader notes no epoch of its own, and the follower has read one at the source's leader before."""
    assert home.log.epochs.entries() == []
    assert home.partition.diverges(0, 4) is None
    for is_mirror, offset in ((True, 1), (False, 0)):
        home.partition.is_mirror = is_mirror
        with pytest.raises(ApiError) as caught:
            home.partition.diverges(offset, 4)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_transactions_of_a_failback_that_is_given_up_stay_open(home: Home) -> None:
    """They are this cluster's own: its coordinators may have committed them already."""
    home.mirrored(of_source(1), leader_epoch=4)
    home.mirrored(of_source(2), leader_epoch=6)
    home.partition.own_from = 6
    home.promote()
    assert controls(home.log) == [(4, 1, ControlType.ABORT), (5, -1, ControlType.LEADER_CHANGE)]
    assert [each.producer_id for each in home.log.producers.open_transactions()] == [2]
    marker = transaction_marker(commit=True, producer_id=2, producer_epoch=3, coordinator_epoch=0, timestamp_ms=NOW_MS)
    home.partition.append_as_leader([marker], [header_of(marker)], required_acks=1, now_ms=NOW_MS)
    assert home.log.last_stable_offset == home.log.log_end_offset == 7
    assert [each.producer_id for each in aborted_transactions(home.log, 0, 7)] == [1]
    home.lead(FIRST_OWN + 1)
    end_mirror(home.partition, NOW_MS)
    assert home.log.log_end_offset == 7, "the next leader finds that it has ended"
