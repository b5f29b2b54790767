"""Stray directories: those with a partition's name that do not hold its log, as Kafka names them.

A start may find two logs of a partition, for example after a disk was reattached or a directory was copied. The one
that is not the log stays unchanged until the log needs its name. It is then renamed to `topic-partition.<32 hex
digits>-stray`. No start loads such a directory and nothing removes it: an operator decides.
"""

from __future__ import annotations

from pathlib import Path

from odradek.common.errors import StorageError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Disk, is_disk_full
from odradek.log.dir_names import stray_path
from odradek.log.files import FileCache

_log = get_logger("log.stray")


def rename_stray(disk: Disk, directory: Path, random_bits: int) -> None:
    """Rename a directory that is not empty to a stray one beside it; does nothing if there is none.

    Raises:
        OSError: the directory has its old name.
    """
    if not disk.is_dir(directory) or not disk.list_dir(directory):
        return
    target = stray_path(directory, random_bits)
    disk.rename(directory, target)
    _log.warning("stray partition directory renamed", directory=directory, kept_as=target)


def free_name(files: FileCache, directory: Path, random_bits: int) -> None:
    """Do `rename_stray` before a new log gets the name.

    Raises:
        ApiError: KAFKA_STORAGE_ERROR, the disk is full. StorageError.
    """
    try:
        rename_stray(files.disk, directory, random_bits)
    except OSError as error:
        if is_disk_full(error):
            raise files.no_space(directory.parent, error) from None
        raise StorageError(directory.parent, f"{directory}: {error}") from error
