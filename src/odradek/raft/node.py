"""The quorum as a pure function. Input: messages and ticks; output: state to persist, messages to send, role changes.

In Kafka's Raft (KIP-595, 853, 996) followers pull with Fetch, so the leader learns their positions from their requests.

`roles` has the roles and their transitions. A voter alone passes through UNATTACHED, CANDIDATE and LEADER at `start`.
The driver must carry out a `Ready` in this order: store `persist` durably, append the leader's first records, then send
`messages`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.raft.messages import (
    EpochBegun,
    EpochEnded,
    Fetched,
    LogEnd,
    Message,
    Ready,
    VoteAnswered,
    VoteRequested,
)
from odradek.raft.quorum_state import NO_NODE, ElectionState
from odradek.raft.roles import TRANSITIONS, Role
from odradek.raft.voters import ZERO_DIRECTORY, ReplicaKey, VoterSet

if TYPE_CHECKING:
    from random import Random


IDLE_TICK_MS = 1000
# A tick that is later than this shows that the process had no processor time.
LATE_MS = 50
# Kafka's value: an observer that has not fetched for so long is no longer described.
OBSERVER_TIMEOUT_MS = 300_000
# Any client may claim to be an observer; beyond this many, new ones are served but not described.
MAX_REPLICAS = 10_000


@dataclass(slots=True)
class ReplicaState:
    """The leader's state of one replica. Times are monotonic ms; -1 for never."""

    end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    fetch_leader_end: int = -1
    begin_epoch_sent_ms: int = -1
    stall_ms: int = 0  # time since the last fetch in which this process was stalled


class RaftNode:
    """One replica's state in the quorum."""

    def __init__(
        self,
        me: ReplicaKey,
        voters: VoterSet,
        state: ElectionState,
        log_end: Callable[[], LogEnd],
        random: Random,
        *,
        election_timeout_ms: int = 1000,
        fetch_timeout_ms: int = 2000,
        election_backoff_max_ms: int = 1000,
    ) -> None:
        """
        Args:
            state: the stored election state.
            log_end: returns the end of the local log, including records that are not yet durable.
            election_timeout_ms, fetch_timeout_ms, election_backoff_max_ms: as in the settings `controller.quorum.*`.
        """
        self.me = me
        self.voters = voters
        self.state = state
        self.role = Role.UNATTACHED
        self.epoch_start_offset = 0
        self.high_watermark = 0
        self.replicas: dict[ReplicaKey, ReplicaState] = {}
        self.directories: dict[int, UUID] = {}  # of the voters of a static quorum, from their Fetch requests
        self.removed_at = -1  # offset of the newest voter set if it removed this voter, else -1
        self.granting: frozenset[int] = frozenset()  # the voters whose votes elected this node
        self.may_campaign = True  # false while the disk is full, unless no other voter can lead
        self._is_stopping = False  # the process stops: it still votes and answers, and is no candidate
        self._log_end = log_end
        self._random = random
        self._election_timeout_ms = election_timeout_ms
        self._fetch_timeout_ms = fetch_timeout_ms
        self._election_backoff_max_ms = election_backoff_max_ms
        self._deadline_ms = 0
        self._fetched_from_leader = False
        self._ended_leadership: tuple[int, int] | None = None  # (leader, epoch) of a leadership that has ended
        self._lost_election_count = 0
        self._granted: set[int] = set()
        self._rejected: set[int] = set()

    @property
    def leader_id(self) -> int:
        """The leader of the present epoch; NO_NODE if unknown."""
        return self.state.leader_id

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self.me)

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter."""
        return self.is_voter and len(self.voters) == 1

    @property
    def is_electable(self) -> bool:
        """Whether this node may become a candidate: a voter, or one whose removal is not yet committed.

        Voters that lack the removal may need the vote of this node, whose log is longer (Ongaro's dissertation, 4.2.2).
        """
        return self.is_voter or self.high_watermark <= self.removed_at

    def wait_ms(self, now_ms: int) -> int:
        """Time in ms until the next `tick` is due."""
        if self.role is Role.LEADER:
            return max(1, self._fetch_timeout_ms // 8) if len(self.voters) > 1 else IDLE_TICK_MS
        if not self.is_electable:
            return IDLE_TICK_MS
        return min(IDLE_TICK_MS, max(1, self._deadline_ms - now_ms))

    def leader_timed_out(self, now_ms: int) -> bool:
        """Whether a follower should ask other nodes for the leader: its own has not answered for a fetch timeout."""
        return self.role is not Role.FOLLOWER or now_ms >= self._deadline_ms

    def start(self, now_ms: int) -> Ready:
        """Start the node. A voter alone leads at once; a former leader has resigned by its crash."""
        ready = Ready()
        if self.state.leader_id == self.me.node_id:
            self.state = ElectionState(self.state.leader_epoch, NO_NODE, self.state.voted)
        self._become(Role.UNATTACHED, now_ms)
        # A soon pre-vote is harmless: voters that hear a leader deny it, and their answers name the leader.
        tenth_ms = max(1, self._election_timeout_ms // 10)
        self._deadline_ms = now_ms + tenth_ms + self._random.randrange(2 * tenth_ms)
        if self.is_alone:
            self._start_election(now_ms, ready)
        return ready

    def tick(self, now_ms: int) -> Ready:
        """Handle deadlines: elections start, and a leader that a majority no longer fetches from resigns."""
        ready = Ready()
        if self.role is Role.LEADER:
            if now_ms - self._majority_fetched_ms(now_ms) > self._fetch_timeout_ms * 3 // 2:
                self.resign(now_ms, ready)
            else:
                self._expire_observers(now_ms)
                self._resend_begin_epoch(now_ms, ready)
        elif self.is_electable and now_ms >= self._deadline_ms:
            self._campaign(now_ms, ready)
        return ready

    def _campaign(self, now_ms: int, ready: Ready) -> None:
        # A removed voter may know only an old voter set: between two elections it asks other nodes for the leader.
        lost_election = not self.is_voter and self.role in (Role.PROSPECTIVE, Role.CANDIDATE)
        if self._is_stopping or lost_election or not (self.may_campaign or self.is_alone):
            self._become_unattached(now_ms, ready)
        elif self.role is Role.RESIGNED or not self.is_alone:
            self._start_pre_vote(now_ms, ready)
        else:
            self._start_election(now_ms, ready)

    def extend_deadlines_after_stall(self, late_ms: int) -> None:
        """Extend the deadlines after a tick that was `late_ms` late.

        This process had no processor time, and messages of others may be unread: the time is not their silence. An
        overloaded machine, such as one where a thousand partitions change leaders, would otherwise hold one election
        after the other and never finish its work. At most a fetch timeout is added at once: after a longer stall a node
        must verify its role."""
        if late_ms < LATE_MS:
            return
        stall_ms = min(late_ms, self._fetch_timeout_ms)
        if self.role is not Role.LEADER:
            self._deadline_ms += stall_ms
        for known in self.replicas.values():
            known.stall_ms += stall_ms

    def step(self, message: Message, now_ms: int) -> Ready:
        """Handle one message from another replica."""
        ready = Ready()
        if isinstance(message, VoteRequested):
            self._vote_requested(message, now_ms, ready)
        elif isinstance(message, VoteAnswered):
            self._vote_answered(message, now_ms, ready)
        elif isinstance(message, EpochBegun):
            if message.leader_epoch >= self.leader_epoch:
                self._ended_leadership = None
                self._follow(message.leader_id, message.leader_epoch, now_ms, ready)
                self._fetched_from_leader = self.role is Role.FOLLOWER
        elif isinstance(message, EpochEnded):
            if message.leader_epoch == self.leader_epoch and message.leader_id == self.leader_id:
                self._leader_ended(message.successors, now_ms)
        else:
            self._fetched(message, now_ms)
        return ready

    def leader_responded(self, now_ms: int) -> None:
        """The leader answered a Fetch: it is alive."""
        if self.role is Role.FOLLOWER:
            self._fetched_from_leader, self._ended_leadership, self._lost_election_count = True, None, 0
            self._deadline_ms = now_ms + self._fetch_timeout_ms

    def leader_reported(self, leader_id: int, leader_epoch: int, now_ms: int) -> Ready:
        """Handle the leader (NO_NODE if unknown) and epoch of another replica's answer."""
        ready = Ready()
        if leader_epoch > self.leader_epoch:
            self._maybe_enter_epoch(leader_epoch, leader_id, now_ms, ready)
        elif leader_epoch == self.leader_epoch and leader_id != NO_NODE and self.role is not Role.LEADER:
            self._accept_leader(leader_id, leader_epoch, now_ms, ready)
        return ready

    def _accept_leader(self, leader_id: int, leader_epoch: int, now_ms: int, ready: Ready) -> bool:
        """Follow the leader that another replica names; returns whether that leadership is known to be over."""
        over = (leader_id, leader_epoch) == self._ended_leadership
        if not over:
            self._follow(leader_id, leader_epoch, now_ms, ready)
        return over

    def leader_unreachable(self, now_ms: int) -> None:
        """The leader's process is dead: its host refuses connections. Start an election without the fetch timeout."""
        leadership = (self.leader_id, self.leader_epoch)
        if self.role is Role.FOLLOWER and self._ended_leadership != leadership:
            self._ended_leadership, self._fetched_from_leader = leadership, False
            soon_ms = now_ms + self._random.randrange(max(1, self._election_timeout_ms // 5))
            self._deadline_ms = min(self._deadline_ms, soon_ms)

    def voter_unreachable(self, voter_id: int, now_ms: int) -> None:
        """The process of a voter is not running: count its vote as denied."""
        if self.role in (Role.PROSPECTIVE, Role.CANDIDATE):
            self._reject(voter_id, now_ms)

    def leader_committed(self, high_watermark: int) -> int:
        """Handle the leader's high watermark; returns this node's: at most the local log end, never decreasing."""
        if self.role is Role.FOLLOWER:
            self.high_watermark = max(self.high_watermark, min(high_watermark, self._log_end().end_offset))
        return self.high_watermark

    def replica_contacted(self, replica: ReplicaKey, now_ms: int) -> None:
        """A replica sent this leader a request other than Fetch: it is alive."""
        known = self.replicas.get(self._known_key(replica))
        if self.role is Role.LEADER and known is not None:
            known.last_fetch_ms, known.stall_ms = now_ms, 0

    def voters_changed(self, voters: VoterSet, now_ms: int, removed_at: int = -1) -> None:
        """Use another voter set from the moment it is in the log, committed or not (KIP-853)."""
        self.voters, self.removed_at = voters, removed_at
        if not self.is_voter and self.role in (Role.PROSPECTIVE, Role.CANDIDATE, Role.RESIGNED):
            self._become(Role.UNATTACHED, now_ms)
        if self.role is Role.LEADER:
            for voter in voters:
                self._name_directory(voter.key)
                self.replicas.setdefault(self._known_key(voter.key), ReplicaState(last_fetch_ms=now_ms))
            self._advance()

    def _name_directory(self, key: ReplicaKey) -> None:
        """Merge the state of a voter whose directory was unknown: it is one replica, and counts once."""
        nameless = ReplicaKey(key.node_id)
        if key != nameless and nameless in self.replicas and key != self.me:
            self.replicas[key] = self.replicas.pop(nameless)

    def log_synced(self, end_offset: int, now_ms: int) -> int:
        """Record that all below `end_offset` (exclusive) is durable in the local log; returns the high watermark."""
        if self.role is Role.LEADER:
            mine = self.replicas.setdefault(self.me, ReplicaState())
            mine.end_offset = max(mine.end_offset, end_offset)
            mine.last_fetch_ms = mine.last_caught_up_ms = now_ms
            self._advance()
        return self.high_watermark

    def resign(self, now_ms: int, ready: Ready) -> None:
        """Resign, and notify the voters, so that they need not wait for a timeout."""
        if self.role is Role.LEADER:
            others = [(known.end_offset, key.node_id) for key, known in self.replicas.items() if key != self.me]
            ranked = sorted(
                (end for end in others if end[1] in self.voters.node_ids), key=lambda end: (-end[0], end[1])
            )
            ended = EpochEnded(self.me.node_id, self.leader_epoch, tuple(node_id for _, node_id in ranked))
            self._send_to_others(ended, ready)
            ready.lost_leadership = True
            self._become(Role.RESIGNED if self.is_voter else Role.UNATTACHED, now_ms)

    def out_of_space(self, now_ms: int, ready: Ready) -> None:
        """The disk is full: resign if there are other voters, and be no candidate until `may_campaign` is set again."""
        self.may_campaign = False
        self._resign_and_withdraw(now_ms, ready)

    def retire(self, now_ms: int, ready: Ready) -> None:
        """The process stops: resign if there are other voters, and be no candidate.

        A leadership that it won during the shutdown would end with it, and cost the others a timeout.
        """
        self._is_stopping = True
        self._resign_and_withdraw(now_ms, ready)

    def _resign_and_withdraw(self, now_ms: int, ready: Ready) -> None:
        if not self.is_alone:
            self.resign(now_ms, ready)
        if self.role in (Role.PROSPECTIVE, Role.CANDIDATE):
            self._become(Role.UNATTACHED, now_ms)

    def _become(self, role: Role, now_ms: int) -> None:
        assert role in TRANSITIONS[self.role], f"replica {self.me.node_id}: {self.role.value} -> {role.value}"
        self.role = role
        self._fetched_from_leader = False
        self._granted, self._rejected = set(), set()
        timeout = self._fetch_timeout_ms if role is Role.FOLLOWER else self._election_timeout_ms
        self._deadline_ms = now_ms + timeout + self._random.randrange(timeout)

    def _leader_ended(self, successors: tuple[int, ...], now_ms: int) -> None:
        """The leader resigned: the first successor becomes a candidate at once, the others after growing delays."""
        step_ms = max(1, self._election_timeout_ms // 10)
        mine = self.me.node_id
        place = successors.index(mine) if mine in successors else len(successors)
        self._ended_leadership, self._fetched_from_leader = (self.leader_id, self.leader_epoch), False
        self._deadline_ms = now_ms + (place * step_ms * 2 + self._random.randrange(step_ms) if place else 0)

    def _resend_begin_epoch(self, now_ms: int, ready: Ready) -> None:
        """Repeat BeginQuorumEpoch for voters that do not fetch: they may not know the leader."""
        for key, known in self.replicas.items():
            silent = now_ms - max(known.last_fetch_ms, known.begin_epoch_sent_ms) > self._fetch_timeout_ms // 2
            if silent and key != self.me and self.voters.is_voter(key):
                known.begin_epoch_sent_ms = now_ms
                ready.messages.append((key.node_id, EpochBegun(self.me.node_id, self.leader_epoch)))

    def _expire_observers(self, now_ms: int) -> None:
        gone = [
            key
            for key, known in self.replicas.items()
            if now_ms - known.last_fetch_ms > OBSERVER_TIMEOUT_MS and key != self.me and not self.voters.is_voter(key)
        ]
        for key in gone:
            del self.replicas[key]

    def _persist(self, state: ElectionState, ready: Ready) -> None:
        """Change the election state.

        Only an epoch or a vote must be durable: other nodes know the leader, and durable votes exclude two leaders in
        one epoch. So an election costs each voter one fsync instead of three, and the node serves nothing meanwhile.
        """
        if state != self.state:
            before, self.state = self.state, state
            assert state.leader_epoch >= before.leader_epoch, f"an epoch never falls: {before} -> {state}"
            if state.leader_epoch == before.leader_epoch:
                assert before.voted in (None, state.voted), f"one vote in an epoch: {before} -> {state}"
                leaders = {before.leader_id, state.leader_id} - {NO_NODE}
                assert len(leaders) <= 1, f"one leader in an epoch: {before} -> {state}"
            if ready.persist is not None or (state.leader_epoch, state.voted) != (before.leader_epoch, before.voted):
                ready.persist = state

    def _send_to_others(self, message: Message, ready: Ready) -> None:
        ready.messages.extend((node_id, message) for node_id in self.voters.node_ids if node_id != self.me.node_id)

    def _start_pre_vote(self, now_ms: int, ready: Ready) -> None:
        self._persist(ElectionState(self.leader_epoch, NO_NODE, self.state.voted), ready)
        self._become(Role.PROSPECTIVE, now_ms)
        self._vote_for_self()
        self._send_to_others(VoteRequested(self.me, self.leader_epoch, self._log_end(), pre_vote=True), ready)
        if len(self._granted) >= self.voters.majority:
            self._start_election(now_ms, ready)

    def _become_unattached(self, now_ms: int, ready: Ready) -> None:
        self._persist(ElectionState(self.leader_epoch, NO_NODE, self.state.voted), ready)
        self._become(Role.UNATTACHED, now_ms)

    def _start_election(self, now_ms: int, ready: Ready) -> None:
        self._persist(ElectionState(self.leader_epoch + 1, NO_NODE, self.me), ready)
        self._become(Role.CANDIDATE, now_ms)
        self._vote_for_self()
        self._send_to_others(VoteRequested(self.me, self.leader_epoch, self._log_end()), ready)
        self._maybe_become_leader(now_ms, ready)

    def _vote_for_self(self) -> None:
        if self.is_voter:  # a removed voter's own vote does not count
            self._granted.add(self.me.node_id)

    def _maybe_become_leader(self, now_ms: int, ready: Ready) -> None:
        if len(self._granted) < self.voters.majority:
            return
        assert self.state.voted == self.me, "a leader has its own vote"
        self.granting = frozenset(self._granted)
        self._lost_election_count = 0
        self._become(Role.LEADER, now_ms)
        self._persist(ElectionState(self.leader_epoch, self.me.node_id, self.state.voted), ready)
        self.epoch_start_offset = self._log_end().end_offset
        self.directories = {self.me.node_id: self.me.directory_id}
        self.replicas = {voter.key: ReplicaState(last_fetch_ms=now_ms) for voter in self.voters}
        self.replicas[self.me] = ReplicaState(last_fetch_ms=now_ms)
        self.replicas = {
            key: known for key, known in self.replicas.items() if key == self.me or not key.is_same(self.me)
        }
        ready.elected = True
        self._send_to_others(EpochBegun(self.me.node_id, self.leader_epoch), ready)

    def _follow(self, leader_id: int, leader_epoch: int, now_ms: int, ready: Ready) -> None:
        if leader_id == self.me.node_id:
            return  # other nodes still name the leadership that this node resigned or lost in a crash
        if leader_epoch == self.leader_epoch and self.leader_id not in (NO_NODE, leader_id):
            return  # an epoch has one leader: a replica that names another is faulty or has lost its votes
        if self.role is Role.FOLLOWER and (leader_id, leader_epoch) == (self.leader_id, self.leader_epoch):
            self._deadline_ms = now_ms + self._fetch_timeout_ms
            return
        ready.lost_leadership = ready.lost_leadership or self.role is Role.LEADER
        voted = self.state.voted if leader_epoch == self.leader_epoch else None
        self._persist(ElectionState(leader_epoch, leader_id, voted), ready)
        self._become(Role.FOLLOWER, now_ms)

    def _maybe_enter_epoch(self, leader_epoch: int, leader_id: int, now_ms: int, ready: Ready) -> None:
        """Another node knows a higher epoch: move to it."""
        if leader_epoch <= self.leader_epoch:
            return
        if leader_id not in (NO_NODE, self.me.node_id):
            self._follow(leader_id, leader_epoch, now_ms, ready)
            return
        ready.lost_leadership = ready.lost_leadership or self.role is Role.LEADER
        self._persist(ElectionState(leader_epoch), ready)
        self._become(Role.UNATTACHED, now_ms)

    def _vote_requested(self, request: VoteRequested, now_ms: int, ready: Ready) -> None:
        if not request.pre_vote:
            self._maybe_enter_epoch(request.leader_epoch, NO_NODE, now_ms, ready)
        granted = (
            request.leader_epoch >= self.leader_epoch
            and request.log_end >= self._log_end()
            and self.role not in (Role.LEADER, Role.CANDIDATE if not request.pre_vote else Role.LEADER)
        )
        if request.pre_vote:
            # A follower that hears its leader denies: a node that cannot hear the leader must not disturb the others. A
            # follower that knows its leader only from other nodes does not deny, or all would keep naming a dead one.
            hears_leader = self.role is Role.FOLLOWER and self._fetched_from_leader and now_ms < self._deadline_ms
            granted = granted and not hears_leader
        else:
            free = self.state.voted is None or self.state.voted == request.candidate
            granted = granted and free and self.leader_id == NO_NODE
            if granted:
                self._persist(ElectionState(self.leader_epoch, NO_NODE, request.candidate), ready)
                self._deadline_ms = max(self._deadline_ms, now_ms + self._election_timeout_ms)
        answer = VoteAnswered(self.me.node_id, self.leader_epoch, self.leader_id, granted, request.pre_vote)
        ready.messages.append((request.candidate.node_id, answer))

    def _vote_answered(self, answer: VoteAnswered, now_ms: int, ready: Ready) -> None:
        self._maybe_enter_epoch(answer.leader_epoch, answer.leader_id, now_ms, ready)
        wanted = Role.PROSPECTIVE if answer.pre_vote else Role.CANDIDATE
        if self.role is not wanted or answer.leader_epoch > self.leader_epoch:
            return
        if not answer.pre_vote and answer.leader_epoch < self.leader_epoch:
            return  # a vote of an earlier epoch
        if answer.voter_id not in self.voters.node_ids:
            return
        if not answer.granted:
            knows = answer.leader_id != NO_NODE and answer.leader_epoch == self.leader_epoch
            if not knows or self._accept_leader(answer.leader_id, answer.leader_epoch, now_ms, ready):
                self._reject(answer.voter_id, now_ms)
            return
        self._granted.add(answer.voter_id)
        if answer.pre_vote:
            if len(self._granted) >= self.voters.majority:
                self._start_election(now_ms, ready)
        else:
            self._maybe_become_leader(now_ms, ready)

    def _reject(self, voter_id: int, now_ms: int) -> None:
        """Count a denied vote. An election that cannot be won is retried after a growing random pause."""
        self._rejected.add(voter_id)
        if len(self._rejected) == len(self.voters) - self.voters.majority + 1:
            tenth_ms = max(1, self._election_timeout_ms // 10)
            pause_ms = min(self._election_backoff_max_ms, tenth_ms << min(self._lost_election_count, 10))
            self._lost_election_count += 1
            soon_ms = now_ms + tenth_ms // 5 + self._random.randrange(max(1, pause_ms))
            self._deadline_ms = min(self._deadline_ms, soon_ms)

    def _fetched(self, fetched: Fetched, now_ms: int) -> None:
        if self.role is not Role.LEADER or fetched.leader_epoch != self.leader_epoch:
            return
        key = self._known_key(fetched.replica)
        if key in self.replicas and fetched.replica.directory_id != ZERO_DIRECTORY:
            self.directories[key.node_id] = fetched.replica.directory_id
        if key.node_id < 0 or (key not in self.replicas and len(self.replicas) >= MAX_REPLICAS):
            return
        end_offset = self._log_end().end_offset
        assert fetched.fetch_offset <= end_offset, "a replica that fetches beyond the log end has diverged"
        known = self.replicas.setdefault(key, ReplicaState())
        if fetched.fetch_offset >= end_offset:
            known.last_caught_up_ms = now_ms
        elif known.last_fetch_ms >= 0 and fetched.fetch_offset >= known.fetch_leader_end >= 0:
            # The replica has all records that existed at its previous fetch.
            known.last_caught_up_ms = known.last_fetch_ms
        known.last_fetch_ms, known.stall_ms = now_ms, 0
        known.fetch_leader_end = end_offset
        known.end_offset = fetched.fetch_offset
        self._advance()

    def _known_key(self, replica: ReplicaKey) -> ReplicaKey:
        voter = self.voters.get(replica.node_id)
        return voter.key if voter is not None and voter.key.is_same(replica) else replica

    def _voter_states(self) -> list[ReplicaState]:
        return [known for key, known in self.replicas.items() if self.voters.is_voter(key)]

    def _advance(self) -> None:
        """Advance the high watermark to a majority's end offset, once in the leader's own epoch (Raft, 5.4.2)."""
        ends = sorted((known.end_offset for known in self._voter_states()), reverse=True)
        if len(ends) >= self.voters.majority:
            majority_end = ends[self.voters.majority - 1]
            if majority_end > max(self.epoch_start_offset, self.high_watermark):
                assert sum(end >= majority_end for end in ends) >= self.voters.majority, f"{majority_end} of {ends}"
                assert majority_end <= self._log_end().end_offset, "a leader commits what it has itself"
                self.high_watermark = majority_end

    def _majority_fetched_ms(self, now_ms: int) -> int:
        """The latest time at which a majority, this leader included, had been heard."""
        heard = sorted(
            (
                now_ms if key == self.me else known.last_fetch_ms + known.stall_ms
                for key, known in self.replicas.items()
                if self.voters.is_voter(key)
            ),
            reverse=True,
        )
        return heard[self.voters.majority - 1] if len(heard) >= self.voters.majority else now_ms
