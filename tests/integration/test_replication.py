"""Followers and their leader over real sockets and disks, with the real controller between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odradek.common.errors import ApiError, ErrorCode
from tests.support.replica_nodes import ReplicaCluster, eventually


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ReplicaCluster]:
    made = ReplicaCluster(tmp_path)
    yield made
    await made.close()


async def caught_up(cluster: ReplicaCluster, leader: int, *followers: int) -> None:
    """Until all have the leader's log and its watermark."""
    log = cluster.nodes[leader].log()
    for each in followers:
        node = cluster.nodes[each]
        await eventually(
            lambda node=node: (
                node.log().log_end_offset == log.log_end_offset  # type: ignore[misc]
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
    await asyncio.wait_for(wait, 10)
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
            await eventually(lambda n=number, node=node: node.log(n).high_watermark == 1)  # type: ignore[misc]
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
    await eventually(lambda: leader.partition().isr == (1, 2), "2 is in sync again")
    assert cluster.image().isr == (1, 2)
    assert follower.replication.fetchers.appended_bytes < 1000
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
    await eventually(lambda: new.partition().isr == (2, 1), "1 is in sync again")


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
    leader.log().roll(leader.clock.now_ms())
    leader.partition().delete_records(11)
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
    cluster.nodes[1].partition().delete_records(2)
    cluster.nodes[1].append(b"d")
    await eventually(lambda: cluster.nodes[2].log().log_start_offset == 2, "the follower's start moves")


async def test_who_lags_falls_out_and_the_rest_goes_on(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2, 3, **{"replica.lag.time.max.ms": "600"})
    cluster.create([1, 2, 3])
    leader = cluster.nodes[1]
    leader.append(b"a")
    await caught_up(cluster, 1, 2, 3)
    await cluster.nodes[3].stop()
    leader.append(b"b", acks=-1)
    wait = leader.partition().wait_replicated(2)
    assert wait is not None
    await asyncio.wait_for(wait, 10)
    assert leader.partition().isr == (1, 2)
    fallen = leader.partition().in_sync.out()
    assert list(fallen) == [3] and fallen[3].reason == "stuck"


async def test_an_answer_of_the_controller_that_was_lost(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2, **{"replica.lag.time.max.ms": "500"})
    cluster.create([1, 2])
    leader = cluster.nodes[1]
    await cluster.nodes[2].stop()
    leader.append(b"a")
    cluster.lose_answers = True
    await eventually(lambda: cluster.image().isr == (1,), "the controller has taken 2 out")
    # The leader does not know: the watermark waits for 2 until metadata, or the second answer, says otherwise.
    assert leader.log().high_watermark == 0
    await eventually(lambda: len(cluster.asked) > 1, "it asks again")
    assert all(len(topic.partitions[0].new_isr_with_epochs) == 1 for each in cluster.asked for topic in each.topics)
    cluster.publish()
    await eventually(lambda: leader.log().high_watermark == 1, "metadata tells")


async def test_a_change_in_flight_counts_whoever_may_be_in(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2)
    cluster.create([1, 2])
    leader, follower = cluster.nodes[1], cluster.nodes[2]
    await follower.stop()
    cluster.fence(2)
    cluster.publish()
    leader.append(b"a")
    cluster.answers.clear()
    await follower.start()
    await eventually(lambda: leader.partition().in_sync.pending is not None, "2 asks to join")
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
    await eventually(lambda: len(cluster.asked) >= 3, "it asks again and again")
    assert leader.partition().isr == (1,)
    cluster.refuse_with = None
    await eventually(lambda: leader.partition().isr == (1, 2), "in the end it is heard")


async def test_flush_messages_on_a_follower_holds_its_acknowledgement(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2)
    cluster.create([1, 2])
    follower = cluster.nodes[2]
    follower.partition()._flush_messages = 1  # what the topic's setting does
    cluster.nodes[1].append(b"a")
    await caught_up(cluster, 1, 2)
    assert follower.log().recovery_point == 1


async def test_a_reader_of_a_closed_door_hears_why(cluster: ReplicaCluster) -> None:
    await cluster.add(1, 2)
    cluster.create([1, 2])
    with pytest.raises(ApiError) as caught:
        cluster.nodes[2].append(b"a")
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
