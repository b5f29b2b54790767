"""Measures of a cluster whose copies move, return, and cost the network: functions as in cluster_cells."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.cluster_cells import PARTITIONS, Measure, Pulse, fill
from bench.trios import NODES, Trio, until
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from tests.support.clients.api_calls import Calls

COPIES = 3
RECORD_BYTES = 1024
# The records that a move copies, over all partitions.
MOVED_RECORDS = 20_000
PRICED_RECORDS = 20_000
RETURNED_RECORD_BYTES = 100_000


def network_price(copies: int) -> Measure:
    """Bytes over the loopback for each byte of 1 KB records: to the leader, to each follower, and overhead.

    The other cluster is idle meanwhile, and sends some kilobytes a second.
    """

    def measure(trio: Trio, name: str, seconds: float) -> float:
        trio.create(name, PARTITIONS, copies)
        before = _loopback_bytes()
        fill(trio, name, PRICED_RECORDS, RECORD_BYTES)
        found = (_loopback_bytes() - before) / (PRICED_RECORDS * RECORD_BYTES)
        trio.delete(name)
        return found

    return measure


def moved_partitions(count: int) -> Measure:
    """Two of the three copies of so many partitions go to other brokers: seconds until all are there and in sync."""

    def measure(trio: Trio, name: str, seconds: float) -> float:
        _spread(trio, name, count)
        found = _move(trio, name, count)
        trio.delete(name)
        return found

    return measure


def wait_while_moved(count: int) -> Measure:
    """The same: the longest wait of a producer to one of them, whose leader goes too, in ms."""

    def measure(trio: Trio, name: str, seconds: float) -> float:
        _spread(trio, name, count)
        with Pulse(trio, name) as pulse:
            begun = time.monotonic()
            _move(trio, name, count)
            time.sleep(1)
            found = pulse.longest_gap_s(begun)
        assert not pulse.failed, pulse.failed[:3]
        trio.delete(name)
        return 1000 * found

    return measure


class ReturningDisk:
    """A follower is killed with much on its disk, misses little, and is back: measured once, shown in two rows."""

    def __init__(self, size_bytes: int, missed_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._missed_bytes = missed_bytes
        self._found: dict[str, tuple[float, float]] = {}

    def seconds(self, trio: Trio, name: str, seconds: float) -> float:
        """The seconds from its start until it is in sync."""
        follower = next(node_id for node_id in NODES if node_id != trio.controller())
        leader = next(node_id for node_id in NODES if node_id != follower)
        trio.create_on(name, [[leader, follower]], min_in_sync=1)
        fill(trio, name, self._size_bytes // RETURNED_RECORD_BYTES, RETURNED_RECORD_BYTES)
        trio.in_sync(name, 2, 1)
        trio.kill(follower)
        until(lambda: trio.copies_in_sync(name) == 1, "the follower is out")
        fill(trio, name, self._missed_bytes // RETURNED_RECORD_BYTES, RETURNED_RECORD_BYTES)
        taken, begun = _loopback_bytes(), time.monotonic()
        trio.launch(follower)
        trio.in_sync(name, 2, 1)
        self._found[trio.name] = time.monotonic() - begun, (_loopback_bytes() - taken) / 1e6
        trio.whole()
        trio.delete(name)
        return self._found[trio.name][0]

    def megabytes(self, trio: Trio, name: str, seconds: float) -> float:
        """The bytes that went over the loopback meanwhile, of the run that `seconds` made."""
        assert trio.name in self._found, "it did not come back"
        return self._found[trio.name][1]


def _rotated(node_ids: Sequence[int], partition_id: int) -> list[int]:
    return [node_ids[(partition_id + place) % len(node_ids)] for place in range(COPIES)]


def _spread(trio: Trio, name: str, count: int) -> None:
    nodes = sorted(trio.nodes)
    trio.create_on(name, [_rotated(nodes, number) for number in range(count)], min_in_sync=2)
    fill(trio, name, MOVED_RECORDS, RECORD_BYTES)


def _move(trio: Trio, name: str, count: int) -> float:
    """Move each replica set two nodes on, so that one node stays; return the seconds until all moves have ended."""
    nodes = sorted(trio.nodes)
    assert len(nodes) > COPIES
    partitions = [
        ReassignablePartition(partition_index=number, replicas=_rotated(nodes, number + 2)) for number in range(count)
    ]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=partitions)])
    begun = time.monotonic()
    with Calls(trio.port(), timeout_s=120) as calls:
        answer = calls.request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)
        refused = [each for topic in answer.responses for each in topic.partitions if each.error_code]
        assert not answer.error_code and not refused, (answer.error_code, refused[:3])

        def settled() -> bool:
            left: Any = calls.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest())
            return not left.topics

        until(settled, "all have moved")
    found = time.monotonic() - begun
    trio.in_sync(name, COPIES, count)
    return found


def _loopback_bytes() -> int:
    """The bytes that the loopback has received: everything that processes of this machine send to each other, once."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        interface, _, counts = line.partition(":")
        if interface.strip() == "lo":
            return int(counts.split()[0])
    raise AssertionError("there is no loopback")
