"""The small files of a node, and the metadata log: read, or refused with the one error that says so."""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from uuid import UUID

import crc32c

from odradek.common.errors import ConfigError, StorageError
from odradek.common.ports import Disk
from odradek.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    RECOVERY_POINT,
    CorruptCheckpointError,
    read_lines,
    read_offsets,
    read_topic_id,
    write_offsets,
)
from odradek.log.epoch_cache import EpochCache
from odradek.log.index import CorruptIndexError, OffsetIndex, TimeIndex, TransactionIndex
from odradek.log.log_dir import CLEAN_SHUTDOWN
from odradek.log.producer_state import CorruptSnapshotError, ProducerState
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.leader_change_message import LeaderChangeMessage
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.record_types import encode_metadata_record
from odradek.raft.batches import control_batch, data_batch
from odradek.raft.metadata_log import SYNCED_OFFSET, MetadataLog
from odradek.raft.quorum_state import FILE_NAME, load_state
from odradek.raft.snapshot import (
    BOOTSTRAP_FILE,
    SnapshotId,
    encode_snapshot,
    read_bootstrap,
    read_snapshot,
    snapshot_ids,
    write_snapshot,
)
from odradek.record.batch import BatchHeader
from odradek.record.reader import read_batches
from odradek.server.startup.format import META_FILE, read_meta_properties
from tests.fuzz.damage import Files, damaged, first_difference, generate_script, has_lies
from tests.fuzz.engine import Target
from tests.fuzz.targets_logs import DIRECTORY, ROOT, a_disk, a_manager, scene
from tests.fuzz.targets_logs import METADATA_DIRECTORY as METADATA
from tests.support.models.batches import NOW_MS

PATH = ROOT / "file"


def _disk_with(path: Path, data: bytes) -> Disk:
    return a_disk({path: data})


# -- small files: each reader with the errors that it may raise ----------------------------------------------------


def _read_epochs(data: bytes) -> None:
    cache = EpochCache.from_lines(read_lines(_disk_with(DIRECTORY / LEADER_EPOCHS, data), DIRECTORY / LEADER_EPOCHS))
    assert EpochCache.from_lines(cache.lines()).entries() == cache.entries()
    cache.assign(cache.latest_epoch + 1, 10)
    cache.end_offset_for(3, 100)
    cache.truncate_from_end(5)
    cache.truncate_from_start(3)


def _read_offsets(data: bytes) -> None:
    disk = _disk_with(PATH, data)
    found = read_offsets(disk, PATH)
    write_offsets(disk, PATH, found)
    assert read_offsets(disk, PATH) == found


def _read_producers(data: bytes) -> None:
    if len(data) > 6 and data[0] & 1:
        # A right checksum over wrong numbers.
        data = b"\x00\x01" + struct.pack(">I", crc32c.crc32c(data[6:])) + data[6:]
    state = ProducerState.from_snapshot(data, 1000)
    assert ProducerState.from_snapshot(state.snapshot(), 1000).producers.keys() == state.producers.keys()
    state.first_unstable_offset(1000)


def _read_clean_mark(data: bytes) -> None:
    disk = a_disk({**scene(0).files, ROOT / CLEAN_SHUTDOWN: data})
    manager = a_manager(disk)
    manager.lock_dirs()
    manager.load()
    assert isinstance(manager.previous_broker_epoch, int)


def _read_index(data: bytes) -> None:
    disk = _disk_with(PATH, data[1:])
    index = (OffsetIndex(disk, PATH, 100), TimeIndex(disk, PATH, 100), TransactionIndex(disk, PATH))[data[0] % 3]
    if isinstance(index, OffsetIndex):
        index.load(log_bytes=4000)
        index.position_for(150)
        index.boundary_before(500)
    else:
        index.load()
    index.truncate(*(120, 300) if isinstance(index, OffsetIndex) else (120,))
    index.flush()


READERS: tuple[tuple[str, Callable[[bytes], object], type[Exception]], ...] = (
    ("offsets", _read_offsets, CorruptCheckpointError),
    ("epochs", _read_epochs, CorruptCheckpointError),
    (
        "topic id",
        lambda data: read_topic_id(_disk_with(DIRECTORY / PARTITION_METADATA, data), DIRECTORY),
        CorruptCheckpointError,
    ),
    ("producers", _read_producers, CorruptSnapshotError),
    ("clean mark", _read_clean_mark, StorageError),
    ("index", _read_index, CorruptIndexError),
    ("quorum state", lambda data: load_state(_disk_with(METADATA / FILE_NAME, data), METADATA), StorageError),
    ("meta.properties", lambda data: read_meta_properties(_disk_with(ROOT / META_FILE, data), ROOT), ConfigError),
    ("bootstrap", lambda data: read_bootstrap(_disk_with(ROOT / BOOTSTRAP_FILE, data), ROOT), StorageError),
)


@functools.cache
def _examples() -> tuple[tuple[bytes, ...], ...]:
    files = scene(0).files
    names = [path for path in files if path.parent == DIRECTORY]
    state = {"leaderId": 1, "leaderEpoch": 7, "votedId": 1, "data_version": 0, "clusterId": "c", "currentVoters": []}
    newer = {"leaderId": 1, "leaderEpoch": 7, "votedId": 1, "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAQ"}
    return (
        (files[ROOT / RECOVERY_POINT], b"0\n2\na-b 0 5\nc 1 9223372036854775807\n", b""),
        (files[DIRECTORY / LEADER_EPOCHS], b"0\n3\n0 0\n1 31\n2 73\n"),
        (files[DIRECTORY / PARTITION_METADATA],),
        tuple(files[path] for path in names if path.suffix == ".snapshot"),
        (files[ROOT / CLEAN_SHUTDOWN], b"{}", b"[" * 3000),
        tuple(
            bytes((kind,)) + files[path]
            for kind, suffix in enumerate((".index", ".timeindex", ".txnindex"))
            for path in names
            if path.suffix == suffix
        ),
        (
            json.dumps(state).encode(),
            json.dumps({**newer, "data_version": 1}).encode(),
            json.dumps({**newer, "votedDirectoryId": 5, "data_version": 1}).encode(),
            b"[" * 3000,
        ),
        (b"node.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\nversion=1\ncluster.id=abc\n", b"broker.id=1\nversion=0\n"),
        (
            encode_snapshot(
                [FeatureLevelRecord(name="f", feature_level=1)], metadata_version=20, leader_epoch=0, now_ms=1
            ),
        ),
    )


def generate_small_file(rng: Random) -> bytes:
    """A byte that names the reader, and a file."""
    kind = rng.randrange(len(READERS))
    return bytes((kind,)) + rng.choice(_examples()[kind])


def run_small_file(data: bytes) -> None:
    if len(data) < 2:
        return
    _, read, allowed = READERS[data[0] % len(READERS)]
    try:
        read(data[1:])
    except allowed:
        return


# -- the metadata log ----------------------------------------------------------------------------------------------


def _append(log: MetadataLog, count: int, epoch: int) -> None:
    for _ in range(count):
        end = log.log_end_offset
        topic = TopicRecord(name=f"t{end}", topic_id=UUID(int=end + 1))
        value = encode_metadata_record(topic, 0)
        log.append([data_batch([value], base_offset=end, leader_epoch=epoch, now_ms=NOW_MS)])


@functools.cache
def metadata_files() -> Files:
    """Three segments under two epochs, all of it durable, the last two batches not yet known to be; and a snapshot."""
    disk = a_disk({})
    log = MetadataLog(disk, METADATA)
    first = LeaderChangeMessage(version=0, leader_id=1)
    log.append([control_batch([first], base_offset=0, leader_epoch=1, now_ms=NOW_MS)])
    for epoch in (1, 1, 2):
        _append(log, 4, epoch)
        log.flush()
        if epoch == 1:
            log.roll()
    log.write_checkpoints()
    _append(log, 2, 2)
    records = [TopicRecord(name="old", topic_id=UUID(int=3))]
    snapshot = encode_snapshot(records, metadata_version=20, leader_epoch=1, now_ms=NOW_MS)
    write_snapshot(disk, METADATA, SnapshotId(5, 1), snapshot)
    log.close()
    return disk.snapshot()


@functools.cache
def metadata_batches() -> tuple[tuple[Path, int, bytes], ...]:
    files = metadata_files()
    return tuple(
        (path, position, files[path][position : position + header.size_bytes])
        for path in sorted(path for path in files if path.suffix == ".log")
        for position, header in read_batches(files[path])
    )


def run_damaged_metadata(script: bytes) -> None:
    before = metadata_files()
    after = damaged(before, script)
    disk = a_disk(after)
    for snapshot_id in snapshot_ids(disk, METADATA):
        try:
            read_snapshot(disk, METADATA / snapshot_id.file_name)
        except StorageError:
            continue
    try:
        log = MetadataLog(disk, METADATA)
    except StorageError:
        return
    read = log.read(log.log_start_offset, 1 << 30)
    try:
        list(log.batches(log.log_start_offset))
    except StorageError:
        return
    synced_is_right = after.get(METADATA / SYNCED_OFFSET) == before[METADATA / SYNCED_OFFSET]
    # Damage with a valid checksum is a writer's bug, which no reader can notice.
    if synced_is_right and _first_is_there(after) and not has_lies(script):
        _check_kept(before, after, read)
    end = log.log_end_offset
    _append(log, 2, max(log.last_epoch, 2))
    log.flush()
    log.close()
    again = MetadataLog(disk, METADATA)
    assert again.log_end_offset == end + 2
    assert again.read(again.log_start_offset, 1 << 30).startswith(read)


def _first_is_there(after: Files) -> bool:
    """A log without its first files looks like one that snapshots made shorter."""
    return any(path.name == f"{0:020d}.log" for path in after)


def _check_kept(before: Files, after: Files, read: bytes) -> None:
    """Durable bytes are there unchanged, but for epochs, which no checksum covers."""
    synced = int(before[METADATA / SYNCED_OFFSET].split()[0])
    found = [read[position : position + header.size_bytes] for position, header in read_batches(read)]
    for number, (path, position, data) in enumerate(metadata_batches()):
        damage = first_difference(before[path], after.get(path))
        undamaged = damage is None or damage >= position + len(data)
        durable = BatchHeader.read(data).last_offset < synced
        if not durable and not undamaged:
            return
        assert not durable or number < len(found), f"batch {number} was durable and is gone"
        if number >= len(found):
            return
        assert not durable or _sealed(found[number]) == _sealed(data), f"batch {number} was durable and is another"


def _sealed(batch: bytes) -> bytes:
    """A batch but for its leader epoch."""
    return batch[:12] + batch[16:]


TARGETS = (
    Target("small_files", generate_small_file, run_small_file, (b"\n", b" ", b"-1", b"[[[[", b'"', b"\\u0000", b"=")),
    Target("damaged_metadata", generate_script, run_damaged_metadata),
)
