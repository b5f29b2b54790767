"""A replica when something ends: its leadership, its process, a connection."""

from __future__ import annotations

import asyncio
from pathlib import Path

from odradek.common.real_io import RealClock
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.raft.roles import Role
from odradek.record.reader import read_batches
from tests.component.raft.test_quorum_hostile import fetched, send_to
from tests.support.nodes.quorum_replicas import Quorum
from tests.support.waiting import PATIENCE_S, eventually_async


async def test_a_leader_without_a_majority_serves_nothing_more(tmp_path: Path) -> None:
    async with Quorum(tmp_path) as quorum:
        leader = await quorum.leader()
        for replica in quorum.running:
            if replica is not leader:
                await replica.kill()
        await eventually_async(lambda: not leader.driver.leads)
        assert not leader.service.active


async def test_a_replica_that_stops_leaves_the_starts_of_epochs_to_other_readers(tmp_path: Path) -> None:
    async with Quorum(tmp_path, 1) as quorum:
        (replica,) = quorum.running
        starts = []
        for value in ("1", "2"):
            leader = await quorum.leader()
            starts.append((leader.driver.leader_epoch, leader.driver.node.epoch_start_offset))
            assert await leader.set(value) == 0
            await replica.stop()
            text = (replica.directory / "leader-epoch-checkpoint").read_text()
            assert text == "\n".join(["0", str(len(starts)), *(f"{epoch} {start}" for epoch, start in starts), ""])
            await replica.start()


async def test_a_replica_that_begins_to_stop_is_not_elected_again(tmp_path: Path) -> None:
    async with Quorum(tmp_path) as quorum:
        stopping = await quorum.leader()
        await stopping.driver.resign()
        for replica in quorum.running:
            if replica is not stopping:
                await replica.kill()
        node = stopping.driver.node
        for later_ms in (60_000, 120_000):  # it hears of no leader
            stopping.driver.apply_ready(node.tick(RealClock().monotonic_ms() + later_ms))
            assert node.role is Role.UNATTACHED


async def test_a_connection_that_ends_is_made_again_at_once(tmp_path: Path) -> None:
    async with Quorum(tmp_path, retry_backoff_ms=60_000, fetch_timeout_ms=60_000) as quorum:
        leader = await quorum.leader()
        await leader.set("1")
        await quorum.converged("1")
        leader.parts.dispatcher.disconnect_all("controller")
        async with asyncio.timeout(PATIENCE_S):
            assert await leader.set("2") == 0
        await quorum.converged("2")


async def test_a_fetch_without_a_bound_gets_all_batches_that_fit_an_answer(tmp_path: Path) -> None:
    async with Quorum(tmp_path, 1) as quorum:
        leader = await quorum.leader()
        for value in ("1", "2", "3"):
            assert await leader.set(value) == 0
        request = fetched(leader.driver.leader_epoch, 0)
        request.topics[0].partitions[0].partition_max_bytes = request.max_bytes
        answer = await send_to(leader, request, FetchResponse)
        records = answer.responses[0].partitions[0].records
        assert bytes(records) == leader.driver.log.read(0, request.max_bytes) and len(list(read_batches(records))) > 2


async def test_describe_quorum_shows_which_replica_has_stopped_fetching(tmp_path: Path) -> None:
    async with Quorum(tmp_path) as quorum:
        leader = await quorum.leader()
        await leader.set("1")
        await quorum.converged("1")
        killed, other = (replica for replica in quorum.running if replica is not leader)
        await killed.kill()
        before = leader.driver.end_offset
        assert await leader.set("2") == 0
        await quorum.converged("2")
        now_ms, wall_ms, later_ms = RealClock().monotonic_ms(), 10_000_000, 5_000
        answer = leader.driver._incoming.describe(wall_ms, now_ms + later_ms)
        partition = answer.topics[0].partitions[0]
        voters = {voter.replica_id: voter for voter in partition.current_voters}
        assert set(voters) == {1, 2, 3} and not partition.observers
        mine = voters[leader.key.node_id]
        assert (mine.last_fetch_timestamp, mine.last_caught_up_timestamp) == (wall_ms, wall_ms)
        assert mine.log_end_offset == leader.driver.end_offset == partition.high_watermark > before
        assert voters[killed.key.node_id].log_end_offset <= before
        assert voters[other.key.node_id].last_fetch_timestamp <= wall_ms - later_ms
