"""The metrics of the cleaner: its counters, and how dirty each compacted log is."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from random import Random
from uuid import UUID

from odradek.common.real_io import RealClock, RealDisk
from odradek.log.compaction.cleaner import Cleaner, CleanerCounts, Progress
from odradek.log.compaction.config import CleanerConfig
from odradek.log.compaction.metrics import cleaner_families
from odradek.log.config import LogConfig
from odradek.log.manager import LogManager
from odradek.log.rolling import roll
from odradek.log.scrub import ScrubCounts
from tests.support.models.batches import NOW_MS, batch
from tests.unit.log.test_log import append


def test_counters_begin_at_0() -> None:
    for counts in (CleanerCounts(), ScrubCounts()):
        assert set(astuple(counts)) == {0}


def test_a_scrape_gets_counts_in_seconds_and_each_compacted_log(tmp_path: Path) -> None:
    disk, clock = RealDisk(workers=1), RealClock()
    manager = LogManager(disk, clock, [tmp_path], LogConfig(), Random(1))
    manager.lock_dirs()
    manager.load()
    for number, policy in enumerate(("compact", "delete", "compact")):
        log = manager.create(f"t{number}", 0, UUID(int=number + 1), {"cleanup.policy": policy})
        for _ in range(4):
            append(log, batch(b"v" * 20, timestamp_ms=NOW_MS))
        roll(log, NOW_MS)
        log.flush()
    dirty, _, broken = manager.logs.values()
    cleaner = Cleaner(disk, clock, manager, CleanerConfig())
    cleaner.counts = CleanerCounts(3, 1, 1000, 500, 70, 60, last_ms=1500, longest_ms=2500, max_buffer_utilization=0.25)
    cleaner.running[dirty.topic_partition] = Progress(cleaner.examine(dirty))
    cleaner.uncleanable[broken.topic_partition] = (broken, "damaged", 0)
    found = {each.name: each for each in cleaner_families(cleaner, list(manager.logs.values()))}
    values = {name.removeprefix("odradek_"): each.samples[0].value for name, each in found.items()}
    assert values == {
        "cleaner_runs": 3,
        "cleaner_runs_aborted": 1,
        "cleaner_read_bytes": 1000,
        "cleaner_written_bytes": 500,
        "cleaner_records": 70,
        "cleaner_records_removed": 60,
        "cleaner_last_seconds": 1.5,
        "cleaner_longest_seconds": 2.5,
        "cleaner_max_buffer_utilization": 0.25,
        "cleaner_running": 1,
        "cleaner_overdue_seconds": 0,
        "cleaner_uncleanable_logs": 1,
        "log_cleaned_offset": 0,
        "log_dirty_ratio": 1,
        "log_dirty_bytes": 4 * len(batch(b"v" * 20)),
    }
    labels = [dict(sample.labels) for sample in found["odradek_log_dirty_ratio"].samples]
    assert labels == [{"topic": "t0", "partition": "0"}, {"topic": "t2", "partition": "0"}]
    manager.unlock()
    disk.close()
