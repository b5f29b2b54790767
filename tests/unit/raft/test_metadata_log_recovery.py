"""A start recovers the metadata log from torn or damaged files and files with gaps; operations of the disk fail."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from odradek.common.errors import StorageError
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.record_types import encode_metadata_record
from odradek.raft.batches import data_batch, decode_batches
from odradek.raft.metadata_log import SYNCED_OFFSET, MetadataLog
from odradek.record.batch import seal
from tests.sim.disk import DiskFaults, SimDisk
from tests.unit.log.test_log_disk_errors import CHANGE, READ, FailingOnce

HOME = Path("/data/__cluster_metadata-0")
VALUE = encode_metadata_record(TopicRecord(name="orders"), 0)
LAST_OFFSET_DELTA = 23  # its position in a batch
SIZE = len(data_batch([VALUE], base_offset=0, leader_epoch=1, now_ms=0))


class Home:
    """Segments of the metadata log on a simulated disk, a record in each batch."""

    def __init__(self, *segments: int, synced: int | None = None) -> None:
        """Segments of so many batches, all durable; then the mark of what is durable is set back to `synced`."""
        self.disk = SimDisk(Random(1), DiskFaults(), lambda: 0)
        self.log = MetadataLog(self.disk, HOME)
        for number, count in enumerate(segments):
            if number:
                self.log.roll()
            self.append(count)
        self.log.flush()
        if synced is not None:
            self.log.mark_synced(synced)

    def append(self, count: int, epoch: int = 1) -> None:
        for _ in range(count):
            self.log.append([data_batch([VALUE], base_offset=self.log.log_end_offset, leader_epoch=epoch, now_ms=0)])

    def bytes_of(self, segment: int) -> bytearray:
        return self.disk.seen(HOME / f"{segment:020d}.log")

    def flip(self, segment: int, batch: int) -> None:
        self.bytes_of(segment)[batch * SIZE + SIZE - 2] ^= 1

    def start(self, covered: int = 0) -> MetadataLog:
        self.disk.process_died()
        self.log = MetadataLog(self.disk, HOME, covered_offset=covered)
        return self.log

    def segments(self) -> dict[int, int]:
        """Batches in the file of each segment."""
        names = [name for name in self.disk.list_dir(HOME) if name.endswith(".log")]
        return {int(name[:20]): self.disk.size(HOME / name) // SIZE for name in names}

    def refuses(self, says: str, covered: int = 0) -> None:
        before = self.disk.snapshot()
        with pytest.raises(StorageError, match=says):
            self.start(covered)
        assert self.disk.snapshot() == before, "nothing was changed"


def test_a_whole_log_is_read_and_made_durable() -> None:
    home = Home(2, 3)
    home.append(2, epoch=4)
    log = home.start()
    assert (log.log_start_offset, log.log_end_offset, log.last_epoch, log.cut_bytes) == (0, 7, 4, 0)
    assert [batch.base_offset for batch in log.batches(0)] == list(range(7))
    assert not {path for path in home.disk.uncertain() if path.suffix == ".log"}
    assert home.start().log_end_offset == 7


@pytest.mark.parametrize(("batch", "is_torn"), [(0, False), (1, False), (2, True), (3, True)])
def test_damage_is_torn_where_it_was_not_known_to_be_durable(batch: int, is_torn: bool) -> None:
    home = Home(4, synced=2)
    home.flip(0, batch)
    if not is_torn:
        home.refuses(f"at byte {batch * SIZE} .offset {batch}., where it was durable")
        return
    log = home.start()
    assert (log.log_end_offset, log.cut_bytes, home.segments()) == (batch, (4 - batch) * SIZE, {0: batch})
    assert home.start().cut_bytes == 0


def test_a_batch_that_ends_before_it_begins_is_damage() -> None:
    """Its checksum is right: a wrong writer's. The log would end at a negative offset."""
    batch = bytearray(data_batch([VALUE], base_offset=2, leader_epoch=1, now_ms=0))
    struct.pack_into(">i", batch, LAST_OFFSET_DELTA, -4)
    seal(batch)
    home = Home(4, synced=2)
    home.bytes_of(0)[2 * SIZE : 3 * SIZE] = batch
    assert home.start().log_end_offset == 2
    with pytest.raises(AssertionError, match="a batch of 2 ends at -2"):
        home.log.append([bytes(batch)])
    with pytest.raises(ValueError, match="byte 0: a batch at offset 2 ends at -2"):
        list(decode_batches(batch))


@pytest.mark.parametrize(("batch", "is_torn"), [(0, False), (2, False), (3, True)])
def test_without_the_mark_damage_is_torn_where_nothing_whole_is_behind(batch: int, is_torn: bool) -> None:
    home = Home(4)
    home.disk.remove(HOME / SYNCED_OFFSET)
    home.flip(0, batch)
    if is_torn:
        assert home.start().log_end_offset == batch
    else:
        home.refuses("so this is not a torn write")


@pytest.mark.parametrize("is_old", [False, True], ids=["damaged, too", "of an older offset"])
def test_batches_behind_damage_must_be_whole_and_later_to_count(is_old: bool) -> None:
    home = Home(4)
    home.disk.remove(HOME / SYNCED_OFFSET)
    home.flip(0, 2)
    if is_old:
        home.bytes_of(0)[3 * SIZE :] = home.bytes_of(0)[:SIZE]
    else:
        home.flip(0, 3)
    assert home.start().log_end_offset == 2


def test_without_the_mark_only_the_last_segment_may_be_torn() -> None:
    home = Home(2, 2)
    home.disk.remove(HOME / SYNCED_OFFSET)
    home.flip(0, 1)
    home.refuses("damaged")


@pytest.mark.parametrize("tail", [1, 16, SIZE - 1, SIZE + 70])
def test_half_a_batch_at_the_end_is_cut(tail: int) -> None:
    home = Home(2)
    home.append(3)
    del home.bytes_of(0)[2 * SIZE + tail :]
    log = home.start()
    assert (log.log_end_offset, log.cut_bytes) == (2 + tail // SIZE, tail % SIZE)


def test_segments_behind_a_torn_one_go() -> None:
    home = Home(2, 2, 2, synced=1)
    home.flip(0, 1)
    assert home.start().log_end_offset == 1
    assert home.segments() == {0: 1}


@pytest.mark.parametrize(
    ("field", "value"), [(7, 9), (16, 1), (11 + 4, 0)], ids=["another offset", "magic", "an older epoch"]
)
def test_a_batch_that_does_not_follow_is_damage(field: int, value: int) -> None:
    home = Home(1, synced=0)
    home.append(1, epoch=3)
    home.append(1, epoch=3)
    home.bytes_of(0)[SIZE + field] = value
    assert home.start().log_end_offset == 1


# -- gaps --------------------------------------------------------------------------------------------------------------


def with_gap(synced: int | None = None) -> Home:
    """Segments 0 and 4 are there, 2 is lost."""
    home = Home(2, 2, 2, synced=synced)
    home.disk.remove(HOME / f"{2:020d}.log")
    return home


def test_a_lost_segment_stops_the_start() -> None:
    with_gap().refuses("has a gap: 00000000000000000004.log follows a segment that ends at offset 2")
    with_gap(synced=3).refuses("has a gap")


def test_batches_behind_batches_that_were_not_durable_are_removed() -> None:
    home = with_gap(synced=2)
    assert home.start().log_end_offset == 2
    assert home.segments() == {0: 2}


@pytest.mark.parametrize("covered", [4, 5])
def test_batches_below_a_snapshot_may_be_lost(covered: int) -> None:
    home = with_gap()
    log = home.start(covered)
    assert (log.log_start_offset, log.log_end_offset) == (4, 6)
    assert home.segments() == {4: 2}


def test_a_log_that_lost_its_end_stops_the_start_unless_a_snapshot_has_it() -> None:
    def without_end() -> Home:
        home = Home(2, 2)
        home.disk.remove(HOME / f"{2:020d}.log")
        return home

    without_end().refuses("ends at offset 2, and was durable up to 4")
    without_end().refuses("ends at offset 2, and was durable up to 4", covered=3)
    assert without_end().start(covered=4).log_end_offset == 2


def test_an_empty_segment_that_was_given_up_goes() -> None:
    home = Home(4)
    home.disk.open(HOME / f"{2:020d}.log", create=True).close()
    assert home.start().log_end_offset == 4
    assert home.segments() == {0: 4}


def test_a_cut_goes_over_segments() -> None:
    home = Home(2, 2, 2)
    home.log.truncate_to(3)
    assert (home.log.log_end_offset, home.segments()) == (3, {0: 2, 2: 1})
    home.append(1, epoch=2)
    home.log.flush()
    log = home.start()
    assert (log.log_end_offset, log.last_epoch) == (4, 2)
    log.truncate_to(2)
    assert home.start().log_end_offset == 2
    home.log.restart_at(9)
    assert (home.log.log_start_offset, home.log.log_end_offset, home.segments()) == (9, 9, {9: 0})
    home.append(1, epoch=5)
    assert home.log.delete_before(9) == 0
    home.log.restart_at(9)
    assert home.log.log_end_offset == 9, "what it had was of another history"


# -- operations that fail ----------------------------------------------------------------------------------------------

STORY: list[Callable[[Home], object]] = [
    lambda home: home.append(2),
    lambda home: home.log.flush(),
    lambda home: home.log.roll(),
    lambda home: home.append(2, epoch=2),
    lambda home: home.log.flush(),
    lambda home: home.log.truncate_to(3),
    lambda home: home.append(1, epoch=3),
    lambda home: home.log.flush(),
    lambda home: home.log.write_checkpoints(),
    lambda home: home.log.roll(),
    lambda home: home.append(1, epoch=3),
    lambda home: home.log.flush(),
    lambda home: home.log.delete_before(2),
    lambda home: list(home.log.batches(2)),
    lambda home: home.start(2),
    lambda home: home.log.restart_at(20),
    lambda home: home.append(1, epoch=4),
    lambda home: home.log.flush(),
]


CUT, DELETE, RESTART = 5, 12, 15


def fails(kind: str, number: int) -> tuple[int, bool]:
    """(the step in which the operation failed, whether that was said); -1 where there are not so many."""
    home = Home()
    disk = FailingOnce(Random(1), DiskFaults(), lambda: 0)
    disk.restore(home.disk.snapshot(), home.disk.directories())
    home.disk = disk
    home.start()
    disk.changes = disk.reads = 0
    disk.fails_at = (kind, number)
    step, said, durable = 0, False, 0
    for step, action in enumerate(STORY):
        try:
            action(home)
        except (StorageError, OSError):
            said = True
        if disk.has_failed:
            break
        durable = home.log.log_end_offset if step in (1, 4, 7, 11) else min(durable, home.log.log_end_offset)
    else:
        return -1, False
    disk.fails_at = ("", 0)
    if step == CUT:
        durable = 3
    for _ in range(2):
        log = home.start(20 if step >= RESTART else 2 if step >= DELETE else 0)
        assert step >= RESTART or log.log_end_offset >= durable, f"{kind} {number} in step {step}"
        assert [batch.base_offset for batch in log.batches(log.log_start_offset)] == list(
            range(log.log_start_offset, log.log_end_offset)
        )
    home.append(1, epoch=9)
    log.flush()
    return step, said


@pytest.mark.parametrize("kind", [CHANGE, READ])
def test_an_operation_that_fails_is_said_and_loses_nothing_durable(kind: str) -> None:
    number, steps = 1, set()
    while (failed := fails(kind, number))[0] >= 0:
        assert failed[1], f"{kind} {number} failed in step {failed[0]}, and nothing was said"
        steps.add(failed[0])
        number += 1
    assert steps >= ({1, 4, 5, 8, 15} if kind == CHANGE else {13, 14})


def test_a_log_that_failed_takes_nothing_more() -> None:
    """After a failed fsync it is unknown which bytes are durable."""
    home = Home()
    disk = FailingOnce(Random(1), DiskFaults(), lambda: 0)
    disk.restore(home.disk.snapshot(), home.disk.directories())
    home.disk = disk
    log = home.start()
    home.append(1)
    disk.changes, disk.fails_at = 0, (CHANGE, 1)
    with pytest.raises(StorageError):
        log.flush()
    for again in (log.flush, lambda: home.append(1)):
        with pytest.raises(StorageError, match="the metadata log failed"):
            again()
