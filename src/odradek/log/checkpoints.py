"""Kafka's checkpoint files: text with a version, a number of entries, and the entries.

A file is replaced as a whole through a temporary file, with fsync of file and directory: a crash leaves the old or the
new one. A damaged file raises `CorruptCheckpointError`; its content can be computed from the logs.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import UUID

from odradek.common.ports import Disk, is_disk_full, read_file, write_file_durably
from odradek.common.topic_names import TopicPartition

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
_VERSION = "0"


class CorruptCheckpointError(Exception):
    """The file is no valid checkpoint."""


def read_lines(disk: Disk, path: Path) -> list[str]:
    """The entries of a checkpoint; none if the file does not exist."""
    if not disk.exists(path):
        return []
    try:
        lines = read_file(disk, path).decode().splitlines()
        if not lines:
            return []
        version, count, entries = lines[0], int(lines[1]), lines[2:]
    except (UnicodeDecodeError, ValueError, IndexError):
        raise CorruptCheckpointError(f"{path}: not a checkpoint") from None
    if version.strip() != _VERSION or count != len(entries):
        raise CorruptCheckpointError(f"{path}: version {version}, {count} entries announced, {len(entries)} there")
    return entries


def write_lines(disk: Disk, path: Path, lines: Iterable[str], *, through: str = ".tmp") -> None:
    """Replace a checkpoint through a temporary file with the suffix `through`; durable on return. Blocks."""
    entries = list(lines)
    text = "\n".join([_VERSION, str(len(entries)), *entries]) + "\n"
    write_file_durably(disk, path, text.encode(), through=through)


def write_lines_if_space(disk: Disk, path: Path, lines: Iterable[str]) -> bool:
    """As `write_lines`, off the loop, with another temporary file; returns False if there is no space. Raises
    OSError."""
    try:
        write_lines(disk, path, lines, through=".flushed.tmp")
    except OSError as error:
        if not is_disk_full(error):
            raise
        return False
    return True


def read_offsets(disk: Disk, path: Path) -> dict[TopicPartition, int]:
    """The offsets by partition. Raises CorruptCheckpointError."""
    found = {}
    for line in read_lines(disk, path):
        parts = line.split(" ")
        try:
            topic, partition_id, offset = parts
            found[topic, int(partition_id)] = int(offset)
        except ValueError:
            raise CorruptCheckpointError(f"{path}: {line!r} is not a topic, a partition and an offset") from None
    return found


def write_offsets(disk: Disk, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint of offsets; durable on return. Blocks."""
    write_lines(disk, path, (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()))


def read_topic_id(disk: Disk, directory: Path) -> UUID | None:
    """The topic id in a partition's directory; None if there is none. Raises CorruptCheckpointError."""
    path = directory / PARTITION_METADATA
    if not disk.exists(path):
        return None
    try:
        lines = dict(line.split(": ", 1) for line in read_file(disk, path).decode().splitlines() if line)
        return UUID(bytes=base64.urlsafe_b64decode(lines["topic_id"] + "=="))
    except (KeyError, ValueError, UnicodeDecodeError, binascii.Error):
        raise CorruptCheckpointError(f"{path}: no topic id") from None


def write_topic_id(disk: Disk, directory: Path, topic_id: UUID) -> None:
    """Write partition.metadata, which is not there yet, with one write; the log's first flush syncs it. Raises OSError.

    After a loss of power the file is missing, complete, or damaged and then rewritten.
    """
    text = f"version: {_VERSION}\ntopic_id: {base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip('=')}"
    file = disk.open(directory / PARTITION_METADATA, create=True)
    try:
        file.write_at(0, [text.encode()])
    finally:
        file.close()


def replace_topic_id(disk: Disk, directory: Path, topic_id: UUID) -> None:
    """Do `write_topic_id` in place of a damaged file."""
    disk.remove(directory / PARTITION_METADATA)
    write_topic_id(disk, directory, topic_id)
