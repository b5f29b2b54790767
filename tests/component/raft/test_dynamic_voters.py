"""A quorum whose voters change while it works (KIP-853), over real sockets and files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from odradek.protocol.messages.add_raft_voter_response import AddRaftVoterResponse
from odradek.protocol.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from odradek.protocol.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from odradek.protocol.messages.update_raft_voter_request import KRaftVersionFeature, UpdateRaftVoterRequest
from odradek.protocol.messages.update_raft_voter_response import UpdateRaftVoterResponse
from odradek.raft.roles import Role
from tests.support.models.controller_harness import CLUSTER
from tests.support.nodes.quorum_replicas import LISTENER, DynamicQuorum, Quorum, Replica
from tests.support.waiting import PATIENCE_S, eventually_async


def adding(replica: Replica, timeout_ms: int = 10_000, **changes: Any) -> AddRaftVoterRequest:
    fields = {
        "cluster_id": CLUSTER, "timeout_ms": timeout_ms, "voter_id": replica.key.node_id,
        "voter_directory_id": replica.key.directory_id,
        "listeners": [Listener(name=LISTENER, host="127.0.0.1", port=replica.port)], **changes,
    }  # fmt: skip
    return AddRaftVoterRequest(**fields)


def removing(replica: Replica, **changes: Any) -> RemoveRaftVoterRequest:
    fields = {"cluster_id": CLUSTER, "voter_id": replica.key.node_id, "voter_directory_id": replica.key.directory_id}
    return RemoveRaftVoterRequest(**{**fields, **changes})


async def add(quorum: Quorum, replica: Replica, **changes: Any) -> int:
    leader = await quorum.leader()
    connection = await leader.client()
    try:
        answer = await connection.request(adding(replica, **changes), AddRaftVoterResponse, timeout_s=20)
    finally:
        connection.close()
    return answer.error_code


async def remove(quorum: Quorum, replica: Replica, **changes: Any) -> int:
    leader = await quorum.leader()
    connection = await leader.client()
    try:
        answer = await connection.request(removing(replica, **changes), RemoveRaftVoterResponse, timeout_s=20)
    finally:
        connection.close()
    return answer.error_code


def voters(replica: Replica) -> tuple[int, ...]:
    return replica.driver.node.voters.node_ids


async def test_from_one_voter_to_five_and_back_while_it_writes(tmp_path: Path) -> None:
    async with DynamicQuorum(tmp_path, 1) as quorum:
        await quorum.leader()
        for number in range(2, 6):
            joined = await quorum.controller(number)
            assert await add(quorum, joined) == ErrorCode.NONE
            leader = await quorum.leader()
            await quorum.write(str(number))
            await quorum.converged(str(number))
        assert all(voters(replica) == (1, 2, 3, 4, 5) for replica in quorum.running)
        # Two of five are lost: three go on. Then the dead are taken out, and the three are a quorum of their own.
        leader = await quorum.leader()
        lost = [replica for replica in quorum.running if replica is not leader][:2]
        for replica in lost:
            await replica.kill()
        leader = await quorum.leader()
        await quorum.write("6")
        for replica in lost:
            assert await remove(quorum, replica) == ErrorCode.NONE
        leader = await quorum.leader()
        assert len(voters(leader)) == 3
        await quorum.converged("6")
        described = leader.driver.describe().topics[0].partitions[0]
        assert len(described.current_voters) == 3 and all(
            each.replica_directory_id for each in described.current_voters
        )


async def test_a_leader_that_is_removed_gives_up_when_that_is_committed(tmp_path: Path) -> None:
    async with DynamicQuorum(tmp_path) as quorum:
        first = await quorum.leader()
        await quorum.write("1")
        assert await remove(quorum, first) == ErrorCode.NONE
        await eventually_async(lambda: not first.driver.leads)
        second = await quorum.leader()
        assert second is not first and first.key.node_id not in voters(second)
        await quorum.write("2")
        await quorum.converged("2")
        assert first.driver.node.role is Role.FOLLOWER  # it goes on as an observer
        # It can be a voter again.
        assert await add(quorum, first) == ErrorCode.NONE
        assert len(voters(second)) == 3


async def test_a_voter_that_lost_its_disk_is_another_voter_and_joins_by_itself(tmp_path: Path) -> None:
    async with DynamicQuorum(tmp_path) as quorum:
        leader = await quorum.leader()
        await quorum.write("1")
        lost = next(replica for replica in quorum.running if replica is not leader)
        number, port = lost.key.node_id, lost.port
        await lost.kill()
        shutil.rmtree(lost.root)
        again = await quorum.controller(number, directory=77, port=port, auto_join=True)
        # Its fetches with the new disk do not count for the voter that it was.
        await eventually_async(lambda: joined(leader, again))
        found = leader.driver.node.voters.get(number)
        assert found is not None and found.key == again.key
        await quorum.write("2")
        await quorum.converged("2")
        assert not any(replica.failures for replica in quorum.running)


def joined(leader: Replica, replica: Replica) -> bool:
    voter = leader.driver.node.voters.get(replica.key.node_id)
    return voter is not None and voter.key == replica.key


async def test_a_new_controller_stays_an_observer_unless_it_may_join(tmp_path: Path) -> None:
    async with DynamicQuorum(tmp_path, 1) as quorum:
        leader = await quorum.leader()
        quiet = await quorum.controller(2)
        eager = await quorum.controller(3, auto_join=True)
        await eventually_async(lambda: joined(leader, eager))
        await quorum.write("1")
        await quorum.converged("1")
        assert voters(leader) == voters(quiet) == (1, 3)


async def test_a_voter_that_moved_is_found_again(tmp_path: Path) -> None:
    async with DynamicQuorum(tmp_path) as quorum:
        leader = await quorum.leader()
        moved = next(replica for replica in quorum.running if replica is not leader)
        await moved.stop()
        again = await quorum.controller(moved.key.node_id)
        assert again.port != moved.port
        await eventually_async(
            lambda: (
                (found := leader.driver.node.voters.get(again.key.node_id)) is not None
                and found.endpoints[LISTENER][1] == again.port
            )
        )
        await quorum.write("1")
        await quorum.converged("1")
        await leader.stop()
        await quorum.leader()
        await quorum.write("2")


async def test_voters_survive_restarts_and_snapshots(tmp_path: Path) -> None:
    async with DynamicQuorum(tmp_path, 1) as quorum:
        leader = await quorum.leader()
        joined_late = await quorum.controller(2)
        assert await add(quorum, joined_late) == ErrorCode.NONE
        await quorum.write("1")
        for replica in (leader, joined_late):
            await replica.driver.write_snapshot()
        for replica in (leader, joined_late):
            await replica.kill()
        for replica in (leader, joined_late):
            await replica.start()
            assert voters(replica) == (1, 2)
        await quorum.write("2")


async def test_changes_that_are_refused_change_nothing(tmp_path: Path) -> None:
    async with DynamicQuorum(tmp_path) as quorum:
        leader = await quorum.leader()
        await quorum.write("1")
        foreign = Replica(tmp_path, leader.key.__class__(9, UUID(int=9)), 1, leader.driver.node.voters)
        before, end_offset = leader.driver.node.voters, leader.driver.end_offset
        for code, outcome in (
            (ErrorCode.REQUEST_TIMED_OUT, await add(quorum, foreign, timeout_ms=50)),  # it never fetched
            (ErrorCode.DUPLICATE_VOTER, await add(quorum, leader)),
            (ErrorCode.INVALID_REQUEST, await add(quorum, foreign, listeners=[])),
            (ErrorCode.INVALID_REQUEST, await add(quorum, foreign, voter_directory_id=UUID(int=0))),
            (ErrorCode.INCONSISTENT_CLUSTER_ID, await add(quorum, foreign, cluster_id="another")),
            (ErrorCode.VOTER_NOT_FOUND, await remove(quorum, foreign)),
            (ErrorCode.VOTER_NOT_FOUND, await remove(quorum, leader, voter_directory_id=UUID(int=9))),
            (ErrorCode.INCONSISTENT_CLUSTER_ID, await remove(quorum, leader, cluster_id="another")),
        ):
            assert outcome == code
        follower = next(replica for replica in quorum.running if replica is not leader)
        with pytest.raises(ApiError) as refused:
            await follower.driver.changes.remove(removing(leader))
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        update = UpdateRaftVoterRequest(
            cluster_id=CLUSTER,
            current_leader_epoch=leader.driver.leader_epoch - 1,
            voter_id=follower.key.node_id,
            voter_directory_id=follower.key.directory_id,
            k_raft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        )
        connection = await leader.client()
        for epoch, code in (
            (leader.driver.leader_epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
            (leader.driver.leader_epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (leader.driver.leader_epoch, ErrorCode.INVALID_REQUEST),  # it names no endpoint
        ):
            update.current_leader_epoch = epoch
            answer = await connection.request(update, UpdateRaftVoterResponse, timeout_s=PATIENCE_S)
            assert answer.error_code == code
        connection.close()
        assert leader.driver.node.voters == before and leader.driver.end_offset == end_offset


async def test_a_static_quorum_and_a_last_voter_refuse(tmp_path: Path) -> None:
    async with Quorum(tmp_path / "static", 1) as static:
        leader = await static.leader()
        assert await remove(static, leader) == ErrorCode.UNSUPPORTED_VERSION
    async with DynamicQuorum(tmp_path / "dynamic", 1) as quorum:
        leader = await quorum.leader()
        assert await remove(quorum, leader) == ErrorCode.INVALID_REQUEST
        assert leader.driver.leads


async def test_a_second_change_waits_for_the_first(tmp_path: Path) -> None:
    async with DynamicQuorum(tmp_path) as quorum:
        leader = await quorum.leader()
        await quorum.write("1")
        one, other = (replica for replica in quorum.running if replica is not leader)
        await one.kill()
        await other.kill()
        codes = []
        for replica in (one, other):
            with pytest.raises(ApiError) as refused:
                await leader.driver.changes.remove(removing(replica))
            codes.append(refused.value.code)
        assert ErrorCode.REQUEST_TIMED_OUT in codes or ErrorCode.NOT_LEADER_OR_FOLLOWER in codes
        assert len(voters(leader)) == 2  # the second one was not even written


async def test_a_follower_refuses_changes_and_knows_how_far_it_is_behind(tmp_path: Path) -> None:
    async with DynamicQuorum(tmp_path, fetch_timeout_ms=60_000) as quorum:
        leader = await quorum.leader()
        follower = next(replica for replica in quorum.running if replica is not leader)
        for changing in (
            follower.driver.changes.add(adding(leader)),
            follower.driver.changes.remove(removing(leader, voter_id=9)),
        ):
            with pytest.raises(ApiError) as refused:
                await changing
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await quorum.write("1")
        await quorum.converged("1")
        assert leader.driver.metadata_lag == 0
        await eventually_async(lambda: follower.driver.metadata_lag == 0)
