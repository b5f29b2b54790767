"""A partition's log that restarts at an offset, as a follower's does that has nothing in common with its leader's, and
does not get to the end of it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from uuid import UUID

from odradek.common.real_io import RealClock
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.rolling import roll
from odradek.log.truncation import truncate_fully_and_start_at
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.disks.crashing import Crash, CrashingDisk
from tests.support.models.batches import NOW_MS, batch, header_of


def managed(disk: SimDisk) -> LogManager:
    """The logs of a broker that has just started."""
    manager = LogManager(disk, RealClock(), [Path("/data")], LogConfig(), Random(0))
    manager.lock_dirs()
    manager.load()
    return manager


def append(log: Log, number: int) -> None:
    """A batch of one producer; those behind the third are of a transaction that stays open."""
    data = batch(b"v", producer_id=7, sequence=number, transactional=number > 2)
    log.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)


def test_a_restart_that_was_cut_short_leaves_out_nothing() -> None:
    """The test stops the machine or the process at each change, with each set of durable names.

    A follower fetches from its log end offset, so that must not be behind records that are in neither log; a
    transaction that was open in the old log is not open in the new one, which would never see its end.
    """
    for base, offset in ((4, 20), (30, 20)):  # ahead, out of a leader's range; back, to what a history shares
        last, died = 0, True
        while died:
            last += 1
            for draw in range(5):
                disk = CrashingDisk(Random(draw), DiskFaults(), lambda: 0)
                manager = managed(disk)
                log = manager.create("kept", 0, UUID(int=1), {})
                truncate_fully_and_start_at(log, base)
                for number in range(6):
                    append(log, number)
                    if number % 2:
                        roll(log, 0)
                log.flush()
                manager.checkpoint_work()()
                disk.changes, disk.dies_before = 0, last
                try:
                    truncate_fully_and_start_at(log, offset)
                    died = False
                except Crash:
                    died = True
                disk.dies_before = None
                disk.lose_power() if draw else disk.process_died()
                again = managed(disk).logs["kept", 0]
                if again.size_bytes:
                    assert again.log_start_offset == base and again.epochs.latest_epoch == 0, "a front of the old log"
                else:
                    assert again.log_start_offset == again.log_end_offset <= offset, "nothing is left out"
                    assert not again.producers.producers, "nothing of the old log is known"
    assert last > 20, "there was something to die in"
