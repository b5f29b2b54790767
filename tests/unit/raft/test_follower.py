"""One round of a replica that follows: answers that come too late, that are wrong, and for which there is no space."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.client.connection import UnreachableError
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.real_io import RealClock
from odradek.protocol.messages import fetch_response as fetched
from odradek.protocol.messages import fetch_snapshot_response as pieces
from odradek.raft import wire
from odradek.raft.config import RaftConfig
from odradek.raft.follower import Follower
from odradek.raft.messages import EpochBegun, Ready
from odradek.raft.node import RaftNode
from odradek.raft.quorum_state import ElectionState
from odradek.raft.roles import Role
from odradek.raft.snapshot import SnapshotId
from odradek.raft.voters import Leader, Voter, VoterSet
from tests.sim.disk import DiskFaults, SimDisk
from tests.unit.raft.test_raft_edges import HOME, batch, disk_of, snapshot, storage_of
from tests.unit.raft.test_raft_node import key

EPOCH = 4
AT = SnapshotId(9, EPOCH)
ENDPOINT = ("two", 9093)


class Home:
    """Node 1, which follows node 2; `answers` are what node 2 says, one request after the other."""

    def __init__(self, *answers: Any, voters: int = 3) -> None:
        self.disk: SimDisk = disk_of(sync_ms=(0.0, 0.0))
        self.storage = storage_of(self.disk)
        self.answers = list(answers)
        self.when_durable: Callable[[], None] = lambda: None
        members = VoterSet(Voter(key(number), {}) for number in range(1, voters + 1))
        self.node = RaftNode(key(1), members, ElectionState(EPOCH), lambda: self.storage.log_end, Random(1))
        self.node.start(0)
        self.lead_by(2, EPOCH)
        self.follower = Follower(
            self, self.node, self.storage, disk=self.disk, clock=RealClock(), config=RaftConfig(),
            cluster_id="c", listener_name="CONTROLLER", bootstrap=(), own_endpoints=(),
        )  # fmt: skip

    def lead_by(self, leader_id: int, leader_epoch: int) -> None:
        self.node.step(EpochBegun(leader_id, leader_epoch), RealClock().monotonic_ms())

    def leader(self) -> Leader:
        return Leader(self.node.leader_id, self.node.leader_epoch, ENDPOINT)

    def apply_ready(self, ready: Ready) -> None:
        """Do nothing: no state is persisted here."""

    async def request(self, endpoint: Any, request: Any, response: Any, min_version: int) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer

    async def durable(self) -> None:
        self.when_durable()

    def written(self, voters_changed: bool) -> None:
        """Durable at once."""

    def committed(self, high_watermark: int) -> None:
        self.storage.publish(high_watermark)

    def files(self) -> list[str]:
        """Snapshots in the directory, whole or not."""
        return [name for name in self.disk.list_dir(HOME) if "checkpoint" in name and name[0].isdigit()]


def records(data: bytes, high_watermark: int = 0, **more: Any) -> fetched.FetchResponse:
    partition = fetched.PartitionData(
        partition_index=0, records=data, high_watermark=high_watermark, last_stable_offset=-1,
        current_leader=fetched.LeaderIdAndEpoch(leader_id=2, leader_epoch=EPOCH), **more,
    )  # fmt: skip
    return fetched.FetchResponse(responses=[fetched.FetchableTopicResponse(partitions=[partition])])


TAKE_SNAPSHOT = records(b"", snapshot_id=fetched.SnapshotId(end_offset=AT.end_offset, epoch=AT.leader_epoch))


def piece(data: bytes, position: int, size: int, *, error: int = 0, leader: int = 2, epoch: int = EPOCH) -> Any:
    partition = pieces.PartitionSnapshot(
        index=0, error_code=error, size=size, position=position, unaligned_records=data,
        snapshot_id=pieces.SnapshotId(end_offset=AT.end_offset, epoch=AT.leader_epoch),
        current_leader=pieces.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
    )  # fmt: skip
    return pieces.FetchSnapshotResponse(topics=[pieces.TopicSnapshot(name="", partitions=[partition])])


DATA = snapshot("a", "b", epoch=EPOCH)
WHOLE = piece(DATA, 0, len(DATA))


async def test_records_of_a_replaced_leader_are_not_written() -> None:
    def late() -> Any:
        home.lead_by(3, EPOCH + 1)
        return records(batch(0, epoch=EPOCH), 1)

    home = Home(late)
    assert await home.follower.round(), "the new leader is asked at once"
    assert home.storage.log.log_end_offset == 0
    assert (home.node.leader_id, home.storage.published_offset) == (3, 0)


async def test_a_leader_whose_records_are_wrong_is_asked_again_after_a_pause() -> None:
    home = Home(records(batch(7, epoch=EPOCH)), records(batch(0, epoch=EPOCH), 1))
    assert not await home.follower.round()
    assert home.storage.log.log_end_offset == 0
    assert await home.follower.round()
    assert (home.storage.log.log_end_offset, home.storage.published_offset) == (1, 1)


async def test_a_snapshot_comes_in_pieces() -> None:
    home = Home(TAKE_SNAPSHOT, piece(DATA[:10], 0, len(DATA)), piece(DATA[10:], 10, len(DATA)))
    assert await home.follower.round()
    assert home.storage.snapshots == [AT]
    assert home.storage._publisher.image.offset == AT.end_offset - 1
    assert home.storage.log.log_start_offset == home.storage.published_offset == AT.end_offset


@pytest.mark.parametrize(
    "wrong",
    [
        piece(DATA[10:], 11, len(DATA)),
        piece(b"", 10, len(DATA)),
        piece(DATA[10:], 10, len(DATA) + 1),
        piece(DATA[10:] + b"more", 10, len(DATA)),
        piece(bytes(len(DATA) - 10), 10, len(DATA)),
    ],
    ids=["elsewhere", "empty", "another size", "too much", "damaged"],
)
async def test_a_snapshot_with_a_wrong_piece_is_not_taken(wrong: Any) -> None:
    home = Home(TAKE_SNAPSHOT, piece(DATA[:10], 0, len(DATA)), wrong, TAKE_SNAPSHOT, WHOLE)
    assert not await home.follower.round()
    assert (home.storage.snapshots, home.storage.log.log_end_offset) == ([], 0)
    assert await home.follower.round(), "it is fetched again from its first byte"
    assert home.storage.snapshots == [AT] and home.files() == [AT.file_name]


async def test_a_snapshot_of_a_leader_that_was_replaced_is_removed() -> None:
    home = Home(TAKE_SNAPSHOT, WHOLE)
    home.when_durable = lambda: home.lead_by(3, EPOCH + 1)
    await home.follower.round()
    assert home.files() == [] == home.storage.snapshots
    assert home.storage.log.log_end_offset == home.storage.published_offset == 0


async def test_a_snapshot_for_which_the_disk_has_no_room_leaves_none_of_it() -> None:
    home = Home(TAKE_SNAPSHOT, WHOLE, TAKE_SNAPSHOT, WHOLE)
    home.disk.faults.capacity_bytes = home.disk.used_bytes() + 50
    with pytest.raises(ApiError) as full:
        await home.follower.round()
    assert full.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert home.files() == [] == home.storage.snapshots
    home.disk.faults = DiskFaults(sync_ms=(0.0, 0.0))
    assert await home.follower.round()
    assert home.storage.snapshots == [AT]


async def test_a_disk_that_fails_amid_a_snapshot_stops_the_replica() -> None:
    home = Home(TAKE_SNAPSHOT, WHOLE)
    home.disk.faults.write_error = 1.0
    with pytest.raises(OSError, match="simulated write error"):
        await home.follower.round()


@pytest.mark.parametrize(
    ("refusal", "follows"),
    [
        (UnreachableError("gone"), (2, EPOCH)),
        (piece(b"", -1, -1, error=int(ErrorCode.SNAPSHOT_NOT_FOUND)), (2, EPOCH)),
        (piece(b"", -1, -1, error=int(ErrorCode.NOT_LEADER_OR_FOLLOWER), leader=3, epoch=EPOCH + 1), (3, EPOCH + 1)),
    ],
    ids=["unreachable", "removed", "leads no more"],
)
async def test_a_snapshot_that_the_leader_does_not_serve_is_given_up(refusal: Any, follows: tuple[int, int]) -> None:
    home = Home(TAKE_SNAPSHOT, refusal)
    await home.follower.round()
    assert (home.storage.snapshots, home.storage.log.log_end_offset) == ([], 0)
    assert (home.node.leader_id, home.node.leader_epoch) == follows


def refused(code: ErrorCode, leader: int = -1) -> fetched.FetchResponse:
    answer = records(b"", error_code=int(code))
    answer.responses[0].partitions[0].current_leader = fetched.LeaderIdAndEpoch(leader_id=leader, leader_epoch=EPOCH)
    return answer


async def test_a_refused_fetch_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A response that names a leader is not logged: that is how a replica finds the leader."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    denied = fetched.FetchResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    home = Home(refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2), *[refused(unknown)] * 3, denied, denied)
    with caplog.at_level(logging.INFO):
        for _ in range(6):
            assert not await home.follower.round()
    lines = [record for record in caplog.records if record.getMessage() == "metadata fetch from a replica failed"]
    said = [(record.levelname, vars(record)["fields"]["peer"], vars(record)["fields"]["reason"]) for record in lines]
    assert said == [("INFO", "two:9093", unknown.name), ("WARNING", "two:9093", "CLUSTER_AUTHORIZATION_FAILED")]
    assert vars(lines[1])["fields"]["hint"] == wire.CLUSTER_ACTION_HINT


def test_a_replica_whose_leader_is_silent_asks_the_others_in_turn() -> None:
    """It asks each address once, of voters and of the setting, and never its own."""
    at = {number: (f"n{number}", 9093) for number in (1, 2)}
    home = Home()
    voters = [Voter(key(number), {"CONTROLLER": endpoint}) for number, endpoint in at.items()]
    home.node.voters_changed(VoterSet([*voters, Voter(key(3), {"ANOTHER": ("n3", 1)})]), 0)
    home.follower._bootstrap, home.follower._own_endpoints = (at[2], ("b", 1), at[1]), frozenset({at[1]})
    assert home.follower.target() == ENDPOINT, "its leader"
    home.node._deadline_ms = 0
    assert [home.follower.target() for _ in range(4)] == [ENDPOINT, at[2], ("b", 1), ENDPOINT]
    home.node._become(Role.PROSPECTIVE, 0)
    assert home.follower.target() is None, "it asks for votes"


def test_a_replica_that_knows_no_other_asks_none() -> None:
    home = Home(voters=1)
    home.node.role, home.follower._host = Role.UNATTACHED, cast("Any", SimpleNamespace(leader=lambda: None))
    assert home.follower.target() is None
