"""The quorum's only IO: the metadata log's files, fsync, timers; it asks the node what to do, and does it.

Way of a record: `append` gives it an offset and writes it; the sync task makes all that was appended durable with one
fsync off the loop, while further appends gather for the next; the node then says how far the log is committed; what is
committed goes to the publisher, and who waits for it goes on.

A snapshot is written, off the loop, when enough bytes or time have passed; then a new segment begins, and snapshots and
segments that the limits no longer cover are removed. Source: KIP-595, KIP-630.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.common.errors import ApiError, ConfigError, ErrorCode, OdradekError, StorageError
from odradek.common.ports import Clock, Disk
from odradek.metadata.features import record_version
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages import describe_quorum_response as quorum_response
from odradek.protocol.messages.k_raft_version_record import KRaftVersionRecord
from odradek.protocol.messages.leader_change_message import LeaderChangeMessage
from odradek.protocol.messages.leader_change_message import Voter as ChangeVoter
from odradek.protocol.messages.voters_record import VotersRecord
from odradek.protocol.record_types import encode_metadata_record
from odradek.raft.batches import control_batch, data_batch
from odradek.raft.config import RaftConfig
from odradek.raft.metadata_log import MetadataLog
from odradek.raft.node import LogEnd, RaftNode, Ready, Role
from odradek.raft.peers import QuorumPeers
from odradek.raft.quorum_state import ElectionState, load_state, store_state
from odradek.raft.snapshot import (
    SnapshotId,
    encode_snapshot,
    read_snapshot,
    remove_partial_snapshots,
    snapshot_ids,
    write_snapshot,
)
from odradek.raft.voters import Endpoint, Leader, ReplicaKey, Voter, VoterSet

if TYPE_CHECKING:
    from random import Random

# Kafka's limit for one batch of the metadata log.
MAX_BATCH_BYTES = 8 * 1024 * 1024
TICK_MS = 1000
RECORDS_PER_SLICE = 1000

Prepared = tuple[Sequence[Any], Sequence[bytes], bool]


class RaftDriver:
    """One replica of the metadata log. As a leader it is the log beneath the controller's runtime (`MachineLog`).

    `start` returns when the log is open; a node that is not a voter alone then looks for the leader in the background.
    Its controller listener must be open, and serve the quorum's APIs, before there is a leader: no voter could else
    elect one. All callbacks run on the loop and must not block.
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
            voters: of a static quorum; those recorded in the log or a snapshot count for more.
            publisher: gets committed records, on the loop; its image's `controller_id` is the leader, -1 where unknown.
            peers: how other replicas are asked; None for a voter alone.
            bootstrap: controller.quorum.bootstrap.servers as (host, port): who, beside the voters, may know the leader.
            listener_name: the first of controller.listener.names: which of a voter's endpoints to dial.
            endpoints: this node's own controller listeners by name, as others dial them; none on a node that is only a
                broker. A node with endpoints can be a voter; one without always stays an observer.
            on_elected: told the epoch when this node begins to lead.
            on_resigned: this node leads no more; what waits for a commit gets NOT_CONTROLLER before.
            on_leader_change: told `leader()` whenever it changed, on every node, leader included.
            on_failed: told once when the log is lost: the node must stop.
        """
        self._disk = disk
        self._clock = clock
        self._random = random
        self._directory = directory
        self._me = me
        self._voters = voters
        self._cluster_id = cluster_id
        self._config = config
        self._publisher = publisher
        self._peers = peers
        self._bootstrap = tuple(bootstrap)
        self._listener_name = listener_name
        self._endpoints = dict(endpoints or {})
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._on_leader_change = on_leader_change
        self._on_failed = on_failed
        self._kraft_version = 0
        self._voters_record: VotersRecord | None = None
        self._snapshots: list[SnapshotId] = []
        self._held: deque[tuple[int, int, list[tuple[int, Any]]]] = deque()
        self._published_offset = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._dirty = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None
        self._bytes_since_snapshot = 0
        self._snapshot_ms = 0
        self._snapshot_task: asyncio.Task[None] | None = None
        self._clean_due = False
        self.log: MetadataLog
        self.node: RaftNode

    async def start(self) -> None:
        """Open the log, replay its snapshot to the publisher, take part in the quorum. A voter alone leads on return.

        Raises:
            StorageError: the log, a snapshot or the quorum-state file is damaged.
            ConfigError: a quorum that this node cannot take part in.
        """
        state = self._open()
        if len(self._voters) > 1:
            raise ConfigError(
                [f"the quorum has {len(self._voters)} voters ({self._voters.node_ids}); this node can only vote alone"]
            )
        now_ms = self._clock.monotonic_ms()
        self._snapshot_ms = now_ms
        self.node = RaftNode(
            self._me,
            self._voters,
            state,
            lambda: LogEnd(self.log.last_epoch, self.log.log_end_offset),
            self._random,
            election_timeout_ms=self._config.election_timeout_ms,
            fetch_timeout_ms=self._config.fetch_timeout_ms,
        )
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._sync()), loop.create_task(self._tick())]
        self._obey(self.node.start(now_ms))

    async def stop(self) -> None:
        """Make everything durable and close; who waits gets NOT_CONTROLLER."""
        if self._snapshot_task is not None:
            await asyncio.gather(self._snapshot_task, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._failure is None:
            await self._disk.off_loop(self.log.flush)
            self.log.write_checkpoints()
        self._fail_waiters(ApiError(ErrorCode.NOT_CONTROLLER, "the controller stops"))
        self.log.close()

    @property
    def leads(self) -> bool:
        return self.node.role is Role.LEADER and self._failure is None

    @property
    def leader_epoch(self) -> int:
        return self.node.leader_epoch

    def leader(self) -> Leader | None:
        """Who leads, None where that is unknown."""
        node_id = self.node.leader_id
        if node_id < 0:
            return None
        voter = self._voters.get(node_id)
        endpoint = voter.endpoints.get(self._listener_name) if voter is not None else None
        return Leader(node_id, self.leader_epoch, endpoint)

    # The log beneath the controller's runtime.

    @property
    def end_offset(self) -> int:
        """Exclusive."""
        return self.log.log_end_offset

    @property
    def committed_offset(self) -> int:
        """The high watermark (exclusive)."""
        return self.node.high_watermark

    def prepare(self, records: Sequence[Any], *, atomic: bool) -> Prepared:
        """Encode one operation's records at the finalized metadata.version.

        Raises:
            ApiError: MESSAGE_TOO_LARGE for an atomic operation above 8 MiB.
        """
        level = self._publisher.image.metadata_version
        for record in records:
            if type(record).__name__ == "FeatureLevelRecord" and record.name == "metadata.version":
                level = record.feature_level
        values = [encode_metadata_record(record, record_version(record, level)) for record in records]
        if atomic and sum(map(len, values)) + 16 * len(values) > MAX_BATCH_BYTES:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, "one request changes more metadata than fits into one batch")
        return records, values, atomic

    def append(self, groups: Sequence[Prepared]) -> int:
        """Write operations' records, several to a batch, those of an atomic one never in two; see `MachineLog`."""
        if not self.leads:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        now_ms = self._clock.now_ms()
        offset = first_offset = self.end_offset
        batches: list[bytes] = []
        values: list[bytes] = []
        size = 0
        decoded: list[tuple[int, Any]] = []

        def seal() -> None:
            nonlocal values, size
            if values:
                base_offset = offset - len(values)
                batches.append(
                    data_batch(values, base_offset=base_offset, leader_epoch=self.leader_epoch, now_ms=now_ms)
                )
                values, size = [], 0

        for records, encoded, atomic in groups:
            group_bytes = sum(map(len, encoded)) + 16 * len(encoded)
            if atomic and size + group_bytes > MAX_BATCH_BYTES:
                seal()
            for record, value in zip(records, encoded, strict=True):
                if size + len(value) > MAX_BATCH_BYTES:
                    seal()
                values.append(value)
                size += len(value) + 16
                decoded.append((offset, record))
                offset += 1
        seal()
        self._bytes_since_snapshot += sum(map(len, batches))
        end_offset = self._write(batches)
        assert end_offset == first_offset + len(decoded)
        self._held.append((end_offset - 1, self.leader_epoch, decoded))
        return end_offset

    async def wait_committed(self, end_offset: int) -> None:
        """Return when all below `end_offset` is committed. Raises what made that impossible."""
        if self._failure is not None:
            raise self._failure
        if self.node.high_watermark >= end_offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((end_offset, future))
        await future

    async def read_all(self) -> AsyncIterator[Sequence[tuple[int, Any]]]:
        """The newest snapshot's records, then those of the log behind it up to its present end."""
        end_offset = self.end_offset
        from_offset = 0
        if self._snapshots:
            newest = self._snapshots[-1]
            from_offset = newest.end_offset
            records = read_snapshot(self._disk, self._directory / newest.file_name).records
            for start in range(0, len(records), RECORDS_PER_SLICE):
                yield [(from_offset - 1, record) for record in records[start : start + RECORDS_PER_SLICE]]
        collected: list[tuple[int, Any]] = []
        for batch in self.log.batches(from_offset):
            if batch.base_offset >= end_offset:
                break
            if not batch.control:
                collected.extend(item for item in batch.records if item[0] >= from_offset)
            if len(collected) >= RECORDS_PER_SLICE:
                yield collected
                collected = []
        if collected:
            yield collected

    def describe(self) -> quorum_response.DescribeQuorumResponse:
        """What DescribeQuorum answers (KIP-595, 836, 853).

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER where this node does not lead.
        """
        if not self.leads:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        voters: list[quorum_response.ReplicaState] = []
        observers: list[quorum_response.ReplicaState] = []
        wall_ms, now_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        for key, known in sorted(self.node.replicas.items()):
            mine = key == self.node.me
            state = quorum_response.ReplicaState(
                replica_id=key.node_id,
                replica_directory_id=key.directory_id,
                log_end_offset=self.end_offset if mine else known.end_offset,
                last_fetch_timestamp=wall_ms if mine else _wall(known.last_fetch_ms, wall_ms, now_ms),
                last_caught_up_timestamp=wall_ms if mine else _wall(known.last_caught_up_ms, wall_ms, now_ms),
            )
            (voters if self._voters.is_voter(key) else observers).append(state)
        partition = quorum_response.PartitionData(
            partition_index=0,
            error_message=None,
            leader_id=self.node.leader_id,
            leader_epoch=self.leader_epoch,
            high_watermark=self.node.high_watermark,
            current_voters=voters,
            observers=observers,
        )
        nodes = [
            quorum_response.Node(
                node_id=voter.key.node_id,
                listeners=[
                    quorum_response.Listener(name=name, host=host, port=port)
                    for name, (host, port) in voter.endpoints.items()
                ],
            )
            for voter in self._voters
        ]
        topic = quorum_response.TopicData(topic_name="__cluster_metadata", partitions=[partition])
        return quorum_response.DescribeQuorumResponse(error_message=None, topics=[topic], nodes=nodes)

    def _open(self) -> ElectionState:
        """Open files, publish the newest snapshot, decode what lies behind it."""
        self._disk.make_dirs(self._directory)
        remove_partial_snapshots(self._disk, self._directory)
        self.log = MetadataLog(self._disk, self._directory)
        self._snapshots = snapshot_ids(self._disk, self._directory)
        from_offset = 0
        if self._snapshots:
            newest = self._snapshots[-1]
            from_offset = newest.end_offset
            snapshot = read_snapshot(self._disk, self._directory / newest.file_name)
            self._take_quorum(snapshot.kraft_version, snapshot.voters)
            if newest.end_offset > 0:
                self._publisher.load_snapshot(snapshot.records, newest.end_offset - 1, newest.leader_epoch)
            if self.log.log_end_offset < from_offset:
                self.log.restart_at(from_offset)
        if self.log.log_start_offset > from_offset:
            raise StorageError(
                self._directory,
                f"the metadata log begins at {self.log.log_start_offset} and no snapshot covers what was before",
            )
        for batch in self.log.batches(from_offset):
            if batch.control:
                for _, record in batch.records:
                    if isinstance(record, KRaftVersionRecord):
                        self._take_quorum(record, None)
                    elif isinstance(record, VotersRecord):
                        self._take_quorum(None, record)
            else:
                self._held.append((batch.last_offset, batch.leader_epoch, list(batch.records)))
        self._published_offset = from_offset
        self._bytes_since_snapshot = self.log.bytes_from(from_offset)
        state = load_state(self._disk, self._directory) or ElectionState()
        if state.leader_epoch < self.log.last_epoch:
            state = ElectionState(self.log.last_epoch)
        return state

    def _take_quorum(self, kraft_version: KRaftVersionRecord | None, voters: VotersRecord | None) -> None:
        if kraft_version is not None:
            self._kraft_version = kraft_version.k_raft_version
        if voters is not None:
            self._voters_record = voters
            self._voters = VoterSet(
                Voter(
                    ReplicaKey(voter.voter_id, voter.voter_directory_id),
                    {endpoint.name: (endpoint.host, endpoint.port) for endpoint in voter.endpoints},
                    voter.k_raft_version_feature.min_supported_version,
                    voter.k_raft_version_feature.max_supported_version,
                )
                for voter in voters.voters
            )

    def _obey(self, ready: Ready) -> None:
        """Do what the node says, in its order. Blocks for the state's fsync: elections are rare, and nothing may be
        served before it."""
        if ready.persist is not None:
            store_state(
                self._disk,
                self._directory,
                ready.persist,
                kraft_version=self._kraft_version,
                cluster_id=self._cluster_id,
                voters=self._voters.node_ids,
            )
        if ready.elected:
            voters = [
                ChangeVoter(voter_id=voter.key.node_id, voter_directory_id=voter.key.directory_id)
                for voter in self._voters
            ]
            change = LeaderChangeMessage(
                version=1 if self._kraft_version > 0 else 0,
                leader_id=self._me.node_id,
                voters=voters,
                granting_voters=[voter for voter in voters if voter.voter_id == self._me.node_id],
            )
            if change.version == 0:
                for voter in voters:
                    voter.voter_directory_id = UUID(int=0)
            batch = control_batch(
                [change],
                base_offset=self.end_offset,
                leader_epoch=self.leader_epoch,
                now_ms=self._clock.now_ms(),
            )
            self._write([batch])
            self._publisher.controller_changed(self._me.node_id)
            self._on_leader_change(self.leader())
            self._on_elected(self.leader_epoch)

    def _write(self, batches: Sequence[bytes]) -> int:
        try:
            end_offset = self.log.append(batches)
        except StorageError as error:
            self._fail(error)
            raise
        self._dirty.set()
        return end_offset

    async def _sync(self) -> None:
        """Group commit: one fsync for all that was appended while the one before ran. Old files go between two."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                end_offset = self.log.log_end_offset
                await self._disk.off_loop(self.log.begin_flush())
                self.log.note_synced(end_offset)
                self._advance(self.node.log_synced(end_offset, self._clock.monotonic_ms()))
                if self._clean_due:
                    self._clean_due = False
                    self.log.roll()
                    self._clean()
            except (OSError, OdradekError, ValueError) as error:
                self._fail(error)
                return
            if self._snapshot_due():
                self._snapshot_task = asyncio.get_running_loop().create_task(self._snapshot())

    def _advance(self, high_watermark: int) -> None:
        records: list[tuple[int, Any]] = []
        leader_epoch = 0
        while self._held and self._held[0][0] < high_watermark:
            last_offset, batch_epoch, batch = self._held.popleft()
            if records and batch_epoch != leader_epoch:
                self._publisher.committed(records, leader_epoch)
                records = []
            leader_epoch = batch_epoch
            records.extend(batch)
            self._published_offset = last_offset + 1
        if records:
            self._publisher.committed(records, leader_epoch)
        waiting, self._waiters = self._waiters, []
        for end_offset, future in waiting:
            if end_offset > high_watermark:
                self._waiters.append((end_offset, future))
            elif not future.done():
                future.set_result(None)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            try:
                self._obey(self.node.tick(self._clock.monotonic_ms()))
            except (OSError, OdradekError) as error:
                self._fail(error)
                return
            if self._snapshot_due():
                self._dirty.set()

    def _snapshot_due(self) -> bool:
        if self._snapshot_task is not None and not self._snapshot_task.done():
            return False
        interval_ms = self._config.snapshot_interval_ms
        due = self._bytes_since_snapshot >= self._config.snapshot_bytes or (
            interval_ms > 0 and self._clock.monotonic_ms() - self._snapshot_ms >= interval_ms
        )
        newest = self._snapshots[-1].end_offset if self._snapshots else 0
        return due and self._publisher.image.offset + 1 > newest

    async def _snapshot(self) -> None:
        try:
            await self.write_snapshot()
        except (OSError, OdradekError, ValueError) as error:
            self._fail(error)

    async def write_snapshot(self) -> SnapshotId:
        """Write what is committed as a snapshot; soon after, a new segment begins and old files go."""
        image = self._publisher.image
        snapshot_id = SnapshotId(image.offset + 1, image.leader_epoch)
        self._bytes_since_snapshot = 0
        self._snapshot_ms = self._clock.monotonic_ms()
        now_ms = self._clock.now_ms()

        def write() -> None:
            data = encode_snapshot(
                image.records(),
                metadata_version=image.metadata_version,
                leader_epoch=image.leader_epoch,
                now_ms=now_ms,
                last_timestamp_ms=now_ms,
                kraft_version=self._kraft_version,
                voters=self._voters_record,
            )
            write_snapshot(self._disk, self._directory, snapshot_id, data)

        await self._disk.off_loop(write)
        self._snapshots = snapshot_ids(self._disk, self._directory)
        self._clean_due = True
        self._dirty.set()
        return snapshot_id

    def _clean(self) -> None:
        """Remove snapshots beyond the limits, oldest first, never the newest; and segments before the oldest left."""
        sizes = {known: self._disk.size(self._directory / known.file_name) for known in self._snapshots}
        now_ms = self._clock.now_ms()
        while len(self._snapshots) > 1:
            oldest = self._snapshots[0]
            age_ms = now_ms - self._disk.modified_ms(self._directory / oldest.file_name)
            too_large = self.log.size_bytes + sum(sizes.values()) > self._config.retention_bytes
            if oldest.end_offset > 0 and not too_large and age_ms <= self._config.retention_ms:
                break
            self._disk.remove(self._directory / oldest.file_name)
            del sizes[oldest], self._snapshots[0]
            self.log.delete_before(self._snapshots[0].end_offset)
        if self._snapshots and self.log.size_bytes + sum(sizes.values()) > self._config.retention_bytes:
            self.log.delete_before(self._snapshots[-1].end_offset)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self._fail_waiters(error)
            self._on_failed(error)

    def _fail_waiters(self, error: BaseException) -> None:
        waiting, self._waiters = self._waiters, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)


def _wall(then_ms: int, wall_ms: int, now_ms: int) -> int:
    """A monotonic time as wall-clock ms; -1 stays."""
    return -1 if then_ms < 0 else wall_ms - (now_ms - then_ms)
