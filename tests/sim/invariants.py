"""What must hold at every moment of a run, looked at again and again while it runs, and on the disks when it ends."""

from __future__ import annotations

import re
import weakref
from pathlib import Path

from odradek.log.log import Log
from odradek.record.batch import crc_is_valid
from odradek.record.reader import read_batches
from tests.sim.clients import Recorder
from tests.sim.world import Machine, World

WATCH_EVERY_S = 0.05
# More of them than these at a time is a leak: a broker of a few partitions and clients has a handful.
MAX_TASKS = 400
_SEGMENT = re.compile(r"^/data/(?P<log>[a-z-]+-\d+)/(?P<base>\d{20})\.log$")


class Watch:
    """Looks at the marks of every partition, from outside."""

    def __init__(self, world: World, recorder: Recorder) -> None:
        self._world = world
        self._recorder = recorder
        # With the log itself: a replica that was taken away and is given back begins anew, in another one. Weakly, as
        # what a dead machine had must go with it.
        self._seen: dict[tuple[str, int, str], tuple[weakref.ref[Log], tuple[int, int, int]]] = {}
        self._epochs: dict[tuple[str, str], int] = {}

    def look(self) -> None:
        """Check everything once."""
        for machine in self._world.machines.values():
            if machine.broker is not None and machine.running and machine.is_broker:
                self._look_at(machine)

    def _look_at(self, machine: Machine) -> None:
        assert machine.broker is not None
        for partition in machine.broker.replicas:
            log = partition.log
            marks = (log.log_start_offset, log.high_watermark, log.log_end_offset)
            if not 0 <= marks[0] <= marks[1] <= marks[2]:
                self._wrong(machine, f"{partition.name}: start, watermark and end are {marks}")
            if not marks[0] <= log.last_stable_offset <= marks[1]:
                self._wrong(machine, f"{partition.name}: last stable offset {log.last_stable_offset} beside {marks}")
            if log.recovery_point > log.log_end_offset:
                self._wrong(machine, f"{partition.name}: recovery point {log.recovery_point} above end {marks[2]}")
            key = (machine.name, machine.starts, partition.name)
            known, before = self._seen.get(key, (weakref.ref(log), (0, 0, 0)))
            before = before if known() is log else (0, 0, 0)
            # A follower cuts off what no later leader has; what was committed is not among it.
            kept = marks if partition.is_leader else (*marks[:2], max(marks[2], before[2]))
            if any(now < then for now, then in zip(kept, before, strict=True)):
                self._wrong(machine, f"{partition.name}: marks went back from {before} to {marks}")
            self._seen[key] = (weakref.ref(log), marks)
            epoch_key = (machine.name, partition.name)
            if partition.leader_epoch < self._epochs.get(epoch_key, -1):
                self._wrong(machine, f"{partition.name}: leader epoch went back to {partition.leader_epoch}")
            self._epochs[epoch_key] = partition.leader_epoch
        tasks = len(self._world.loop.tasks_of(machine.name))
        if tasks > MAX_TASKS:
            self._wrong(machine, f"{tasks} tasks are alive")

    def _wrong(self, machine: Machine, text: str) -> None:
        self._recorder.problems.append(f"{machine.name}: {text}")


def check_disk(machine: Machine) -> list[str]:
    """What is wrong with the segments on a machine's disk: gaps, overlaps, damage."""
    problems = []
    ends: dict[str, int] = {}
    for path, data in sorted(machine.disk.snapshot().items()):
        match = _SEGMENT.match(str(path))
        if match is None or match["log"].startswith("__"):
            continue
        problems += _check_segment(path, data, match["log"], int(match["base"]), ends)
    return problems


def _check_segment(path: Path, data: bytes, log: str, base: int, ends: dict[str, int]) -> list[str]:
    problems = []
    if log in ends and base != ends[log]:
        problems.append(f"{path}: begins at {base}, the one before ended at {ends[log]}")
    end, position = base, 0
    for start, header in read_batches(data):
        if not crc_is_valid(data[start : start + header.size_bytes], header):
            problems.append(f"{path}: damaged at position {start}")
        if header.base_offset != end:
            problems.append(f"{path}: offset {header.base_offset} where {end} was to be")
        end, position = header.last_offset + 1, start + header.size_bytes
    if position != len(data):
        problems.append(f"{path}: {len(data) - position} bytes behind the last batch")
    ends[log] = end
    return problems
