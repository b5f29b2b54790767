"""Writing the end of a log aside before it is cut, as a file of batches that `odradek dump-log` reads (ADR 0021)."""

from __future__ import annotations

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


def aside_path(log: Log, offset: int, leader_epoch: int) -> Path:
    """Beside the directories of partitions: it stays where the topic is deleted, and belongs to no log."""
    topic, partition_id = log.topic_partition
    if len(topic) > LONGEST_TOPIC:
        topic = f"{topic[:LONGEST_TOPIC]}~{crc32(topic.encode()):08x}"
    return log.log_dir / f"{topic}-{partition_id}.{offset:020}.failback-{leader_epoch}.log"


async def set_aside(log: Log, offset: int, path: Path) -> int:
    """Write the batches from `offset` (inclusive) to the log's end to a file, durably; returns how many bytes.

    Nothing may be appended meanwhile. A file of that name is replaced once the new one is whole.

    Raises:
        ApiError: KAFKA_STORAGE_ERROR, there is no space for it; CORRUPT_MESSAGE, a batch cannot be read. StorageError.
    """
    disk, waiting = log.partition_dir.files.disk, path.with_name(path.name + ".tmp")
    try:
        return await _write(log, offset, disk, waiting, path)
    except OSError as error:
        if not is_disk_full(error):
            raise log.partition_dir.failed(error) from error
        disk.remove(waiting)
        raise no_space(log.log_dir) from None
    except ApiError:
        disk.remove(waiting)
        raise


async def _write(log: Log, offset: int, disk: Disk, waiting: Path, path: Path) -> int:
    needed = sum(each.size_bytes for each in log.segments.from_offset(offset))
    if disk.usage(log.log_dir).usable_bytes < needed:
        raise no_space(log.log_dir)
    disk.remove(waiting)  # of an attempt before
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
