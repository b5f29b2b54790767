"""The requests of a quorum replica: their connections, their timeouts, and their versions for older replicas."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import pytest

from odradek.client.connection import UnreachableError, UnsupportedRequestError
from odradek.common.backoff import Backoff
from odradek.common.real_io import RealClock
from odradek.protocol.apis import ApiKey
from odradek.protocol.declare import Message as WireMessage
from odradek.protocol.messages import vote_request, vote_response
from odradek.raft.config import RaftConfig
from odradek.raft.follower import LeaderChangedError
from odradek.raft.messages import EpochEnded, Message, Ready, VoteRequested
from odradek.raft.outgoing import OutgoingRequests
from odradek.raft.peers import QuorumPeers
from odradek.raft.roles import Role
from odradek.raft.voters import Voter, VoterSet
from tests.unit.raft.test_raft_node import key
from tests.unit.raft.test_raft_node_waits import Least, follower

AT = ("two", 9093)


class Lane:
    """A connection to a replica that knows Vote up to `version`."""

    def __init__(self, version: int = 2) -> None:
        self.is_open = True
        self.address = "two:9093"
        self.version = version
        self.sent: list[Any] = []

    def version_for(self, key: Any) -> int:
        return self.version

    async def request(self, request: Any, response: Any, timeout_s: float) -> Any:
        self.sent.append(request)
        return response()

    def close(self) -> None:
        self.is_open = False


def peers_over(monkeypatch: pytest.MonkeyPatch, *lanes: Lane) -> QuorumPeers:
    left = list(lanes)

    async def connect(*_: object, **__: object) -> Lane:
        await asyncio.sleep(0)
        return left.pop(0)

    monkeypatch.setattr("odradek.raft.peers.connect", connect)
    network: Any = None
    return QuorumPeers(network, 1)


async def sent(peers: QuorumPeers, min_version: int = 0) -> object:
    request, response = vote_request.VoteRequest(), vote_response.VoteResponse
    return await peers.send(AT, request, response, timeout_ms=1000, min_version=min_version)


async def test_two_requests_at_once_share_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = Lane(), Lane()
    peers = peers_over(monkeypatch, *lanes)
    await asyncio.gather(sent(peers), sent(peers))
    assert [len(lane.sent) for lane in lanes] == [2, 0]
    assert [lane.is_open for lane in lanes] == [True, False]


async def test_a_connection_that_is_made_while_the_node_stops_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Lane()
    peers = peers_over(monkeypatch, lane)
    sending = asyncio.create_task(sent(peers))
    await asyncio.sleep(0)
    peers.close()
    with pytest.raises(UnreachableError):
        await sending
    assert not lane.is_open and not lane.sent


async def test_a_version_that_an_older_replica_does_not_know_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Lane(version=1)
    peers = peers_over(monkeypatch, lane)
    with pytest.raises(UnsupportedRequestError, match="two:9093 knows VOTE below 2 only"):
        await sent(peers, min_version=2)
    assert not lane.sent
    await sent(peers, min_version=1)
    assert len(lane.sent) == 1


class Answering:
    """Peers of which each request gets the same end."""

    def __init__(self, end: Exception | WireMessage) -> None:
        self.end = end
        self.asked: list[Any] = []
        self.steps: list[object] = []
        self.min_versions: list[int] = []
        self.blocks: asyncio.Event | None = None

    async def send(self, endpoint: Any, request: Any, *_: object, **settings: Any) -> Any:
        self.asked.append(request)
        self.min_versions.append(settings["min_version"])
        if self.blocks is not None:
            try:
                await self.blocks.wait()
            finally:
                self.steps.append("ended")
        if isinstance(self.end, Exception):
            raise self.end
        return self.end

    def drop(self, endpoint: Any, key: ApiKey) -> None:
        self.steps.append((endpoint, key))


class Home:
    """Node 1, which asks the voters 2 and 3 whether it may stand."""

    def __init__(self, end: Exception | WireMessage) -> None:
        self.node = follower(Least())
        self.node.voters_changed(VoterSet(Voter(key(each), {"C": AT}) for each in (1, 2, 3)), 0)
        self.node.leader_unreachable(100)
        (_, asked), *_ = self.node.tick(100).messages
        assert isinstance(asked, VoteRequested) and asked.pre_vote
        self.asked = asked
        self.peers = Answering(end)
        self.failures: list[BaseException] = []
        self.decided: list[Ready] = []
        self.requests = OutgoingRequests(
            cast("QuorumPeers", self.peers), self.node, clock=RealClock(), random=Random(1), config=RaftConfig(),
            cluster_id="c", listener_name="C", endpoints={}, handle_leader_info=lambda known: None,
            update_leader_endpoint=lambda known: None, apply_ready=self.decided.append, on_failed=self.failures.append,
        )  # fmt: skip

    async def request_vote(self) -> WireMessage:
        return await self.requests.request(AT, vote_request.VoteRequest(), vote_response.VoteResponse, 1)

    async def send(self, message: Message, to: int = 2) -> None:
        self.requests.enqueue(to, message)
        await asyncio.gather(*self.requests._tasks, return_exceptions=True)
        await asyncio.sleep(0)


async def test_a_voter_that_knows_no_pre_vote_has_nothing_against_an_election() -> None:
    home = Home(UnsupportedRequestError("old"))
    await home.send(home.asked)
    assert home.node.role is Role.CANDIDATE
    assert any(isinstance(message, VoteRequested) and not message.pre_vote for _, message in home.decided[0].messages)
    assert home.peers.min_versions == [2], "Vote has pre-votes from version 2 on"
    home = Home(UnsupportedRequestError("old"))
    home.node._become(Role.CANDIDATE, 100)
    home.node._vote_for_self()
    await home.send(VoteRequested(key(1), home.node.leader_epoch, home.asked.log_end))
    assert home.node.role is Role.CANDIDATE, "a vote that was not understood is none"
    await home.send(EpochEnded(1, home.node.leader_epoch, (2,)))
    assert home.peers.min_versions == [0, 0] and not home.failures


async def test_one_that_votes_no_more_is_not_asked() -> None:
    home = Home(UnreachableError("gone"))
    await home.send(home.asked, to=9)
    assert not home.peers.asked and not home.failures


async def test_an_unexpected_error_of_a_request_stops_the_replica() -> None:
    error = RuntimeError("a bug")
    home = Home(error)
    await home.send(home.asked)
    assert home.failures == [error]


async def test_a_voter_that_does_not_answer_is_asked_some_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    class Noted(Backoff):
        async def sleep(self) -> None:
            pauses.append(self.next_ms())
            if len(pauses) == 12:
                home.node.leader_reported(3, home.node.leader_epoch, 200)

    monkeypatch.setattr("odradek.raft.outgoing.Backoff", Noted)
    home = Home(UnreachableError("gone"))
    await home.send(home.asked)
    assert len(home.peers.asked) == len(pauses) == 12
    assert pauses[0] < 50 < max(pauses) <= 200


async def test_a_connection_that_is_dropped_is_closed_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Lane(), Lane()
    peers = peers_over(monkeypatch, first, second)
    await sent(peers)
    peers.drop(AT, ApiKey.FETCH)
    assert first.is_open, "another API has a connection of its own"
    peers.drop(AT, ApiKey.VOTE)
    assert not first.is_open
    await sent(peers)
    assert (len(first.sent), len(second.sent)) == (1, 1)
    peers.close()
    assert not second.is_open


async def test_a_newer_message_to_a_voter_takes_the_place_of_the_one_before() -> None:
    """It replaces a message of its kind to this voter alone: those to others go on, also when one of them ends."""
    home = Home(UnreachableError("gone"))
    home.peers.blocks = asyncio.Event()
    ended = EpochEnded(1, home.node.leader_epoch, (2,))
    for voter_id in (2, 3):
        home.requests.enqueue(voter_id, ended)
    first, other = home.requests._tasks
    await asyncio.sleep(0)
    home.requests.enqueue(2, ended)
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled() and not other.done()
    _, second = home.requests._tasks
    home.requests.enqueue(2, ended)
    await asyncio.gather(second, return_exceptions=True)
    assert second.cancelled() and not other.done()
    home.peers.blocks.set()
    await asyncio.gather(*home.requests._tasks)
    await asyncio.sleep(0)
    assert not home.requests._latest and not home.requests._tasks and not home.failures


async def test_the_answer_of_a_leader_leaves_the_connection_open() -> None:
    answer = vote_response.VoteResponse(error_code=7)
    home = Home(answer)
    home.peers.blocks = asyncio.Event()
    home.peers.blocks.set()
    assert await home.request_vote() is answer
    home.requests.cancel_vote_requests()
    assert (home.peers.steps, home.peers.min_versions) == (["ended"], [1])
    home.peers.end = UnreachableError("gone")
    with pytest.raises(UnreachableError):
        await home.request_vote()
    assert home.peers.steps == ["ended"] * 2


@pytest.mark.parametrize("stops", [False, True])
async def test_a_request_that_is_given_up_ends_before_its_connection(stops: bool) -> None:
    """The caller is cancelled, or another replica leads now."""
    home = Home(UnreachableError("gone"))
    home.peers.blocks = asyncio.Event()
    asking = asyncio.create_task(home.request_vote())
    await asyncio.sleep(0)  # ask begins
    await asyncio.sleep(0)  # its request is sent
    assert home.peers.asked
    if stops:
        asking.cancel()
    else:
        home.requests.cancel_vote_requests()
    with pytest.raises(asyncio.CancelledError if stops else LeaderChangedError):
        await asking
    assert home.peers.steps == ["ended", (AT, ApiKey.VOTE)]
