"""kraft.version is raised while the quorum works: static voters become ones that may change (KIP-853)."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.raft.messages import Fetched, LogEnd, Ready
from odradek.raft.node import RaftNode, ReplicaState
from odradek.raft.quorum_state import ElectionState
from odradek.raft.roles import Role
from odradek.raft.voters import ReplicaKey, Voter, VoterSet
from tests.component.raft.test_dynamic_voters import add, remove, voters
from tests.support.nodes.quorum_replicas import Quorum, Replica

UPGRADE, SAFE_DOWNGRADE = 1, 2


async def raise_to(leader: Replica, level: int, *, kind: int = UPGRADE, validate_only: bool = False) -> int:
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update], validate_only=validate_only)
    try:
        return int((await leader.service.update_features(request)).error_code)
    except ApiError as error:
        return int(error.code)


async def all_heard_of(quorum: Quorum, value: str) -> Replica:
    """The leader, when every voter has fetched what it wrote."""
    leader = await quorum.leader()
    assert await leader.set(value) == 0
    await quorum.converged(value)
    return leader


async def test_a_static_quorum_becomes_dynamic_and_changes(tmp_path: Path) -> None:
    async with Quorum(tmp_path) as quorum:
        leader = await all_heard_of(quorum, "1")
        assert await add(quorum, await quorum.observer(4)) == ErrorCode.UNSUPPORTED_VERSION
        end_offset = leader.driver.end_offset
        assert await raise_to(leader, 1, validate_only=True) == ErrorCode.NONE
        assert leader.driver.end_offset == end_offset
        assert await raise_to(leader, 1) == ErrorCode.NONE
        assert await raise_to(leader, 1) == ErrorCode.NONE  # it is so already
        assert leader.driver.end_offset == end_offset + 2, "a version and a set of voters, once"
        for refused, kind in ((0, UPGRADE), (0, SAFE_DOWNGRADE), (2, UPGRADE)):
            assert await raise_to(leader, refused, kind=kind) == ErrorCode.INVALID_UPDATE_VERSION
        assert {voter.key for voter in leader.driver.node.voters} == {
            ReplicaKey(number, UUID(int=number)) for number in (1, 2, 3)
        }
        # One is added and one is lost; all of them start again, still with the setting of a static quorum.
        assert await add(quorum, quorum.replicas[4]) == ErrorCode.NONE
        lost = next(replica for replica in quorum.running if replica.key.node_id < 4 and not replica.driver.leads)
        await lost.kill()
        assert await remove(quorum, lost) == ErrorCode.NONE
        await all_heard_of(quorum, "2")
        left = quorum.running
        for replica in left:
            await replica.kill()
        for replica in left:
            await replica.start()
        leader = await all_heard_of(quorum, "3")
        assert voters(leader) == tuple(sorted(replica.key.node_id for replica in left))
        assert leader.publisher.kraft_version == 1
        assert not any(replica.failures for replica in quorum.replicas.values())


async def test_a_voter_that_was_not_heard_of_holds_it_back(tmp_path: Path) -> None:
    async with Quorum(tmp_path) as quorum:
        leader = await all_heard_of(quorum, "1")
        lost = next(replica for replica in quorum.running if not replica.driver.leads)
        await lost.kill()
        await leader.stop()
        await leader.start()  # the next leader begins a term in which the lost voter never fetched
        leader = await quorum.leader()
        assert await leader.set("2") == 0
        assert await raise_to(leader, 1) == ErrorCode.INVALID_UPDATE_VERSION
        assert leader.publisher.kraft_version == 0
        await lost.start()
        leader = await all_heard_of(quorum, "3")
        assert await raise_to(leader, 1) == ErrorCode.NONE
        await all_heard_of(quorum, "4")
        assert all(replica.publisher.kraft_version == 1 for replica in quorum.running)


def test_a_voter_counts_once_before_and_after_its_directory_is_known() -> None:
    """It fetched without its directory's name, and with it: two entries of one voter would be a majority of two."""
    me = ReplicaKey(1, UUID(int=1))
    static = VoterSet(Voter(ReplicaKey(number), {}) for number in (1, 2, 3))
    node = RaftNode(me, static, ElectionState(5, 1, me), lambda: LogEnd(5, 20), random.Random(1))
    node.role = Role.LEADER
    node.epoch_start_offset = 10
    node.replicas = {me: ReplicaState(end_offset=12)} | {
        ReplicaKey(number): ReplicaState(end_offset=0) for number in (2, 3)
    }
    second = ReplicaKey(2, UUID(int=2))
    assert node.step(Fetched(second, 5, 15), 1).messages == Ready().messages
    assert node.high_watermark == 12
    node.voters_changed(VoterSet(Voter(ReplicaKey(number, UUID(int=number)), {}) for number in (1, 2, 3)), 2)
    node.step(Fetched(second, 5, 18), 3)
    assert node.high_watermark == 12, "only one of three has more"
    assert sorted(key.node_id for key in node.replicas) == [1, 2, 3]


@pytest.mark.parametrize("level", [0, 1])
async def test_a_single_controller_of_a_static_quorum(tmp_path: Path, level: int) -> None:
    async with Quorum(tmp_path, 1) as quorum:
        leader = await all_heard_of(quorum, "1")
        assert await raise_to(leader, level) == ErrorCode.NONE
        assert leader.publisher.kraft_version == level
        assert await leader.set("2") == 0
