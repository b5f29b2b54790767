"""The quorum's only IO: the metadata log's files, fsync, timers and requests. The driver does what the node decides.

A record takes this path: `append` assigns an offset and writes it. The sync task makes all appended records durable
with one fsync off the loop, while further appends gather for the next one. The node then computes the high watermark;
the driver publishes the committed records and wakes the callers that wait for them. Followers fetch what was written
(`fetch`); their next fetch acknowledges it. A node that does not lead fetches from its leader (`follower`).

The driver writes a snapshot, off the loop, when enough bytes or time have passed. Then a new segment begins, and
snapshots and segments beyond the limits are removed. Source: KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from odradek.common.backoff import Backoff
from odradek.common.buggify import buggify
from odradek.common.errors import ApiError, ConfigError, ErrorCode, StorageError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock, Disk
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.declare import Message as WireMessage
from odradek.protocol.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest
from odradek.protocol.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
from odradek.protocol.messages.describe_quorum_response import DescribeQuorumResponse
from odradek.protocol.messages.end_quorum_epoch_request import EndQuorumEpochRequest
from odradek.protocol.messages.end_quorum_epoch_response import EndQuorumEpochResponse
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.fetch_snapshot_request import FetchSnapshotRequest
from odradek.protocol.messages.fetch_snapshot_response import FetchSnapshotResponse
from odradek.protocol.messages.vote_request import VoteRequest
from odradek.protocol.messages.vote_response import VoteResponse
from odradek.raft.batches import Prepared, control_batch, pack, prepare
from odradek.raft.config import RaftConfig
from odradek.raft.follower import Follower
from odradek.raft.incoming import IncomingRequests
from odradek.raft.messages import Ready, VoteAnswered
from odradek.raft.metadata_log import MetadataLog
from odradek.raft.node import IDLE_TICK_MS, RaftNode
from odradek.raft.outgoing import MAX_BACKOFF_MS, Commits, OutgoingRequests
from odradek.raft.peers import QuorumPeers
from odradek.raft.publication import Publication
from odradek.raft.quorum_state import NO_NODE, ElectionState
from odradek.raft.roles import Role
from odradek.raft.snapshot import SnapshotId
from odradek.raft.snapshot_writer import SnapshotWriter
from odradek.raft.space import Space
from odradek.raft.storage import QuorumStorage
from odradek.raft.voter_changes import VoterChanges
from odradek.raft.voters import Endpoint, Leader, ReplicaKey, VoterSet

if TYPE_CHECKING:
    from random import Random

# How long a stopping leader waits for the voters to receive its resignation.
RESIGN_TIMEOUT_MS = 1000
# How often a replica checks whether it should send the leader a membership request.
VOTER_CHANGE_INTERVAL_MS = 500
_log = get_logger("raft.driver")
T = TypeVar("T")
M = TypeVar("M", bound=WireMessage)


class RaftDriver:
    """One replica of the metadata log. On a leader it is the log of the controller's runtime (`MachineLog`).

    `start` returns when the log is open; a node that is not the only voter then looks for the leader in the background.
    The node's controller listener must be open and serve the quorum's APIs before that: voters need it for an election.
    All callbacks run on the loop and must not block.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        random: Random,
        directory: Path,
        *,
        me: ReplicaKey,
        voters: VoterSet,
        cluster_id: str,
        config: RaftConfig,
        publisher: MetadataPublisher,
        peers: QuorumPeers | None = None,
        bootstrap: Sequence[Endpoint] = (),
        listener_name: str = "CONTROLLER",
        endpoints: Mapping[str, Endpoint] | None = None,
        on_elected: Callable[[int], None] = lambda leader_epoch: None,
        on_resigned: Callable[[], None] = lambda: None,
        on_leader_change: Callable[[Leader | None], None] = lambda leader: None,
        on_failed: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """
        Args:
            directory: `__cluster_metadata-0` in the metadata directory.
            voters: of a static quorum; voters recorded in the log or a snapshot take precedence.
            publisher: gets committed records, on the loop; `controller_id` of its image is the leader, -1 if unknown.
            peers: sends requests to other replicas; None for a voter alone.
            bootstrap: controller.quorum.bootstrap.servers as (host, port): more nodes that may know the leader.
            listener_name: the first of controller.listener.names: the listener at which to connect to a voter.
            endpoints: this node's own controller listeners by name, as others reach them; none on a node that is only a
                broker. A node with endpoints can be a voter; one without always stays an observer.
            on_elected: called with the leader epoch when this node becomes leader.
            on_resigned: called when this node stops leading, after callers that wait for a commit got NOT_CONTROLLER.
            on_leader_change: called with `leader()` after each change of it, on every node, leader included.
            on_failed: called once after the log failed: the node must stop.
        """
        self._disk = disk
        self._clock = clock
        self._random = random
        self._me = me
        self._cluster_id = cluster_id
        self._config = config
        self._publisher = publisher
        self.peers = peers
        self._listener_name = listener_name
        self._endpoints = dict(endpoints or {})
        self._bootstrap = tuple(bootstrap)
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._on_leader_change = on_leader_change
        self._on_failed = on_failed
        self.storage = QuorumStorage(disk, directory, config, publisher, voters)
        self._snapshots = SnapshotWriter(
            self.storage, disk=disk, clock=clock, sync_soon=self._sync_soon, on_failed=self._fail
        )
        self.node: RaftNode
        self._space: Space
        self._incoming: IncomingRequests
        self._follower: Follower
        self._outgoing: OutgoingRequests
        self.changes: VoterChanges
        self._commits = Commits()
        self._publication = Publication(self.storage, self._commits, self._fail)
        self._tasks: list[asyncio.Task[None]] = []
        self._init_signals()

    def _init_signals(self) -> None:
        self._dirty, self._idle = asyncio.Event(), asyncio.Event()
        self._news, self._leader_changed, self._tick_now = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._planned_ms = 0
        self._last_published_leader: Leader | None = None
        self._failure: BaseException | None = None
        self._stopping = False

    @property
    def log(self) -> MetadataLog:
        return self.storage.log

    async def start(self) -> None:
        """Open the log, replay its snapshot to the publisher, join the quorum. A voter alone leads on return.

        Raises:
            StorageError: the log, a snapshot or the quorum-state file is damaged.
            ConfigError: there are several voters, and `peers` is None.
        """
        state = self.storage.open()
        voters = self.storage.history.voters
        if len(voters) > 1 and self.peers is None:
            raise ConfigError([f"the quorum has the voters {voters.node_ids}; this node can only vote alone"])
        now_ms = self._clock.monotonic_ms()
        self._snapshots.begin()
        self.node = self._make_node(state)
        self._space = Space(
            self, self.node, self.storage, disk=self._disk, clock=self._clock, cluster_id=self._cluster_id
        )
        self._incoming = IncomingRequests(self.storage, self.node, self._cluster_id, self.leader)
        self._follower = Follower(
            self,
            self.node,
            self.storage,
            disk=self._disk,
            clock=self._clock,
            config=self._config,
            cluster_id=self._cluster_id,
            listener_name=self._listener_name,
            bootstrap=self._bootstrap,
            own_endpoints=tuple(self._endpoints.values()),
        )
        self._outgoing = OutgoingRequests(
            self.peers,
            self.node,
            clock=self._clock,
            random=self._random,
            config=self._config,
            cluster_id=self._cluster_id,
            listener_name=self._listener_name,
            endpoints=self._endpoints,
            handle_leader_info=self._follower.handle_leader_info,
            update_leader_endpoint=self._follower.update_leader_endpoint,
            apply_ready=self.apply_ready,
            on_failed=self._fail,
        )
        self.changes = VoterChanges(
            self,
            self.node,
            self.storage,
            clock=self._clock,
            cluster_id=self._cluster_id,
            listener_name=self._listener_name,
            endpoints=self._endpoints,
            auto_join=self._config.auto_join,
            timeout_ms=self._config.request_timeout_ms,
        )
        self._idle.set()
        steps = [self._sync(), self._tick()]
        if self.peers is not None:
            steps += [self._follow(), self._voter_change_loop(), self._space.watch(self._fail)]
        self._tasks = [asyncio.get_running_loop().create_task(step) for step in steps]
        self.apply_ready(self.node.start(now_ms))

    def _make_node(self, state: ElectionState) -> RaftNode:
        """Create the node from the log and the stored election state."""
        history = self.storage.history
        node = RaftNode(
            self._me,
            history.voters,
            state,
            lambda: self.storage.log_end,
            self._random,
            election_timeout_ms=self._config.election_timeout_ms,
            fetch_timeout_ms=self._config.fetch_timeout_ms,
            election_backoff_max_ms=self._config.election_backoff_max_ms,
        )
        node.removed_at = history.removed_at(self._me)
        return node

    async def stop(self) -> None:
        """Resign, flush and close; callers that wait for a commit get NOT_CONTROLLER."""
        self._stopping = True
        await self._snapshots.close()
        await self.resign()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._publication.close()
        await self._outgoing.close()
        if self._failure is None:
            await self._disk.run_blocking(self.log.flush)
            self.log.write_checkpoints()
        self._commits.fail(ApiError(ErrorCode.NOT_CONTROLLER, "the controller stops"))
        self._wake_fetches()
        self.log.close()

    async def resign(self) -> None:
        """Resign for good, so that the other voters need not wait for a timeout (KIP-595)."""
        if self._failure is None:
            ready = Ready()
            self.node.retire(self._clock.monotonic_ms(), ready)
            if ready.lost_leadership:
                self.apply_ready(ready)
        await self._outgoing.resigned(RESIGN_TIMEOUT_MS / 1000)

    @property
    def leads(self) -> bool:
        return self.node.role is Role.LEADER and self._failure is None

    @property
    def leader_epoch(self) -> int:
        return self.node.leader_epoch

    def leader(self) -> Leader | None:
        """The leader; None if unknown."""
        node_id = self.node.leader_id
        if node_id == NO_NODE or (node_id == self._me.node_id and self.node.role is not Role.LEADER):
            return None
        voter = self.node.voters.get(node_id)
        endpoint = voter.endpoints.get(self._listener_name) if voter is not None else None
        if node_id == self._me.node_id:
            endpoint = self._endpoints.get(self._listener_name, endpoint)
        elif self._follower.leader_endpoint is not None and self._follower.leader_endpoint[0] == node_id:
            endpoint = self._follower.leader_endpoint[1]
        return Leader(node_id, self.leader_epoch, endpoint)

    # -- the log beneath the controller's runtime -------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        """The log end offset (exclusive)."""
        return self.log.log_end_offset

    @property
    def committed_offset(self) -> int:
        """Exclusive: up to the high watermark, as far as this node has published its records."""
        return self._publication.offset

    @property
    def metadata_lag(self) -> int | None:
        """The number of records that the leader has committed and this node has not published.

        None if no leader answers.
        """
        if self.leads:
            return self.node.high_watermark - self._publication.offset
        known = self._follower.leader_high_watermark
        is_heard = known > 0 and not self.node.leader_timed_out(self._clock.monotonic_ms())
        return max(0, known - self._publication.offset) if is_heard else None

    def prepare(self, records: Sequence[WireMessage], *, atomic: bool) -> Generator[None, None, Prepared]:
        """Encode one operation's records at the finalized metadata.version; as `batches.prepare`."""
        return prepare(records, atomic=atomic, metadata_version=self._publisher.image.metadata_version)

    def append(self, groups: Sequence[Prepared]) -> int:
        """Append operations' records; operations share batches, an atomic one is never split. See `MachineLog`."""
        if not self.leads:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        first_offset, leader_epoch = self.end_offset, self.leader_epoch
        batches, decoded = pack(
            groups, base_offset=first_offset, leader_epoch=leader_epoch, now_ms=self._clock.now_ms()
        )
        end_offset = self._write(lambda: self.storage.append_own(batches, leader_epoch, decoded))
        assert end_offset == first_offset + len(decoded)
        self.written(False)
        return end_offset

    async def wait_committed(self, end_offset: int) -> None:
        """Return when all records below `end_offset` are committed and published. Raises what prevents it."""
        if self._failure is not None:
            raise self._failure
        if self._publication.offset >= end_offset:
            return
        if not self.leads:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this node leads no more")
        await self._commits.wait(end_offset)

    async def wait_committed_within(self, end_offset: int, timeout_ms: int) -> None:
        """As `wait_committed`; after `timeout_ms` raises ApiError REQUEST_TIMED_OUT; a later commit is possible."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.wait_committed(end_offset)
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"not committed within {timeout_ms} ms") from None

    async def read_all(self) -> AsyncIterator[Sequence[tuple[int, WireMessage]]]:
        """Yield the newest snapshot's records, then those of the log behind it up to its present end."""
        for records in self.storage.slices():
            yield records

    # -- what other replicas ask ------------------------------------------------------------------------------------

    def vote(self, request: VoteRequest) -> VoteResponse:
        """Answer Vote; a granted vote is durable before the answer. Raises StorageError."""
        ready, answer = self._incoming.vote(request, self._clock.monotonic_ms())
        self.apply_ready(ready)
        self._space.deny_unsynced_votes(answer)
        return answer

    def begin_quorum_epoch(self, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
        """Answer BeginQuorumEpoch. Raises StorageError."""
        ready, answer = self._incoming.begin_quorum_epoch(request, self._clock.monotonic_ms())
        self._follower.accept_begin_epoch_endpoints(request, answer)
        self.apply_ready(ready)
        return answer

    def end_quorum_epoch(self, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
        """Answer EndQuorumEpoch. Raises StorageError."""
        ready, answer = self._incoming.end_quorum_epoch(request, self._clock.monotonic_ms())
        self.apply_ready(ready)
        return answer

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Answer a replica's Fetch; if there is nothing new, wait for news for up to the request's max_wait_ms."""
        began_ms = self._clock.monotonic_ms()
        self._incoming.fetched(request, began_ms)
        self.committed(self.node.high_watermark)
        while True:
            answer, idle = self._incoming.fetch(request)
            left_ms = request.max_wait_ms - (self._clock.monotonic_ms() - began_ms)
            if not idle or left_ms <= 0 or self._stopping:
                return answer
            news = self._news
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1000):
                    await news.wait()

    def fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        """Answer FetchSnapshot."""
        return self._incoming.fetch_snapshot(request, self._clock.monotonic_ms())

    def describe(self) -> DescribeQuorumResponse:
        """Answer DescribeQuorum.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER if this node does not lead.
        """
        if not self.leads:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._incoming.describe(self._clock.now_ms(), self._clock.monotonic_ms())

    # -- doing what the node says -----------------------------------------------------------------------------------

    def apply_ready(self, ready: Ready) -> None:
        """Carry out the fields of `ready` in their order.

        Blocks for the fsync of the election state: elections are rare, and the node may serve nothing before it.

        Raises:
            StorageError: the election state could not be made durable; the node must send nothing.
        """
        try:
            self._space.persist(ready)
        except StorageError as error:
            self._fail(error)
            raise
        if ready.lost_leadership:
            self._commits.fail(ApiError(ErrorCode.NOT_CONTROLLER, "this node leads no more"))
            self._on_resigned()
        if ready.elected:
            self._begin_epoch(ready)
        for node_id, message in ready.messages:
            if not isinstance(message, VoteAnswered):  # VoteAnswered is the answer of a request
                self._outgoing.enqueue(node_id, message)
        self._publish_leader()
        if ready.elected:
            self._on_elected(self.leader_epoch)
        now_ms = self._clock.monotonic_ms()
        if now_ms + self.node.wait_ms(now_ms) < self._planned_ms:
            self._tick_now.set()

    def _begin_epoch(self, ready: Ready) -> None:
        try:
            self.append_control(self.storage.first_records(self._me.node_id, self.node.granting))
        except ApiError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            ready.elected, ready.messages = False, []  # the append failed, and this node resigns

    def append_control(self, records: Sequence[WireMessage]) -> int:
        """Append control records as the leader, in one batch; returns the end offset. Raises as `append`."""
        batch = control_batch(
            records, base_offset=self.end_offset, leader_epoch=self.leader_epoch, now_ms=self._clock.now_ms()
        )
        voters_changed = self._write(lambda: self.storage.append_control(batch))
        assert self.log.last_epoch == self.leader_epoch, "a leader appends at its own epoch"
        self.written(voters_changed)
        return self.end_offset

    def _write(self, write: Callable[[], T]) -> T:
        try:
            return write()
        except ApiError as error:
            raise self._space.refused(error) from None
        except StorageError as error:
            self._fail(error)
            raise

    def written(self, voters_changed: bool) -> None:
        """The log was appended to or truncated: sync it and wake the fetches that wait; the voters may have changed."""
        self._sync_soon()
        if voters_changed:
            history = self.storage.history
            self.node.voters_changed(history.voters, self._clock.monotonic_ms(), history.removed_at(self._me))
        self._wake_fetches()

    async def durable(self) -> None:
        """Return when all written records are durable and no sync is under way."""
        while not self._idle.is_set():
            await self._idle.wait()

    def committed(self, high_watermark: int) -> None:
        """Begin to publish the records below the high watermark (exclusive), and wake the callers that wait for one."""
        if self._publication.committed(high_watermark):
            self._wake_fetches()
        removed = self.leads and not self.node.is_voter and self.storage.history.voters_offset < high_watermark
        if removed:  # the removal of this leader is committed: its leadership ends (KIP-853)
            ready = Ready()
            self.node.resign(self._clock.monotonic_ms(), ready)
            self.apply_ready(ready)

    def _wake_fetches(self) -> None:
        """Wake the replicas whose Fetch waits."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _publish_leader(self) -> None:
        leader = self.leader()
        if leader == self._last_published_leader:
            return
        self._last_published_leader = leader
        _log.info("quorum leader", leader_id=leader.node_id if leader else NO_NODE, leader_epoch=self.leader_epoch)
        self._outgoing.cancel_vote_requests()
        self._leader_changed.set()
        self._wake_fetches()
        self._publisher.controller_changed(leader.node_id if leader else NO_NODE)
        self._on_leader_change(leader)

    async def request(self, endpoint: Endpoint, request: WireMessage, response: type[M], min_version: int) -> M:
        """Send a request; raises LeaderChangedError if the leader changes first, else as `QuorumPeers.send`."""
        return await self._outgoing.request(endpoint, request, response, min_version)

    # -- following, syncing, time -----------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Fetch from the leader; while there is none, look for one."""
        backoff = Backoff(self._config.retry_backoff_ms, MAX_BACKOFF_MS)
        while True:
            self._leader_changed.clear()
            go_on = False
            await buggify("raft: before a round of a follower")
            try:
                go_on = await self._follower.round()
            except Exception as error:
                if not isinstance(error, ApiError) or error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                    self._fail(error)
                    return
                self._space.on_disk_full()
            if go_on:
                backoff.reset()
                continue
            retry_ms = backoff.next_ms()
            pause_ms = retry_ms if self.node.role in (Role.FOLLOWER, Role.UNATTACHED) else IDLE_TICK_MS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1000):
                    await self._leader_changed.wait()

    async def _voter_change_loop(self) -> None:
        """Periodically ask the leader to add this replica as a voter, or to update its endpoints."""
        while True:
            await asyncio.sleep(VOTER_CHANGE_INTERVAL_MS / 1000)
            try:
                await self.changes.send_membership_request()
            except Exception as error:
                self._fail(error)
                return

    def call_soon(self, work: Callable[[], None]) -> None:
        """Call `work` after the caller has returned to the loop."""
        asyncio.get_running_loop().call_soon(work)

    async def pause(self, pause_ms: int) -> None:
        """Sleep for `pause_ms`."""
        await asyncio.sleep(pause_ms / 1000)

    async def send(self, endpoint: Endpoint, request: WireMessage, response: type[M], min_version: int) -> M:
        """Send a request, whether or not the leader changes; raises as `QuorumPeers.send`."""
        return await self._outgoing.send(endpoint, request, response, min_version)

    async def _sync(self) -> None:
        """Group commit: one fsync for all records appended during the last. Old files are removed between two syncs."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await buggify("raft: before an fsync")
            try:
                end_offset = self.log.log_end_offset
                await self._disk.run_blocking(self.log.begin_flush())
                self.log.mark_synced(end_offset)
                self.committed(self.node.log_synced(end_offset, self._clock.monotonic_ms()))
                self._snapshots.clean()
            except Exception as error:
                self._fail(error)
                return
            if not self._dirty.is_set():
                self._idle.set()
            self._snapshots.write_if_due()

    async def _tick(self) -> None:
        while True:
            now_ms = self._clock.monotonic_ms()
            wait_ms = self.node.wait_ms(now_ms)
            self._planned_ms = now_ms + wait_ms
            self._tick_now.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._tick_now.wait()
            late_ms, self._planned_ms = self._clock.monotonic_ms() - self._planned_ms, 0
            try:
                self.node.extend_deadlines_after_stall(late_ms)
                if not self._stopping:
                    self.apply_ready(self.node.tick(self._clock.monotonic_ms()))
            except Exception as error:
                self._fail(error)
                return
            if self._snapshots.is_due:
                self._sync_soon()

    def _sync_soon(self) -> None:
        self._idle.clear()
        self._dirty.set()

    async def write_snapshot(self) -> SnapshotId:
        """Write the committed state as a snapshot; soon after, a new segment begins and old files are removed."""
        return await self._snapshots.write()

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self._commits.fail(error)
            ready = Ready()  # the other voters need not wait for a timeout
            self.node.out_of_space(self._clock.monotonic_ms(), ready)
            for node_id, message in ready.messages:
                self._outgoing.enqueue(node_id, message)
            self._on_failed(error)
