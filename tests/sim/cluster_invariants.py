"""Invariants between nodes: one leader in an epoch, no committed record lost by elections, equal logs, one metadata.

They are checked from outside: the simulation sees the state of every process at one moment, which no node can.
"""

from __future__ import annotations

import re
from pathlib import Path

from odradek.record.batch import BatchHeader
from odradek.record.reader import read_batches, read_records
from odradek.replica.partition import Partition
from odradek.server.broker import Broker
from tests.sim.clients import Recorder
from tests.sim.invariants import Watch, identity
from tests.sim.world import Machine, World

METADATA_LOG = "__cluster_metadata-0"
COMPACTED = ("__consumer_offsets-", "__transaction_state-", "keyed-")
_SEGMENT = re.compile(r"^/(data(/\w+)?|metadata)/(?P<log>[\w.-]+-\d+)/(?P<base>\d{20})\.log$")


class ClusterWatch(Watch):
    """Looks at all nodes at one moment."""

    def __init__(self, world: World, recorder: Recorder) -> None:
        super().__init__(world, recorder)
        self._leaders: dict[tuple[str, int, int], str] = {}
        self._quorum_leaders: dict[int, str] = {}
        # Partition -> the furthest watermark that any leader had.
        self._committed: dict[tuple[str, int], int] = {}
        self._metadata_committed = 0

    def check(self) -> None:
        super().check()
        for machine in self._world.machines.values():
            if machine.running and machine.process is not None and hasattr(machine.process, "raft"):
                self._check_quorum(machine, machine.process)
        for machine in self._world.machines.values():
            if machine.running and machine.broker is not None and machine.is_broker:
                for partition in machine.broker.replicas:
                    if partition.is_leader:
                        self._check_leader(machine, partition)

    def _check_quorum(self, machine: Machine, broker: Broker) -> None:
        raft = broker.raft
        if not hasattr(raft, "node") or not raft.leads:
            return
        leader = self._quorum_leaders.setdefault(raft.leader_epoch, machine.name)
        if leader != machine.name:
            self._wrong(machine, f"leads the quorum in epoch {raft.leader_epoch}, and so does {leader}")
        if raft.leader_epoch == max(self._quorum_leaders):
            if raft.end_offset < self._metadata_committed:
                text = f"leads the quorum with {raft.end_offset} records, {self._metadata_committed} were committed"
                self._wrong(machine, text)
            self._metadata_committed = max(self._metadata_committed, raft.committed_offset)

    def _check_leader(self, machine: Machine, partition: Partition) -> None:
        name, epoch = partition.name, partition.leader_epoch
        key = identity(partition)
        leader = self._leaders.setdefault((*key, epoch), machine.name)
        if leader != machine.name:
            self._wrong(machine, f"leads {name} in epoch {epoch}, and so does {leader}")
        if epoch < self._newest_epochs[key]:
            return  # it has not learned yet that its leader epoch is over
        committed = self._committed.get(key, 0)
        if partition.log.log_end_offset < committed:
            end = partition.log.log_end_offset
            self._wrong(machine, f"leads {name} in epoch {epoch} with records up to {end}, {committed} was committed")
        self._committed[key] = max(committed, partition.log.high_watermark)


def unconverged(world: World) -> list[str]:
    """A line for each difference that is left between nodes, and for each replica that is not in sync."""
    waiting = []
    images = {}
    for machine in world.machines.values():
        if machine.broker is None:
            waiting.append(f"{machine.name} is not up")
            continue
        images[machine.name] = machine.broker.publisher.image
    offsets = {name: image.offset for name, image in images.items()}
    if len(dict.fromkeys(offsets.values())) > 1:
        waiting.append(f"metadata offsets {offsets}")
    for image in list(images.values())[:1]:
        for topic in image.topics_by_id.values():
            for number, partition in topic.partitions.items():
                if len(partition.isr) < len(partition.replicas):
                    waiting.append(f"{topic.name}-{number}: in sync are {partition.isr} of {partition.replicas}")
    return waiting


def different_logs(world: World) -> list[str]:
    """A problem for each log whose copies differ below their high watermark, and each node with other metadata."""
    problems = []
    machines = [machine for machine in world.machines.values() if machine.broker is not None]
    images = {machine.name: list(machine.broker.publisher.image.records()) for machine in machines if machine.broker}
    for name, records in images.items():
        first = next(iter(images))
        if records != images[first]:
            problems.append(f"the metadata of {name} and of {first} differ")
    logs = {machine.name: batches_on(machine) for machine in machines}
    for name in dict.fromkeys(name for log in logs.values() for name in log):
        # A loss of power may bring back a part of what was deleted, which no broker serves.
        holders = [each.name for each in machines if name in logs[each.name] and _marks(each, name) is not None]
        copies = {machine: logs[machine][name] for machine in holders}
        if not copies:
            continue
        if name.startswith(COMPACTED):
            problems += _compare_records(name, copies)
        else:
            problems += _compare(name, copies, machines)
    return problems


def _compare_records(log: str, copies: dict[str, dict[int, bytes]]) -> list[str]:
    """A problem for each copy of a compacted log with another record at an offset; copies are cleaned at any time."""
    found: dict[int, tuple[str, bytes | None, bytes | None]] = {}
    problems = []
    for name, batches in copies.items():
        for batch in batches.values():
            for record in read_records(batch, BatchHeader.read(batch)):
                first, key, value = found.setdefault(record.offset, (name, record.key, record.value))
                if (key, value) != (record.key, record.value):
                    problems.append(f"{log}: {first} and {name} hold different records at offset {record.offset}")
    return problems[:1]


def _compare(log: str, copies: dict[str, dict[int, bytes]], machines: list[Machine]) -> list[str]:
    """A problem for each copy that has another batch than the first copy at an offset below all high watermarks."""
    marks = {machine.name: mark for machine in machines if (mark := _marks(machine, log)) is not None}
    watermark = min((mark for _, mark in marks.values()), default=0)
    (first, reference), *others = copies.items()
    problems = []
    for name, batches in others:
        # Copies may begin at different offsets, as retention or a snapshot has cut them.
        begin = max(marks[each][0] if each in marks else min(copies[each], default=0) for each in (first, name))
        for offset in sorted(reference.keys() | batches.keys()):
            if begin <= offset < watermark and reference.get(offset) != batches.get(offset):
                problems.append(f"{log}: {first} and {name} differ at offset {offset}, below the watermark {watermark}")
                break
    return problems


def _marks(machine: Machine, log: str) -> tuple[int, int] | None:
    """The log start offset and the high watermark of a log of a machine; None if it has no such log."""
    assert machine.broker is not None
    if log == METADATA_LOG:
        raft = machine.broker.raft
        return (raft.storage.log.log_start_offset if hasattr(raft, "storage") else 0), raft.committed_offset
    for partition in machine.broker.replicas if machine.is_broker else ():
        if partition.name == log:
            return partition.log.log_start_offset, partition.log.high_watermark
    return None


def batches_on(machine: Machine) -> dict[str, dict[int, bytes]]:
    """Log -> base offset -> the batch, from the segments as readers of the disk see them."""
    found: dict[str, dict[int, bytes]] = {}
    for path, data in sorted(machine.disk.snapshot().items()):
        match = _SEGMENT.match(str(Path(path)))
        if match is not None:
            batches = found.setdefault(match["log"], {})
            for position, header in read_batches(data):
                batches[header.base_offset] = data[position : position + header.size_bytes]
    return found
