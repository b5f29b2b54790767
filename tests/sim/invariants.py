"""Invariants of every moment of a run: checked repeatedly while it runs, and on the disks when it ends."""

from __future__ import annotations

import asyncio
import re
import weakref
from pathlib import Path

from odradek.log.log import Log
from odradek.record.batch import crc_is_valid
from odradek.record.reader import read_batches
from odradek.replica.partition import Partition
from tests.sim.clients import Recorder
from tests.sim.history import Outcome, Send
from tests.sim.log_scan import LogScan
from tests.sim.memory_growth import too_large, too_many
from tests.sim.world import Machine, World

WATCH_EVERY_S = 0.05
# All objects of a process are walked through so often.
WALK_EVERY_S = 16.0
# One thing that is wrong is seen at every look: so many are enough to know of.
MAX_PROBLEMS = 50
_SEGMENT = re.compile(r"^/data/(?:\w+/)?(?P<log>[a-z-]+-\d+)/(?P<base>\d{20})\.log$")


class Watch:
    """Checks every machine from outside: offsets and epochs of partitions, logs, acknowledged records, memory."""

    def __init__(self, world: World, recorder: Recorder) -> None:
        self._world = world
        self._recorder = recorder
        # The log, its leader epoch if this broker led it (else -1), and its marks. A replica that was removed and comes
        # back has another, empty log. The reference is weak, so that the logs of a dead machine are freed.
        self._seen: dict[tuple[str, int, str], tuple[weakref.ref[Log], int, tuple[int, int, int, int]]] = {}
        self._loaded_ends: dict[tuple[str, int, str], int] = {}
        self._epochs: dict[tuple[str, str, int], int] = {}
        self._scans: dict[tuple[str, str], LogScan] = {}
        # Partition -> offset and value of the furthest record that was acknowledged and not looked for yet.
        self._acknowledged: dict[str, tuple[int, int]] = {}
        self._known_operations = 0
        self._newest_epochs: dict[tuple[str, int], int] = {}
        self._next_walk_s = 0.0

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            self.check()

    def check(self) -> None:
        """Check everything once."""
        self._record_acknowledged()
        leaders: list[tuple[Machine, Partition]] = []
        for machine in self._world.machines.values():
            if machine.running:
                self._check_sizes(machine)
            if machine.broker is not None and machine.running and machine.is_broker:
                for partition in machine.broker.replicas:
                    self._check_partition(machine, partition)
                    key = identity(partition)
                    self._newest_epochs[key] = max(self._newest_epochs.get(key, -1), partition.leader_epoch)
                    if partition.is_leader:
                        leaders.append((machine, partition))
        if self._world.elapsed_s >= self._next_walk_s:
            self._next_walk_s = self._world.elapsed_s + WALK_EVERY_S
        for machine, partition in leaders:
            # One that has not learned that its leader epoch is over need not have its successor's acknowledged records.
            if partition.leader_epoch == self._newest_epochs[identity(partition)]:
                self._check_acknowledged(machine, partition)

    def _check_sizes(self, machine: Machine) -> None:
        for text in too_many(self._world, machine):
            self._wrong(machine, text)
        process = machine.process or machine.broker
        if self._world.elapsed_s >= self._next_walk_s and process is not None:
            for text in too_large(process):
                self._wrong(machine, text)

    def _check_partition(self, machine: Machine, partition: Partition) -> None:
        log = partition.log
        name = partition.name
        marks = (log.log_start_offset, log.high_watermark, log.log_end_offset)
        stable = log.last_stable_offset
        if not 0 <= marks[0] <= marks[1] <= marks[2]:
            self._wrong(machine, f"{partition.name}: start, watermark and end are {marks}")
        if not marks[0] <= stable <= marks[1]:
            self._wrong(machine, f"{partition.name}: last stable offset {stable} beside {marks}")
        if log.recovery_point > log.log_end_offset:
            self._wrong(machine, f"{partition.name}: recovery point {log.recovery_point} above end {marks[2]}")
        key = (machine.name, machine.starts, name)
        led_in = partition.leader_epoch if partition.is_leader else -1
        known, was_led_in, before = self._seen.get(key, (weakref.ref(log), -1, (0, 0, 0, 0)))
        if known() is not log or key not in self._seen:
            before, self._loaded_ends[key] = (0, 0, 0, 0), marks[2]
        # A follower truncates what no later leader has, and may lead at the next look; never a committed record.
        still_led = led_in >= 0 and led_in == was_led_in
        kept = (marks[0], marks[1], marks[2] if still_led else max(marks[2], before[2]), stable)
        if marks[2] < before[2] and marks[2] < self._loaded_ends[key] and not still_led:
            # A producer snapshot does not hold, here and in Apache Kafka, that a marker was not replicated yet. Its
            # transaction counts as ended after a start, and as open again once the marker is truncated; the
            # coordinator's decision stands, and it writes the same marker again.
            kept = (*kept[:3], max(stable, before[3]))
        if kept[0] < before[0] or kept[1] < before[1] or kept[2] < before[2] or kept[3] < before[3]:
            self._wrong(machine, f"{partition.name}: marks went back from {before} to {(*marks, stable)}")
        self._seen[key] = (weakref.ref(log), led_in, (*marks, stable))
        epoch_key = (machine.name, *identity(partition))
        if partition.leader_epoch < self._epochs.get(epoch_key, -1):
            self._wrong(machine, f"{partition.name}: leader epoch went back to {partition.leader_epoch}")
        self._epochs[epoch_key] = partition.leader_epoch
        for text in self._scan(machine, log, name).scan(machine.disk):
            self._wrong(machine, f"{name}: {text}")

    def _scan(self, machine: Machine, log: Log, name: str) -> LogScan:
        scan = self._scans.get((machine.name, name))
        if scan is None or not scan.is_of(log):
            expires = "producer.id.expiration.ms" in self._world.settings
            scan = LogScan(log, contiguous=not log.config.compacted, expires=expires)
            self._scans[machine.name, name] = scan
        return scan

    # -- what was acknowledged ----------------------------------------------------------------------------------

    def _record_acknowledged(self) -> None:
        history = self._recorder.history
        for operation in history[self._known_operations :]:
            if operation.outcome is not Outcome.OK:
                continue
            for step in operation.steps:
                if isinstance(step, Send) and step.offset is not None:
                    furthest = self._acknowledged.get(step.partition, (-1, -1))
                    self._acknowledged[step.partition] = max(furthest, (step.offset, step.value))
        self._known_operations = len(history)

    def _check_acknowledged(self, machine: Machine, partition: Partition) -> None:
        """The furthest acknowledged record is at its acknowledged offset, and readers of the only copy get it.

        The next leader of several has it too, and learns a moment later how far readers may go.
        """
        offset, value = self._acknowledged.pop(partition.name, (-1, -1))
        if offset < partition.log.log_start_offset:
            return
        if len(self._world.machines) == 1 and partition.log.high_watermark <= offset:
            text = f"offset {offset} is acknowledged, the watermark is {partition.log.high_watermark}"
            self._wrong(machine, f"{partition.name}: {text}")
        scan = self._scans[machine.name, partition.name]
        found = scan.value_at(machine.disk, offset)
        if found != str(value).encode():
            self._wrong(machine, f"{partition.name}: {value} was acknowledged at offset {offset}, there lies {found!r}")

    def _wrong(self, machine: Machine, text: str) -> None:
        problem = f"{machine.name}: {text}"
        if len(self._recorder.problems) < MAX_PROBLEMS and problem not in self._recorder.problems:
            self._recorder.problems.append(problem)


def identity(partition: Partition) -> tuple[str, int]:
    """The identity of a partition: another topic of the same name may be created when this one was deleted."""
    return partition.name, partition.topic_id.int


def check_disk(machine: Machine) -> list[str]:
    """The problems of the segments on a machine's disk: gaps, overlaps, damage."""
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
