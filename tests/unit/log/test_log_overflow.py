"""Segments too long for their index, as brokers before Kafka 2.0 could leave them, are split at the start."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.follower_append import append_as_follower
from odradek.log.log import Log
from odradek.log.opening import close_log, open_log
from odradek.log.overflow import split_off
from odradek.log.retention import delete_old_segments, delete_records
from odradek.log.search import aborted_transactions, search_timestamp
from odradek.log.segment import Segment
from odradek.log.segment_file import segment_path
from odradek.record.batch import patch_base_offset, patch_leader_epoch
from tests.sim.disk import DiskFaults, SimFile
from tests.support.disks.crashing import Crash, CrashingDisk
from tests.support.models.batches import NOW_MS, batch
from tests.unit.log.test_log import everything
from tests.unit.log.test_log_transactions import marker

DIRECTORY = Path("/data/t-0")
FAR = 2**31
# The offsets of the segment that begins at 0; the next one begins at BEHIND.
OFFSETS = [0, 3, FAR - 2, FAR, FAR + 1, 2 * FAR - 1, 2 * FAR + 9, 2 * FAR + 10]
STARTS = [0, FAR, 2 * FAR + 9]
BEHIND = 3 * FAR


def lying_at(offset: int, data: bytes) -> bytes:
    moved = bytearray(data)
    patch_base_offset(moved, offset)
    patch_leader_epoch(moved, 0)
    return bytes(moved)


def write(disk: CrashingDisk, base: int, batches: list[bytes]) -> None:
    disk.make_dirs(DIRECTORY)
    file = disk.open(segment_path(DIRECTORY, base, ".log"), create=True)
    file.write_at(0, batches)
    file.sync()
    file.close()
    disk.sync_dir(DIRECTORY)


@pytest.fixture
def disk() -> CrashingDisk:
    made = CrashingDisk(Random(1), DiskFaults(), lambda: NOW_MS)
    made.make_dirs(DIRECTORY)
    made.sync_dir(DIRECTORY.parent)
    made.sync_dir(DIRECTORY.parent.parent)
    return made


def start(disk: CrashingDisk, *, clean: bool, recovery_point: int = 0, policy: str = "compact") -> Log:
    config = LogConfig(cleanup_policy=(policy,))
    notes: list[str] = []
    log = open_log(
        FileCache(disk), DIRECTORY, ("t", 0), config,
        now_ms=NOW_MS, clean_shutdown=clean, recovery_point=recovery_point, notes=notes,
    )  # fmt: skip
    log.update_high_watermark(log.log_end_offset)
    return log


def too_long(disk: CrashingDisk, *, with_next: bool) -> list[bytes]:
    values = [b"%d" % offset for offset in OFFSETS]
    write(disk, 0, [lying_at(offset, batch(value)) for offset, value in zip(OFFSETS, values, strict=True)])
    if with_next:
        write(disk, BEHIND, [lying_at(BEHIND, batch(b"behind"))])
        values.append(b"behind")
    return values


@pytest.mark.parametrize("with_next", [False, True], ids=["the last segment", "one of two"])
@pytest.mark.parametrize(("clean", "recovery_point"), [(True, 0), (False, 0), (False, BEHIND)])
def test_a_segment_that_is_too_long_is_split(
    disk: CrashingDisk, with_next: bool, clean: bool, recovery_point: int
) -> None:
    values = too_long(disk, with_next=with_next)
    starts = [*STARTS, BEHIND] if with_next else STARTS
    for _ in range(2):
        log = start(disk, clean=clean, recovery_point=recovery_point)
        assert log.segments.bases == starts
        assert everything(log) == values
        close_log(log)
        clean = True
    found = search_timestamp(log, NOW_MS).run()
    assert found is not None and found.offset == 0


def test_batches_of_several_records_stay_whole(disk: CrashingDisk) -> None:
    batches = {0: batch(b"a", b"b"), FAR - 1: batch(b"c", b"d", b"e"), FAR + 2: batch(b"f")}
    write(disk, 0, [lying_at(offset, each) for offset, each in batches.items()])
    log = start(disk, clean=False)
    assert log.segments.bases == [0, FAR - 1]
    assert everything(log) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_aborted_transactions_of_what_is_split_off_are_known(disk: CrashingDisk) -> None:
    data = batch(b"no", producer_id=7, sequence=0, transactional=True)
    batches = {0: batch(b"a"), FAR: data, FAR + 1: marker(7), FAR + 2: batch(b"b")}
    write(disk, 0, [lying_at(offset, each) for offset, each in batches.items()])
    for clean in (False, True):
        log = start(disk, clean=clean, recovery_point=FAR + 3)
        assert log.segments.bases == [0, FAR]
        assert [each[:3] for each in aborted_transactions(log, FAR, FAR + 3)] == [(7, FAR, FAR + 1)]
        close_log(log)


@pytest.mark.parametrize("power", [False, True], ids=["killed", "dark"])
def test_a_start_may_die_before_any_change_of_a_split(power: bool) -> None:
    change = 0
    died = True
    while died:
        change += 1
        disk = CrashingDisk(Random(change), DiskFaults(), lambda: NOW_MS)
        values = too_long(disk, with_next=change % 2 == 0)
        disk.sync_dir(DIRECTORY.parent)
        disk.sync_dir(DIRECTORY.parent.parent)
        disk.changes, disk.dies_before = 0, change
        try:
            start(disk, clean=False, recovery_point=BEHIND)
            died = False
        except Crash:
            disk.dies_before = None
            disk.lose_power() if power else disk.process_died()
            log = start(disk, clean=False, recovery_point=BEHIND)
            assert everything(log) == values, change
            assert log.segments.bases[:3] == STARTS
    assert change > 10, "there was something to die in"


def test_a_flipped_bit_of_an_offset_is_damage_and_no_overflow(disk: CrashingDisk) -> None:
    write(disk, 0, [lying_at(0, batch(b"a")), lying_at(1 + 2**40, batch(b"b")), lying_at(2, batch(b"c"))])
    log = start(disk, clean=False)
    assert (log.segments.bases, log.log_end_offset) == ([0], 1)
    assert everything(log) == [b"a"]


@pytest.mark.parametrize("behind", [1, 2], ids=["a batch follows", "it is the last one"])
def test_a_batch_with_another_offset_than_is_due_is_no_overflow(disk: CrashingDisk, behind: int) -> None:
    far = [lying_at(FAR + number, batch(b"v")) for number in range(3 - behind)]
    write(disk, 0, [lying_at(0, batch(b"a")), *far])
    files = FileCache(disk)
    segment = Segment(files, DIRECTORY, 0, created_ms=NOW_MS)
    segment.open()
    found = split_off(files, segment, len(batch(b"a")), expected_offset=1, following=None)
    assert (found is None) == (behind == 2)


def test_a_split_copies_piece_by_piece(disk: CrashingDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    large = [lying_at(offset, batch(bytes(2_500_000))) for offset in (0, FAR)]
    write(disk, 0, large)
    files = FileCache(disk)
    segment = Segment(files, DIRECTORY, 0, created_ms=NOW_MS)
    segment.open()
    sizes: list[int] = []
    read_at = SimFile.read_at

    def noted(file: SimFile, position: int, length: int) -> bytes:
        sizes.append(length)
        return read_at(file, position, length)

    monkeypatch.setattr(SimFile, "read_at", noted)
    made = split_off(files, segment, len(large[0]), expected_offset=FAR, following=None)
    assert made is not None and [each.size_bytes for each in made] == [len(large[1])]
    assert max(sizes) == 1024 * 1024, "a segment need not fit into memory"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("first", [0, 1], ids=["an empty segment", "a batch"])
def test_records_behind_a_gap_are_kept_by_every_policy(disk: CrashingDisk, first: int, clean: bool) -> None:
    """A mirror has the gaps of its source; a segment cannot count over them."""
    log = start(disk, clean=True, policy="delete")
    values = [b"%d" % number for number in range(first + 3)]
    offsets = [*range(first), FAR + 6, FAR + 7, 3 * FAR]
    for offset, value in zip(offsets, values, strict=True):
        append_as_follower(log, lying_at(offset, batch(value)), now_ms=NOW_MS)
    bases = log.segments.bases.copy()
    recovery_point = log.recovery_point
    if clean:
        close_log(log)
        recovery_point = log.recovery_point
    for _ in range(2):
        log = start(disk, clean=clean, recovery_point=recovery_point, policy="delete")
        assert log.segments.bases == bases == [0, FAR + 6, 3 * FAR]
        assert everything(log) == values
    close_log(log)


def test_a_batch_that_reaches_over_what_a_segment_counts_is_kept(disk: CrashingDisk) -> None:
    log = start(disk, clean=True, policy="delete")
    append_as_follower(log, lying_at(FAR - 1, batch(b"a", b"b", b"c")), now_ms=NOW_MS)
    log = start(disk, clean=False, policy="delete")
    assert everything(log) == [b"a", b"b", b"c"]
    close_log(log)


def test_records_before_a_gap_are_durable_first(disk: CrashingDisk) -> None:
    log = start(disk, clean=True, policy="delete")
    append_as_follower(log, lying_at(0, batch(b"a")), now_ms=NOW_MS)
    path = log.segments.active.path
    append_as_follower(log, lying_at(2 * FAR, batch(b"b")), now_ms=NOW_MS)
    assert path not in disk.uncertain()
    close_log(log)


def test_an_empty_segment_before_a_gap_holds_up_no_retention(disk: CrashingDisk) -> None:
    log = start(disk, clean=True, policy="delete")
    for offset in (2 * FAR, 4 * FAR):
        append_as_follower(log, lying_at(offset, batch(b"a")), now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    delete_records(log, 4 * FAR)
    assert delete_old_segments(log, NOW_MS) == 2
    assert log.segments.bases == [4 * FAR]
    close_log(log)
