"""Behaviour of a replica whose disk is full: it does not lead until it can write again.

A leader that cannot append resigns, and becomes a candidate only after a trial write succeeds: meanwhile another voter
leads. A vote that cannot be made durable is not granted. An epoch alone need not be durable: each voter that elected
its leader has stored the vote, and each replica with the leader's records has the epoch in its log. A single voter
cannot resign to another: it refuses appends until it can write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock, Disk, is_disk_full
from odradek.protocol.messages.vote_response import VoteResponse
from odradek.raft.messages import Ready, VoteRequested
from odradek.raft.node import RaftNode
from odradek.raft.roles import Role
from odradek.raft.storage import QuorumStorage

# How often a replica with a full disk tries to write.
PROBE_MS = 500
_log = get_logger("raft.space")


class Host(Protocol):
    """The part of the driver that `Space` uses."""

    def apply_ready(self, ready: Ready) -> None:
        """Carry out the decisions of the node."""
        ...

    def call_soon(self, work: Callable[[], None]) -> None:
        """Call `work` after the caller has returned to the loop."""
        ...

    async def pause(self, pause_ms: int) -> None:
        """Sleep for `pause_ms`."""
        ...


class Space:
    """Tracks whether one replica can write, and whether its election state is durable."""

    def __init__(
        self, host: Host, node: RaftNode, storage: QuorumStorage, *, disk: Disk, clock: Clock, cluster_id: str
    ) -> None:
        self._host = host
        self._node = node
        self._storage = storage
        self._disk = disk
        self._clock = clock
        self._cluster_id = cluster_id
        self._is_state_unsynced = False  # the node's epoch or vote is not durable
        self._full = False

    def persist(self, ready: Ready) -> None:
        """Store the election state durably. If the disk is full, remove from `ready` what depends on it.

        Raises:
            StorageError: the disk failed, or is full and no other voter can lead; this node must answer nothing more.
        """
        if ready.persist is None and not self._is_state_unsynced:
            return
        try:
            self._storage.store_state(ready.persist or self._node.state, self._cluster_id)
            self._is_state_unsynced = False
        except OSError as error:
            if not is_disk_full(error) or self._node.is_alone:
                raise StorageError(self._storage.directory, f"the vote cannot be made durable: {error}") from error
            self._is_state_unsynced = True
            ready.messages = [each for each in ready.messages if not _needs_own_vote(each[1])]
            self.on_disk_full()

    def deny_unsynced_votes(self, answer: VoteResponse) -> None:
        """Deny a vote that could not be made durable, and a pre-vote, because no vote could follow it."""
        for topic in answer.topics if self._is_state_unsynced else ():
            for partition in topic.partitions:
                partition.vote_granted = False

    def refused(self, error: ApiError) -> ApiError:
        """The error for a failed append of a leader: retriable if other voters can lead."""
        if self._node.is_alone:
            return error
        # Not at once: the caller's operation must fail first.
        self._host.call_soon(self.on_disk_full)
        return ApiError(ErrorCode.NOT_CONTROLLER, error.message)

    def on_disk_full(self) -> None:
        """The disk is full: resign, and start the trial writes."""
        if not self._full:
            self._full = True
            leads = self._node.role is Role.LEADER
            _log.warning("no space for the metadata log", directory=self._storage.directory, led_the_quorum=leads)
        ready = Ready()
        self._node.out_of_space(self._clock.monotonic_ms(), ready)
        if ready.lost_leadership:
            self._host.apply_ready(ready)

    async def watch(self, on_failed: Callable[[BaseException], None]) -> None:
        """Run the trial writes, and let this replica lead again once one succeeds."""
        while True:
            await self._host.pause(PROBE_MS)
            if not self._full:
                continue
            try:
                await self._disk.run_blocking(self._storage.probe)
                self._full, self._node.may_campaign = False, True
                self._host.apply_ready(Ready())
                if self._node.may_campaign:
                    _log.info("there is space for the metadata log again", directory=self._storage.directory)
            except OSError as error:
                if not is_disk_full(error):
                    on_failed(StorageError(self._storage.directory, f"nothing can be written: {error}"))
                    return
            except StorageError as error:
                on_failed(error)
                return


def _needs_own_vote(message: object) -> bool:
    return isinstance(message, VoteRequested) and not message.pre_vote
