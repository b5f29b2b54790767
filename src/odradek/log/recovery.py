"""Loads the files of a partition's directory into a log that can be written.

After a clean stop, sizes and indexes are trusted. Otherwise every batch after the recovery point is verified, and the
log is truncated at the first one that is not whole: nothing behind it was acknowledged as durable. Recovery changes no
marker before it is done, so that a crash during recovery is again an unclean stop.

Leftover files have one meaning each. `.deleted` and `.cleaned` files are not part of the log, and are removed; `.swap`
files are complete replacements, and `compaction.swap` completes the swap. Source: Kafka LogLoader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

from odradek.common.ports import Disk, ignore_disk_full, is_disk_full, read_file, write_file_durably
from odradek.log.checkpoints import LEADER_EPOCHS, CorruptCheckpointError, read_lines, write_lines_if_space
from odradek.log.compaction.swap import SWAP, complete_swap
from odradek.log.config import NEVER
from odradek.log.epoch_cache import EpochCache
from odradek.log.files import FileCache, make_durable
from odradek.log.holes import Hole
from odradek.log.overflow import may_overflow, split_off
from odradek.log.producer_state import CorruptSnapshotError, ProducerState
from odradek.log.segment import Segment
from odradek.log.segment_file import MAX_RELATIVE_OFFSET, segment_path
from odradek.log.segment_holes import headers_from
from odradek.log.segment_removal import mark_deleted
from odradek.log.segment_truncation import truncate_segment
from odradek.log.transactions import rebuild_transactions, replay_batch
from odradek.log.verification import Damage, check_batches, rewrite_from
from odradek.record.batch import BatchHeader

_LOG_FILE = re.compile(r"^(\d{20})\.log$")
_SNAPSHOT_FILE = re.compile(r"^(\d{20})\.snapshot$")
# How many bytes from the end of a log are read to restore the last batches of its producers.
WINDOW_BYTES = 1 << 20
_INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")


@dataclass(slots=True)
class LoadedLog:
    """The state of a loaded directory.

    Attributes:
        log_end_offset: exclusive.
        epochs_are_written: whether the checkpoint of leader epochs has these epochs; otherwise the next flush writes
            it.
        was_truncated: whether the log ends below the former recovery point, and checkpoints may have larger offsets.
        unsynced_snapshots: producer snapshots that a killed process may have left in the page cache.
        notes: one line for each repair, for the node's log.
    """

    segments: list[Segment]
    epochs: EpochCache
    producers: ProducerState
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs_are_written: bool
    was_truncated: bool
    unsynced_snapshots: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def load_directory(
    files: FileCache,
    directory: Path,
    *,
    now_ms: int,
    clean_shutdown: bool,
    recovery_point: int,
    log_start_offset: int,
    index_interval_bytes: int,
    compacted: bool = False,
    flush_messages: int = NEVER,
) -> LoadedLog:
    """Load a partition's directory, and recover it after an unclean stop; creates an empty segment if there is none.

    Args:
        recovery_point: the offset (exclusive) below which all records were durable at the last checkpoint.
        compacted: whether a segment may end before the next one begins.
        flush_messages: flush.messages; if at least so many records are not durable, they are flushed.
        log_start_offset: from the checkpoint; raised to the first segment's base offset.
    Raises:
        OSError: the disk failed.
    """
    disk = files.disk
    notes: list[str] = []
    _complete_interrupted(disk, directory, notes)
    segments = _open_segments(files, directory)
    if not segments:
        segment = Segment(files, directory, max(0, log_start_offset), created_ms=now_ms)
        segment.open(create=True)
        segments.append(segment)
    end = _end_of(segments[-1])
    is_too_long = any(may_overflow(each, after.base_offset) for each, after in pairwise(segments))
    written_to = recovery_point
    if clean_shutdown and end is not None:
        recovery_point = max(recovery_point, end)
    if not clean_shutdown or end is None or is_too_long:
        end = _recover(files, segments, recovery_point, index_interval_bytes, notes, compacted=compacted)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    if end < log_start_offset:
        notes.append(f"{directory.name}: the log end {end} is below its start {log_start_offset}: the log is recreated")
        for segment in segments:
            mark_deleted(segment)
        segments = [Segment(files, directory, log_start_offset, created_ms=now_ms)]
        segments[0].open(create=True)
        end = log_start_offset
    written_to = min(written_to, end)  # lower if the disk was too full for epochs or aborted transactions
    epochs, epochs_are_written = _load_epochs(
        disk, directory, segments, log_start_offset, end, notes, known_to=written_to, is_clean=clean_shutdown
    )
    producers = load_producers(disk, directory, segments, end, notes, indexed_to=written_to)
    _repair_transaction_indexes(segments)
    is_whole = epochs_are_written and all(segment.indexes.transactions.is_written for segment in segments)
    recovered = end if clean_shutdown and is_whole else written_to
    if not clean_shutdown and flush_messages < NEVER:
        _rename_twice(disk, directory, [segment for segment in segments if segment.base_offset >= recovered])
    unwritten = None if epochs_are_written else epochs
    if end - recovered >= flush_messages and _make_durable(disk, directory, segments, recovered, unwritten):
        recovered, epochs_are_written = end, True
    return LoadedLog(
        segments,
        epochs,
        producers,
        log_start_offset,
        end,
        recovered,
        epochs_are_written,
        was_truncated=end < recovery_point,
        unsynced_snapshots=_snapshots_after(disk, directory, recovered),
        notes=notes,
    )


def _repair_transaction_indexes(segments: list[Segment]) -> None:
    """Rebuild damaged indexes of aborted transactions before new entries are written behind the damage. Raises
    OSError."""
    if any(segment.indexes.transactions_damaged for segment in segments):
        rebuild_transactions(segments)
        for segment in segments:
            ignore_disk_full(partial(segment.indexes.flush, sync=True))


def begin_directory(files: FileCache, directory: Path, *, now_ms: int) -> LoadedLog:
    """Do the same as `load_directory` for a new directory, in a tenth of the time, because one request may create
    thousands of logs. Blocks, raises OSError."""
    segment = Segment(files, directory, 0, created_ms=now_ms)
    segment.open(create=True)
    return LoadedLog([segment], EpochCache(), ProducerState(), 0, 0, 0, epochs_are_written=True, was_truncated=False)


def _complete_interrupted(disk: Disk, directory: Path, notes: list[str]) -> None:
    for name in disk.list_dir(directory):
        path = directory / name
        if name.endswith((".deleted", ".cleaned", ".tmp")):
            disk.remove(path)
    complete_swap(disk, directory, notes)


def _open_segments(files: FileCache, directory: Path) -> list[Segment]:
    disk = files.disk
    bases = sorted(int(match[1]) for name in disk.list_dir(directory) if (match := _LOG_FILE.match(name)))
    _remove_orphans(disk, directory, set(bases))
    segments = []
    for base in bases:
        created_ms = disk.modified_ms(segment_path(directory, base, ".log"))
        segment = Segment(files, directory, base, created_ms=created_ms)
        segment.open()
        segments.append(segment)
    return segments


def _remove_orphans(disk: Disk, directory: Path, bases: set[int]) -> None:
    """Remove index files without a segment."""
    for name in disk.list_dir(directory):
        stem, _, suffix = name.partition(".")
        if f".{suffix}" in _INDEX_SUFFIXES and stem.isdecimal() and int(stem) not in bases:
            disk.remove(directory / name)


def _end_of(segment: Segment) -> int | None:
    """The offset behind a segment's last batch, from headers alone; None if the file does not end with a whole
    batch."""
    segment.indexes.load()
    end, position = segment.base_offset, segment.indexes.offsets.last_position()
    for start, header in segment.indexes.surviving_headers(position):
        end, position = header.last_offset + 1, start + header.size_bytes
    return end if position == segment.size_bytes else None


def _recover(
    files: FileCache,
    segments: list[Segment],
    recovery_point: int,
    index_interval_bytes: int,
    notes: list[str],
    *,
    compacted: bool,
) -> int:
    """Verify the log after the recovery point and truncate it at the first damage; returns the log end offset."""
    end, was_split = segments[0].base_offset, False
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        if following is not None and following <= recovery_point and not may_overflow(segment, following):
            end = following
            continue
        end, damage = _verify(segment, index_interval_bytes, following)
        if damage is not None and damage.overflows:
            parts = split_off(files, segment, damage.position, expected_offset=end, following=following)
            if parts is not None:
                notes.append(f"{segment.path}: its offsets exceed the range of an index; it is split at {end}")
                segments[number + 1 : number + 1] = parts
                was_split = True
                continue
        if damage is None and following is not None and not compacted:
            damage = _has_gap_between(segment, end, segments[number + 1])
        if damage is None:
            continue
        lost = [later.base_offset for later in segments[number + 1 :]]
        notes.append(
            f"{segment.path}: truncated at position {damage.position}, offset {end}: {damage.reason}"
            + (f"; {len(lost)} later segments are removed" if lost else "")
        )
        truncate_segment(segment, damage.position, end)
        for later in segments[number + 1 :]:
            mark_deleted(later)
        # Before the next append: if a loss of power undid the truncation, old batches would follow new ones.
        segment.sync_file_and_directory()
        del segments[number + 1 :]
        break
    if was_split:
        rebuild_transactions(segments)
        for segment in segments:
            segment.indexes.flush(sync=True)
    return end


def _has_gap_between(segment: Segment, end: int, after: Segment) -> Damage | None:
    """Return damage if records are missing between two segments: after a loss of power only the younger file may be
    left.

    A gap is valid if one segment could not span it: `rolling.advance_end_to` begins a new segment after a flush.
    """
    if end >= after.base_offset:
        return None
    _, first = next(after.headers(0), (0, None))
    if first is not None and first.last_offset - end > MAX_RELATIVE_OFFSET:
        return None
    return Damage(segment.size_bytes, f"the segment ends there, and the next one begins at {after.base_offset}")


def _rename_twice(disk: Disk, directory: Path, segments: list[Segment]) -> None:
    """Rename segments and back, so that the next sync of the directory stores their names.

    After a failed sync of the directory the names are visible, and a later sync alone does not make them durable. The
    next start resolves a crash between the two renames. Raises OSError.
    """
    for segment in segments:
        path, aside = segment.path, segment_path(directory, segment.base_offset, ".log" + SWAP)
        disk.rename(path, aside)
        disk.rename(aside, path)


def _make_durable(
    disk: Disk, directory: Path, segments: list[Segment], recovery_point: int, epochs: EpochCache | None
) -> bool:
    """Write the bytes again and sync them. After a failed fsync the page cache may differ from the disk, and the next
    fsync succeeds without writing it.

    Args:
        epochs: the leader epochs to store; None if the checkpoint has them. A start reads epochs only behind the
            recovery point.
    Returns:
        Whether the recovery point may advance to the log end; False if there is no space for the epochs or for an index
            of aborted transactions, which a start also reads only behind the recovery point.
    """
    is_indexed = True
    make_durable(disk, [], _snapshots_after(disk, directory, recovery_point), [])
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is None or following.base_offset > recovery_point:
            found = segment.locate(recovery_point)
            rewrite_from(segment, found[0] if found is not None else 0)
            is_indexed &= _sync_indexes(segment)
            segment.sync_file_and_directory()
    if not is_indexed:
        return False
    return epochs is None or write_lines_if_space(disk, directory / LEADER_EPOCHS, epochs.lines())


def _sync_indexes(segment: Segment) -> bool:
    """Make the indexes durable; returns whether there was space. Raises OSError."""
    try:
        segment.indexes.flush(sync=True)
    except OSError as error:
        if is_disk_full(error):
            return False
        raise
    return True


def _verify(segment: Segment, index_interval_bytes: int, following: int | None) -> tuple[int, Damage | None]:
    """Verify a segment; returns its end offset, and the first damage or None.

    The offsets are checked too, which no checksum covers. The indexes are rebuilt at the same time: another pass would
    take as long.
    """
    end = segment.base_offset
    is_indexed = False
    for found in check_batches(segment, expected_offset=segment.base_offset):
        if not isinstance(found, Damage) and following is not None and found[1].last_offset >= following:
            found = Damage(
                found[0], f"offset {found[1].last_offset} is the next segment's, which begins at {following}"
            )
        if isinstance(found, Damage):
            if not is_indexed:
                segment.indexes.clear()
            return end, found
        if found[0] == 0:
            segment.indexes.clear()
            is_indexed = True
        segment.index_batch(found[1], found[0], index_interval_bytes)
        end = found[1].last_offset + 1
    if not is_indexed:
        segment.indexes.clear()
    segment.verification.verified_all()
    segment.indexes.transactions.mark_unsynced()
    return end, None


def _load_epochs(
    disk: Disk,
    directory: Path,
    segments: list[Segment],
    start: int,
    end: int,
    notes: list[str],
    *,
    known_to: int,
    is_clean: bool,
) -> tuple[EpochCache, bool]:
    """Load the leader epochs from the checkpoint, and from the batches where it is missing, damaged or outdated.

    Args:
        known_to: the checkpoint has all epochs that begin below this offset (exclusive). Later epochs are read from the
            log; those of the checkpoint count there only if they fit, because their batches may have been truncated.
        is_clean: whether the stop was clean: then the checkpoint's last epoch counts in a log that retention has
            emptied.
    Returns:
        The epochs, and whether the checkpoint has the same. If not, it must be written before the next clean stop,
            after which a start trusts it.
    """
    written: list[str] = []
    try:
        written = read_lines(disk, directory / LEADER_EPOCHS)
        epochs = EpochCache.from_lines(written)
    except CorruptCheckpointError as error:
        notes.append(f"{error}; rebuilt from the log")
        epochs = EpochCache()
    later = [entry for entry in epochs.entries() if known_to <= entry[1]]
    epochs.truncate_from_end(min(known_to, end))
    begin = read_to = known_to if epochs.entries() else segments[0].base_offset
    for header in _headers_between(segments, begin, end):
        for epoch, first in later:
            # An epoch may begin between two batches: compaction may have removed its first batches.
            if read_to <= first <= header.base_offset and epoch <= header.partition_leader_epoch:
                epochs.assign(epoch, first)
        epochs.assign(header.partition_leader_epoch, header.base_offset)
        read_to = header.last_offset + 1
    for epoch, first in later if is_clean and 0 < start == end else ():
        if first == end:
            epochs.assign(epoch, first)
    epochs = _with_restored_front(epochs, segments, start)
    epochs.truncate_from_start(start)  # the files may begin with deleted batches
    return epochs, epochs.lines() == written


def _with_restored_front(epochs: EpochCache, segments: list[Segment], start: int) -> EpochCache:
    """Add the epochs of the batches between the log start and the first entry.

    DeleteRecords removes epochs from the checkpoint at once, and the checkpoint of log start offsets is written later.
    After a crash in between, the log has the records again. Nothing is added if the first batch has no epoch.
    """
    entries = epochs.entries()
    if not entries or entries[0][1] <= start:
        return epochs
    first = entries[0][1]
    found = EpochCache()
    for header in _headers_between(segments, start, first):
        if header.partition_leader_epoch < 0:
            break
        found.assign(header.partition_leader_epoch, header.base_offset)
    for epoch, offset in entries:
        found.assign(epoch, offset)
    return found


def _headers_between(segments: list[Segment], start: int, end: int) -> Iterator[BatchHeader]:
    """The headers of the batches that hold offsets in [start, end); opens no file if the range is empty."""
    if start >= end:
        return
    for number, segment in enumerate(segments):
        last = number + 1 == len(segments)
        if segment.base_offset >= end or (not last and segments[number + 1].base_offset <= start):
            continue
        for _, header in headers_from(segment, start):
            if header.base_offset >= end:
                return
            yield header


def load_producers(
    disk: Disk, directory: Path, segments: list[Segment], end: int, notes: list[str], *, indexed_to: int | None = None
) -> ProducerState:
    """Load the newest valid snapshot at or below `end` (exclusive), and replay the batches behind it.

    Args:
        indexed_to: the offset (exclusive) up to which the index of aborted transactions is complete; missing entries
            behind it are added, so the snapshot must not be newer. None if the whole index is complete.
    """
    first_base = segments[0].base_offset
    # Only a snapshot has the producers of deleted segments, for which no index must be repaired.
    newest = end if indexed_to is None else min(end, max(indexed_to, first_base))
    state, offsets = _newest_snapshot(disk, directory, end, newest, notes)
    if indexed_to is not None:
        _truncate_aborted(segments, newest)
    start = max(state.map_end_offset, first_base)
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= start:
            continue  # the snapshot covers this segment
        if segment.base_offset > start and segment.base_offset not in offsets:
            # After retention has deleted the earlier segments, only a snapshot has the producers up to here.
            state.map_end_offset = segment.base_offset
            _write_snapshot(disk, segment_path(directory, segment.base_offset, ".snapshot"), state)
        for position, header in headers_from(segment, start, partial(_record_hole, state, segment, notes)):
            if header.last_offset >= start:
                replay_batch(state, segment, position, header, notes)
    state.map_end_offset = end
    if state.producers:
        _widen_windows(state, segments)
    return state


def _newest_snapshot(
    disk: Disk, directory: Path, end: int, newest: int, notes: list[str]
) -> tuple[ProducerState, list[int]]:
    """The state of the newest valid snapshot at or below `newest`, and the offsets of all snapshots that remain.

    Removes damaged snapshots, and those beyond the log end.
    """
    offsets = snapshot_offsets(disk, directory)
    for offset in sorted(offsets, reverse=True):
        path = segment_path(directory, offset, ".snapshot")
        if offset > end:
            disk.remove(path)
            continue
        try:
            snapshot = ProducerState.from_snapshot(read_file(disk, path), offset)
        except CorruptSnapshotError as error:
            notes.append(f"{path}: {error}; producers are read from the log")
            disk.remove(path)
            offsets.remove(offset)
            continue
        if offset <= newest:
            return snapshot, offsets
    return ProducerState(), offsets


def reload_producers(disk: Disk, directory: Path, segments: list[Segment], present: ProducerState) -> ProducerState:
    """Load the producers again after a damaged range was repaired. Raises OSError."""
    assert present.unreplayed_from is not None, "a batch was not replayed"
    for offset in snapshot_offsets(disk, directory):
        if offset > present.unreplayed_from:
            disk.remove(segment_path(directory, offset, ".snapshot"))
    end = present.map_end_offset
    state = load_producers(disk, directory, segments, end, [])
    state.restore_known_batches(present, end)
    state.inherit_from(present)
    return state


def _record_hole(state: ProducerState, segment: Segment, notes: list[str], hole: Hole) -> None:
    state.unreplayed_from = hole.offset if state.unreplayed_from is None else min(state.unreplayed_from, hole.offset)
    further = (
        "the rest is not read" if hole.end_position is None else f"the rest is read from byte {hole.end_position} on"
    )
    notes.append(
        f"{segment.path}: no whole batch at byte {hole.position}: its producer may be unknown until the repair;  "
        + further
    )


def _truncate_aborted(segments: list[Segment], offset: int) -> None:
    """Remove the index entries of markers from `offset` on, to read them from the log: a loss of power may have lost
    the markers, or earlier entries."""
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is None or following.base_offset > offset:
            segment.indexes.load()
            segment.indexes.transactions.truncate(offset)


def _write_snapshot(disk: Disk, path: Path, state: ProducerState) -> None:
    try:
        write_file_durably(disk, path, state.snapshot())
    except OSError as error:
        if not is_disk_full(error):
            raise


def _widen_windows(state: ProducerState, segments: list[Segment]) -> None:
    """Restore the batches before a producer's last one, which a snapshot does not include.

    A client that had several batches in flight retries all of them. Without the older ones, the first retry would be
    refused as out of order, and the client would fail.
    """
    left = WINDOW_BYTES
    batches: list[BatchHeader] = []
    for segment in reversed(segments):
        segment.indexes.load()
        start = segment.indexes.offsets.boundary_before(max(0, segment.size_bytes - left))
        surviving = segment.indexes.surviving_headers(start)
        # Batches of producers, and control batches that remove producers; not transaction markers.
        batches[:0] = [header for _, header in surviving if header.has_producer_id != header.is_control]
        left -= segment.size_bytes - start
        if left <= 0:
            break
    state.restore_dedup_window(batches)


def snapshot_offsets(disk: Disk, directory: Path) -> list[int]:
    """The offsets of the producer snapshots, in order."""
    return sorted(int(match[1]) for name in disk.list_dir(directory) if (match := _SNAPSHOT_FILE.match(name)))


def _snapshots_after(disk: Disk, directory: Path, offset: int) -> list[Path]:
    return [segment_path(directory, each, ".snapshot") for each in snapshot_offsets(disk, directory) if each > offset]


def delete_snapshots_before(disk: Disk, directory: Path, offset: int) -> None:
    """Remove producer snapshots below `offset`. Blocks, raises OSError."""
    for snapshot in snapshot_offsets(disk, directory):
        if snapshot < offset:
            disk.remove(segment_path(directory, snapshot, ".snapshot"))
