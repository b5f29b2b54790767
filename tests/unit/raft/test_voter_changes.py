"""Changes of voters: refusals and waits of the leader, and the requests of a replica for itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.client.connection import UnreachableError
from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.declare import Message
from odradek.protocol.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from odradek.protocol.messages.add_raft_voter_response import AddRaftVoterResponse
from odradek.protocol.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from odradek.protocol.messages.update_raft_voter_request import UpdateRaftVoterRequest
from odradek.raft.node import ReplicaState
from odradek.raft.roles import Role
from odradek.raft.voter_changes import CAUGHT_UP_MS
from odradek.raft.voters import Leader, ReplicaKey, Voter, VoterSet
from tests.unit.raft.test_raft_driver import Home
from tests.unit.raft.test_raft_node import key

NEW = ReplicaKey(7, UUID(int=7))
HERE = ("seven", 9093)


class Changing:
    """Node 1, which leads a dynamic quorum that it alone votes in, on a clock that goes on while it pauses."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.node = home.driver.node
        self.changes = home.driver.changes
        self.at_ms = 2 * CAUGHT_UP_MS
        self.waited: list[tuple[int, int]] = []
        self.wait_error: ApiError | None = None
        self.pauses = 0
        self.on_pause: Callable[[], None] = lambda: None
        self.leads = True
        self.sent: list[tuple[Any, Message, type[Message], int]] = []
        self.answer: Any = AddRaftVoterResponse()
        self.changes._clock = self.changes._host = cast("Any", self)

    def monotonic_ms(self) -> int:
        return self.at_ms

    def leader(self) -> Leader | None:
        return Leader(1, self.node.leader_epoch, HERE)

    def append_control(self, records: Sequence[Message]) -> int:
        return self.home.driver.append_control(records)

    async def wait_committed_within(self, end_offset: int, timeout_ms: int) -> None:
        self.waited.append((end_offset, timeout_ms))
        if self.wait_error is not None:
            raise self.wait_error

    async def pause(self, pause_ms: int) -> None:
        self.pauses += 1
        self.at_ms += pause_ms
        self.on_pause()

    async def send(self, endpoint: Any, request: Any, response: Any, min_version: int) -> Any:
        self.sent.append((endpoint, request, response, min_version))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def caught_up(self, ago_ms: int = 0) -> None:
        self.node.replicas[NEW] = ReplicaState(last_caught_up_ms=self.at_ms - ago_ms)

    async def add(self, timeout_ms: int = 1_000, **fields: Any) -> ErrorCode:
        given: dict[str, Any] = {
            "cluster_id": "c",
            "voter_id": NEW.node_id,
            "voter_directory_id": NEW.directory_id,
            "listeners": [Listener(name="CONTROLLER", host=HERE[0], port=HERE[1])],
            "timeout_ms": timeout_ms,
        } | fields
        return await code_of(self.changes.add(AddRaftVoterRequest(**given)))

    def voters(self) -> list[int]:
        return list(self.node.voters.node_ids)


async def code_of(asking: Any) -> ErrorCode:
    try:
        answer = await asking
    except ApiError as error:
        return error.code
    return ErrorCode(answer.error_code)


@pytest.fixture
async def changing() -> AsyncIterator[Changing]:
    home = await Home().start()
    await home.driver.changes.upgrade(1)
    made = Changing(home)
    yield made
    await home.stop()


async def test_a_replica_that_has_caught_up_becomes_a_voter(changing: Changing) -> None:
    changing.caught_up()
    assert await changing.add(500) is ErrorCode.NONE
    assert changing.voters() == [1, 7]
    voter = changing.node.voters.get(7)
    assert voter is not None and (voter.key, voter.endpoints) == (NEW, {"CONTROLLER": HERE})
    assert (changing.waited, changing.pauses) == ([(changing.home.driver.end_offset, 500)], 0)
    assert await changing.add() is ErrorCode.DUPLICATE_VOTER


async def test_an_addition_is_answered_at_once_where_that_is_asked_for(changing: Changing) -> None:
    changing.caught_up()
    assert await changing.add(ack_when_committed=False) is ErrorCode.NONE
    assert (changing.voters(), changing.waited) == ([1, 7], [])


async def test_the_wait_for_a_commit_is_what_the_wait_for_the_replica_leaves(changing: Changing) -> None:
    changing.on_pause = changing.caught_up
    assert await changing.add(500) is ErrorCode.NONE
    assert (changing.pauses, changing.waited[0][1]) == (1, 400)


@pytest.mark.parametrize(("ago_ms", "code"), [(CAUGHT_UP_MS - 401, "NONE"), (CAUGHT_UP_MS, "REQUEST_TIMED_OUT")])
async def test_a_replica_that_fell_behind_is_no_voter(changing: Changing, ago_ms: int, code: str) -> None:
    changing.caught_up(ago_ms)
    assert (await changing.add(400)).name == code
    assert changing.voters() == ([1, 7] if code == "NONE" else [1])
    assert changing.pauses == (0 if code == "NONE" else 4)


@pytest.mark.parametrize("known", [None, ReplicaState(last_fetch_ms=5)], ids=["unknown", "never"])
async def test_a_replica_that_never_caught_up_is_no_voter(changing: Changing, known: ReplicaState | None) -> None:
    if known is not None:
        changing.node.replicas[NEW] = known
    assert await changing.add(100) is ErrorCode.REQUEST_TIMED_OUT
    assert (changing.voters(), changing.pauses) == ([1], 1)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"voter_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"voter_directory_id": UUID(int=0)}, ErrorCode.INVALID_REQUEST),
        ({"listeners": []}, ErrorCode.INVALID_REQUEST),
        ({"listeners": [Listener(name="ANOTHER", host="h", port=1)]}, ErrorCode.INVALID_REQUEST),
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"cluster_id": None}, ErrorCode.NONE),
        ({"voter_id": 0}, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_additions_that_are_refused(changing: Changing, fields: dict[str, Any], code: ErrorCode) -> None:
    changing.caught_up()
    assert await changing.add(**fields) is code


async def test_one_change_of_voters_is_made_at_a_time(changing: Changing) -> None:
    changing.caught_up()
    changing.node.high_watermark = changing.home.driver.storage.history.voters_offset
    assert await changing.add(200) is ErrorCode.REQUEST_TIMED_OUT
    removal = RemoveRaftVoterRequest(cluster_id="c", voter_id=1, voter_directory_id=key(1).directory_id)
    assert await code_of(changing.changes.remove(removal)) is ErrorCode.REQUEST_TIMED_OUT
    assert changing.voters() == [1]
    changing.node.high_watermark += 1
    assert await changing.add(200) is ErrorCode.NONE


async def test_a_node_that_does_not_lead_changes_nothing(changing: Changing) -> None:
    changing.caught_up()
    changing.leads = False
    assert await changing.add() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    changing.leads = True
    changing.wait_error = ApiError(ErrorCode.NOT_CONTROLLER)
    assert await changing.add() is ErrorCode.NOT_LEADER_OR_FOLLOWER, "it leads no more; the change may count"


@pytest.mark.parametrize(
    ("voter", "code"),
    [
        (key(1), ErrorCode.INVALID_REQUEST),
        (ReplicaKey(1, UUID(int=99)), ErrorCode.VOTER_NOT_FOUND),
        (NEW, ErrorCode.VOTER_NOT_FOUND),
    ],
    ids=["the last", "another disk", "no voter"],
)
async def test_removals_that_are_refused(changing: Changing, voter: ReplicaKey, code: ErrorCode) -> None:
    request = RemoveRaftVoterRequest(cluster_id="c", voter_id=voter.node_id, voter_directory_id=voter.directory_id)
    assert await code_of(changing.changes.remove(request)) is code
    assert changing.voters() == [1] and not changing.waited


async def test_a_voter_is_removed(changing: Changing) -> None:
    changing.caught_up()
    await changing.add()
    changing.node.high_watermark = changing.home.driver.end_offset
    request = RemoveRaftVoterRequest(cluster_id="c", voter_id=7, voter_directory_id=NEW.directory_id)
    assert await code_of(changing.changes.remove(request)) is ErrorCode.NONE
    assert changing.voters() == [1]
    assert changing.waited[-1] == (changing.home.driver.end_offset, changing.changes._timeout_ms)


# -- as a replica ------------------------------------------------------------------------------------------------------


def wish(changing: Changing, voters: list[Voter], *, endpoints: Any = None, auto_join: bool = True) -> Message | None:
    """The request by which node 1, a follower, would change these voters; None if there is nothing to change."""
    changing.node.role = Role.FOLLOWER
    changing.node.voters = VoterSet(voters)
    changing.node.high_watermark = changing.home.driver.storage.log.log_end_offset
    changing.changes._endpoints = {"CONTROLLER": HERE} if endpoints is None else endpoints
    changing.changes._auto_join = auto_join
    return changing.changes.next_membership_request()


async def test_a_replica_asks_to_be_what_it_should_be(changing: Changing) -> None:
    other, mine = Voter(NEW, {}), Voter(key(1), {"CONTROLLER": HERE})
    lost = Voter(ReplicaKey(1, UUID(int=99)), {"CONTROLLER": HERE})
    moved = Voter(key(1), {"CONTROLLER": ("elsewhere", 1)})
    addition = wish(changing, [other])
    assert isinstance(addition, AddRaftVoterRequest)
    assert (addition.cluster_id, addition.voter_id, addition.voter_directory_id) == ("c", 1, key(1).directory_id)
    assert (addition.timeout_ms, addition.ack_when_committed) == (1000, False)
    assert [(each.name, each.host, each.port) for each in addition.listeners] == [("CONTROLLER", *HERE)]
    removal = wish(changing, [other, lost])
    assert isinstance(removal, RemoveRaftVoterRequest), "of what it was before it lost its disk"
    assert (removal.cluster_id, removal.voter_id, removal.voter_directory_id) == ("c", 1, UUID(int=99))
    update = wish(changing, [other, moved], auto_join=False)
    assert isinstance(update, UpdateRaftVoterRequest)
    assert (update.cluster_id, update.voter_id, update.voter_directory_id) == ("c", 1, key(1).directory_id)
    assert update.current_leader_epoch == changing.node.leader_epoch
    assert [(each.name, each.host, each.port) for each in update.listeners] == [("CONTROLLER", *HERE)]
    feature = update.k_raft_version_feature
    assert (feature.min_supported_version, feature.max_supported_version) == (0, 1)
    assert wish(changing, [other, mine]) is None
    assert wish(changing, [other], auto_join=False) is None
    assert wish(changing, [other], endpoints={}) is None, "an observer that no one can reach"
    wish(changing, [other])
    changing.node.high_watermark -= 1
    assert changing.changes.next_membership_request() is None, "it has yet to read what is committed"
    changing.node.role = Role.UNATTACHED
    assert changing.changes.next_membership_request() is None


async def test_a_replica_asks_its_leader_and_goes_on_where_it_is_refused(changing: Changing) -> None:
    other, lost = Voter(NEW, {}), Voter(ReplicaKey(1, UUID(int=99)), {})
    for answer in (
        AddRaftVoterResponse(),
        AddRaftVoterResponse(error_code=ErrorCode.REQUEST_TIMED_OUT),
        UnreachableError("gone"),
    ):
        changing.answer = answer
        wish(changing, [other])
        await changing.changes.send_membership_request()
    assert [(endpoint, response, version) for endpoint, _, response, version in changing.sent] == [
        (HERE, AddRaftVoterResponse, 1)
    ] * 3
    wish(changing, [other, lost])
    await changing.changes.send_membership_request()
    assert changing.sent[-1][3] == 0
    wish(changing, [other], auto_join=False)
    await changing.changes.send_membership_request()
    assert len(changing.sent) == 4, "it wishes for nothing"
