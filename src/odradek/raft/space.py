"""What a replica of the metadata log does while its disk is full: it leaves leading to others until it can write.

A leader that cannot append resigns, and does not stand again before a trial write succeeds: elsewhere the quorum goes
on at once. A vote that cannot be made durable is not given; an epoch alone need not be durable, because each voter that
helped to elect its leader has kept the vote, and each replica with its records has the epoch in the log. A single voter
has no other to leave it to: it refuses what it cannot write, and goes on when it can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock, Disk, is_disk_full
from odradek.protocol.messages.vote_response import VoteResponse
from odradek.raft.messages import Ready, VoteAsked
from odradek.raft.node import RaftNode
from odradek.raft.roles import Role
from odradek.raft.storage import QuorumStorage

# How often a replica without space tries to write.
PROBE_MS = 500
_log = get_logger("raft.space")


class Host(Protocol):
    """What is needed of the driver."""

    def apply_ready(self, ready: Ready) -> None:
        """Carry out what the node decided."""
        ...

    def soon(self, work: Callable[[], None]) -> None:
        """Do something once the caller has returned to the loop."""
        ...

    async def pause(self, pause_ms: int) -> None:
        """Let time pass."""
        ...


class Space:
    """Whether one replica can write, and what of its elections is durable."""

    def __init__(
        self, host: Host, node: RaftNode, storage: QuorumStorage, *, disk: Disk, clock: Clock, cluster_id: str
    ) -> None:
        self._host = host
        self._node = node
        self._storage = storage
        self._disk = disk
        self._clock = clock
        self._cluster_id = cluster_id
        self._owing = False  # the node's epoch and vote are not durable
        self._full = False

    def persist(self, ready: Ready) -> None:
        """Make durable what was decided in an election. Without space nothing that needs it is said.

        Raises:
            StorageError: this node must answer nothing any more: the disk failed, or is full and no other can lead.
        """
        if ready.persist is None and not self._owing:
            return
        try:
            self._storage.store_state(ready.persist or self._node.state, self._cluster_id)
            self._owing = False
        except OSError as error:
            if not is_disk_full(error) or self._node.is_alone:
                raise StorageError(self._storage.directory, f"the vote cannot be made durable: {error}") from error
            self._owing = True
            ready.messages = [each for each in ready.messages if not _needs_own_vote(each[1])]
            self.ran_out()

    def withhold(self, answer: VoteResponse) -> None:
        """Deny in an answer the vote that was not made durable, and the pre-vote, as no vote could follow it."""
        for topic in answer.topics if self._owing else ():
            for partition in topic.partitions:
                partition.vote_granted = False

    def refused(self, error: ApiError) -> ApiError:
        """A leader could not append: its caller retries, where there are others to lead."""
        if self._node.is_alone:
            return error
        # Not at once: the caller has an operation under way, which must hear of this first.
        self._host.soon(self.ran_out)
        return ApiError(ErrorCode.NOT_CONTROLLER, error.message)

    def ran_out(self) -> None:
        """There is no space: lead no more, and try from now on whether there is."""
        if not self._full:
            self._full = True
            leads = self._node.role is Role.LEADER
            _log.warning("no space for the metadata log", directory=self._storage.directory, led_the_quorum=leads)
        ready = Ready()
        self._node.out_of_space(self._clock.monotonic_ms(), ready)
        if ready.lost_leadership:
            self._host.apply_ready(ready)

    async def watch(self, on_failed: Callable[[BaseException], None]) -> None:
        """See to it that this replica may lead again once it can write."""
        while True:
            await self._host.pause(PROBE_MS)
            if not self._full:
                continue
            try:
                await self._disk.run_blocking(self._storage.probe)
                self._full, self._node.may_stand = False, True
                self._host.apply_ready(Ready())
                if self._node.may_stand:
                    _log.info("there is space for the metadata log again", directory=self._storage.directory)
            except OSError as error:
                if not is_disk_full(error):
                    on_failed(StorageError(self._storage.directory, f"nothing can be written: {error}"))
                    return
            except StorageError as error:
                on_failed(error)
                return


def _needs_own_vote(message: object) -> bool:
    return isinstance(message, VoteAsked) and not message.pre_vote
