"""The quorum as a pure function: nodes that hand each other messages, in an order the test chooses."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from odradek.raft.messages import EpochBegun, Fetched, LogEnd, Message, Ready, VoteAnswered, VoteRequested
from odradek.raft.node import LATE_MS, RaftNode
from odradek.raft.quorum_state import ElectionState
from odradek.raft.roles import Role
from odradek.raft.voters import ReplicaKey, Voter, VoterSet, parse_static_voters


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, UUID(int=node_id))


def grants(ready: Ready) -> bool:
    """Whether the last message is a vote for the candidate."""
    answer = ready.messages[-1][1]
    assert isinstance(answer, VoteAnswered)
    return answer.granted


class Cluster:
    """Nodes, their logs' ends, and messages under way."""

    def __init__(self, count: int, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.voters = VoterSet(Voter(key(number), {}) for number in range(1, count + 1))
        self.ends = {number: LogEnd(0, 0) for number in self.voters.node_ids}
        self.stored = {number: ElectionState() for number in self.voters.node_ids}
        self.now_ms = 0
        self.under_way: list[tuple[int, Message]] = []
        self.cut: set[int] = set()
        self.leaders: dict[int, set[int]] = {}
        self.nodes: dict[int, RaftNode] = {}
        for number in self.voters.node_ids:
            self.restart(number)

    def restart(self, number: int) -> None:
        node = RaftNode(key(number), self.voters, self.stored[number], lambda: self.ends[number], self.random)
        self.nodes[number] = node
        self.apply_ready(number, node.start(self.now_ms))

    def apply_ready(self, number: int, ready: Ready) -> None:
        if ready.persist is not None:
            self.stored[number] = ready.persist
        if ready.elected:
            self.leaders.setdefault(self.nodes[number].leader_epoch, set()).add(number)
        self.under_way.extend((to, message) for to, message in ready.messages if number not in self.cut)

    def run(self, until_ms: int) -> None:
        while self.now_ms < until_ms:
            self.now_ms += 50
            for number, node in self.nodes.items():
                self.apply_ready(number, node.tick(self.now_ms))
            while self.under_way:
                to, message = self.under_way.pop(self.random.randrange(len(self.under_way)))
                if to not in self.cut:
                    self.apply_ready(to, self.nodes[to].step(message, self.now_ms))
            for number, node in self.nodes.items():
                leader = self.nodes.get(node.leader_id)
                alive = {number, node.leader_id}.isdisjoint(self.cut)
                if node.role is Role.FOLLOWER and leader is not None and alive:
                    # If a log diverges, the leader's response says so, and its node is not notified of that Fetch.
                    common_end = min(self.ends[number].end_offset, self.ends[node.leader_id].end_offset)
                    fetched = Fetched(node.me, node.leader_epoch, common_end)
                    self.apply_ready(node.leader_id, leader.step(fetched, self.now_ms))
                    if leader.role is Role.LEADER and leader.leader_epoch == node.leader_epoch:
                        node.leader_responded(self.now_ms)

    @property
    def leader(self) -> RaftNode | None:
        leading = [n for number, n in self.nodes.items() if n.role is Role.LEADER and number not in self.cut]
        return max(leading, key=lambda node: node.leader_epoch, default=None)


def test_a_voter_alone_leads_at_once_and_persists_before() -> None:
    voters = VoterSet([Voter(ReplicaKey(1), {})])
    ends = [LogEnd(4, 10)]
    node = RaftNode(key(1), voters, ElectionState(4, 1, None), lambda: ends[-1], random.Random(1))
    ready = node.start(0)
    assert ready.elected and ready.persist == ElectionState(5, 1, key(1)) and not ready.messages
    assert node.epoch_start_offset == 10
    ends.append(LogEnd(5, 11))
    assert node.log_synced(10, 1) == 0  # nothing of the own epoch is durable yet
    assert node.log_synced(11, 1) == 11


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [2, 3, 5])
def test_one_leader_is_elected_and_stays(count: int, seed: int) -> None:
    cluster = Cluster(count, seed)
    cluster.run(15_000)
    leader = cluster.leader
    assert leader is not None
    epoch = leader.leader_epoch
    cluster.run(60_000)
    assert cluster.leader is leader and leader.leader_epoch == epoch
    assert all(len(leaders) == 1 for leaders in cluster.leaders.values())


@pytest.mark.parametrize("seed", range(60))
def test_never_two_leaders_in_an_epoch_under_restarts_and_cuts(seed: int) -> None:
    cluster = Cluster(3, seed)
    for _ in range(12):
        cluster.run(cluster.now_ms + cluster.random.randrange(500, 6000))
        number = cluster.random.choice(cluster.voters.node_ids)
        if cluster.random.random() < 0.5:
            cluster.restart(number)
        else:
            cluster.cut ^= {number}
    cluster.cut.clear()
    cluster.run(cluster.now_ms + 30_000)
    assert cluster.leader is not None
    assert all(len(leaders) == 1 for leaders in cluster.leaders.values())


def test_a_cut_off_leader_resigns_and_the_others_elect_one() -> None:
    cluster = Cluster(3)
    cluster.run(15_000)
    old = cluster.leader
    assert old is not None
    cluster.cut = {old.me.node_id}
    cluster.run(cluster.now_ms + 15_000)
    assert old.role is not Role.LEADER
    assert cluster.leader is not None and cluster.leader.leader_epoch > old.leader_epoch - 1


def test_time_that_a_process_did_not_have_is_not_the_silence_of_others() -> None:
    cluster = Cluster(3)
    cluster.run(15_000)
    leader = cluster.leader
    assert leader is not None
    follower = next(node for node in cluster.nodes.values() if node is not leader)
    now_ms = cluster.now_ms + 3_500
    leader.extend_deadlines_after_stall(1_800)
    assert not leader.tick(now_ms).lost_leadership, "it could not have heard of anybody for 1.8 of 3.5 s"
    follower.extend_deadlines_after_stall(1_800)
    assert not follower.tick(now_ms).messages
    assert follower.role is Role.FOLLOWER
    leader.extend_deadlines_after_stall(LATE_MS - 1)
    assert leader.tick(now_ms + 1_800).lost_leadership, "they were silent all the while"
    assert follower.tick(now_ms + 1_800).messages, "it asks the others"


def test_a_paused_replica_waits_one_more_fetch_timeout_only() -> None:
    cluster = Cluster(3)
    cluster.run(15_000)
    leader = cluster.leader
    assert leader is not None
    leader.extend_deadlines_after_stall(60_000)
    assert leader.tick(cluster.now_ms + 60_000).lost_leadership


def test_only_a_log_as_long_as_the_voters_own_gets_a_vote() -> None:
    cluster = Cluster(3)
    cluster.ends = {1: LogEnd(1, 5), 2: LogEnd(2, 3), 3: LogEnd(2, 4)}
    cluster.run(30_000)
    assert cluster.leader is not None and cluster.leader.me.node_id != 1
    node = cluster.nodes[3]
    asked = VoteRequested(key(2), node.leader_epoch + 1, LogEnd(2, 3))
    assert not grants(node.step(asked, cluster.now_ms))


def test_one_vote_in_an_epoch() -> None:
    voters = VoterSet(Voter(key(number), {}) for number in (1, 2, 3))
    node = RaftNode(key(1), voters, ElectionState(), lambda: LogEnd(0, 0), random.Random(1))
    node.start(0)
    first = node.step(VoteRequested(key(2), 1, LogEnd(0, 0)), 1)
    second = node.step(VoteRequested(key(3), 1, LogEnd(0, 0)), 1)
    assert first.persist == ElectionState(1, -1, key(2))
    assert grants(first) and not grants(second)
    reborn = RaftNode(key(1), voters, node.state, lambda: LogEnd(0, 0), random.Random(1))
    reborn.start(0)
    assert not grants(reborn.step(VoteRequested(key(3), 1, LogEnd(0, 0)), 1))


def test_the_watermark_is_what_a_majority_has_of_the_leaders_own_epoch() -> None:
    cluster = Cluster(3)
    cluster.run(15_000)
    leader = cluster.leader
    assert leader is not None
    others = [key(number) for number in cluster.voters.node_ids if number != leader.me.node_id]
    leader.epoch_start_offset = 10
    cluster.ends[leader.me.node_id] = LogEnd(leader.leader_epoch, 20)
    assert leader.log_synced(20, 0) == 0
    leader.step(Fetched(others[0], leader.leader_epoch, 10), 0)
    assert leader.high_watermark == 0  # all of it is of an older epoch (Raft, figure 8)
    leader.step(Fetched(others[0], leader.leader_epoch, 15), 0)
    assert leader.high_watermark == 15
    leader.step(Fetched(others[1], leader.leader_epoch, 12), 0)
    assert leader.high_watermark == 15
    leader.step(Fetched(ReplicaKey(9), leader.leader_epoch, 20), 0)
    assert leader.high_watermark == 15  # an observer does not count
    leader.step(Fetched(ReplicaKey(others[1].node_id, UUID(int=77)), leader.leader_epoch, 20), 0)
    assert leader.high_watermark == 15  # nor a voter's id with another disk


def test_messages_of_the_past_change_nothing() -> None:
    cluster = Cluster(3)
    cluster.run(15_000)
    leader = cluster.leader
    assert leader is not None
    epoch = leader.leader_epoch
    other = next(number for number in cluster.voters.node_ids if number != leader.me.node_id)
    leader.step(EpochBegun(other, epoch - 1), cluster.now_ms)
    assert leader.role is Role.LEADER
    ready = leader.step(EpochBegun(other, epoch + 1), cluster.now_ms)
    assert ready.lost_leadership and leader.leader_id == other


def test_static_voters_are_read_from_settings() -> None:
    voters = parse_static_voters("1@a:9093, 2@[::1]:9094", "CONTROLLER")
    assert [voter.endpoints["CONTROLLER"] for voter in voters] == [("a", 9093), ("::1", 9094)]
    assert voters.majority == 2
    for bad in ("1", "x@a:1", "1@a", "1@a:b", "1@a:1,1@b:2", "1@a:0", "1@:1"):
        with pytest.raises(ValueError, match=r"@|1"):
            parse_static_voters(bad, "C")


def test_a_follower_without_a_fetch_does_not_block_pre_votes() -> None:
    voters = VoterSet(Voter(key(number), {}) for number in (1, 2, 3))
    node = RaftNode(key(1), voters, ElectionState(3), lambda: LogEnd(0, 0), random.Random(1))
    node.start(0)
    node.tick(5000)
    assert node.role is Role.PROSPECTIVE
    node.step(VoteAnswered(2, 3, 3, granted=False, pre_vote=True), 5001)
    assert node.role is Role.FOLLOWER and node.leader_id == 3
    asked = VoteRequested(key(2), 3, LogEnd(0, 0), pre_vote=True)
    assert node.step(asked, 5002).messages[-1][1].granted
    node.leader_responded(5003)
    assert not node.step(asked, 5004).messages[-1][1].granted


def test_a_node_never_follows_itself() -> None:
    voters = VoterSet(Voter(key(number), {}) for number in (1, 2, 3))
    node = RaftNode(key(1), voters, ElectionState(3, 1, key(1)), lambda: LogEnd(0, 0), random.Random(1))
    node.start(0)
    node.tick(5000)
    node.step(VoteAnswered(2, 3, 1, granted=False, pre_vote=True), 5001)
    assert node.role is Role.PROSPECTIVE
    node.step(VoteAnswered(2, 4, 1, granted=False, pre_vote=True), 5002)
    assert node.role is Role.UNATTACHED and node.leader_epoch == 4


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (ElectionState(6, 1, key(1)), "an epoch never falls"),
        (ElectionState(7, 1, key(2)), "one vote in an epoch"),
        (ElectionState(7, 2, key(1)), "one leader in an epoch"),
    ],
)
def test_a_state_that_breaks_a_promise_is_not_persisted(state: ElectionState, reason: str) -> None:
    voters = VoterSet(Voter(key(number), {}) for number in (1, 2, 3))
    node = RaftNode(key(1), voters, ElectionState(7, 1, key(1)), lambda: LogEnd(0, 0), random.Random(1))
    ready = Ready()
    with pytest.raises(AssertionError, match=reason):
        node._persist(state, ready)
    assert ready.persist is None


def test_a_leader_hears_of_no_fetch_beyond_its_own_log() -> None:
    cluster = Cluster(3)
    cluster.run(15_000)
    leader = cluster.leader
    assert leader is not None
    with pytest.raises(AssertionError, match="has diverged"):
        leader.step(Fetched(key(9), leader.leader_epoch, 1), cluster.now_ms)


def without_its_removal(end_offset: int) -> Cluster:
    """Node 2 led, and died when only its log had the record at 10 that removes it; that log ends at `end_offset`."""
    cluster = Cluster(2)
    cluster.ends = {1: LogEnd(1, 10), 2: LogEnd(1, end_offset)}
    cluster.nodes[2].voters_changed(VoterSet([Voter(key(1), {})]), 0, removed_at=10)
    return cluster


def test_a_removed_leader_leads_until_the_others_commit_its_removal() -> None:
    cluster = without_its_removal(11)
    cluster.run(10_000)
    assert cluster.leader is cluster.nodes[2] and cluster.leader.granting == {1}
    assert all(len(leaders) == 1 for leaders in cluster.leaders.values())


def test_a_removed_voter_without_votes_looks_for_the_leader() -> None:
    cluster = without_its_removal(11)
    cluster.cut = {1}
    seen = set()
    for until_ms in range(50, 10_000, 50):
        cluster.run(until_ms)
        seen.add(cluster.nodes[2].role)
    assert seen == {Role.UNATTACHED, Role.PROSPECTIVE} and not cluster.leaders


def test_a_removed_voter_does_not_stand_when_its_removal_is_committed() -> None:
    cluster = without_its_removal(11)
    cluster.nodes[2].high_watermark = 11
    cluster.run(10_000)
    assert not cluster.leaders and cluster.nodes[2].role is Role.UNATTACHED
