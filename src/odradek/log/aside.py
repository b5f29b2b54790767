"""Writing the end of a log aside before it is cut, as a file of batches that `odradek dump-log` reads (ADR 0021)."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Disk, is_disk_full
from odradek.log.files import no_space
from odradek.record.batch import HEADER_BYTES, BatchHeader

if TYPE_CHECKING:
    from odradek.log.log import Log

READ_BYTES = 4 * 1024 * 1024
# A file's name has 255 bytes, and a topic's may have 249.
LONGEST_TOPIC = 180
_UNFINISHED = r"\.[0-9]{20}\.failback-[0-9]+(-[0-9]+)?\.log\.tmp"


def aside_path(log: Log, offset: int, leader_epoch: int) -> Path:
    """Beside the directories of partitions: it stays where the topic is deleted, and belongs to no log.

    Of no file that is there: a topic of the same name may have come to the same offset and epoch before.
    """
    name = f"{_front(log)}.{offset:020}.failback-{leader_epoch}"
    path, count = log.log_dir / f"{name}.log", 0
    while log.partition_dir.files.disk.exists(path):
        count += 1
        path = log.log_dir / f"{name}-{count}.log"
    return path


def _front(log: Log) -> str:
    topic, partition_id = log.topic_partition
    if len(topic) > LONGEST_TOPIC:
        topic = f"{topic[:LONGEST_TOPIC]}~{crc32(topic.encode()):08x}"
    return f"{topic}-{partition_id}"


async def write_aside(log: Log, offset: int, path: Path) -> int:
    """Write the batches from `offset` (inclusive) to the log's end to a file, durably; returns how many bytes.

    Nothing may be appended meanwhile. What attempts before left unfinished of this partition is removed.

    Args:
        path: of `aside_path`; the file has that name once it is whole.

    Raises:
        ApiError: KAFKA_STORAGE_ERROR, there is no space for it; CORRUPT_MESSAGE, a batch cannot be read. StorageError.
    """
    disk, waiting = log.partition_dir.files.disk, path.with_name(path.name + ".tmp")
    try:
        _remove_unfinished(log, disk)
        return await _write(log, offset, disk, waiting, path)
    except OSError as error:
        if not is_disk_full(error):
            raise log.partition_dir.failed(error) from error
        disk.remove(waiting)
        raise no_space(log.log_dir) from None
    except ApiError:
        disk.remove(waiting)
        raise


def _remove_unfinished(log: Log, disk: Disk) -> None:
    """The process may have ended as it wrote, at another offset or under another epoch."""
    unfinished = re.compile(re.escape(_front(log)) + _UNFINISHED)
    for name in disk.list_dir(log.log_dir):
        if unfinished.fullmatch(name):
            disk.remove(log.log_dir / name)


async def _write(log: Log, offset: int, disk: Disk, waiting: Path, path: Path) -> int:
    needed = sum(each.size_bytes for each in log.segments.from_offset(offset))
    if disk.usage(log.log_dir).usable_bytes < needed:
        raise no_space(log.log_dir)
    file = disk.open(waiting, create=True)
    position = 0
    try:
        while (offset := max(offset, log.log_start_offset)) < log.log_end_offset:
            result = log.read(offset, max_bytes=READ_BYTES, at_least_one=True)
            if not result.size_bytes:
                break  # compaction left nothing up to the end
            data, offset = _whole(b"".join(each.read() for each in result.chunks))
            await disk.run_blocking(partial(file.write_at, position, [data]))
            position += len(data)
        await disk.run_blocking(file.sync)
    finally:
        file.close()
    disk.rename(waiting, path)
    disk.sync_dir(path.parent)
    return position


def _whole(data: bytes) -> tuple[memoryview, int]:
    """The whole batches at its front, and where they end (exclusive offset). Raises ApiError, there is none."""
    view, position, end = memoryview(data), 0, -1
    while position + HEADER_BYTES <= len(view):
        header = BatchHeader.read(view[position:])
        if position + header.size_bytes > len(view):
            break
        position, end = position + header.size_bytes, header.last_offset + 1
    if end < 0:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a log gave no batch where it has one")
    return view[:position], end
