"""A replica that does not lead: it fetches from the leader, or asks other nodes for the leader.

One `round` sends one request and handles its answer. Fetched records are written and made durable before the next
request, which acknowledges them; a diverging log is truncated; a log that ends before the leader's log start offset is
replaced by a snapshot, fetched in chunks. Source: KIP-595, KIP-630, KIP-853.
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

# Kafka's value: how long a leader may hold a Fetch when it has nothing new.
MAX_WAIT_MS = 500
_log = get_logger("raft.follower")

M = TypeVar("M", bound=Message)


class LeaderChangedError(OdradekError):
    """A request was cancelled, because the node that it was sent to no longer leads."""


class Host(Protocol):
    """The part of the driver that a follower uses."""

    def leader(self) -> Leader | None: ...

    def apply_ready(self, ready: Ready) -> None:
        """Carry out the decisions of the node."""
        ...

    async def request(self, endpoint: Endpoint, request: Message, response: type[M], min_version: int) -> M:
        """Send a request; raises LeaderChangedError if the leader changes first, else as `QuorumPeers.send`."""
        ...

    async def durable(self) -> None:
        """Return when all written records are durable and no sync is under way."""
        ...

    def written(self, voters_changed: bool) -> None:
        """The log was appended to or truncated: sync it; the voters may have changed."""
        ...

    def committed(self, high_watermark: int) -> None:
        """Begin to publish the records below the high watermark (exclusive)."""
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
        """`bootstrap`: nodes beside the voters that may know the leader; `own_endpoints` are never asked."""
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
        self._lost_connection_to: Endpoint | None = None
        self._last_failure = ""
        self.leader_endpoint: tuple[int, Endpoint] | None = None
        self.leader_high_watermark = 0

    @property
    def _me(self) -> ReplicaKey:
        return self._node.me

    # -- whom to ask ------------------------------------------------------------------------------------------------

    def target(self) -> Endpoint | None:
        """The endpoint to ask next; None while this node leads, is a candidate, or knows no other node."""
        if self._node.role not in (Role.FOLLOWER, Role.UNATTACHED):
            return None
        leader = self._host.leader()
        known = leader.endpoint if leader is not None else None
        if known is not None and not self._node.leader_timed_out(self._clock.monotonic_ms()):
            return known
        candidates = self._others(known)
        if not candidates:
            return None
        self._next_candidate = (self._next_candidate + 1) % len(candidates)
        return candidates[self._next_candidate - 1]

    def _others(self, known: Endpoint | None) -> list[Endpoint]:
        """The endpoints of other nodes that may know the leader, each once, the known leader's first."""
        voters = [voter.endpoints.get(self._listener_name) for voter in self._node.voters]
        found = dict.fromkeys([known, *voters, *self._bootstrap])
        return [endpoint for endpoint in found if endpoint is not None and endpoint not in self._own_endpoints]

    def update_leader_endpoint(self, known: wire.LeaderInfo) -> None:
        """Store the leader's endpoint of an answer."""
        endpoint = known.endpoints.get(known.leader_id)
        if endpoint is not None and known.leader_epoch >= self._node.leader_epoch:
            self.leader_endpoint = (known.leader_id, endpoint)

    def handle_leader_info(self, known: wire.LeaderInfo) -> None:
        """Pass the leader and epoch of an answer to the node."""
        self.update_leader_endpoint(known)
        if known.leader_epoch >= 0:
            self._host.apply_ready(
                self._node.leader_reported(known.leader_id, known.leader_epoch, self._clock.monotonic_ms())
            )

    def accept_begin_epoch_endpoints(self, request: BeginQuorumEpochRequest, answer: BeginQuorumEpochResponse) -> None:
        """Store the endpoints of a BeginQuorumEpoch request if this node accepted its sender as leader."""
        accepted = [part.leader_id for topic in answer.topics for part in topic.partitions if not part.error_code]
        for endpoint in request.leader_endpoints if accepted else ():
            if endpoint.name == self._listener_name:
                self.leader_endpoint = (accepted[0], (endpoint.host, endpoint.port))

    # -- one round --------------------------------------------------------------------------------------------------

    async def round(self) -> bool:
        """Send one request and handle the answer; returns whether to send the next at once (else after a pause).

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, there is no space for the fetched records.
            StorageError: the local log failed, or the leader's log contradicts committed records.
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
            fetched = wire.read_fetch_response(
                await self._host.request(endpoint, request, FetchResponse, wire.FETCH_VERSION)
            )
            await buggify("raft: before an answer is taken")
        except LeaderChangedError:
            return True
        except (UnreachableError, RequestTimeoutError, UnsupportedRequestError, ProtocolError) as error:
            return self._request_failed(endpoint, error)
        self._lost_connection_to = None
        before = (node.leader_id, node.leader_epoch)
        self.handle_leader_info(fetched.leader_info)
        if fetched.leader_info.error:
            self._check_leader_denial(endpoint, fetched.leader_info)
            self._log_fetch_failure(
                endpoint, wire.error_name(fetched.leader_info.error), expected=fetched.leader_info.leader_id != NO_NODE
            )
            return (node.leader_id, node.leader_epoch) != before and node.leader_id != NO_NODE
        if not self._follows(leader_epoch):
            return True
        self._last_failure = ""
        node.leader_responded(self._clock.monotonic_ms())
        try:
            await self._apply_response(endpoint, fetched, leader_epoch)
        except ProtocolError as error:
            self._log_fetch_failure(endpoint, str(error), expected=False)
            return False
        return True

    def _check_leader_denial(self, endpoint: Endpoint, known: wire.LeaderInfo) -> None:
        """If the presumed leader itself denies that it leads this epoch, set the epoch's leader to unknown."""
        leader = self._host.leader()
        asked_leader = leader is not None and leader.endpoint == endpoint
        if asked_leader and known.leader_id == NO_NODE and known.leader_epoch == self._node.leader_epoch:
            self._node.leader_unreachable(self._clock.monotonic_ms())
            self._host.apply_ready(Ready())

    def _follows(self, leader_epoch: int) -> bool:
        """Whether this node still follows the leader of its request; that may change during an await."""
        return self._node.role is Role.FOLLOWER and self._node.leader_epoch == leader_epoch

    def _request_failed(self, endpoint: Endpoint, error: OdradekError) -> bool:
        """Handle a failed request; returns whether to retry at once: a lost connection is, a refused one is not."""
        leader = self._host.leader()
        is_leader = leader is not None and leader.endpoint == endpoint
        if is_leader and isinstance(error, RefusedError):
            self.leader_endpoint = None
            self._node.leader_unreachable(self._clock.monotonic_ms())
            self._host.apply_ready(Ready())
        elif is_leader and isinstance(error, UnreachableError) and self._lost_connection_to != endpoint:
            self._lost_connection_to = endpoint
            return True
        self._log_fetch_failure(endpoint, str(error), expected=False)
        return False

    def _log_fetch_failure(self, endpoint: Endpoint, reason: str, *, expected: bool) -> None:
        """Log a failure once, not every time it repeats."""
        failure = f"{endpoint} {reason}"
        if failure != self._last_failure and not expected:
            self._last_failure = failure
            peer = f"{endpoint[0]}:{endpoint[1]}"
            if reason == ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name:
                _log.warning(
                    "metadata fetch from a replica failed", peer=peer, reason=reason, hint=wire.CLUSTER_ACTION_HINT
                )
            else:
                _log.info("metadata fetch from a replica failed", peer=peer, reason=reason)

    async def _apply_response(self, endpoint: Endpoint, fetched: wire.FetchResult, leader_epoch: int) -> None:
        # Records count as soon as they have arrived: while they are written, this replica is not behind others.
        # A snapshot takes long to fetch, and a replica that waits for one is behind.
        if fetched.snapshot_id is not None:
            self._advance_leader_high_watermark(fetched.high_watermark)
        try:
            await self._apply(endpoint, fetched, leader_epoch)
        finally:
            self._advance_leader_high_watermark(fetched.high_watermark)

    def _advance_leader_high_watermark(self, high_watermark: int) -> None:
        self.leader_high_watermark = max(self.leader_high_watermark, high_watermark)

    async def _apply(self, endpoint: Endpoint, fetched: wire.FetchResult, leader_epoch: int) -> None:
        if fetched.snapshot_id is not None:
            await self._fetch_snapshot(endpoint, fetched.snapshot_id, leader_epoch)
            return
        storage = self._storage
        if fetched.diverging is not None:
            await self._host.durable()
            if self._follows(leader_epoch):
                end_offset = storage.diverges_at(fetched.diverging)
                _log.info("metadata log truncated", end_offset=end_offset, log_end_offset=storage.log.log_end_offset)
                self._host.written(storage.truncate_to(end_offset, self._node.high_watermark))
            return
        if fetched.records:
            try:
                self._host.written(storage.append_fetched(fetched.records, leader_epoch))
            except ApiError:
                # The parts of this node that follow the metadata, such as the broker, need not wait for disk space.
                self._host.committed(self._node.leader_committed(fetched.high_watermark))
                storage.publish_unwritten(fetched.high_watermark)
                raise
            await self._host.durable()
        # This holds also after a change of leader: what a leader has committed stays committed.
        self._host.committed(self._node.leader_committed(fetched.high_watermark))

    # -- snapshots --------------------------------------------------------------------------------------------------

    async def _fetch_snapshot(self, endpoint: Endpoint, snapshot_id: SnapshotId, leader_epoch: int) -> None:
        """Fetch a snapshot from the leader and restart the log behind it; stops if the leader changes."""
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
        """Fetch a snapshot file; durable on return. None if the leader changes or no longer has it. Raises OSError."""
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
        self._storage.install(snapshot_id, snapshot, self._node.high_watermark)
        self._host.written(True)
        self._host.committed(self._node.leader_committed(snapshot_id.end_offset))

    async def _fetch_chunk(
        self, endpoint: Endpoint, snapshot_id: SnapshotId, leader_epoch: int, position: int
    ) -> wire.Chunk | None:
        """Fetch one chunk; None if this leader no longer has the snapshot, or no longer leads."""
        request = wire.fetch_snapshot(
            self._me,
            self._cluster_id,
            leader_epoch=leader_epoch,
            snapshot_id=snapshot_id,
            position=position,
            max_bytes=self._config.fetch_snapshot_max_bytes,
        )
        try:
            chunk = wire.read_snapshot_chunk(await self._host.request(endpoint, request, FetchSnapshotResponse, 0))
        except LeaderChangedError:
            return None
        except (UnreachableError, RequestTimeoutError, UnsupportedRequestError) as error:
            self._request_failed(endpoint, error)
            return None
        if chunk.leader_info.error:
            self.handle_leader_info(chunk.leader_info)
            self._log_fetch_failure(endpoint, wire.error_name(chunk.leader_info.error), expected=False)
            return None
        self._node.leader_responded(self._clock.monotonic_ms())
        return chunk if self._follows(leader_epoch) else None
