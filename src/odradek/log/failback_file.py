"""Failback files: the end of a log, written to a file of batches before it is cut. `odradek dump-log` reads them (ADR
0021)."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from odradek.common.errors import ApiError
from odradek.common.ports import Disk, File, is_disk_full
from odradek.log.files import no_space

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.log.log import Log

READ_BYTES = 4 * 1024 * 1024
# Space that stays free on a disk: a hundredth of it, and no more than this.
RESERVE_BYTES = 1024**3
# A file's name has 255 bytes, and a topic's may have 249.
LONGEST_TOPIC = 150
_REST = r"\.([0-9]{20})\.failback-([0-9]+)-[0-9a-f]{32}(-[0-9]+)?\.log"
_UNFINISHED = re.compile(rf".+{_REST}\.tmp")
OnProgress = Callable[[int, int], None]


class FailbackFile(NamedTuple):
    """A complete failback file: its first offset, and the leader epoch under which it was written."""

    offset: int
    leader_epoch: int
    path: Path
    size_bytes: int


def failback_path(log: Log, offset: int, leader_epoch: int, topic_id: UUID) -> Path:
    """A path that does not exist yet, beside the partition directories: the file belongs to no log, and is not deleted
    with the topic.

    A leader with the same offset and epoch may have written a file before, and have cut nothing.
    """
    name = f"{_front(log)}.{offset:020}.failback-{leader_epoch}-{topic_id.hex}"
    path, count = log.log_dir / f"{name}.log", 0
    while log.partition_dir.files.disk.exists(path):
        count += 1
        path = log.log_dir / f"{name}-{count}.log"
    return path


def newest_failback_file(log: Log, topic_id: UUID) -> FailbackFile | None:
    """The newest failback file of a partition, in the directory of its log. Raises StorageError."""
    disk, found = log.partition_dir.files.disk, list[tuple[int, int, int, str]]()
    pattern = re.compile(re.escape(_front(log)) + _REST)
    try:
        for name in disk.list_dir(log.log_dir):
            match = pattern.fullmatch(name)
            if match is not None and topic_id.hex in name:
                found.append((int(match[2]), int((match[3] or "-0")[1:]), int(match[1]), name))
        if not found:
            return None
        leader_epoch, _, offset, name = max(found)
        path = log.log_dir / name
        return FailbackFile(offset, leader_epoch, path, disk.size(path))
    except OSError as error:
        raise log.partition_dir.failed(error) from error


def is_unfinished(name: str) -> bool:
    """Whether a name in a log directory is that of an incomplete failback file."""
    return _UNFINISHED.fullmatch(name) is not None


def _front(log: Log) -> str:
    topic, partition_id = log.topic_partition
    if len(topic) > LONGEST_TOPIC:
        topic = f"{topic[:LONGEST_TOPIC]}~{crc32(topic.encode()):08x}"
    return f"{topic}-{partition_id}"


async def write_failback_file(
    log: Log, offset: int, path: Path, on_progress: OnProgress = lambda done, whole: None
) -> int:
    """Write the records from `offset` (inclusive) to the log end to a file, durably; returns its size in bytes.

    The bytes are those of the segments; damaged batches are copied as well. Nothing may be appended during the call.
    Unfinished files of earlier attempts for this partition are removed.

    Args:
        path: from `failback_path`; the file gets this name once it is complete.
        on_progress: called repeatedly with the bytes written and the total.
    Raises:
        ApiError: KAFKA_STORAGE_ERROR, no space. StorageError.
    """
    disk, waiting = log.partition_dir.files.disk, path.with_name(path.name + ".tmp")
    try:
        _remove_unfinished(log, disk)
        return await _write(log, offset, disk, waiting, path, on_progress)
    except OSError as error:
        if not is_disk_full(error):
            raise log.partition_dir.failed(error) from error
        disk.remove(waiting)
        raise no_space(log.log_dir) from None
    except ApiError:
        disk.remove(waiting)
        raise


def _remove_unfinished(log: Log, disk: Disk) -> None:
    front = f"{_front(log)}."
    for name in disk.list_dir(log.log_dir):
        if name.startswith(front) and is_unfinished(name):
            disk.remove(log.log_dir / name)


async def _write(log: Log, offset: int, disk: Disk, waiting: Path, path: Path, on_progress: OnProgress) -> int:
    needed = sum(each.size_bytes for each in log.segments.from_offset(offset))
    usage = disk.usage(log.log_dir)
    if usage.usable_bytes < needed + min(RESERVE_BYTES, usage.total_bytes // 100):
        raise no_space(log.log_dir)
    file = disk.open(waiting, create=True)
    written = 0
    try:
        while (offset := max(offset, log.log_start_offset)) < log.log_end_offset:
            # Look the segment up each time: retention and compaction may change the list.
            segment = next(log.segments.from_offset(offset))
            held, position, end = segment.open_shared(), segment.position_of(offset), segment.size_bytes
            offset = log.segments.end_of(segment, log.log_end_offset)
            while position < end:
                count = min(READ_BYTES, end - position)
                copied = await disk.run_blocking(partial(_copy, held.file, position, file, written, count))
                if not copied:
                    break  # the log was truncated: the caller discards the file
                position, written = position + copied, written + copied
                on_progress(written, needed)
        await disk.run_blocking(file.sync)
    finally:
        file.close()
    await disk.run_blocking(partial(_name, disk, waiting, path))
    return written


def _name(disk: Disk, waiting: Path, path: Path) -> None:
    disk.rename(waiting, path)
    disk.sync_dir(path.parent)


def _copy(source: File, position: int, target: File, target_position: int, count: int) -> int:
    data = source.read_at(position, count)
    return target.write_at(target_position, [data]) if data else 0
