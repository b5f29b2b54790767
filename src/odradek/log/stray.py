"""Directories that bear a partition's name, and are not its log's: they get out of the log's way, with all they hold.

A start finds two logs of one partition where a disk came back that had been away, or where somebody copied one. The one
that is not the log is left alone, until the log needs its name: then it gets Kafka's name for such directories,
`topic-partition.<32 hex digits>-stray`. No start takes that for a log, and nothing removes it: that is for a person who
has looked at what it holds.
"""

from __future__ import annotations

from pathlib import Path

from odradek.common.errors import StorageError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Disk, is_disk_full
from odradek.log.files import FileCache

MAX_NAME_BYTES = 255
_log = get_logger("log.stray")


def rename_stray(disk: Disk, directory: Path, random_bits: int) -> None:
    """Give a directory of this name that holds something another one beside it, if there is one.

    Raises:
        OSError: it has the name that it had.
    """
    if not disk.is_dir(directory) or not disk.list_dir(directory):
        return
    mark = f".{random_bits:032x}-stray"
    target = directory.parent / (directory.name[: MAX_NAME_BYTES - len(mark)] + mark)
    disk.rename(directory, target)
    _log.warning("another copy of a partition had the log's name, and is kept", directory=directory, kept_as=target)


def free_name(files: FileCache, directory: Path, random_bits: int) -> None:
    """`rename_stray`, before a new log gets the name.

    Raises:
        ApiError: KAFKA_STORAGE_ERROR, no space. StorageError.
    """
    try:
        rename_stray(files.disk, directory, random_bits)
    except OSError as error:
        if is_disk_full(error):
            raise files.no_space(directory.parent, error) from None
        raise StorageError(directory.parent, f"{directory}: {error}") from error
