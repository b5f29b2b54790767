"""From what is in a partition's directory to a log that can be written.

After a clean stop sizes and indexes are believed. After any other, every batch past the recovery point is verified,
and the log is cut at the first one that is not whole: nothing behind it was acknowledged as durable. Recovery leaves no
mark before it is done, so a crash in the middle of it is again an unclean start.

Leftovers have one meaning each: `.deleted` and `.cleaned` files were never, or are no longer, part of the log and go;
`.swap` files are complete replacements and take the place of what they replace (`compaction.swap`).
Source: Kafka LogLoader.
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
from odradek.log.compaction.swap import SWAP, settle_swap
from odradek.log.config import NEVER
from odradek.log.epoch_cache import EpochCache
from odradek.log.files import FileCache, make_durable
from odradek.log.holes import Hole
from odradek.log.overflow import may_overflow, split_off
from odradek.log.producer_state import CorruptSnapshotError, ProducerState
from odradek.log.segment import Segment
from odradek.log.segment_cut import truncate_segment
from odradek.log.segment_file import MAX_RELATIVE_OFFSET, segment_path
from odradek.log.segment_holes import headers_from
from odradek.log.segment_removal import mark_deleted
from odradek.log.transactions import rebuild_transactions, replay_batch
from odradek.log.verification import Damage, check_batches, rewrite_from
from odradek.record.batch import BatchHeader

_LOG_FILE = re.compile(r"^(\d{20})\.log$")
_SNAPSHOT_FILE = re.compile(r"^(\d{20})\.snapshot$")
# How far back from the end of a log the windows of its producers are looked for.
WINDOW_BYTES = 1 << 20
_INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")


@dataclass(slots=True)
class LoadedLog:
    """What a directory holds.

    Attributes:
        log_end_offset: exclusive.
        epochs_are_written: whether the epochs' checkpoint says what was found; else the next flush must write it.
        was_cut: whether the log ends before what was durable once, so that a checkpoint may speak of more.
        unsynced_snapshots: of producers, which a process that was killed may have left in the page cache.
        notes: one line for each repair, for the node's log.
    """

    segments: list[Segment]
    epochs: EpochCache
    producers: ProducerState
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs_are_written: bool
    was_cut: bool
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
    """Load and, after an unclean stop, recover one partition's directory; makes an empty segment where there is none.

    Args:
        recovery_point: all below (exclusive) was durable when the checkpoint was written.
        compacted: a segment may end before the next one begins.
        flush_messages: how many records may be acknowledged and not durable; from so many on they are made durable.
        log_start_offset: the checkpoint's; raised to the first segment's base offset.
    Raises:
        OSError: the disk failed.
    """
    disk = files.disk
    notes: list[str] = []
    _settle_leftovers(disk, directory, notes)
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
        notes.append(f"{directory.name}: the log ends at {end}, before its start {log_start_offset}: it is recreated")
        for segment in segments:
            mark_deleted(segment)
        segments = [Segment(files, directory, log_start_offset, created_ms=now_ms)]
        segments[0].open(create=True)
        end = log_start_offset
    written_to = min(written_to, end)  # a stop that had no space for epochs, or aborted transactions, did not move it
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
        was_cut=end < recovery_point,
        unsynced_snapshots=_snapshots_behind(disk, directory, recovered),
        notes=notes,
    )


def _repair_transaction_indexes(segments: list[Segment]) -> None:
    """Make damaged indexes of aborted transactions again, before entries are written behind what is damaged there: the
    file would look whole, without those before. Raises OSError."""
    if any(segment.indexes.transactions_damaged for segment in segments):
        rebuild_transactions(segments)
        for segment in segments:
            ignore_disk_full(partial(segment.indexes.flush, sync=True))


def begin_directory(files: FileCache, directory: Path, *, now_ms: int) -> LoadedLog:
    """What `load_directory` finds in a directory without a log's files, in a tenth of its time: a request may make
    thousands of logs. Blocks, raises OSError."""
    segment = Segment(files, directory, 0, created_ms=now_ms)
    segment.open(create=True)
    return LoadedLog([segment], EpochCache(), ProducerState(), 0, 0, 0, epochs_are_written=True, was_cut=False)


def _settle_leftovers(disk: Disk, directory: Path, notes: list[str]) -> None:
    for name in disk.list_dir(directory):
        path = directory / name
        if name.endswith((".deleted", ".cleaned", ".tmp")):
            disk.remove(path)
    settle_swap(disk, directory, notes)


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
    """Index files whose segment is gone."""
    for name in disk.list_dir(directory):
        stem, _, suffix = name.partition(".")
        if f".{suffix}" in _INDEX_SUFFIXES and stem.isdecimal() and int(stem) not in bases:
            disk.remove(directory / name)


def _end_of(segment: Segment) -> int | None:
    """The offset behind a segment's last batch by headers alone; None where the file does not end with one."""
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
    """Verify what lies past the recovery point, cut at the first damage; returns the log's end offset."""
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
                notes.append(f"{segment.path}: its offsets do not fit its index; it is split at {end}")
                segments[number + 1 : number + 1] = parts
                was_split = True
                continue
        if damage is None and following is not None and not compacted:
            damage = _has_gap_between(segment, end, segments[number + 1])
        if damage is None:
            continue
        lost = [later.base_offset for later in segments[number + 1 :]]
        notes.append(
            f"{segment.path}: cut at position {damage.position}, offset {end}: {damage.reason}"
            + (f"; {len(lost)} later segments go with it" if lost else "")
        )
        truncate_segment(segment, damage.position, end)
        for later in segments[number + 1 :]:
            mark_deleted(later)
        # Before anything follows: were the cut undone by a loss of power, old batches would stand behind new ones.
        segment.sync_file_and_directory()
        del segments[number + 1 :]
        break
    if was_split:
        rebuild_transactions(segments)
        for segment in segments:
            segment.indexes.flush(sync=True)
    return end


def _has_gap_between(segment: Segment, end: int, after: Segment) -> Damage | None:
    """A power loss may keep the younger of two files: what it holds follows on records that are lost.

    But where no segment could hold both the old end and what comes next, the log itself went on there, and all before
    was durable first (`rolling.advance_end_to`).
    """
    if end >= after.base_offset:
        return None
    _, first = next(after.headers(0), (0, None))
    if first is not None and first.last_offset - end > MAX_RELATIVE_OFFSET:
        return None
    return Damage(segment.size_bytes, f"it ends there, and the next segment begins at {after.base_offset}")


def _rename_twice(disk: Disk, directory: Path, segments: list[Segment]) -> None:
    """Rename segments to and fro, so that the next sync of the directory has their names to store.

    After one that failed they are seen, and no later sync alone makes them durable. A stop between the two names is
    settled by the next start. Raises OSError.
    """
    for segment in segments:
        path, aside = segment.path, segment_path(directory, segment.base_offset, ".log" + SWAP)
        disk.rename(path, aside)
        disk.rename(aside, path)


def _make_durable(
    disk: Disk, directory: Path, segments: list[Segment], recovery_point: int, epochs: EpochCache | None
) -> bool:
    """Bytes are written again before they are synced: after a failed fsync the page cache shows what the disk has not,
    and the next fsync says that all is well.

    Args:
        epochs: to be stored, None where they are: the next start looks for them behind the recovery point alone.
    Returns:
        Whether the recovery point may move to the log's end; False where there is no space for the epochs, or for an
        index: a start looks for aborted transactions behind the recovery point alone.
    """
    is_indexed = True
    make_durable(disk, [], _snapshots_behind(disk, directory, recovery_point), [])
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
    """Whether there was space to make them durable; raises OSError."""
    try:
        segment.indexes.flush(sync=True)
    except OSError as error:
        if is_disk_full(error):
            return False
        raise
    return True


def _verify(segment: Segment, index_interval_bytes: int, following: int | None) -> tuple[int, Damage | None]:
    """(End offset, where the segment stops making sense); no checksum covers where a batch is in the log.

    The indexes are rebuilt on the way: a second reading would take as long as the first.
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
    segment.indexes.transactions.note_unsynced()
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
    """The checkpoint, or, where it is missing or damaged, the epochs that the batches themselves tell.

    Args:
        known_to: the checkpoint knows every epoch that begins below (exclusive). What follows is read from the log: of
            what the checkpoint has there, some may be of batches that were cut off, and is believed where it fits.
        is_clean: none were: in a log that retention emptied, the checkpoint alone has the epoch of its last records.
    Returns:
        The epochs, and whether the checkpoint says the same. What it lacks must be written before the log stops in
        good order, as the next start believes it then for all of the log.
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
            # Between two batches: compaction may have taken those that it began with.
            if read_to <= first <= header.base_offset and epoch <= header.partition_leader_epoch:
                epochs.assign(epoch, first)
        epochs.assign(header.partition_leader_epoch, header.base_offset)
        read_to = header.last_offset + 1
    for epoch, first in later if is_clean and 0 < start == end else ():
        if first == end:
            epochs.assign(epoch, first)
    epochs = _with_restored_front(epochs, segments, start)
    epochs.truncate_from_start(start)  # the files may begin with batches that were deleted, and keep their epochs
    return epochs, epochs.lines() == written


def _with_restored_front(epochs: EpochCache, segments: list[Segment], start: int) -> EpochCache:
    """The epochs, and before them those of the batches between the log's start and the first entry.

    DeleteRecords drops epochs from the checkpoint at once; the checkpoint of log start offsets follows later. After a
    crash in between, the log has the records again. A log whose first batch has no epoch stays as it is.
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
    """The headers of the batches that hold offsets in [start, end); no file is opened where that is empty."""
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
    """The newest good snapshot at or below `end` (exclusive), and every batch behind it.

    Args:
        indexed_to: up to where (exclusive) the index of aborted transactions is known to be whole; what it lacks behind
            that is added, from a snapshot that is no newer. None for all.
    """
    first_base = segments[0].base_offset
    # Of what retention dropped there is no index to mend, and only the snapshot has its producers.
    newest = end if indexed_to is None else min(end, max(indexed_to, first_base))
    state, offsets = _newest_snapshot(disk, directory, end, newest, notes)
    if indexed_to is not None:
        _forget_aborted(segments, newest)
    start = max(state.map_end_offset, first_base)
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= start:
            continue  # all before the snapshot, without a look at its index
        if segment.base_offset > start and segment.base_offset not in offsets:
            # Once retention has dropped the segments before, nothing else has the producers up to here.
            state.map_end_offset = segment.base_offset
            _write_snapshot(disk, segment_path(directory, segment.base_offset, ".snapshot"), state)
        for position, header in headers_from(segment, start, partial(_note_hole, state, segment, notes)):
            if header.last_offset >= start:
                replay_batch(state, segment, position, header, notes)
    state.map_end_offset = end
    if state.producers:
        _widen_windows(state, segments)
    return state


def _newest_snapshot(
    disk: Disk, directory: Path, end: int, newest: int, notes: list[str]
) -> tuple[ProducerState, list[int]]:
    """The state of the newest good snapshot that is at or below `newest`, and the offsets of the snapshots that stay.

    What lies behind the log's end, or is damaged, is removed.
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
    """The state of a log that was read around holes, once one of them is filled; raises OSError."""
    assert present.unreplayed_from is not None, "something was missed"
    for offset in snapshot_offsets(disk, directory):
        if offset > present.unreplayed_from:
            disk.remove(segment_path(directory, offset, ".snapshot"))
    end = present.map_end_offset
    state = load_producers(disk, directory, segments, end, [])
    state.restore_known_batches(present, end)
    state.inherit_from(present)
    return state


def _note_hole(state: ProducerState, segment: Segment, notes: list[str], hole: Hole) -> None:
    state.unreplayed_from = hole.offset if state.unreplayed_from is None else min(state.unreplayed_from, hole.offset)
    further = "what follows is not known" if hole.end_position is None else f"read on from byte {hole.end_position}"
    notes.append(
        f"{segment.path}: no whole batch at byte {hole.position}: its producer may be forgotten until it is repaired; "
        + further
    )


def _forget_aborted(segments: list[Segment], offset: int) -> None:
    """What the index says of markers from `offset` on is read from the log again: a loss of power may have kept entries
    of markers that it took, or later ones without earlier ones."""
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
    """Give producers back the batches before their last, which a snapshot leaves out.

    A client that had several batches under way when the broker stopped sends all of them again; without the older ones
    the first would be refused as out of order, and the client would give up.
    """
    left = WINDOW_BYTES
    batches: list[BatchHeader] = []
    for segment in reversed(segments):
        segment.indexes.load()
        start = segment.indexes.offsets.boundary_before(max(0, segment.size_bytes - left))
        surviving = segment.indexes.surviving_headers(start)
        # Batches of producers, and where those before are forgotten: no marker of a transaction.
        batches[:0] = [header for _, header in surviving if header.has_producer_id != header.is_control]
        left -= segment.size_bytes - start
        if left <= 0:
            break
    state.restore_dedup_window(batches)


def snapshot_offsets(disk: Disk, directory: Path) -> list[int]:
    """The offsets up to which there are producer snapshots, rising."""
    return sorted(int(match[1]) for name in disk.list_dir(directory) if (match := _SNAPSHOT_FILE.match(name)))


def _snapshots_behind(disk: Disk, directory: Path, offset: int) -> list[Path]:
    return [segment_path(directory, each, ".snapshot") for each in snapshot_offsets(disk, directory) if each > offset]


def forget_snapshots(disk: Disk, directory: Path, offset: int) -> None:
    """Remove producer snapshots below `offset`; blocks, raises OSError."""
    for snapshot in snapshot_offsets(disk, directory):
        if snapshot < offset:
            disk.remove(segment_path(directory, snapshot, ".snapshot"))
