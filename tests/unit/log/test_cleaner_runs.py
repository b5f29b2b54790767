"""Runs of the cleaner on simulated disks: which log is next, and what is counted."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.log.compaction.cleaner import Cleaner, Progress
from odradek.log.compaction.config import CleanerConfig
from odradek.log.compaction.keys import ENTRY_BYTES
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.rolling import roll
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.unit.log.test_log_failing_disk import OTHER, Logs

SIZE = len(batch(b"v"))
TABLE_BYTES = 10_000


class ListedClock:
    """Gives the monotonic times of a list."""

    def __init__(self, *times: int) -> None:
        self._times = list(times)

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return self._times.pop(0)


def compacted(**config: Any) -> Logs:
    return Logs(**{"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0, **config})


def cleaner_of(logs: Logs, *times: int) -> Cleaner:
    config = CleanerConfig(dedupe_buffer_bytes=TABLE_BYTES, buffer_load_factor=1.0)
    return Cleaner(logs.disk, ListedClock(*(times or range(100))), logs.manager, config)


def fill(log: Log, count: int) -> None:
    """Close a segment with so many more records of one key, durably."""
    for _ in range(count):
        data = batch(b"v")
        log.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    roll(log, NOW_MS)
    log.flush()


async def test_a_cleaning_counts_what_it_reads_writes_and_removes() -> None:
    logs = compacted()
    cleaner = cleaner_of(logs, 1000, 1009, 2000, 2004)
    counts = cleaner.counts
    fill(logs.log, 2)
    assert await cleaner.clean_dirtiest() and not await cleaner.clean_dirtiest()
    assert (counts.cleanings, counts.records_read, counts.records_removed) == (1, 3, 2)
    assert (counts.read_bytes, counts.written_bytes) == (6 * SIZE, SIZE), "keys first, then all of it"
    assert (counts.last_ms, counts.longest_ms) == (9, 9)
    used = ENTRY_BYTES + len(b"key") + 3
    assert counts.max_buffer_utilization == used / TABLE_BYTES
    assert (logs.log.cleaned_offset, cleaner.running, counts.aborted) == (3, {}, 0)
    fill(logs.log, 1)
    assert await cleaner.clean_dirtiest()
    assert (counts.cleanings, counts.records_read, counts.records_removed) == (2, 5, 3)
    assert (counts.last_ms, counts.longest_ms) == (4, 9)
    assert counts.max_buffer_utilization == used / TABLE_BYTES, "the fullest so far"
    assert logs.log.cleaned_offset == 4


async def test_a_log_that_has_nothing_to_remove_is_clean_and_not_written() -> None:
    logs = compacted()
    fill(logs.log, 0)
    before = [path for path in logs.disk.snapshot() if path.suffix == ".log"]
    cleaner = cleaner_of(logs)
    assert await cleaner.clean_dirtiest()
    assert (cleaner.counts.written_bytes, cleaner.counts.records_removed) == (0, 0)
    assert logs.log.cleaned_offset == 1
    assert [path for path in logs.disk.snapshot() if path.suffix == ".log"] == before
    again = logs.manager
    again.close()
    assert logs.started().logs["t", 0].cleaned_offset == 1, "a start knows it"


async def test_a_policy_that_changes_as_a_cleaning_begins_gives_it_up() -> None:
    logs = compacted()
    fill(logs.log, 2)
    start_worker = logs.disk.start_worker

    async def changed(*arguments: Any, **named: Any) -> Any:
        logs.log.config = LogConfig()
        return await start_worker(*arguments, **named)

    logs.disk.start_worker = changed  # type: ignore[method-assign]  # the test replaces it
    cleaner = cleaner_of(logs)
    assert await cleaner.clean_dirtiest(), "another log may be next"
    assert (cleaner.counts.aborted, cleaner.counts.cleanings, cleaner.running) == (1, 0, {})
    assert logs.log.cleaned_offset == 0 and len(logs.log.segments) == 2
    assert not [name for name in logs.disk.list_dir(logs.log.directory) if name.endswith(".cleaned")]


@pytest.mark.parametrize("first", [0, 1])
def test_the_dirtiest_log_is_next(first: int) -> None:
    logs = compacted()
    other = logs.manager.create("t", 1, UUID(int=1), {}, log_dir=OTHER)
    both = [logs.log, other]
    for log in both:
        fill(log, 2)
        fill(log, 2)
    cleaner = cleaner_of(logs)
    found = cleaner.dirtiest()
    assert found is not None and found[0] is logs.log, "of equal ones the first"
    both[1 - first].cleaned_offset = both[1 - first].segments.bases[1]
    found = cleaner.dirtiest()
    assert found is not None and found[0] is both[first] and found[1].ratio == 1.0
    cleaner.running[both[first].topic_partition] = Progress(found[1])
    found = cleaner.dirtiest()
    assert found is not None and found[0] is both[1 - first], "that one is being cleaned"
    cleaner.uncleanable[found[0].topic_partition] = found[0], "damaged", found[0].damage.repair_count
    assert cleaner.dirtiest() is None
    found[0].damage.repair_count += 1
    assert cleaner.dirtiest() is not None and cleaner.reason_uncleanable(found[0]) == "", "it was repaired"
    found[0].config = LogConfig()
    assert cleaner.dirtiest() is None, "it is not compacted any more"


def test_a_reason_not_to_clean_is_of_one_log_alone() -> None:
    logs = compacted()
    cleaner = cleaner_of(logs)
    assert cleaner.reason_uncleanable(logs.log) == ""
    cleaner.uncleanable["t", 0] = logs.log, "damaged", 0
    assert cleaner.reason_uncleanable(logs.log) == "damaged"
    logs.manager.delete(("t", 0))
    again = logs.manager.create("t", 0, UUID(int=2), {})
    assert cleaner.reason_uncleanable(again) == "", "it was recreated"
