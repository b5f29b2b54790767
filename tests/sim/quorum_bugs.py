"""Bugs of the quorum to plant (see `planted.py`): some that a seed of `quorum_box` shows, some that one test shows."""

from __future__ import annotations

from tests.sim.planted import Bug

# A bug, and a seed that catches it.
BY_SEED: tuple[tuple[Bug, int], ...] = (
    (
        Bug(
            "vote given twice",
            "raft.node:RaftNode._vote_requested",
            "free = self.state.voted is None or self.state.voted == asked.candidate",
            "free = True",
            "two candidates get a majority in one epoch",
        ),
        24,
    ),
    (
        Bug(
            "vote for a stale log",
            "raft.node:RaftNode._vote_requested",
            "and asked.log_end >= self._log_end()",
            "and asked.log_end is not None",
            "a leader without what was committed cuts it from all others",
        ),
        11,
    ),
    (
        Bug(
            "a leader says nothing in its epoch",
            "raft.driver:RaftDriver._begin_epoch",
            "self.append_control(self.storage.first_records(self._me.node_id, self.node.granting))",
            "self.written(False)",
            "nothing of the old epochs is committed until somebody writes; a dynamic quorum never learns its voters",
        ),
        0,
    ),
    (
        Bug(
            "snapshot of a follower begins at nothing",
            "raft.storage:QuorumStorage.install",
            "self._load_snapshot(snapshot_id, snapshot)",
            "self.published_offset = snapshot_id.end_offset",
            "a replica that was far behind has only what came after the snapshot",
        ),
        1,
    ),
    (
        Bug(
            "a leader that cannot write goes on",
            "raft.space:Space.refused",
            "self._host.soon(self.on_disk_full)",
            "pass",
            "nothing changes in the cluster for as long as one disk is full",
        ),
        2,
    ),
)

# Too rare for seeds: `tests/component/raft/test_quorum_bugs.py` names the test that catches each.
BY_TEST: tuple[Bug, ...] = (
    Bug(
        "a vote that is not durable is given when it is asked for again",
        "raft.space:Space.persist",
        "if ready.persist is None and not self._is_state_unsynced:",
        "if ready.persist is None:",
        "a vote is forgotten with the process, and given to another one in the same epoch",
    ),
    Bug(
        "a vote that is not durable is given",
        "raft.space:Space.deny_unsynced_votes",
        "for topic in answer.topics if self._is_state_unsynced else ():",
        "for topic in ():",
        "a vote is forgotten with the process, and given to another one in the same epoch",
    ),
    Bug(
        "who has no space for metadata knows no newer",
        "raft.follower:Follower._apply",
        "storage.publish_unwritten(fetched.high_watermark)",
        "pass",
        "a broker with a full disk takes itself for the leader of what others lead",
    ),
    Bug(
        "high watermark counts observers",
        "raft.node:RaftNode._voter_states",
        "if self.voters.is_voter(key)",
        "if key.node_id >= 0",
        "records count as committed that the voters do not have",
    ),
    Bug(
        "vote not persisted",
        "raft.space:Space.persist",
        "self._storage.store_state(ready.persist or self._node.state, self._cluster_id)",
        "self._node.state.voted or self._storage.store_state(self._node.state, self._cluster_id)",
        "a voter that restarts gives a second vote in one epoch",
    ),
    Bug(
        "high watermark of an older epoch",
        "raft.node:RaftNode._advance",
        "if majority_end > max(self.epoch_start_offset, self.high_watermark):",
        "if majority_end > self.high_watermark:",
        "records of an older epoch count as committed, and another leader cuts them (Raft, figure 8)",
    ),
    Bug(
        "metadata acknowledged by the leader alone",
        "raft.node:RaftNode._advance",
        "majority_end = ends[self.voters.majority - 1]",
        "majority_end = ends[0]",
        "what was acknowledged is on one disk",
    ),
    Bug(
        "divergence not seen",
        "raft.storage:QuorumStorage.check_fetch",
        "return Diverging(epoch, end_offset)",
        "return None",
        "a follower keeps records of a leader that never committed them",
    ),
    Bug(
        "truncated records are published",
        "raft.storage:QuorumStorage.truncate_to",
        "while self._unpublished and self._unpublished[-1].last_offset >= end_offset:",
        "while self._unpublished and self._unpublished[-1].last_offset >= end_offset + 10**9:",
        "readers see metadata that was taken back",
    ),
    Bug(
        "an old leader is believed",
        "raft.node:RaftNode.step",
        "if message.leader_epoch >= self.leader_epoch:",
        "if message.leader_epoch >= 0:",
        "a follower falls back to an epoch that is over",
    ),
    Bug(
        "two changes of voters at once",
        "raft.voter_changes:VoterChanges._is_pending",
        "return self._storage.history.voters_offset >= high_watermark or (",
        "return high_watermark < 0 and (",
        "two majorities that do not meet",
    ),
    Bug(
        "a removed leader goes on",
        "raft.driver:RaftDriver.committed",
        "removed = self.leads and not self.node.is_voter and self.storage.history.voters_offset < high_watermark",
        "removed = False",
        "a node that is no voter leads the quorum",
    ),
)
