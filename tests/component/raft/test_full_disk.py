"""Voters whose disk is full: they lead no more, promise nothing that they cannot keep, and read what is committed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.vote_response import VoteResponse
from odradek.raft.roles import Role
from tests.component.raft.test_quorum_hostile import send_to, vote
from tests.support.nodes.quorum_replicas import Quorum, Replica
from tests.support.waiting import eventually_async


def _stands_later(replica: Replica, than_ms: int) -> bool:
    return replica.driver.node._deadline_ms > than_ms


async def test_a_leader_that_cannot_write_makes_way(tmp_path: Path) -> None:
    async with Quorum(tmp_path) as quorum:
        first = await quorum.leader()
        assert await first.set("1") == 0
        await quorum.converged("1")
        first.disk.dead.add(first.root)
        with pytest.raises(ApiError) as refused:
            await first.set("2")
        assert refused.value.code is ErrorCode.NOT_CONTROLLER, "the client asks another node"
        second = await quorum.leader()
        assert second is not first
        assert await second.set("3") == 0
        await quorum.converged("3")  # the first, too, knows it, though it cannot write it down
        end_offset = first.driver.end_offset
        assert end_offset < second.driver.end_offset
        for value in ("4", "5"):
            assert await second.set(value) == 0
        await quorum.converged("5")
        assert first.driver.end_offset == end_offset
        assert not first.failures
        first.disk.dead.clear()
        await eventually_async(lambda: first.driver.end_offset == second.driver.end_offset)
        await eventually_async(lambda: first.driver.node.may_campaign)
        assert await second.set("6") == 0
        await quorum.converged("6")
        await first.stop()
        await first.start()
        await quorum.converged("6")


async def test_one_that_cannot_write_never_stands_and_may_lead_once_it_can(tmp_path: Path) -> None:
    async with Quorum(tmp_path) as quorum:
        first = await quorum.leader()
        first.disk.dead.add(first.root)
        with pytest.raises(ApiError):
            await first.set("1")
        second = await quorum.leader()
        assert await second.set("2") == 0
        await quorum.converged("2")
        third = next(each for each in quorum.running if each not in (first, second))
        await second.kill()
        # The third needs the first one's vote, which that one cannot keep; and it must not stand itself.
        for _ in range(4):
            before = first.driver.node._deadline_ms
            await eventually_async(partial(_stands_later, first, before))
        assert not third.driver.leads
        assert first.driver.node.role not in (Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER)
        assert not first.failures
        first.disk.dead.clear()
        leader: Replica = await quorum.leader()
        assert await leader.set("3") == 0
        await quorum.converged("3")


async def test_a_vote_that_cannot_be_kept_is_not_given(tmp_path: Path) -> None:
    async with Quorum(tmp_path, election_timeout_ms=60_000, fetch_timeout_ms=120_000) as quorum:
        leader = await quorum.leader()
        await eventually_async(
            lambda: all(each.driver.end_offset == leader.driver.end_offset for each in quorum.running)
        )
        voter = next(each for each in quorum.running if each is not leader)
        candidate = next(each for each in quorum.running if each not in (leader, voter))
        stored = (voter.directory / "quorum-state").read_bytes()
        end = voter.driver.storage.log_end
        asked = vote(
            voter.driver.leader_epoch + 1, candidate.key.node_id,
            last_offset_epoch=end.last_epoch, last_offset=end.end_offset, voter_id=voter.key.node_id,
        )  # fmt: skip

        async def granted() -> bool:
            answer = await send_to(voter, asked, VoteResponse)
            assert answer.error_code == answer.topics[0].partitions[0].error_code == 0
            return bool(answer.topics[0].partitions[0].vote_granted)

        voter.disk.dead.add(voter.root)
        assert not await granted()
        assert not await granted(), "when asked again, neither"
        assert (voter.directory / "quorum-state").read_bytes() == stored
        voter.disk.dead.clear()
        assert await granted()
        assert (voter.directory / "quorum-state").read_bytes() != stored
        assert not voter.failures
