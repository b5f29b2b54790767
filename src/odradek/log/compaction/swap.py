"""New segments in the place of old ones, such that a crash at any moment leaves the old ones or the new one.

1. the new segment lies under `.cleaned` names, durable; a start after a crash removes it
2. its indexes become `.swap`, then its log: with that the new segment counts, whatever comes
3. the old segments' files become `.deleted`
4. the indexes lose their suffix, last the log

A start that finds `<base>.log.swap` goes on at 3: the old segments are those that begin before the new one's end. That
end is the last old segment's end, because a group's last batch is never dropped, only emptied. `.swap` files of a base
whose log is none are from before 2 was done, and go. A `.log.swap` that replaces no segment was split off from the one
before it (`log.overflow`), which is cut where it begins. Names that were changed one after the other survive a loss of
power in that order; the whole is made durable before the cleaned offset is noted. Source: Kafka LogSegments, LogLoader.
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
    """Put one segment in the place of several closed ones; False, and nothing is done, where they are gone.

    `swap` changes the files, and returns the new segment and the old ones' files, which are to be removed.

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
    """Put the finished `.cleaned` segment in the place of the segments that it was made of; nothing is synced.

    Returns:
        The new segment, and the old ones' files, renamed, to be removed later.
    Raises:
        OSError: a rename failed; a start will settle it.
    """
    disk, base = files.disk, old[0].base_offset
    for cleaned in cleaned_paths(directory, base):
        disk.rename(cleaned, cleaned.with_name(cleaned.name.removesuffix(CLEANED) + SWAP))
    removed = [path for segment in old for path in mark_deleted(segment)]
    # They tell of producers up to offsets at which no segment begins any more; the newest are those behind.
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
            continue  # a start after a crash in the middle of this
        target = segment_path(directory, base, suffix)
        if suffix == ".txnindex" and disk.size(path) == 0:
            disk.remove(target)
            disk.remove(path)
            continue
        disk.rename(path, target)


def settle_swap(disk: Disk, directory: Path, notes: list[str]) -> None:
    """At a start: complete what a crash interrupted, or undo it. Blocks. Raises OSError."""
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
            notes.append(f"{directory.name}: the compacted segment {base} takes the place of {replaced} old ones")
        else:
            _cut_before(disk, directory, base, names)
        _install(disk, directory, base)
    if swapped:
        disk.sync_dir(directory)


def _cut_before(disk: Disk, directory: Path, base: int, names: Sequence[str]) -> None:
    """Let the segment before a new one end where that begins, durably."""
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
    """The log goes last: while it is there, a second crash finds this segment again.

    Of the new segment's own base, files that have taken their place already stay: those have no `.swap` any more.
    """
    for suffix in (*INDEX_SUFFIXES, ".log"):
        if is_base and suffix != ".log" and not disk.exists(segment_path(directory, base, suffix + SWAP)):
            continue
        disk.remove(segment_path(directory, base, suffix))
