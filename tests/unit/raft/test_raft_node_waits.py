"""The times at which a node of the quorum acts: to the millisecond, with the least or the largest random delay."""

from __future__ import annotations

from random import Random

import pytest

from odradek.raft.messages import EpochBegun, EpochEnded, Fetched, LogEnd, Ready, VoteAnswered, VoteRequested
from odradek.raft.node import IDLE_TICK_MS, OBSERVER_TIMEOUT_MS, RaftNode
from odradek.raft.quorum_state import ElectionState
from odradek.raft.roles import Role
from odradek.raft.voters import ReplicaKey, Voter, VoterSet
from tests.unit.raft.test_raft_node import key

VOTERS = VoterSet(Voter(key(number), {}) for number in (1, 2, 3))
ELECTION_MS, FETCH_MS = 1000, 2000


class Least(Random):
    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0


class Most(Random):
    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return start - 1


def follower(chance: Random, now_ms: int = 0) -> RaftNode:
    """Node 1, which hears leader 2 of epoch 4."""
    node = RaftNode(
        key(1), VOTERS, ElectionState(4), lambda: LogEnd(0, 0), chance,
        election_timeout_ms=ELECTION_MS, fetch_timeout_ms=FETCH_MS,
    )  # fmt: skip
    node.start(now_ms)
    node.step(EpochBegun(2, 4), now_ms)
    node.leader_responded(now_ms)
    return node


def leader(now_ms: int = 0) -> RaftNode:
    """Node 1, which alone votes and leads."""
    node = RaftNode(key(1), VoterSet([Voter(key(1), {})]), ElectionState(4), lambda: LogEnd(0, 0), Least())
    assert node.start(now_ms).elected
    return node


@pytest.mark.parametrize(("chance", "waits_ms"), [(Least(), 0), (Most(), ELECTION_MS // 5 - 1)])
def test_the_voters_of_a_dead_leader_stand_at_different_times(chance: Random, waits_ms: int) -> None:
    node = follower(chance)
    node.leader_unreachable(100)
    assert not node.tick(100 + waits_ms - 1).messages
    assert node.tick(100 + waits_ms).messages
    assert node.role is Role.PROSPECTIVE


@pytest.mark.parametrize("resigned", [False, True])
def test_a_leader_that_begins_its_epoch_again_is_alive(resigned: bool) -> None:
    """Its process was found dead, or it resigned; it may die once more."""
    node = follower(Least())
    if resigned:
        node.step(EpochEnded(2, 4, (3, 1)), 100)
    else:
        node.leader_unreachable(100)
    node.step(EpochBegun(2, 4), 150)
    node.leader_unreachable(200)
    assert node.tick(200).messages and node.role is Role.PROSPECTIVE


def lost_pauses(node: RaftNode, now_ms: int, count: int) -> list[int]:
    """The milliseconds that the node waits after each of `count` lost elections."""
    pauses = []
    for _ in range(count):
        now_ms += FETCH_MS + ELECTION_MS
        assert node.tick(now_ms).messages
        for voter in (2, 3):
            node.voter_unreachable(voter, now_ms)
        pauses.append(node.wait_ms(now_ms))
    return pauses


def test_the_pause_after_a_lost_election_grows_until_a_leader_is_heard() -> None:
    node = follower(Most())
    pauses = lost_pauses(node, 0, 5)
    fixed = ELECTION_MS // 50 - 1
    assert pauses == [fixed + each for each in (100, 200, 400, 800, 1000 - fixed)]
    node.step(EpochBegun(3, 4), 100_000)
    node.leader_responded(100_000)
    assert lost_pauses(node, 100_000, 1) == pauses[:1]


def test_an_observer_is_described_until_it_was_silent_for_its_timeout() -> None:
    node = leader()
    observer = key(7)
    node.step(Fetched(observer, node.leader_epoch, 0), 10)
    node.tick(10 + OBSERVER_TIMEOUT_MS)
    assert observer in node.replicas
    node.tick(11 + OBSERVER_TIMEOUT_MS)
    assert observer not in node.replicas and key(1) in node.replicas


def test_a_follower_that_missed_an_election_follows_the_new_leader() -> None:
    node = follower(Least())
    ready = node.step(EpochBegun(3, 5), 100)
    assert (node.leader_id, node.leader_epoch, node.role) == (3, 5, Role.FOLLOWER)
    assert ready.persist == ElectionState(5, 3, None)


def test_a_repeated_begin_epoch_only_resets_the_fetch_timeout() -> None:
    node = follower(Most())
    ready = node.step(EpochBegun(2, 4), 1500)
    assert ready.persist is None and not node.leader_timed_out(1500 + FETCH_MS - 1)
    assert node.leader_timed_out(1500 + FETCH_MS)


def test_a_follower_denies_pre_votes_while_its_leader_answers() -> None:
    node = follower(Least())
    asked = VoteRequested(key(3), 4, LogEnd(0, 0), pre_vote=True)
    for now_ms, granted in ((FETCH_MS - 1, False), (FETCH_MS, True)):
        ((_, answer),) = node.step(asked, now_ms).messages
        assert isinstance(answer, VoteAnswered) and answer.granted is granted


def candidate() -> RaftNode:
    """Node 1, which stands in epoch 6 after it lost epoch 5."""
    node = follower(Least())
    node.leader_unreachable(100)
    for number, now_ms in enumerate((100, 10_000)):
        node.tick(now_ms)
        node.step(VoteAnswered(2, 4 + number, -1, granted=True, pre_vote=True), now_ms)
        assert (node.role, node.leader_epoch) == (Role.CANDIDATE, 5 + number)
    return node


def test_a_vote_that_was_given_in_an_epoch_that_has_passed_does_not_count() -> None:
    node = candidate()
    node.step(VoteAnswered(2, 5, -1, granted=True, pre_vote=False), 10_001)
    node.step(VoteAnswered(2, 6, -1, granted=True, pre_vote=True), 10_001)
    assert node.role is Role.CANDIDATE
    assert node.step(VoteAnswered(3, 6, -1, granted=True, pre_vote=False), 10_002).elected


def test_a_voter_that_is_behind_may_let_a_node_stand() -> None:
    node = follower(Least())
    node.leader_unreachable(100)
    node.tick(100)
    node.step(VoteAnswered(2, 3, -1, granted=True, pre_vote=True), 101)
    assert node.role is Role.CANDIDATE


def voting(*numbers: int) -> VoterSet:
    return VoterSet(Voter(key(number), {}) for number in numbers)


def test_a_follower_that_is_the_only_voter_left_leads_without_asking() -> None:
    node = follower(Least())
    node.voters_changed(voting(1), 0)
    assert not node.tick(FETCH_MS - 1).elected
    ready = node.tick(FETCH_MS)
    assert (ready.elected, node.role, node.leader_epoch) == (True, Role.LEADER, 5)


def test_a_leader_that_resigned_and_votes_alone_then_leads_the_next_epoch() -> None:
    node = leader()
    node.voters_changed(voting(1, 2), 0)
    node.resign(0, Ready())
    assert node.role is Role.RESIGNED and node.leader_epoch == 5
    node.voters_changed(voting(1), 0)
    now_ms = 0
    while node.role is Role.RESIGNED and now_ms < 60_000:
        now_ms += 100
        ready = node.tick(now_ms)
    assert (ready.elected, node.role, node.leader_epoch) == (True, Role.LEADER, 6), "no other has to agree"


@pytest.mark.parametrize("role", [Role.PROSPECTIVE, Role.RESIGNED])
def test_one_that_votes_no_more_stands_no_more(role: Role) -> None:
    node = follower(Least()) if role is Role.PROSPECTIVE else leader()
    if role is Role.PROSPECTIVE:
        node.leader_unreachable(0)
        node.tick(0)
    else:
        node.voters_changed(voting(1, 2), 0)
        node.resign(0, Ready())
    assert node.role is role
    node.voters_changed(voting(2, 3), 0)
    assert node.role is Role.UNATTACHED
    assert not any(node.tick(now_ms).messages for now_ms in range(0, 20_000, 100))


@pytest.mark.parametrize("voters", [voting(1, 2), voting(2)], ids=["voter", "removed"])
def test_a_leader_resigns_when_no_majority_fetched_for_so_long(voters: VoterSet) -> None:
    """It does so, too, if it removed itself: the one voter that is left must have the removal."""
    node = leader()
    node.voters_changed(voting(1, 2), 0)
    node.step(Fetched(key(2), node.leader_epoch, 0), 100)
    node.voters_changed(voters, 100, removed_at=-1 if len(voters) == 2 else 1)
    assert not node.tick(100 + FETCH_MS * 3 // 2).lost_leadership
    assert node.tick(101 + FETCH_MS * 3 // 2).lost_leadership
    assert node.role is not Role.LEADER


def test_an_epoch_has_the_leader_that_was_heard_first() -> None:
    node = follower(Least())
    node.leader_reported(3, 4, 0)
    assert (node.leader_id, node.leader_epoch) == (2, 4)
    assert node.leader_reported(3, 5, 0).persist == ElectionState(5, 3)
    assert (node.leader_id, node.leader_epoch) == (3, 5)


def test_a_vote_of_an_epoch_that_has_passed_does_not_count() -> None:
    node = follower(Least())
    node.leader_unreachable(0)
    node.tick(0)
    node.step(VoteAnswered(2, 4, -1, granted=True, pre_vote=True), 0)
    assert node.role is Role.CANDIDATE and node.leader_epoch == 5
    node.step(VoteAnswered(2, 4, -1, granted=True, pre_vote=False), 0)
    assert node.role is Role.CANDIDATE
    node.step(VoteAnswered(9, 5, -1, granted=True, pre_vote=False), 0)
    assert node.role is Role.CANDIDATE, "of one that is no voter"
    node.step(VoteAnswered(2, 5, -1, granted=True, pre_vote=False), 0)
    assert node.role is Role.LEADER


def test_a_leader_knows_no_replica_without_an_id_and_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.raft.node.MAX_REPLICAS", 4)
    node = leader()
    known = len(node.replicas)
    node.step(Fetched(ReplicaKey(-1), 5, 0), 0)
    assert len(node.replicas) == known
    for number in range(2, 9):
        node.step(Fetched(key(number), 5, 0), 0)
    assert len(node.replicas) == 4


def test_a_replica_that_asks_for_something_else_lives() -> None:
    node = leader()
    node.step(Fetched(key(2), 5, 0), 10)
    state = node.replicas[key(2)]
    state.stall_ms = 7
    node.replica_contacted(key(2), 30)
    assert (state.last_fetch_ms, state.stall_ms) == (30, 0)
    node.replica_contacted(key(3), 30)
    assert key(3) not in node.replicas


def elected() -> RaftNode:
    """Node 1, which leads epoch 6 of three voters since 10,002 ms."""
    node = candidate()
    assert node.step(VoteAnswered(3, 6, -1, granted=True, pre_vote=False), 10_002).elected
    return node


def test_a_leader_that_resigns_names_the_longest_logs_first() -> None:
    end = LogEnd(4, 9)
    node = RaftNode(key(1), voting(1, 2, 3, 4, 5), ElectionState(4), lambda: end, Least())
    node.start(0)
    node.tick(ELECTION_MS)
    for pre_vote in (True, False):
        for voter in (2, 3):
            node.step(VoteAnswered(voter, node.leader_epoch, -1, granted=True, pre_vote=pre_vote), 1_000)
    assert node.role is Role.LEADER
    for number, offset in ((2, 5), (4, 9), (3, 9), (7, 9)):
        node.step(Fetched(key(number), 5, offset), 1_000)
    ready = Ready()
    node.resign(1_000, ready)
    assert ready.lost_leadership and node.role is Role.RESIGNED
    assert ready.messages == [(number, EpochEnded(1, 5, (3, 4, 2, 5))) for number in (2, 3, 4, 5)]
    again = Ready()
    node.resign(1_000, again)
    assert (again.messages, again.lost_leadership) == ([], False)


@pytest.mark.parametrize(
    ("successors", "chance", "waits_ms"),
    [
        ((1, 3), Most(), 0),
        ((3, 1), Least(), 200),
        ((3, 1), Most(), 299),
        ((3, 4, 1), Least(), 400),
        ((3, 4, 5), Least(), 600),
        ((), Most(), 0),
    ],
)
def test_successors_stand_one_after_the_other(successors: tuple[int, ...], chance: Random, waits_ms: int) -> None:
    node = follower(chance)
    node.step(EpochEnded(2, 4, successors), 100)
    assert not waits_ms or not node.tick(100 + waits_ms - 1).messages
    assert node.tick(100 + waits_ms).messages
    assert node.role is Role.PROSPECTIVE


@pytest.mark.parametrize("ended", [EpochEnded(3, 4, (1,)), EpochEnded(2, 3, (1,)), EpochEnded(2, 5, (1,))])
def test_the_end_of_another_leadership_is_no_news(ended: EpochEnded) -> None:
    node = follower(Least())
    node.step(ended, 100)
    assert not node.tick(FETCH_MS - 1).messages and node.role is Role.FOLLOWER


def test_a_leadership_that_ended_is_not_followed_again() -> None:
    """Another replica, which has not learned of its resignation, still names it."""
    node = follower(Least())
    node.step(EpochEnded(2, 4, (3, 1)), 100)
    node.tick(300)
    assert node.role is Role.PROSPECTIVE
    node.leader_reported(2, 4, 301)
    assert node.role is Role.PROSPECTIVE
    node.step(EpochBegun(2, 4), 302)
    assert node.role is Role.FOLLOWER, "it says so itself"


def test_how_long_a_node_sleeps() -> None:
    alone = leader()
    assert alone.wait_ms(0) == IDLE_TICK_MS
    alone.voters_changed(voting(1, 2), 0)
    assert alone.wait_ms(0) == FETCH_MS // 8
    node = follower(Least())
    assert [node.wait_ms(each) for each in (0, FETCH_MS - 300, FETCH_MS, FETCH_MS + 5)] == [IDLE_TICK_MS, 300, 1, 1]
    node.voters_changed(voting(2, 3), 0)
    assert node.wait_ms(FETCH_MS) == IDLE_TICK_MS, "an observer waits for no deadline"


@pytest.mark.parametrize(("chance", "waits_ms"), [(Least(), 100), (Most(), 299)])
def test_a_voter_that_starts_asks_soon(chance: Random, waits_ms: int) -> None:
    node = RaftNode(key(1), VOTERS, ElectionState(4), lambda: LogEnd(0, 0), chance, election_timeout_ms=ELECTION_MS)
    assert not node.start(50).messages
    assert not node.tick(50 + waits_ms - 1).messages
    assert node.tick(50 + waits_ms).messages


def test_a_voter_that_does_not_fetch_hears_of_its_leader_again() -> None:
    node, began_ms = elected(), 10_002
    half_ms = FETCH_MS // 2

    def reminded(now_ms: int) -> list[int]:
        sent = node.tick(now_ms).messages
        assert all(message == EpochBegun(1, 6) for _, message in sent)
        return [to for to, _ in sent]

    node.step(Fetched(key(7), 6, 0), began_ms)
    assert reminded(began_ms + half_ms) == []
    assert reminded(began_ms + half_ms + 1) == [2, 3]
    assert reminded(began_ms + half_ms + 2) == []
    node.step(Fetched(key(2), 6, 0), began_ms + half_ms + 2)
    assert reminded(began_ms + 2 * half_ms + 2) == [3]
    assert reminded(began_ms + 2 * half_ms + 3) == [2]


@pytest.mark.parametrize(("late_ms", "more_ms"), [(49, 0), (50, 50), (FETCH_MS, FETCH_MS), (9 * FETCH_MS, FETCH_MS)])
def test_a_stall_puts_off_an_election_by_as_much(late_ms: int, more_ms: int) -> None:
    node = follower(Least())
    node.extend_deadlines_after_stall(late_ms)
    assert not node.leader_timed_out(FETCH_MS + more_ms - 1)
    assert node.leader_timed_out(FETCH_MS + more_ms)


def test_a_vote_puts_off_the_own_election() -> None:
    node = RaftNode(key(1), VOTERS, ElectionState(4), lambda: LogEnd(0, 0), Least(), election_timeout_ms=ELECTION_MS)
    node.start(0)
    ((to, answer),) = node.step(VoteRequested(key(3), 5, LogEnd(0, 0)), 90).messages
    assert (to, answer) == (3, VoteAnswered(1, 5, -1, granted=True, pre_vote=False))
    assert not node.tick(90 + ELECTION_MS - 1).messages
    assert node.tick(90 + ELECTION_MS).messages


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        (VoteRequested(key(3), 4, LogEnd(3, 7)), True),
        (VoteRequested(key(3), 3, LogEnd(3, 7)), False),
        (VoteRequested(key(3), 4, LogEnd(3, 6)), False),
        (VoteRequested(key(3), 4, LogEnd(2, 9)), False),
        (VoteRequested(key(3), 4, LogEnd(4, 0)), True),
        (VoteRequested(key(3), 3, LogEnd(3, 7), pre_vote=True), False),
        (VoteRequested(key(3), 4, LogEnd(3, 6), pre_vote=True), False),
        (VoteRequested(key(3), 4, LogEnd(3, 7), pre_vote=True), True),
    ],
)
def test_a_vote_is_for_a_log_as_long_in_an_epoch_as_late(asked: VoteRequested, granted: bool) -> None:
    node = RaftNode(key(1), VOTERS, ElectionState(4), lambda: LogEnd(3, 7), Least())
    node.start(0)
    ready = node.step(asked, 1)
    ((to, answer),) = ready.messages
    assert (to, answer) == (3, VoteAnswered(1, 4, -1, granted=granted, pre_vote=asked.pre_vote))
    assert ready.persist == (ElectionState(4, -1, key(3)) if granted and not asked.pre_vote else None)


def test_a_followers_watermark_is_within_its_log_and_never_falls() -> None:
    end = [LogEnd(4, 5)]
    node = RaftNode(key(1), VOTERS, ElectionState(4), lambda: end[0], Least())
    node.start(0)
    node.step(EpochBegun(2, 4), 0)
    assert [node.leader_committed(each) for each in (3, 9, 2)] == [3, 5, 5]
    end[0] = LogEnd(4, 8)
    assert node.leader_committed(9) == 8
    other = leader()
    assert other.leader_committed(9) == 0, "it leads itself"


def test_a_follower_that_has_not_fetched_from_its_leader_grants_pre_votes() -> None:
    """It fetched from the one before, and knows this one from others only: it may be dead."""
    node = follower(Least())
    node.leader_reported(3, 5, 100)
    assert (node.leader_id, node.role) == (3, Role.FOLLOWER)
    asked = VoteRequested(key(2), 5, LogEnd(0, 0), pre_vote=True)
    for granted in (True, False):
        ((_, answer),) = node.step(asked, 101).messages
        assert isinstance(answer, VoteAnswered) and answer.granted is granted
        node.leader_responded(101)
    node.step(EpochBegun(2, 6), 102)
    ((_, answer),) = node.step(VoteRequested(key(3), 6, LogEnd(0, 0), pre_vote=True), 103).messages
    assert isinstance(answer, VoteAnswered) and not answer.granted, "it has heard of this one by itself"


@pytest.mark.parametrize("leader_epoch", [4, 6])
def test_a_fetch_in_another_epoch_says_nothing_of_a_log(leader_epoch: int) -> None:
    node = leader()
    node.step(Fetched(key(7), leader_epoch, 0), 10)
    assert key(7) not in node.replicas
    node.step(Fetched(key(7), 5, 0), 10)
    assert key(7) in node.replicas
    other = follower(Least())
    other.step(Fetched(key(3), 4, 0), 10)
    assert not other.replicas, "it does not lead"


def test_a_replica_caught_up_when_it_fetched_what_there_was_by_then() -> None:
    """However fast the log grows, it is no further behind than one fetch."""
    end = [LogEnd(4, 5)]
    node = RaftNode(key(1), VoterSet([Voter(key(1), {})]), ElectionState(4), lambda: end[0], Least())
    node.start(0)
    known: list[int] = []
    for now_ms, log_end, offset in ((10, 5, 2), (20, 9, 4), (30, 12, 9), (40, 15, 12), (50, 15, 15)):
        end[0] = LogEnd(5, log_end)
        node.step(Fetched(key(7), 5, offset), now_ms)
        known.append(node.replicas[key(7)].last_caught_up_ms)
    assert known == [-1, -1, 20, 30, 50]
