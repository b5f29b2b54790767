"""Replaces segments by a new one, so that a crash at any time leaves either the old ones or the new one.

1. The new segment has `.cleaned` names and is durable; a start after a crash removes it.
2. Its indexes are renamed to `.swap`, then its log: from then on the new segment counts.
3. The old segments' files are renamed to `.deleted`.
4. The indexes get their final names, and last the log.

A start that finds `<base>.log.swap` continues at 3. The old segments are those that begin before the end of the new
one, which is the end of the last old segment, because the last batch of a group is never removed. `.swap` files without
a log are from before the end of 2, and are removed. A `.log.swap` that replaces no segment was split off from the one
before it (`log.overflow`), which is truncated at its start. Renames survive a loss of power in their order; all are
made durable before the cleaned offset is stored. Source: Kafka LogSegments, LogLoader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.common.ports import Disk
from odradek.log.compaction.output import CLEANED, INDEX_SUFFIXES, cleaned_paths
from odradek.log.files import FileCache, raw_batches
from odradek.log.segment import Segment
from odradek.log.segment_file import segment_path
from odradek.log.segment_removal import mark_deleted

if TYPE_CHECKING:
    from odradek.log.log import Log

SWAP = ".swap"


def replace_segments(log: Log, old: Sequence[Segment], swap: Callable[[], tuple[Segment, list[Path]]]) -> bool:
    """Replace closed segments by one; returns False, without a change, if they no longer exist.

    `swap` renames the files, and returns the new segment and the files of the old ones, which are then removed.

    Raises:
        StorageError: the disk failed.
    """
    try:
        swapped = log.segments.replace(old, swap)
    except OSError as error:
        raise log.partition_dir.failed(error) from error
    if swapped is None:
        return False
    log.remove_later(swapped[1])
    return True


def swap_in(files: FileCache, directory: Path, old: Sequence[Segment]) -> tuple[Segment, list[Path]]:
    """Rename the files of the finished `.cleaned` segment and of the segments that it replaces; nothing is synced.

    Returns:
        The new segment, and the renamed files of the old ones.
    Raises:
        OSError: a rename failed; the next start completes or undoes the swap.
    """
    disk, base = files.disk, old[0].base_offset
    for cleaned in cleaned_paths(directory, base):
        disk.rename(cleaned, cleaned.with_name(cleaned.name.removesuffix(CLEANED) + SWAP))
    removed = [path for segment in old for path in mark_deleted(segment)]
    # Snapshots at offsets at which no segment begins any more.
    for segment in old[1:]:
        disk.remove(segment_path(directory, segment.base_offset, ".snapshot"))
    _install(disk, directory, base)
    fresh = Segment(files, directory, base, created_ms=old[-1].created_ms)
    fresh.open()
    fresh.indexes.is_sealed = True
    return fresh, removed


def _install(disk: Disk, directory: Path, base: int) -> None:
    for suffix in (*INDEX_SUFFIXES, ".log"):
        path = segment_path(directory, base, suffix + SWAP)
        if suffix != ".log" and not disk.exists(path):
            continue  # renamed before a crash
        target = segment_path(directory, base, suffix)
        if suffix == ".txnindex" and disk.size(path) == 0:
            disk.remove(target)
            disk.remove(path)
            continue
        disk.rename(path, target)


def complete_swap(disk: Disk, directory: Path, notes: list[str]) -> None:
    """Complete or undo an interrupted swap at start. Blocks, raises OSError."""
    names = disk.list_dir(directory)
    swapped = sorted(int(name.removesuffix(".log" + SWAP)) for name in names if name.endswith(".log" + SWAP))
    for name in names:
        stem, _, suffix = name.partition(".")
        if suffix.endswith(SWAP) and not (stem.isdecimal() and int(stem) in swapped):
            disk.remove(directory / name)
    for base in swapped:
        fresh = Segment(FileCache(disk, capacity=1), directory, base, created_ms=0, suffix=SWAP)
        fresh.open()
        end = max((header.last_offset + 1 for _, header in fresh.headers(0)), default=base + 1)
        replaced = 0
        for name in names:
            stem, _, suffix = name.partition(".")
            if suffix == "log" and stem.isdecimal() and base <= int(stem) < end:
                replaced += 1
                _remove_segment(disk, directory, int(stem), is_base=int(stem) == base)
        if replaced:
            notes.append(f"{directory.name}: the compacted segment {base} replaces {replaced} old ones")
        else:
            _truncate_before(disk, directory, base, names)
        _install(disk, directory, base)
    if swapped:
        disk.sync_dir(directory)


def _truncate_before(disk: Disk, directory: Path, base: int, names: Sequence[str]) -> None:
    """Truncate the segment before a new one at its start, durably."""
    logs = [int(name.removesuffix(".log")) for name in names if name.endswith(".log")]
    before = max((each for each in logs if each < base), default=None)
    if before is None:
        return
    file = disk.open(segment_path(directory, before, ".log"))
    try:
        position = next((at for at, header in raw_batches(file, 0, file.size()) if header.base_offset >= base), None)
        if position is not None:
            file.truncate(position)
            file.sync()
    finally:
        file.close()


def _remove_segment(disk: Disk, directory: Path, base: int, *, is_base: bool) -> None:
    """Remove a segment, the `.log` file last: while it exists, a second crash finds the segment again.

    Files of the new segment with the same base offset stay if they have their final names, that is, have no `.swap` any
    more.
    """
    for suffix in (*INDEX_SUFFIXES, ".log"):
        if is_base and suffix != ".log" and not disk.exists(segment_path(directory, base, suffix + SWAP)):
            continue
        disk.remove(segment_path(directory, base, suffix))
