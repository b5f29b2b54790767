"""A replica that does not lead: it asks the leader for what follows its log, or others for who leads.

One `round` is one request and what its answer asks for: records are written and made durable before the next request,
which tell the leader so; a diverging log is truncated; a log that begins too late is replaced by a snapshot,
fetched piece by piece. Source: KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from odradek.client.connection import RefusedError, RequestTimeoutError, UnreachableError, UnsupportedRequestError
from odradek.common.buggify import buggify
from odradek.common.errors import ApiError, ErrorCode, OdradekError, ProtocolError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock, Disk, is_disk_full
from odradek.protocol.declare import Message
from odradek.protocol.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest
from odradek.protocol.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.fetch_snapshot_response import FetchSnapshotResponse
from odradek.raft import wire
from odradek.raft.config import RaftConfig
from odradek.raft.messages import Ready
from odradek.raft.node import RaftNode
from odradek.raft.quorum_state import NO_NODE
from odradek.raft.roles import Role
from odradek.raft.snapshot import (
    Snapshot,
    SnapshotId,
    finish_snapshot,
    partial_snapshot,
    remove_partial_snapshots,
)
from odradek.raft.storage import QuorumStorage
from odradek.raft.voters import Endpoint, Leader, ReplicaKey

# Kafka's: how long a leader without news may keep a Fetch waiting.
MAX_WAIT_MS = 500
_log = get_logger("raft.follower")

M = TypeVar("M", bound=Message)


class LeaderChangedError(OdradekError):
    """A request was given up, because its receiver leads no more."""


class Host(Protocol):
    """What a follower needs of the driver."""

    def leader(self) -> Leader | None: ...

    def apply_ready(self, ready: Ready) -> None:
        """Carry out what the node decided."""
        ...

    async def ask(self, endpoint: Endpoint, request: Message, response: type[M], min_version: int) -> M:
        """Send a request; LeaderChangedError where the leader changes first, else as `QuorumPeers.send`."""
        ...

    async def durable(self) -> None:
        """Return when all that was written is durable and no sync is under way."""
        ...

    def written(self, voters_changed: bool) -> None:
        """Something was written or cut: it must become durable; the voters may be others."""
        ...

    def committed(self, high_watermark: int) -> None:
        """All below is committed: publish it."""
        ...


class Follower:
    """Keeps one replica up to date."""

    def __init__(
        self,
        host: Host,
        node: RaftNode,
        storage: QuorumStorage,
        *,
        disk: Disk,
        clock: Clock,
        config: RaftConfig,
        cluster_id: str,
        listener_name: str,
        bootstrap: Sequence[Endpoint],
        own_endpoints: Sequence[Endpoint],
    ) -> None:
        """`bootstrap`: whom to ask for the leader beside the voters; `own_endpoints` are never asked."""
        self._host = host
        self._node = node
        self._storage = storage
        self._disk = disk
        self._clock = clock
        self._config = config
        self._cluster_id = cluster_id
        self._listener_name = listener_name
        self._bootstrap = tuple(bootstrap)
        self._own_endpoints = frozenset(own_endpoints)
        self._next_candidate = 0
        self._lost: Endpoint | None = None
        self._complaint = ""
        self.learned: tuple[int, Endpoint] | None = None
        self.leader_high_watermark = 0

    @property
    def _me(self) -> ReplicaKey:
        return self._node.me

    # -- whom to ask ------------------------------------------------------------------------------------------------

    def target(self) -> Endpoint | None:
        """Whom to ask next; None while this node leads or stands for election, or knows no other."""
        if self._node.role not in (Role.FOLLOWER, Role.UNATTACHED):
            return None
        leader = self._host.leader()
        known = leader.endpoint if leader is not None else None
        if known is not None and not self._node.leader_silent(self._clock.monotonic_ms()):
            return known
        candidates = self._others(known)
        if not candidates:
            return None
        self._next_candidate = (self._next_candidate + 1) % len(candidates)
        return candidates[self._next_candidate - 1]

    def _others(self, known: Endpoint | None) -> list[Endpoint]:
        """Where other nodes of the quorum may be, each once, the one that is known to lead first."""
        voters = [voter.endpoints.get(self._listener_name) for voter in self._node.voters]
        found = dict.fromkeys([known, *voters, *self._bootstrap])
        return [endpoint for endpoint in found if endpoint is not None and endpoint not in self._own_endpoints]

    def update_leader_endpoint(self, known: wire.Known) -> None:
        """Take where the leader is."""
        endpoint = known.endpoints.get(known.leader_id)
        if endpoint is not None and known.leader_epoch >= self._node.leader_epoch:
            self.learned = (known.leader_id, endpoint)

    def handle_leader_info(self, known: wire.Known) -> None:
        """Take what an answer says of the leader."""
        self.update_leader_endpoint(known)
        if known.leader_epoch >= 0:
            self._host.apply_ready(
                self._node.leader_learned(known.leader_id, known.leader_epoch, self._clock.monotonic_ms())
            )

    def accept_begin_epoch_endpoints(self, request: BeginQuorumEpochRequest, answer: BeginQuorumEpochResponse) -> None:
        """Take where a leader says it is, where it is believed to lead."""
        believed = [part.leader_id for topic in answer.topics for part in topic.partitions if not part.error_code]
        for endpoint in request.leader_endpoints if believed else ():
            if endpoint.name == self._listener_name:
                self.learned = (believed[0], (endpoint.host, endpoint.port))

    # -- one round --------------------------------------------------------------------------------------------------

    async def round(self) -> bool:
        """Ask once and take the answer; whether to go on at once (else after a pause).

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, there is no space for what the leader sent.
            StorageError: the local log failed, or the leader contradicts what is committed.
        """
        endpoint = self.target()
        if endpoint is None:
            return False
        node, log_end = self._node, self._storage.log_end
        leader_epoch = node.leader_epoch
        request = wire.fetch(
            self._me,
            self._cluster_id,
            leader_epoch=leader_epoch,
            log_end=log_end,
            log_start_offset=self._storage.log.log_start_offset,
            high_watermark=node.high_watermark,
            max_wait_ms=min(MAX_WAIT_MS, self._config.fetch_timeout_ms // 2),
            max_bytes=self._config.fetch_max_bytes,
        )
        try:
            fetched = wire.read_fetched(await self._host.ask(endpoint, request, FetchResponse, wire.FETCH_VERSION))
            await buggify("raft: before an answer is taken")
        except LeaderChangedError:
            return True
        except (UnreachableError, RequestTimeoutError, UnsupportedRequestError, ProtocolError) as error:
            return self._not_answered(endpoint, error)
        self._lost = None
        before = (node.leader_id, node.leader_epoch)
        self.handle_leader_info(fetched.known)
        if fetched.known.error:
            self._check_denial(endpoint, fetched.known)
            self._log_fetch_failure(
                endpoint, wire.error_name(fetched.known.error), expected=fetched.known.leader_id != NO_NODE
            )
            return (node.leader_id, node.leader_epoch) != before and node.leader_id != NO_NODE
        if not self._follows(leader_epoch):
            return True
        self._complaint = ""
        node.leader_heard(self._clock.monotonic_ms())
        try:
            await self._take_and_note(endpoint, fetched, leader_epoch)
        except ProtocolError as error:
            self._log_fetch_failure(endpoint, str(error), expected=False)
            return False
        return True

    def _check_denial(self, endpoint: Endpoint, known: wire.Known) -> None:
        """Where the presumed leader itself denies leading this epoch, the epoch has no leader."""
        leader = self._host.leader()
        asked_leader = leader is not None and leader.endpoint == endpoint
        if asked_leader and known.leader_id == NO_NODE and known.leader_epoch == self._node.leader_epoch:
            self._node.leader_gone(self._clock.monotonic_ms())
            self._host.apply_ready(Ready())

    def _follows(self, leader_epoch: int) -> bool:
        """Whether this node still follows the leader that it asked; an await may have changed that."""
        return self._node.role is Role.FOLLOWER and self._node.leader_epoch == leader_epoch

    def _not_answered(self, endpoint: Endpoint, error: OdradekError) -> bool:
        """A lost connection is tried once more at once: where it is refused, the process is dead."""
        leader = self._host.leader()
        is_leader = leader is not None and leader.endpoint == endpoint
        if is_leader and isinstance(error, RefusedError):
            self.learned = None
            self._node.leader_gone(self._clock.monotonic_ms())
            self._host.apply_ready(Ready())
        elif is_leader and isinstance(error, UnreachableError) and self._lost != endpoint:
            self._lost = endpoint
            return True
        self._log_fetch_failure(endpoint, str(error), expected=False)
        return False

    def _log_fetch_failure(self, endpoint: Endpoint, reason: str, *, expected: bool) -> None:
        """Log a failure once, not every time it repeats."""
        complaint = f"{endpoint} {reason}"
        if complaint != self._complaint and not expected:
            self._complaint = complaint
            peer = f"{endpoint[0]}:{endpoint[1]}"
            if reason == ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name:
                _log.warning("no metadata from a replica", peer=peer, reason=reason, hint=wire.CLUSTER_ACTION_HINT)
            else:
                _log.info("no metadata from a replica", peer=peer, reason=reason)

    async def _take_and_note(self, endpoint: Endpoint, fetched: wire.Fetched, leader_epoch: int) -> None:
        # Records are noted once they are here: while they are written, this replica is no further behind than any is.
        # A snapshot takes long, and who waits for it is behind.
        if fetched.snapshot_id is not None:
            self._note_leader(fetched.high_watermark)
        try:
            await self._take(endpoint, fetched, leader_epoch)
        finally:
            self._note_leader(fetched.high_watermark)

    def _note_leader(self, high_watermark: int) -> None:
        self.leader_high_watermark = max(self.leader_high_watermark, high_watermark)

    async def _take(self, endpoint: Endpoint, fetched: wire.Fetched, leader_epoch: int) -> None:
        if fetched.snapshot_id is not None:
            await self._fetch_snapshot(endpoint, fetched.snapshot_id, leader_epoch)
            return
        storage = self._storage
        if fetched.diverging is not None:
            await self._host.durable()
            if self._follows(leader_epoch):
                end_offset = storage.diverges_at(fetched.diverging)
                _log.info("metadata log cut", end_offset=end_offset, log_end_offset=storage.log.log_end_offset)
                self._host.written(storage.truncate_to(end_offset, self._node.high_watermark))
            return
        if fetched.records:
            try:
                self._host.written(storage.append_fetched(fetched.records, leader_epoch))
            except ApiError:
                # The parts of this node that follow the metadata, as brokers do, need not wait for space.
                self._host.committed(self._node.leader_committed(fetched.high_watermark))
                storage.publish_unwritten(fetched.high_watermark)
                raise
            await self._host.durable()
        # True also where the leader is another by then: what it has committed stays committed.
        self._host.committed(self._node.leader_committed(fetched.high_watermark))

    # -- snapshots --------------------------------------------------------------------------------------------------

    async def _fetch_snapshot(self, endpoint: Endpoint, snapshot_id: SnapshotId, leader_epoch: int) -> None:
        """Fetch a snapshot of the leader's and restart behind it; given up where the leader changes."""
        try:
            snapshot = await self._fetch_file(endpoint, snapshot_id, leader_epoch)
            await self._host.durable()
            if snapshot is not None and self._follows(leader_epoch):
                self._install(snapshot_id, snapshot)
            elif snapshot is not None:
                self._disk.remove(self._storage.directory / snapshot_id.file_name)
        except OSError as error:
            if not is_disk_full(error):
                raise
            remove_partial_snapshots(self._disk, self._storage.directory)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"No space left for the leader's snapshot: {error}") from None

    async def _fetch_file(self, endpoint: Endpoint, snapshot_id: SnapshotId, leader_epoch: int) -> Snapshot | None:
        """A snapshot, durable in its place; None where it is given up. Raises OSError."""
        directory = self._storage.directory
        file = partial_snapshot(self._disk, directory, snapshot_id)
        try:
            position, size = 0, -1
            while position != size:
                chunk = await self._fetch_chunk(endpoint, snapshot_id, leader_epoch, position)
                if chunk is None:
                    return None
                if chunk.position != position or not chunk.data or size not in (-1, chunk.size):
                    raise ProtocolError(f"the leader sent byte {chunk.position} of a snapshot where {position} was due")
                size = chunk.size
                file.write_at(position, [chunk.data])
                position += len(chunk.data)
                if position > size:
                    raise ProtocolError("the leader sent more of a snapshot than there is")
            await self._disk.run_blocking(file.sync)
        finally:
            file.close()
        return await self._disk.run_blocking(lambda: finish_snapshot(self._disk, directory, snapshot_id))

    def _install(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        _log.info("metadata snapshot fetched", end_offset=snapshot_id.end_offset, leader_epoch=snapshot_id.leader_epoch)
        self._storage.install(snapshot_id, snapshot)
        self._host.written(True)
        self._host.committed(self._node.leader_committed(snapshot_id.end_offset))

    async def _fetch_chunk(
        self, endpoint: Endpoint, snapshot_id: SnapshotId, leader_epoch: int, position: int
    ) -> wire.Chunk | None:
        """One piece; None where this leader has it no more, or leads no more."""
        request = wire.fetch_snapshot(
            self._me,
            self._cluster_id,
            leader_epoch=leader_epoch,
            snapshot_id=snapshot_id,
            position=position,
            max_bytes=self._config.fetch_snapshot_max_bytes,
        )
        try:
            chunk = wire.read_chunk(await self._host.ask(endpoint, request, FetchSnapshotResponse, 0))
        except LeaderChangedError:
            return None
        except (UnreachableError, RequestTimeoutError, UnsupportedRequestError) as error:
            self._not_answered(endpoint, error)
            return None
        if chunk.known.error:
            self.handle_leader_info(chunk.known)
            self._log_fetch_failure(endpoint, wire.error_name(chunk.known.error), expected=False)
            return None
        self._node.leader_heard(self._clock.monotonic_ms())
        return chunk if self._follows(leader_epoch) else None
