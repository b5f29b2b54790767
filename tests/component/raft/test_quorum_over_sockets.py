"""A quorum of several replicas over real sockets and files: replication, failover, divergence, snapshots."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from odradek.common.errors import ApiError, ErrorCode
from tests.support.disks.file_system import Ballast, small_tmpfs
from tests.support.nodes.quorum_replicas import Quorum
from tests.support.waiting import eventually_async


async def test_three_voters_elect_a_leader_and_all_read_what_it_writes(tmp_path: Path) -> None:
    async with Quorum(tmp_path) as quorum:
        observer = await quorum.observer()
        leader = await quorum.leader()
        assert await leader.set("1") == 0
        await quorum.converged("1")
        images = {replica.publisher.image.offset for replica in quorum.running}
        assert len(images) == 1
        assert observer.driver.leader() == leader.driver.leader()
        assert {replica.publisher.image.controller_id for replica in quorum.running} == {leader.key.node_id}
        assert not any(replica.failures for replica in quorum.running)


async def test_a_killed_leader_is_replaced_and_catches_up_when_it_is_back(tmp_path: Path) -> None:
    async with Quorum(tmp_path) as quorum:
        await quorum.observer()
        first = await quorum.leader()
        await first.set("1")
        await first.kill()
        second = await quorum.leader()
        assert second is not first and second.driver.leader_epoch > first.driver.leader_epoch
        await second.set("2")
        await quorum.converged("2")
        await first.start()
        await quorum.converged("2")
        assert await quorum.leader() is second


async def test_a_leader_that_stops_says_so_and_another_takes_over(tmp_path: Path) -> None:
    # Timeouts that would show: an election without EndQuorumEpoch would begin after thirty seconds.
    async with Quorum(tmp_path, fetch_timeout_ms=30_000) as quorum:
        first = await quorum.leader()
        await first.set("1")
        await first.stop()
        second = await quorum.leader()
        assert await second.set("2") == 0


async def test_without_a_majority_nothing_is_acknowledged(tmp_path: Path) -> None:
    async with Quorum(tmp_path) as quorum:
        leader = await quorum.leader()
        await leader.set("1")
        others = [replica for replica in quorum.running if replica is not leader]
        for replica in others:
            await replica.kill()
        with pytest.raises(ApiError) as refused:
            await leader.set("2")  # it resigns, as no majority fetches
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert leader.get() == "1" and not leader.driver.leads
        for replica in others:
            await replica.start()
        again = await quorum.leader()
        assert await again.set("3") == 0
        await quorum.converged("3")


async def test_a_replica_with_an_empty_disk_fetches_the_snapshot(tmp_path: Path) -> None:
    limits = {"snapshot_bytes": 20_000, "retention_bytes": 60_000, "fetch_snapshot_max_bytes": 500}
    async with Quorum(tmp_path, **limits) as quorum:
        for number in range(800):
            await quorum.write("v" * 40 + str(number), f"g{number % 20}")
        leader = await quorum.leader()
        await eventually_async(lambda: leader.driver.log.log_start_offset > 0)
        observer = await quorum.observer()
        last = "v" * 40 + "799"
        await quorum.converged(last, "g19")
        assert observer.driver.log.log_start_offset > 0 and observer.driver.storage.snapshots
        assert observer.publisher.image.configs == leader.publisher.image.configs
        await observer.kill()
        await observer.start()
        await quorum.converged(last, "g19")
        assert not observer.failures


async def diverge(tmp_path: Path) -> None:
    """A leader writes records that no follower fetches, and dies; another leads meanwhile; the first returns."""
    async with Quorum(tmp_path) as quorum:
        first = await quorum.leader()
        await first.set("1")
        await quorum.converged("1")
        others = [replica for replica in quorum.running if replica is not first]
        for replica in others:
            await replica.kill()
        before = first.driver.end_offset
        lost = [asyncio.ensure_future(first.set(f"lost-{number}", "lost")) for number in range(5)]
        await eventually_async(lambda: first.driver.end_offset >= before + 5 and first.driver._idle.is_set())
        await first.kill()
        assert all(isinstance(each, ApiError) for each in await asyncio.gather(*lost, return_exceptions=True))
        for replica in others:
            await replica.start()
        second = await quorum.leader()
        await second.set("2")
        await first.start()
        await quorum.converged("2")
        assert {replica.get("lost") for replica in quorum.running} == {None}
        ends = {replica.driver.end_offset for replica in quorum.running}
        assert len(ends) == 1
        logs = {replica.driver.log.read(0, 1 << 20) for replica in quorum.running}
        assert len(logs) == 1
        await first.kill()
        await first.start()  # a log that was cut in good order is no damaged log
        await second.set("3")
        await quorum.converged("3")
        assert not any(replica.failures for replica in quorum.running)


async def test_records_that_were_never_committed_are_cut(tmp_path: Path) -> None:
    await diverge(tmp_path)


async def test_a_full_disk_at_an_election_leaves_it_to_other_voters(tmp_path: Path) -> None:
    with small_tmpfs(tmp_path / "node-2", 2 << 20) as mounted:
        async with Quorum(tmp_path) as quorum:
            full = quorum.replicas[2]
            while (first := await quorum.leader()) is full:
                await full.stop()
                await full.start()
            assert await first.set("1") == 0
            await quorum.converged("1")
            ballast = Ballast(mounted)
            ballast.fill()
            await first.kill()
            await eventually_async(lambda: not full.driver.node.may_campaign)
            await first.start()
            leader = await quorum.leader()
            assert await leader.set("2") == 0
            await quorum.converged("2")
            ballast.release()
            await eventually_async(lambda: full.driver.end_offset == leader.driver.end_offset)
            assert not full.failures
