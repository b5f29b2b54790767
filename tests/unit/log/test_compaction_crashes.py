"""A process that dies, or a machine that goes dark, before any single change that a cleaning makes to the disk.

Starts die too: recovery is interrupted at each of its own changes, and begun again.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.sim.disk import DiskFaults
from tests.support.disks.crashing import Crash, CrashingDisk
from tests.support.models.compacted_log import CODECS, DIRECTORY, RETENTION_MS, START_MS, CompactedLog

# The first seed whose transactions are aborted, and whose segments hold more keys than a cleaning has memory for.
ABORTING = 100


def prepared(seed: int) -> tuple[CompactedLog, CrashingDisk]:
    """A log of several segments, groups and kinds of batches, durable, next to be cleaned."""
    random = Random(seed)
    disk = CrashingDisk(Random(seed), DiskFaults(), lambda: START_MS)
    if is_aborting := seed >= ABORTING:
        compacted = CompactedLog(disk, segment_bytes=1 << 20, table_bytes=300)
    else:
        compacted = CompactedLog(disk, segment_bytes=1200, table_bytes=random.choice([600, 1 << 20]))
    for step in range(20):
        pairs = [
            (random.choice([b"a", b"b", b"c", b"d"]), random.choice([None, b"%d" % step]))
            for _ in range(random.randint(1, 4))
        ]
        codec = random.choice(CODECS)
        kind = random.random()
        if kind < (0.1 if is_aborting else 0.5):
            compacted.append(pairs, codec=codec, producer_id=random.choice([-1, 7]))
        elif kind < 0.8:
            compacted.in_transaction(random.choice([8, 9]), pairs, codec)
        else:
            compacted.end_transaction(random.choice([8, 9]), commit=not is_aborting and random.random() < 0.5)
        if random.random() < (0.1 if is_aborting else 0.4):
            compacted.roll()
        if random.random() < 0.1 and compacted.clean():
            compacted.check()
            compacted.now_ms += RETENTION_MS
    for producer_id in (8, 9):
        compacted.end_transaction(producer_id, commit=not is_aborting and random.random() < 0.5)
    compacted.append([(b"a", b"last")])
    compacted.roll()
    compacted.append([(b"z", b"active")])
    compacted.log.flush()
    for name in disk.list_dir(DIRECTORY):
        if name.endswith(".deleted"):
            disk.remove(DIRECTORY / name)
    disk.sync_dir(DIRECTORY)
    return compacted, disk


def die(disk: CrashingDisk, *, power: bool) -> None:
    disk.dies_before = None
    if power:
        disk.lose_power()
    else:
        disk.process_died()


def restart(compacted: CompactedLog, disk: CrashingDisk, recovery_point: int) -> None:
    compacted.log = compacted.open(recovery_point=recovery_point)


def crash_at(seed: int, change: int, *, power: bool) -> bool:
    """Clean, dying before that change, then start, dying in some starts too; returns whether the cleaning died."""
    random = Random(seed * 1000 + change)
    compacted, disk = prepared(seed)
    end, recovery_point = compacted.log.log_end_offset, random.choice([0, compacted.log.recovery_point])
    disk.changes, disk.dies_before = 0, change
    try:
        while compacted.clean():
            continue
        died = False
    except Crash:
        died = True
    die(disk, power=power)
    for _ in range(random.randint(0, 3)):
        disk.changes, disk.dies_before = 0, random.randint(1, 12)
        try:
            restart(compacted, disk, recovery_point)
        except Crash:
            die(disk, power=power)
    disk.dies_before = None
    restart(compacted, disk, recovery_point)
    compacted.check_restarted(end)
    # An interrupted step can be done again, and ends well.
    compacted.log.flush()
    while compacted.clean():
        compacted.check_view()
    compacted.check()
    return died


@pytest.mark.parametrize("power", [False, True], ids=["killed", "dark"])
@pytest.mark.parametrize("seed", [*range(5), ABORTING])
def test_a_cleaning_may_die_before_any_of_its_changes(seed: int, power: bool) -> None:
    change = 1 + seed % ABORTING
    while crash_at(seed, change, power=power):
        change += 8  # all five seeds together meet every kind of change
    assert change > 10, "there was something to die in"
