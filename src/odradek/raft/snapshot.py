"""Snapshots of the metadata: `<end offset>-<epoch>.checkpoint` beside the log, in Kafka's format (KIP-630).

A snapshot is a file of record batches with their own offsets from 0: a control batch with the header (and the quorum's
version and voters), metadata records, a control batch with the footer. A file without a footer is incomplete: snapshots
are written under another name and renamed when they are durable. `bootstrap.checkpoint` has the same format, without an
offset in its name: the records that `storage format` wrote for a new cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from odradek.common.errors import ProtocolError, StorageError
from odradek.common.ports import Disk, File, read_file
from odradek.metadata.features import record_version
from odradek.protocol.declare import Message
from odradek.protocol.messages.k_raft_version_record import KRaftVersionRecord
from odradek.protocol.messages.snapshot_footer_record import SnapshotFooterRecord
from odradek.protocol.messages.snapshot_header_record import SnapshotHeaderRecord
from odradek.protocol.messages.voters_record import VotersRecord
from odradek.protocol.record_types import encode_metadata_record
from odradek.raft.batches import control_batch, data_batch, decode_batches

BOOTSTRAP_FILE = "bootstrap.checkpoint"
# Kafka reads batches of up to 8 MiB; smaller batches let a snapshot be replayed in slices.
BATCH_BYTES = 512 * 1024
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z")
_PARTIAL = ".checkpoint.part"


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId:
    """Identifies a snapshot of all records below `end_offset` (exclusive); the last of them is of `leader_epoch`."""

    end_offset: int
    leader_epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.leader_epoch:010d}.checkpoint"


@dataclass(slots=True)
class Snapshot:
    """The contents of a snapshot file: its metadata records, and the quorum's version and voters if present."""

    records: list[Message] = field(default_factory=list)
    kraft_version: KRaftVersionRecord | None = None
    voters: VotersRecord | None = None
    last_timestamp_ms: int = 0
    complete: bool = False


def snapshot_ids(disk: Disk, directory: Path) -> list[SnapshotId]:
    """The snapshots in a directory, oldest first, without incomplete ones."""
    found = (_NAME.match(name) for name in disk.list_dir(directory))
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)


def remove_partial_snapshots(disk: Disk, directory: Path) -> None:
    """Remove the incomplete snapshots that a crash left."""
    for name in disk.list_dir(directory):
        if name.endswith(_PARTIAL):
            disk.remove(directory / name)


def encode_snapshot(
    records: Iterable[Message],
    *,
    metadata_version: int,
    leader_epoch: int,
    now_ms: int,
    last_timestamp_ms: int = 0,
    kraft_version: int = 0,
    voters: VotersRecord | None = None,
) -> bytes:
    """The bytes of a snapshot file.

    Args:
        last_timestamp_ms: append time of the last record that the snapshot contains, wall-clock ms.
        kraft_version, voters: written if the quorum is dynamic (kraft.version 1).
    """
    first: list[Message] = [SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp_ms)]
    if kraft_version > 0:
        first.append(KRaftVersionRecord(version=0, k_raft_version=kraft_version))
        if voters is not None:
            first.append(voters)
    pieces = [control_batch(first, base_offset=0, leader_epoch=leader_epoch, now_ms=now_ms)]
    offset = len(first)
    values: list[bytes] = []
    size = 0
    for record in records:
        value = encode_metadata_record(record, record_version(record, metadata_version))
        values.append(value)
        size += len(value)
        if size >= BATCH_BYTES:
            pieces.append(data_batch(values, base_offset=offset, leader_epoch=leader_epoch, now_ms=now_ms))
            offset += len(values)
            values, size = [], 0
    if values:
        pieces.append(data_batch(values, base_offset=offset, leader_epoch=leader_epoch, now_ms=now_ms))
        offset += len(values)
    footer = SnapshotFooterRecord(version=0)
    pieces.append(control_batch([footer], base_offset=offset, leader_epoch=leader_epoch, now_ms=now_ms))
    return b"".join(pieces)


def write_snapshot(disk: Disk, directory: Path, snapshot_id: SnapshotId, data: bytes) -> None:
    """Write a snapshot file durably; a crash leaves the whole file or none. Blocks."""
    file = partial_snapshot(disk, directory, snapshot_id)
    try:
        file.write_at(0, [data])
        file.sync()
    except OSError:
        disk.remove(directory / (snapshot_id.file_name + ".part"))
        raise
    finally:
        file.close()
    _name_partial(disk, directory, snapshot_id)


def partial_snapshot(disk: Disk, directory: Path, snapshot_id: SnapshotId) -> File:
    """Create the file of a snapshot under its temporary name."""
    partial = directory / (snapshot_id.file_name + ".part")
    disk.remove(partial)
    return disk.open(partial, create=True)


def finish_snapshot(disk: Disk, directory: Path, snapshot_id: SnapshotId) -> Snapshot:
    """Rename a fetched file, whose bytes are durable, to a snapshot, and read it. Blocks.

    Raises:
        ProtocolError: the bytes are not a snapshot; the file is removed.
    """
    partial = directory / (snapshot_id.file_name + ".part")
    try:
        snapshot = decode_snapshot(read_file(disk, partial))
    except ValueError as error:
        disk.remove(partial)
        raise ProtocolError(f"snapshot {snapshot_id.file_name} from the leader is damaged: {error}") from None
    _name_partial(disk, directory, snapshot_id)
    return snapshot


def _name_partial(disk: Disk, directory: Path, snapshot_id: SnapshotId) -> None:
    disk.rename(directory / (snapshot_id.file_name + ".part"), directory / snapshot_id.file_name)
    disk.sync_dir(directory)


def decode_snapshot(data: bytes) -> Snapshot:
    """Decode the bytes of a snapshot file.

    Raises:
        ValueError: the file is damaged or has no footer.
    """
    snapshot = Snapshot()
    for batch in decode_batches(data):
        for _, record in batch.records:
            if not batch.control:
                snapshot.records.append(record)
            elif isinstance(record, SnapshotHeaderRecord):
                snapshot.last_timestamp_ms = record.last_contained_log_timestamp
            elif isinstance(record, KRaftVersionRecord):
                snapshot.kraft_version = record
            elif isinstance(record, VotersRecord):
                snapshot.voters = record
            elif isinstance(record, SnapshotFooterRecord):
                snapshot.complete = True
    if not snapshot.complete:
        raise ValueError("the file ends without a footer")
    return snapshot


def read_snapshot(disk: Disk, path: Path) -> Snapshot:
    """Read a snapshot file.

    Raises:
        StorageError: damaged. It cannot be skipped: the log before it may have been removed.
    """
    try:
        return decode_snapshot(read_file(disk, path))
    except ValueError as error:
        raise StorageError(path.parent, f"metadata snapshot {path.name} is damaged: {error}") from None


def read_bootstrap(disk: Disk, metadata_directory: Path) -> Sequence[Message]:
    """The records of `bootstrap.checkpoint` in the root of the metadata directory; empty if the file does not exist.

    Raises:
        StorageError: damaged.
    """
    path = metadata_directory / BOOTSTRAP_FILE
    return read_snapshot(disk, path).records if disk.exists(path) else ()
