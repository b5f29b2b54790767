"""Followers and their leader over real sockets and disks, with the real controller between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odradek.client.connection import Connection
from odradek.common.errors import ApiError, ErrorCode
from odradek.log.retention import delete_records
from odradek.log.rolling import roll
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.protocol.records_field import received
from odradek.record.builder import build_batch
from odradek.record.record import Record
from odradek.replica import following
from odradek.replica.metrics import replication_families
from odradek.replica.throttle import Throttled
from tests.support.models.batches import batch, header_of
from tests.support.nodes.replica_nodes import ReplicaCluster, ReplicaNode
from tests.support.waiting import PATIENCE_S, eventually_async

# A long poll lasts 29 s; everything else takes milliseconds.
SOONER_THAN_A_LONG_POLL_S = 25


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ReplicaCluster]:
    made = ReplicaCluster(tmp_path)
    yield made
    await made.close()


async def caught_up(cluster: ReplicaCluster, leader: int, *followers: int) -> None:
    """Wait until all followers have the leader's log and its high watermark."""
    log = cluster.nodes[leader].log()
    for each in followers:
        node = cluster.nodes[each]
        await eventually_async(
            lambda node=node: (
                node.log().log_end_offset == log.log_end_offset
                and node.log().high_watermark == log.high_watermark == log.log_end_offset
            ),
            f"{each} has all of {leader}'s log",
        )


async def test_followers_get_what_the_leader_has_and_acknowledge_it(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2, 3)
    cluster.create([1, 2, 3])
    leader = cluster.nodes[1]
    for number in range(50):
        leader.append(b"%d" % number, b"more")
    wait = leader.partition().wait_replicated(100)
    assert wait is not None
    await asyncio.wait_for(wait, PATIENCE_S)
    await caught_up(cluster, 1, 2, 3)
    assert leader.file_bytes() == cluster.nodes[2].file_bytes() == cluster.nodes[3].file_bytes() != b""
    assert cluster.nodes[2].log().epochs.entries() == leader.log().epochs.entries()


async def test_many_partitions_and_fetchers(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2, **{"num.replica.fetchers": "3"})
    cluster.create(*([1, 2] for _ in range(20)), *([2, 1] for _ in range(20)))
    for number in range(40):
        cluster.nodes[1 if number < 20 else 2].append(b"x", partition_id=number)
    for number in range(40):
        for node in cluster.nodes.values():
            await eventually_async(lambda n=number, node=node: node.log(n).high_watermark == 1)
    assert len({each.partition.partition_id for each in cluster.nodes[2].replication.fetchers}) == 20


async def test_a_follower_that_comes_back_fetches_what_it_missed_and_rejoins(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2)
    cluster.create([1, 2])
    leader, follower = cluster.nodes[1], cluster.nodes[2]
    leader.append(b"a" * 50_000)
    await caught_up(cluster, 1, 2)
    await follower.stop()
    cluster.fence(2)
    cluster.publish()
    assert leader.partition().isr == (1,)
    leader.append(b"b")
    assert leader.log().high_watermark == 2
    await follower.start()
    await caught_up(cluster, 1, 2)
    await eventually_async(lambda: leader.partition().isr == (1, 2), "2 is in sync again")
    assert cluster.image().isr == (1, 2)
    assert follower.replication.fetchers.appended_bytes < 1000
    metrics = {family.name: family for family in replication_families(follower.replicas)}
    assert 0 < metrics["odradek_replica_fetched_bytes"].samples[0].value < 1000
    assert follower.file_bytes() == leader.file_bytes()


async def test_a_tail_that_only_the_old_leader_has_is_cut(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2)
    cluster.create([1, 2])
    old, new = cluster.nodes[1], cluster.nodes[2]
    old.append(b"shared")
    await caught_up(cluster, 1, 2)
    await new.replication.fetchers.close()
    for number in range(5):
        old.append(b"never acknowledged %d" % number)
    assert old.log().high_watermark == 1
    await old.stop()
    cluster.fence(1)
    cluster.publish()
    assert new.partition().is_leader
    new.append(b"acknowledged", b"too")
    await old.start()
    await caught_up(cluster, 2, 1)
    assert old.file_bytes() == new.file_bytes()
    assert old.log().epochs.entries() == new.log().epochs.entries()
    await eventually_async(lambda: new.partition().isr == (2, 1), "1 is in sync again")


async def test_a_new_replica_begins_at_the_leaders_start(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2)
    cluster.create([1, 2])
    leader, follower = cluster.nodes[1], cluster.nodes[2]
    for _ in range(10):
        leader.append(b"x")
    await caught_up(cluster, 1, 2)
    await follower.stop()
    cluster.fence(2)
    cluster.publish()
    leader.append(b"y", b"z")
    roll(leader.log(), leader.clock.now_ms())
    delete_records(leader.partition().log, 11)
    leader.append(b"last")
    await follower.start()
    await caught_up(cluster, 1, 2)
    assert follower.log().log_start_offset == leader.log().log_start_offset == 11
    assert leader.file_bytes().endswith(follower.file_bytes())


async def test_deleted_records_are_gone_from_followers_too(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2)
    cluster.create([1, 2])
    cluster.nodes[1].append(b"a", b"b", b"c")
    await caught_up(cluster, 1, 2)
    delete_records(cluster.nodes[1].partition().log, 2)
    cluster.nodes[1].append(b"d")
    await eventually_async(lambda: cluster.nodes[2].log().log_start_offset == 2, "the follower's start moves")


async def test_a_lagging_follower_leaves_the_isr_and_the_rest_goes_on(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2, 3, **{"replica.lag.time.max.ms": "3000"})
    cluster.create([1, 2, 3])
    leader = cluster.nodes[1]
    leader.append(b"a")
    await caught_up(cluster, 1, 2, 3)
    await cluster.nodes[3].stop()
    leader.append(b"b", acks=-1)
    wait = leader.partition().wait_replicated(2)
    assert wait is not None
    await asyncio.wait_for(wait, PATIENCE_S)
    # If all of this was paused for those three seconds, 2 has fallen out as well, and comes back.
    await eventually_async(lambda: leader.partition().isr == (1, 2), "2 is in sync")
    removed = leader.partition().in_sync.out()
    assert list(removed) == [3] and removed[3].reason == "stuck"


async def test_an_answer_of_the_controller_that_was_lost(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2, **{"replica.lag.time.max.ms": "500"})
    # Before 2 stops: that may take longer than it may lag.
    cluster.lose_answers = True
    cluster.create([1, 2])
    leader = cluster.nodes[1]
    await cluster.nodes[2].stop()
    leader.append(b"a")
    await eventually_async(lambda: cluster.image().isr == (1,), "the controller has taken 2 out")
    # The leader does not know: the watermark waits for 2 until metadata, or the second answer, which is held back here,
    # says otherwise.
    assert leader.log().high_watermark == 0
    await eventually_async(lambda: len(cluster.asked) > 1, "it asks again")
    assert all(len(topic.partitions[0].new_isr_with_epochs) == 1 for each in cluster.asked for topic in each.topics)
    cluster.publish()
    await eventually_async(lambda: leader.log().high_watermark == 1, "metadata notifies")
    cluster.answers.set()


async def test_an_isr_change_in_flight_counts_the_larger_set(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2)
    cluster.create([1, 2])
    leader, follower = cluster.nodes[1], cluster.nodes[2]
    await follower.stop()
    cluster.fence(2)
    cluster.publish()
    leader.append(b"a")
    cluster.answers.clear()
    await follower.start()
    await eventually_async(lambda: leader.partition().in_sync.pending is not None, "2 asks to join")
    await follower.stop()
    leader.append(b"b")
    assert leader.log().high_watermark == 1
    assert leader.partition().in_sync.isr != (1, 2)
    cluster.answers.set()


async def test_a_refused_member_is_asked_for_again_later(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2)
    cluster.create([1, 2])
    leader, follower = cluster.nodes[1], cluster.nodes[2]
    await follower.stop()
    cluster.fence(2)
    cluster.publish()
    leader.append(b"a")
    cluster.refuse_with = ErrorCode.NOT_CONTROLLER
    await follower.start()
    await eventually_async(lambda: len(cluster.asked) >= 3, "it asks again and again")
    assert leader.partition().isr == (1,)
    cluster.refuse_with = None
    await eventually_async(lambda: leader.partition().isr == (1, 2), "in the end it is heard")


async def test_flush_messages_on_a_follower_holds_its_acknowledgement(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2)
    cluster.create([1, 2])
    follower = cluster.nodes[2]
    follower.partition()._flush_messages = 1  # what the topic's setting does
    cluster.nodes[1].append(b"a")
    await caught_up(cluster, 1, 2)
    assert follower.log().recovery_point == 1


async def test_a_fetch_from_a_closed_listener_gets_the_reason(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2)
    cluster.create([1, 2])
    with pytest.raises(ApiError) as caught:
        cluster.nodes[2].append(b"a")
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


async def fetch(connection: Connection, cluster: ReplicaCluster, offset: int, **fields: Any) -> PartitionData:
    """One sessionless Fetch of the topic's first partition; fields of the request, and `partition` for those of it."""
    wanted = {"partition_max_bytes": 2**20, **fields.pop("partition", {})}
    request = FetchRequest(
        max_wait_ms=0,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=cluster.topic_id, partitions=[FetchPartition(fetch_offset=offset, **wanted)])],
        **fields,
    )
    response = await connection.request(request, FetchResponse, timeout_s=PATIENCE_S)
    assert response.error_code == 0
    return response.responses[0].partitions[0]


class TestReadingFromTheNearestReplica:
    async def test_a_leader_sends_a_consumer_to_its_rack(self, cluster: ReplicaCluster) -> None:
        await cluster.add(1, **SELECTOR, **{"broker.rack": "a"})
        await cluster.add(2, **SELECTOR, **{"broker.rack": "b"})
        cluster.create([1, 2])
        cluster.nodes[1].append(b"x")
        await caught_up(cluster, 1, 2)
        leader, follower = await cluster.nodes[1].client(), await cluster.nodes[2].client()
        try:
            sent = await fetch(leader, cluster, 0, rack_id="b")
            assert (sent.preferred_read_replica, sent.error_code, bytes(received(sent.records))) == (2, 0, b"")
            near = await fetch(follower, cluster, 0, rack_id="b")
            assert bytes(received(near.records)) == cluster.nodes[1].file_bytes()
            for rack in ("a", "c", ""):
                stays = await fetch(leader, cluster, 0, rack_id=rack)
                assert (stays.preferred_read_replica, bytes(received(stays.records)) != b"") == (-1, True)
        finally:
            leader.close()
            follower.close()

    async def test_a_follower_out_of_sync_is_no_preferred_replica(self, cluster: ReplicaCluster) -> None:
        await cluster.add(1, **SELECTOR, **{"broker.rack": "a"})
        await cluster.add(2, **SELECTOR, **{"broker.rack": "b"})
        cluster.create([1, 2])
        cluster.nodes[1].append(b"x")
        await caught_up(cluster, 1, 2)
        await cluster.nodes[2].stop()
        cluster.fence(2)
        cluster.publish()
        leader = await cluster.nodes[1].client()
        try:
            assert (await fetch(leader, cluster, 0, rack_id="b")).preferred_read_replica == -1
        finally:
            leader.close()

    async def test_a_follower_gives_what_it_knows_to_be_committed(self, cluster: ReplicaCluster) -> None:
        await cluster.add(1, 2)
        cluster.create([1, 2])
        cluster.nodes[1].append(b"x")
        await caught_up(cluster, 1, 2)
        node = cluster.nodes[2]
        await node.replication.fetchers.close()
        following.append_from_leader(
            node.partition(),
            build_batch([Record(None, b"y", timestamp_ms=1)], base_offset=1, leader_epoch=0),
            leader_epoch=0,
            high_watermark=1,
            log_start_offset=0,
            now_ms=1,
        )
        follower = await node.client()
        try:
            uncommitted = await fetch(follower, cluster, 1)
            assert (uncommitted.error_code, bytes(received(uncommitted.records))) == (0, b"")
            assert (await fetch(follower, cluster, 3)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
            old = {"current_leader_epoch": 7}
            assert (await fetch(follower, cluster, 0, partition=old)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        finally:
            follower.close()

    async def test_a_follower_hears_at_once_of_what_is_committed(self, cluster: ReplicaCluster) -> None:
        await cluster.add(1, 2, 3, **SELECTOR, **{"replica.fetch.wait.max.ms": "29000"})
        cluster.create([1, 2, 3])
        for number in range(1, 20):
            cluster.nodes[1].append(b"x")
            async with asyncio.timeout(SOONER_THAN_A_LONG_POLL_S):
                await caught_up(cluster, 1, 2, 3)
            assert cluster.nodes[2].log().high_watermark == number


class TestWhoMayAcknowledge:
    async def refused(self, cluster: ReplicaCluster, replica: dict[str, Any], **partition: int) -> int:
        connection = await cluster.nodes[1].client()
        try:
            answer = await fetch(
                connection,
                cluster,
                1,
                replica_state=ReplicaState(**replica),
                partition={"last_fetched_epoch": 0, **partition},
            )
            return answer.error_code
        finally:
            connection.close()

    async def test_only_replicas_of_this_leader_and_this_life_count(self, cluster: ReplicaCluster) -> None:
        await cluster.add(1, 2, 3)
        cluster.create([1, 2])
        node = cluster.nodes[1]
        await cluster.nodes[2].stop()
        node.append(b"x")
        epoch = cluster.nodes[2].broker_epoch
        reported = {"current_leader_epoch": 0}
        foreign = {"replica_id": 3, "replica_epoch": cluster.nodes[3].broker_epoch}
        assert await self.refused(cluster, foreign, **reported) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert await self.refused(cluster, foreign) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        earlier = {"replica_id": 2, "replica_epoch": epoch - 1}
        assert await self.refused(cluster, earlier, **reported) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        nameless = {"replica_id": 2, "replica_epoch": -1}
        assert await self.refused(cluster, nameless, **reported) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        # An epoch that this broker does not know may be newer: it is served, and acknowledges nothing.
        assert await self.refused(cluster, {"replica_id": 2, "replica_epoch": epoch + 1}, **reported) == 0
        own = {"replica_id": 2, "replica_epoch": epoch}
        assert await self.refused(cluster, own, current_leader_epoch=1) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert node.log().high_watermark == 0
        assert await self.refused(cluster, own, **reported) == 0
        assert node.log().high_watermark == 1

    async def test_a_history_that_is_not_ours_acknowledges_nothing(self, cluster: ReplicaCluster) -> None:
        await cluster.add(1, 2)
        cluster.create([1, 2])
        node = cluster.nodes[1]
        await cluster.nodes[2].stop()
        node.append(b"x")
        own = ReplicaState(replica_id=2, replica_epoch=cluster.nodes[2].broker_epoch)
        connection = await node.client()
        try:
            for offset, epoch in ((7, 0), (9, -1)):
                where = {"current_leader_epoch": 0, "last_fetched_epoch": epoch}
                await fetch(connection, cluster, offset, replica_state=own, partition=where)
                assert node.log().high_watermark == 0
        finally:
            connection.close()


async def test_a_producer_that_waits_in_vain_is_explained_in_the_log(
    cluster: ReplicaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.add(1, 2, **{"replica.lag.time.max.ms": "2000"})
    cluster.create([1, 2])
    node = cluster.nodes[1]
    node.append(b"x")
    await caught_up(cluster, 1, 2)
    node.partition().min_in_sync_replicas = 2
    await cluster.nodes[2].stop()
    node.append(b"y")
    await eventually_async(lambda: node.partition().isr == (1,), "2 falls out")
    for _ in range(3):
        with pytest.raises(ApiError) as caught:
            node.append(b"z", acks=-1)
        assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    reported = [record for record in caplog.records if record.getMessage() == "NOT_ENOUGH_REPLICAS"]
    assert len(reported) == 1
    assert "2: stuck for" in reported[0].__dict__["fields"]["out"]
    metrics = {family.name: family for family in replication_families(node.replicas)}
    assert metrics["odradek_partitions_under_min_isr"].samples[0].value == 1
    assert metrics["odradek_partitions_under_replicated"].samples[0].value == 1
    assert metrics["odradek_isr_shrinks"].samples[0].value == 1
    assert metrics["odradek_replica_fetch_failures"].samples[0].value == 0
    lag = metrics["odradek_follower_lag_records"].samples[0]
    assert (lag.value, dict(lag.labels)["broker"]) == (1, "2")


@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_a_throttled_replica_that_lags_gets_its_share_and_one_in_sync_all(
    cluster: ReplicaCluster, role: str
) -> None:
    await cluster.add(1, 2, 3)
    cluster.create([1, 2, 3])
    leader, lagging = cluster.nodes[1], cluster.nodes[3]
    leader.append(b"seen by all")
    await caught_up(cluster, 1, 2, 3)
    await lagging.stop()
    cluster.fence(3)
    cluster.publish()
    leader.append(b"missed")

    def throttle(node: ReplicaNode) -> None:
        bucket = node.replicas.leader_quota if role == "leader" else node.replication.fetchers.quota
        node.partition().throttled = Throttled(as_leader=role == "leader", as_follower=role == "follower")
        bucket.change_rate(0, node.clock.monotonic_ms())

    throttle(leader)
    throttle(cluster.nodes[2])
    await lagging.start(before_fetching=throttle)
    leader.append(b"missed, too")
    await caught_up(cluster, 1, 2)
    await asyncio.sleep(0.5)  # many rounds of fetching
    assert (lagging.log().log_end_offset, leader.partition().isr) == (1, (1, 2))
    for node in (leader, lagging):
        for bucket in (node.replicas.leader_quota, node.replication.fetchers.quota):
            bucket.change_rate(1_000_000, node.clock.monotonic_ms())
    await caught_up(cluster, 1, 2, 3)
    await eventually_async(lambda: set(leader.partition().isr) == {1, 2, 3}, "3 is in sync")


async def test_a_partition_assigned_during_a_long_poll_is_fetched_at_once(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2, **{"replica.fetch.wait.max.ms": "29000"})
    cluster.create([1, 2])
    leader = cluster.nodes[1]
    leader.append(b"a")
    await eventually_async(lambda: leader.log().high_watermark == 1)
    cluster.harness.topic("u", [1, 2])
    # The follower hears of it first, is refused, and asks again and again while its long poll goes on.
    cluster.publish(2)
    await asyncio.sleep(0.2)
    cluster.publish()
    partition = leader.replicas.partition("u", 0)
    assert partition is not None
    data = bytearray(batch(b"b"))
    partition.append_as_leader([data], [header_of(bytes(data))], required_acks=-1, now_ms=leader.clock.now_ms())
    async with asyncio.timeout(SOONER_THAN_A_LONG_POLL_S):
        await eventually_async(lambda: partition.log.high_watermark == 1, "the new partition is replicated")
        await eventually_async(lambda: leader.replicas.parked_fetch_count == 1, "one fetch waits for both")
