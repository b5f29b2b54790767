"""From a partition's directory to its log, and back: opening and closing one log."""

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
    """Load a directory, which must exist; blocks.

    `notes` takes one line for each repair of the recovery. Raises StorageError.
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
    """Let go of the files; a clean close makes all durable first and blocks. Raises StorageError."""
    if clean:
        try:
            _write_for_next_start(log)
        except OSError as error:
            raise log.partition_dir.failed(error) from error
        log.flush()
    log.partition_dir.files.forget_below(log.directory)


def _write_for_next_start(log: Log) -> None:
    """The producers' state and all indexes, so that the next start reads no batches. Raises OSError.

    Without space for them the next start reads more of the log, and no more: the same after a loss of power, so that
    this snapshot is not synced.
    """
    log.segments.active.indexes.load()
    end = log.log_end_offset
    if end > log.segments.bases[0]:
        ignore_disk_full(lambda: log.flush_state.snapshot_producers(log.producers, end, in_next_flush=False))
    for segment in log.segments:
        ignore_disk_full(segment.indexes.flush)


def use_files(log: Log, files: FileCache) -> None:
    """Open files of these from now on: a log that another thread opened comes to the loop."""
    log.partition_dir.files = files
    log.segments.use_files()
