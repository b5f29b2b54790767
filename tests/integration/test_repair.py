"""Damage on a disk below the high watermark is repaired in place with batches from another replica.

Brokers over real sockets and real files; bits are flipped while a broker is down, as a disk does it unseen.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.common.errors import ErrorCode
from odradek.coordinator.batches import EncodedRecord
from odradek.coordinator.log import PartitionMachineLog
from odradek.log.compaction.cleaner import Cleaner
from odradek.log.compaction.config import CleanerConfig
from odradek.log.config import LogConfig
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.protocol.records_field import received
from odradek.record.batch import BatchHeader, crc_is_valid
from odradek.record.builder import build_batch
from odradek.record.reader import read_batches, read_records
from odradek.record.record import Record
from odradek.replica.metrics import replication_families
from tests.support.models.batches import NOW_MS
from tests.support.nodes.replica_nodes import ReplicaCluster, ReplicaNode
from tests.support.waiting import PATIENCE_S, eventually_async

COUNT = 60
SEGMENT_BYTES = 4_000
Damage = Callable[[bytearray, "list[int]"], None]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ReplicaCluster]:
    made = ReplicaCluster(tmp_path)
    yield made
    await made.close()


def value(number: int) -> bytes:
    return b"%05d" % number * 30


async def filled(cluster: ReplicaCluster) -> None:
    """Three brokers with the same sixty batches in several segments, written under two leader epochs."""
    await cluster.add(1, 2, 3)
    cluster.create([1, 2, 3])
    for node in cluster.nodes.values():
        log = node.log()
        log.config = replace(log.config, segment_bytes=SEGMENT_BYTES, index_interval_bytes=400)
    for number in range(COUNT):
        cluster.nodes[1].append(value(number))
    await level(cluster)


async def level(cluster: ReplicaCluster) -> None:
    leader = cluster.nodes[1].log()
    for node in cluster.nodes.values():
        await eventually_async(
            lambda node=node: node.log().high_watermark == leader.log_end_offset,
            f"{node.node_id} has all",
        )


async def leads(cluster: ReplicaCluster, node_id: int, *, instead_of: int) -> None:
    """Let another lead: the one that did stops."""
    await eventually_async(lambda: len(cluster.image().isr) == 3, "all are in sync")
    await cluster.nodes[instead_of].stop()
    cluster.fence(instead_of)
    cluster.publish()
    partition = cluster.nodes[node_id].partition()
    assert partition.is_leader
    await eventually_async(lambda: partition.log.high_watermark == COUNT, "it knows what was committed")


def segment_file(node: ReplicaNode, index: int) -> Path:
    return sorted((node.directory / "t-0").glob("*.log"))[index]


async def damaged(node: ReplicaNode, damage: Damage, segment: int = 1) -> None:
    """Stop a broker with all on disk, change a segment's bytes, and start it again.

    `damage` gets the batches' starts.
    """
    node.log().flush()
    node.logs.checkpoint_work()()
    await node.stop()
    path = segment_file(node, segment)
    data = bytearray(path.read_bytes())
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += BatchHeader.read(data, at).size_bytes
    damage(data, starts)
    assert bytes(data) != path.read_bytes()
    path.write_bytes(data)
    await node.start()
    await eventually_async(lambda: node.log().high_watermark == COUNT, "it knows what was committed")


async def fetch_at(node: ReplicaNode, cluster: ReplicaCluster, offset: int, max_wait_ms: int = 60_000) -> PartitionData:
    connection = await node.client()
    try:
        partition = FetchPartition(fetch_offset=offset, partition_max_bytes=2**20)
        topics = [FetchTopic(topic_id=cluster.topic_id, partitions=[partition])]
        request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, session_epoch=-1, topics=topics)
        response = await connection.request(request, FetchResponse, timeout_s=max_wait_ms / 1000 + PATIENCE_S)
        return response.responses[0].partitions[0]
    finally:
        connection.close()


async def values(node: ReplicaNode, cluster: ReplicaCluster) -> list[bytes | None]:
    """The values of all records that a consumer of this broker gets; fails at the first error."""
    found: list[bytes | None] = []
    offset = 0
    while offset < node.log().high_watermark:
        answer = await fetch_at(node, cluster, offset)
        assert answer.error_code == 0, f"{ErrorCode(answer.error_code).name} at {offset}"
        data = bytes(received(answer.records))
        assert data, f"nothing at {offset}"
        for start, header in read_batches(data):
            found += [record.value for record in read_records(data[start : start + header.size_bytes], header)]
            offset = header.last_offset + 1
    return found


class Values:
    """A machine's records that are the values as they are."""

    topic = "t"

    def encode(self, record: bytes, /) -> EncodedRecord:
        raise AssertionError("nothing is written")

    def decode(self, key: bytes, value: bytes | None, header: BatchHeader, /) -> bytes | None:
        return value

    def decode_marker(self, header: BatchHeader, committed: bool, /) -> bytes | None:
        return None


def payload_bit(data: bytearray, starts: list[int]) -> None:
    data[starts[3] + 100] ^= 0x04


def first_batch(data: bytearray, starts: list[int]) -> None:
    data[starts[0] + 90] ^= 0x80


def last_batch(data: bytearray, starts: list[int]) -> None:
    data[-1] ^= 0x01


def short_length(data: bytearray, starts: list[int]) -> None:
    data[starts[4] + 8 : starts[4] + 12] = (40).to_bytes(4, "big")


def huge_length(data: bytearray, starts: list[int]) -> None:
    data[starts[4] + 8 : starts[4] + 12] = (2**31 - 1).to_bytes(4, "big")


def wrong_length(data: bytearray, starts: list[int]) -> None:
    data[starts[4] + 8 : starts[4] + 12] = (270).to_bytes(4, "big")


def wrong_format(data: bytearray, starts: list[int]) -> None:
    data[starts[5] + 16] = 1


def offset_ahead(data: bytearray, starts: list[int]) -> None:
    data[starts[2] + 7] += 3


def a_sector_of_zeros(data: bytearray, starts: list[int]) -> None:
    data[1024:1536] = bytes(512)


def all_zeros(data: bytearray, starts: list[int]) -> None:
    data[:] = bytes(len(data))


def two_places(data: bytearray, starts: list[int]) -> None:
    payload_bit(data, starts)
    data[starts[9] + 100] ^= 0x04


DAMAGES = [
    payload_bit,
    first_batch,
    last_batch,
    short_length,
    huge_length,
    wrong_length,
    wrong_format,
    offset_ahead,
    a_sector_of_zeros,
    all_zeros,
    two_places,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_a_damaged_batch_is_repaired(cluster: ReplicaCluster, damage: Damage) -> None:
    await filled(cluster)
    follower = cluster.nodes[2]
    await damaged(follower, damage)
    assert follower.file_bytes() != cluster.nodes[1].file_bytes()
    assert await values(follower, cluster) == [value(number) for number in range(COUNT)]
    assert follower.file_bytes() == cluster.nodes[1].file_bytes()
    families = {each.name: each.samples[0].value for each in replication_families(follower.replicas) if each.samples}
    assert families["odradek_repaired_batches"] >= 1
    assert families["odradek_repaired_bytes"] > 100
    assert families["odradek_repair_failures"] == 0


async def test_a_leader_asks_its_followers(cluster: ReplicaCluster) -> None:
    await filled(cluster)
    leader = cluster.nodes[2]
    await damaged(leader, payload_bit)
    await leads(cluster, 2, instead_of=1)
    assert await values(leader, cluster) == [value(number) for number in range(COUNT)]
    assert leader.file_bytes() == cluster.nodes[3].file_bytes()
    # The repair outlives the process.
    await leader.stop()
    await leader.start()
    assert await values(leader, cluster) == [value(number) for number in range(COUNT)]
    assert leader.replication.repairs.counts.repaired_batches == 0


async def test_indexes_that_end_before_the_damage_are_made_again(cluster: ReplicaCluster) -> None:
    await filled(cluster)
    follower = cluster.nodes[2]

    def without_index(data: bytearray, starts: list[int]) -> None:
        wrong_format(data, starts)
        segment_file(follower, 1).with_suffix(".index").unlink()

    await damaged(follower, without_index)
    log = follower.log()
    log.config = replace(log.config, index_interval_bytes=400)
    assert await values(follower, cluster) == [value(number) for number in range(COUNT)]
    assert follower.file_bytes() == cluster.nodes[1].file_bytes()
    segment = follower.log().segments[1]
    segment.indexes.load()
    assert segment.indexes.offsets.last_position() > segment.size_bytes - 1000


async def test_where_the_first_replica_is_damaged_too_the_next_is_asked(cluster: ReplicaCluster) -> None:
    await filled(cluster)
    for node_id in (2, 3):
        await damaged(cluster.nodes[node_id], payload_bit)
    await leads(cluster, 2, instead_of=1)
    await cluster.nodes[1].start()
    assert await values(cluster.nodes[3], cluster) == [value(number) for number in range(COUNT)]
    await eventually_async(
        lambda: cluster.nodes[2].file_bytes() == cluster.nodes[1].file_bytes(), "2 was repaired as well"
    )
    assert cluster.nodes[3].file_bytes() == cluster.nodes[1].file_bytes()


async def test_damage_that_no_replica_can_repair_stays_refused(
    cluster: ReplicaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(cluster)
    for node in cluster.nodes.values():
        await damaged(node, payload_bit)
    node = cluster.nodes[1]
    before = node.file_bytes()
    bad = next(BatchHeader.read(before, at).base_offset for at in _starts(before) if not _is_whole(before, at))
    assert (await fetch_at(node, cluster, bad)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert node.file_bytes() == before
    assert node.replication.repairs.counts.failures == 1
    assert "no replica has an intact copy of a damaged batch" in caplog.text
    # A second read soon after gets the answer at once; the batches around the damage are served.
    assert (await fetch_at(node, cluster, bad)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert node.replication.repairs.counts.failures == 1
    assert (
        (await fetch_at(node, cluster, bad - 1)).error_code == (await fetch_at(node, cluster, bad + 1)).error_code == 0
    )


async def test_a_diverging_replica_repairs_nothing(cluster: ReplicaCluster) -> None:
    await filled(cluster)
    follower = cluster.nodes[2]
    await damaged(follower, payload_bit)
    log = follower.log()
    log.epochs.clear()  # as if ours were of a leader epoch that the others never saw
    log.epochs.assign(7, 0)
    before = follower.file_bytes()
    hole = next(at for at in _starts(before) if not _is_whole(before, at))
    offset = BatchHeader.read(before, hole).base_offset
    assert (await fetch_at(follower, cluster, offset)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert follower.file_bytes() == before


async def test_a_compacted_segment_is_made_again(cluster: ReplicaCluster) -> None:
    """The other replica has compacted the damaged records away, so sizes differ: the whole segment is replaced."""
    await cluster.add(1, 2)
    cluster.create([1, 2])
    overrides = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    for node in cluster.nodes.values():
        log = node.log()
        compacted = LogConfig.from_overrides(log.config, overrides)
        log.config = replace(compacted, segment_bytes=SEGMENT_BYTES, index_interval_bytes=400)
    leader, follower = cluster.nodes[1], cluster.nodes[2]
    for number in range(COUNT):
        data = bytearray(build_batch([Record(b"key-%d" % (number % 7), value(number), timestamp_ms=NOW_MS)]))
        leader.partition().append_as_leader(
            [data], [BatchHeader.read(data)], required_acks=1, now_ms=leader.clock.now_ms()
        )
    await eventually_async(lambda: follower.log().high_watermark == COUNT, "the follower has all")
    cleaner = Cleaner(leader.disk, leader.clock, leader.logs, CleanerConfig())
    leader.log().flush()
    await cleaner.clean_dirtiest()
    assert leader.log().size_bytes < follower.log().size_bytes
    await damaged(follower, payload_bit)
    follower.log().config = leader.log().config
    found = await values(follower, cluster)
    assert follower.replication.repairs.counts.failures == 0
    assert len(found) == COUNT - 1, "one batch is gone, and was in the leader's log no more"
    newest = {number % 7: value(number) for number in range(COUNT)}
    assert set(newest.values()) <= set(found)
    assert found == sorted(found, key=lambda each: each or b"")
    # It is a whole segment again, also for the next start.
    await follower.stop()
    await follower.start()
    assert await values(follower, cluster) == found


async def test_random_damage_is_repaired(cluster: ReplicaCluster) -> None:
    """Flips anywhere in anything: a consumer of the damaged broker gets every record, and the files are equal."""
    await filled(cluster)
    follower = cluster.nodes[2]
    for seed in range(8):
        chance = random.Random(seed)
        segment = chance.randrange(len(list((follower.directory / "t-0").glob("*.log"))) - 1)

        def flips(data: bytearray, starts: list[int], chance: random.Random = chance) -> None:
            for _ in range(chance.randint(1, 6)):
                at = chance.randrange(len(data))
                length = chance.choice((1, 1, 8, 64, 600))
                data[at : at + length] = bytes(byte ^ chance.randrange(1, 256) for byte in data[at : at + length])

        await damaged(follower, flips, segment)
        async with asyncio.timeout(PATIENCE_S):
            assert await values(follower, cluster) == [value(number) for number in range(COUNT)], f"seed {seed}"
        mine, theirs = follower.file_bytes(), cluster.nodes[1].file_bytes()
        assert mine == theirs, f"seed {seed}"


def _starts(data: bytes) -> list[int]:
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += BatchHeader.read(data, at).size_bytes
    return starts


def _is_whole(data: bytes, at: int) -> bool:
    header = BatchHeader.read(data, at)
    return crc_is_valid(data[at : at + header.size_bytes], header)


async def test_a_coordinator_loads_what_was_damaged(cluster: ReplicaCluster) -> None:
    """A coordinator that loads a log waits for its repair as well, and misses nothing."""
    await filled(cluster)
    node = cluster.nodes[2]
    await damaged(node, payload_bit)
    await leads(cluster, 2, instead_of=1)
    partition = node.partition()
    log = PartitionMachineLog(
        partition,
        partition.leader_epoch,
        node.clock,
        Values(),
        max_batch_bytes=1 << 20,
        on_storage_error=lambda error: None,
    )
    found = [record for slice_ in [each async for each in log.read_all()] for _, record in slice_]
    assert found == [value(number) for number in range(COUNT)]
