"""Opens and closes the log of a partition's directory."""

from __future__ import annotations

from pathlib import Path

from odradek.common.ports import ignore_disk_full
from odradek.common.topic_names import TopicPartition
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.log import Log, RemoveLater
from odradek.log.partition_dir import PartitionDir
from odradek.log.recovery import load_directory


def open_log(
    files: FileCache,
    directory: Path,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    now_ms: int,
    clean_shutdown: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    jitter: float = 0.0,
    remove_later: RemoveLater | None = None,
    notes: list[str] | None = None,
) -> Log:
    """Load an existing directory. Blocks, raises StorageError.

    `notes` gets a line for each repair.
    """
    try:
        loaded = load_directory(
            files,
            directory,
            now_ms=now_ms,
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            index_interval_bytes=config.index_interval_bytes,
            compacted=config.compacted,
            flush_messages=config.flush_messages,
        )
    except OSError as error:
        raise PartitionDir(files, directory).failed(error) from error
    if notes is not None:
        notes += loaded.notes
    return Log(files, directory, topic_partition, config, loaded, jitter=jitter, remove_later=remove_later)


def close_log(log: Log, *, clean: bool = True) -> None:
    """Close the files; a clean close makes all records durable first, and blocks. Raises StorageError."""
    if clean:
        try:
            _write_for_next_start(log)
        except OSError as error:
            raise log.partition_dir.failed(error) from error
        log.flush()
    log.partition_dir.files.invalidate_below(log.directory)


def _write_for_next_start(log: Log) -> None:
    """Write a producer snapshot and all indexes, so that the next start reads no batches. Raises OSError.

    If there is no space, the next start reads more of the log, as after a loss of power: so the snapshot is not synced.
    """
    log.segments.active.indexes.load()
    end = log.log_end_offset
    if end > log.segments.bases[0]:
        ignore_disk_full(lambda: log.flush_state.snapshot_producers(log.producers, end, in_next_flush=False))
    for segment in log.segments:
        ignore_disk_full(segment.indexes.flush)


def use_files(log: Log, files: FileCache) -> None:
    """Use another file cache, after another thread has opened the log."""
    log.partition_dir.files = files
    log.segments.use_files()
