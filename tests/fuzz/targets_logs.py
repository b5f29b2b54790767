"""A partition's directory after any damage: it opens, keeps what was before the damage, and goes on."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.log.checkpoints import LEADER_EPOCHS, LOG_START, RECOVERY_POINT
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.log_dir import CLEAN_SHUTDOWN
from odradek.log.manager import LogManager
from odradek.log.search import aborted_transactions, search_timestamp
from odradek.record.batch import BatchHeader, crc_is_valid
from odradek.record.control import transaction_marker
from odradek.record.reader import read_batches
from tests.fuzz.damage import Files, damaged, first_difference, generate_script
from tests.fuzz.engine import Target
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.models.batches import NOW_MS, batch

ROOT = Path("/data")
PARTITION = ("topic", 0)
DIRECTORY = ROOT / "topic-0"
METADATA_DIRECTORY = ROOT / "__cluster_metadata-0"
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=300)
# Scenes: stopped in good order; killed before any flush; killed after a flush in the middle.
SCENES = 3
RECOVERED_OFFSET = 62
CLEAN_MARK = ROOT / CLEAN_SHUTDOWN
TRUSTED = (DIRECTORY / LEADER_EPOCHS, ROOT / LOG_START, ROOT / RECOVERY_POINT, CLEAN_MARK)


class FixedClock:
    """A clock that does not advance."""

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 1_000_000


@dataclass(frozen=True)
class Scene:
    """A directory as it should be, and the batches of its log in order: (file, position, bytes)."""

    files: Files
    batches: tuple[tuple[Path, int, bytes], ...]


def a_disk(files: Files) -> SimDisk:
    disk = SimDisk(Random(0), DiskFaults(), lambda: NOW_MS)
    disk.restore(files)
    for path in (DIRECTORY, METADATA_DIRECTORY):  # though all of its files are removed
        disk.make_dirs(path)
    return disk


def a_manager(disk: SimDisk) -> LogManager:
    return LogManager(disk, FixedClock(), [ROOT], CONFIG, Random(1))


def append(log: Log, data: bytes, epoch: int) -> None:
    log.append_as_leader([data], [BatchHeader.read(data)], leader_epoch=epoch, now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)


@functools.cache
def scene(number: int) -> Scene:
    """A log of five segments: plain, compressed and transactional batches of two producers under three epochs."""
    disk = a_disk({})
    manager = a_manager(disk)
    manager.lock_dirs()
    manager.load()
    log = manager.create(*PARTITION, UUID(int=7), {})
    rng = Random(5)
    for count in range(40):
        values = [rng.randbytes(rng.randrange(60)) for _ in range(rng.randrange(1, 5))]
        epoch = count // 15
        kind = count % 5
        if kind == 4:
            marker = transaction_marker(
                commit=count % 2 == 0, producer_id=9, producer_epoch=0, coordinator_epoch=1, timestamp_ms=NOW_MS + count
            )
            append(log, marker, epoch)
            continue
        producer: dict[str, Any] = (
            {"producer_id": 9, "transactional": True} if kind == 3 else {"producer_id": 8} if kind == 1 else {}
        )
        known = log.producers.producers.get(int(producer.get("producer_id", -1)))
        sequence = known.last_sequence + 1 if known else 0
        data = batch(
            *values,
            timestamp_ms=NOW_MS + count * 1000,
            sequence=sequence if producer else -1,
            compression="lz4" if kind == 2 else "none",
            **producer,
        )
        append(log, data, epoch)
        if count == 25 and number == 2:
            log.flush()
            manager.checkpoint_work()()
    if number == 0:
        manager.close(broker_epoch=3)
    batches = []
    files = disk.snapshot()
    for path in sorted(path for path in files if path.suffix == ".log"):
        for position, header in read_batches(files[path]):
            batches.append((path, position, files[path][position : position + header.size_bytes]))
    assert len(batches) == 40
    assert number < 2 or files[ROOT / RECOVERY_POINT].split()[-1] == b"%d" % RECOVERED_OFFSET
    return Scene(files, tuple(batches))


def kept_batches(before: Scene, after: Files) -> Sequence[bytes]:
    """The batches before the first damage to any segment."""
    broken = {path: first_difference(before.files[path], after.get(path)) for path, _, _ in before.batches}
    kept = []
    for path, position, data in before.batches:
        damage = broken[path]
        if damage is not None and damage < position + len(data):
            break
        if any(broken[earlier] is not None for earlier in broken if earlier < path):
            break
        kept.append(data)
    return kept


def is_verified(before: Scene, after: Files) -> bool:
    """Whether a start verifies every damaged byte: it trusts bytes below the recovery point, as Kafka does."""
    if CLEAN_MARK in after or any(after.get(path) != before.files.get(path) for path in TRUSTED):
        return False
    recovery_point = RECOVERED_OFFSET if ROOT / RECOVERY_POINT in after else 0
    return all(
        after.get(path) == before.files[path] or int(path.stem) >= recovery_point for path, _, _ in before.batches
    )


def read_all(log: Log) -> bytes:
    """The whole log, read as a follower does: from the start, some bytes at a time."""
    pieces, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        data = b"".join(chunk.read() for chunk in log.read(offset, max_bytes=700).chunks)
        headers = list(read_batches(data))
        assert headers, f"nothing is readable at {offset}, the log ends at {log.log_end_offset}"
        position, last = headers[-1]
        pieces.append(data[: position + last.size_bytes])
        assert last.last_offset >= offset, "reading goes forward"
        offset = last.last_offset + 1
    return b"".join(pieces)


def run_damaged_log(script: bytes) -> None:
    if not script:
        return
    before = scene(script[0] % SCENES)
    after = damaged(before.files, script)
    disk = a_disk(after)
    manager = a_manager(disk)
    manager.lock_dirs()
    try:
        manager.load()
    except StorageError:
        return
    log = manager.get(PARTITION)
    assert log is not None
    kept = kept_batches(before, after)
    _use(log)
    if is_verified(before, after):
        whole = read_all(log)
        assert whole.startswith(b"".join(kept)), f"of {len(kept)} batches before the damage, some are gone"
        _check_sealed(whole)
        _append_and_restart(manager, disk, log, whole)
    else:
        manager.unlock()


def _use(log: Log) -> None:
    """Check that every request to the log is answered or refused and never fails, and that its batches are whole."""
    for offset in range(log.log_start_offset, min(log.log_end_offset, log.log_start_offset + 200), 7):
        try:
            log.read(offset, max_bytes=300)
        except ApiError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE, error
        log.epoch_of(offset)
        aborted_transactions(log, offset, offset + 10)
    for timestamp_ms in (None, NOW_MS + 20_000):
        try:
            search_timestamp(log, timestamp_ms).run()
        except ApiError:
            continue
    assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset


def _check_sealed(whole: bytes) -> None:
    """Recovered batches are as they were sealed, and in order."""
    expected = 0
    for position, header in read_batches(whole):
        assert crc_is_valid(memoryview(whole)[position : position + header.size_bytes], header)
        assert header.base_offset >= expected, "offsets rise"
        expected = header.last_offset + 1


def _append_and_restart(manager: LogManager, disk: SimDisk, log: Log, whole: bytes) -> None:
    """Append new batches, and check that a restart finds everything."""
    end = log.log_end_offset
    # The epoch in a batch's header is not under its checksum, so damage may have raised the last one.
    epoch = min(log.epochs.latest_epoch + 1, 2**31 - 1)
    for number in range(3):
        append(log, batch(b"new", bytes(600), timestamp_ms=NOW_MS + number), epoch)
    assert log.log_end_offset == end + 6
    assert log.epoch_of(end) == epoch
    grown = read_all(log)
    assert grown.startswith(whole) and len(grown) > len(whole)
    disk.process_died()
    for again in (a_manager(disk), a_manager(disk)):
        again.lock_dirs()
        again.load()
        log = again.logs[PARTITION]
        assert read_all(log) == grown, "a restart after recovery changes nothing"
        again.close()


TARGETS = (Target("damaged_log", generate_script, run_damaged_log),)
