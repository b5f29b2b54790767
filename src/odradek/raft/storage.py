"""The state of a replica of the metadata log: log, snapshots, voters by offset, and records that are not committed.

It decides and writes, without a clock or a loop; the driver calls it and syncs what was written. Records are `held`
from the write until the high watermark passes them; then the publisher gets them. Truncated records were never
published: this is asserted. Source: KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from odradek.common.errors import ApiError, ProtocolError, StorageError
from odradek.common.ports import Disk, is_out_of_descriptors, make_dirs_durably, probe_space
from odradek.metadata.image import MetadataImage
from odradek.metadata.publisher import MetadataPublisher, first_part
from odradek.protocol.declare import Message
from odradek.protocol.messages.k_raft_version_record import KRaftVersionRecord
from odradek.protocol.messages.leader_change_message import LeaderChangeMessage
from odradek.protocol.messages.leader_change_message import Voter as ChangeVoter
from odradek.raft.batches import DecodedBatch, decode_batches
from odradek.raft.config import RaftConfig
from odradek.raft.messages import LogEnd
from odradek.raft.metadata_log import MetadataLog
from odradek.raft.quorum_state import ElectionState, load_state, store_state
from odradek.raft.snapshot import (
    Snapshot,
    SnapshotId,
    encode_snapshot,
    read_snapshot,
    remove_partial_snapshots,
    snapshot_ids,
    write_snapshot,
)
from odradek.raft.voter_history import VoterHistory, record_of
from odradek.raft.voters import VoterSet
from odradek.record.reader import read_batches

RECORDS_PER_SLICE = 1000
# How many records are published per iteration of the loop, about 15 us each.
RECORDS_PER_TURN = 1000
# The size of a trial write, which must succeed before a replica whose disk was full may lead again.
PROBE_FILE, PROBE_BYTES = "space.tmp", 256 * 1024


class UnpublishedBatch(NamedTuple):
    """The records of a batch, or of its rest, each with its offset, that are not published."""

    last_offset: int
    leader_epoch: int
    records: Sequence[tuple[int, Message]]


@dataclass(frozen=True, slots=True)
class Diverging:
    """Two logs agree at most up to `end_offset` (exclusive), at which the leader's `epoch` ends."""

    epoch: int
    end_offset: int


class QuorumStorage:
    """The files of one replica, and their contents in memory."""

    def __init__(
        self, disk: Disk, directory: Path, config: RaftConfig, publisher: MetadataPublisher, voters: VoterSet
    ) -> None:
        """`voters`: of a static quorum; voters recorded in the log or a snapshot take precedence."""
        self._disk = disk
        self.directory = directory
        self._config = config
        self._publisher = publisher
        self._unpublished: deque[UnpublishedBatch] = deque()
        self._image_before_batch: MetadataImage | None = None  # while the publisher has a part of a batch
        self.history = VoterHistory(voters)
        self.snapshots: list[SnapshotId] = []
        self._unwritten: list[DecodedBatch] = []
        self.published_offset = 0
        self.bytes_since_snapshot = 0
        # The number of open `slices` iterators: files that they have yet to read must stay.
        self._readers = 0
        self.log: MetadataLog

    # -- opening ----------------------------------------------------------------------------------------------------

    def open(self) -> ElectionState:
        """Open the files, publish the newest snapshot, decode the records behind it; returns the election state.

        Raises:
            StorageError: the log, a snapshot or the quorum-state file is damaged.
        """
        make_dirs_durably(self._disk, self.directory)
        remove_partial_snapshots(self._disk, self.directory)
        self._disk.remove(self.directory / PROBE_FILE)
        self.snapshots = snapshot_ids(self._disk, self.directory)
        newest = self.snapshots[-1] if self.snapshots else None
        # Before the log: the log may begin behind the snapshot, so the snapshot must be intact.
        snapshot = None if newest is None else read_snapshot(self._disk, self.directory / newest.file_name)
        from_offset = 0 if newest is None else newest.end_offset
        self.log = MetadataLog(self._disk, self.directory, covered_offset=from_offset)
        if newest is not None and snapshot is not None:
            known_epoch = self.log.epoch_of(from_offset - 1)
            if self.log.log_end_offset < from_offset or known_epoch not in (None, newest.leader_epoch):
                self.log.restart_at(from_offset)  # the log ends before the snapshot, or is of another history
            self._load_snapshot(newest, snapshot)
        if self.log.log_start_offset > from_offset:
            raise StorageError(
                self.directory,
                f"the metadata log begins at {self.log.log_start_offset} and no snapshot covers what was before",
            )
        for batch in self.log.batches(from_offset):
            self._queue(batch)
        self.bytes_since_snapshot = self.log.bytes_from(from_offset)
        state = load_state(self._disk, self.directory) or ElectionState()
        last_epoch = self.log_end.last_epoch
        return state if state.leader_epoch >= last_epoch else ElectionState(last_epoch)

    def _load_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """Publish a snapshot, unless its records were published before, and forget the records that it covers."""
        self.history.load(snapshot.kraft_version, snapshot.voters)
        self._publisher.kraft_version = self.history.kraft_version
        self._unpublished.clear()
        if snapshot_id.end_offset > self.published_offset:
            self._publisher.load_snapshot(snapshot.records, snapshot_id.end_offset - 1, snapshot_id.leader_epoch)
            self.published_offset = snapshot_id.end_offset
            self._image_before_batch = None

    def _queue(self, batch: DecodedBatch) -> bool:
        """Hold a batch for the publisher; returns whether it changes the voters."""
        if not batch.control:
            fresh = [item for item in batch.records if item[0] >= self.published_offset]
            self._queue_records(batch.last_offset, batch.leader_epoch, fresh)
            return False
        changed = [self.history.replay(offset, record) for offset, record in batch.records].count(True) > 0
        self._publisher.kraft_version = self.history.kraft_version
        return changed

    def _queue_records(self, last_offset: int, leader_epoch: int, records: Sequence[tuple[int, Message]]) -> None:
        held = self._unpublished[-1] if self._unpublished else UnpublishedBatch(-1, -1, ())
        assert held.last_offset < last_offset and held.leader_epoch <= leader_epoch, "held in the log's order"
        self._unpublished.append(UnpublishedBatch(last_offset, leader_epoch, records))

    def _queue_all(self, batches: Iterable[DecodedBatch]) -> bool:
        return [self._queue(batch) for batch in batches].count(True) > 0

    def store_state(self, state: ElectionState, cluster_id: str) -> None:
        """Store the election state durably. Blocks."""
        store_state(
            self._disk,
            self.directory,
            state,
            kraft_version=self.history.kraft_version,
            cluster_id=cluster_id,
            voters=self.history.voters.node_ids,
        )

    def probe(self) -> None:
        """Do a trial write, and remove its file. Blocks. Raises OSError."""
        probe_space(self._disk, self.directory / PROBE_FILE, PROBE_BYTES)

    # -- writing ----------------------------------------------------------------------------------------------------

    @property
    def _kept_offset(self) -> int:
        """The end (exclusive) of the published records of this log; `publish_unwritten` may have published more."""
        return min(self.published_offset, self.log.log_end_offset)

    @property
    def log_end(self) -> LogEnd:
        """Epoch of the last record and log end offset; of an empty log behind a snapshot, the snapshot's."""
        end_offset = self.log.log_end_offset
        last_epoch = self.log.last_epoch
        if self.snapshots and self.snapshots[-1].end_offset == end_offset:
            last_epoch = max(last_epoch, self.snapshots[-1].leader_epoch)
        return LogEnd(last_epoch, end_offset)

    def append_own(self, batches: Sequence[bytes], leader_epoch: int, decoded: Sequence[tuple[int, Message]]) -> int:
        """Append a leader's batches; returns the new log end offset. Raises StorageError."""
        self.bytes_since_snapshot += sum(map(len, batches))
        end_offset = self.log.append(batches)
        if decoded:
            assert self.log.last_epoch == leader_epoch, "a leader appends at its own epoch"
            assert decoded[-1][0] == end_offset - 1, "what is replayed is what was written"
            self._queue_records(decoded[-1][0], leader_epoch, decoded)
        return end_offset

    def append_control(self, batch: bytes) -> bool:
        """Append a leader's batch of control records; returns whether it changes the voters. Raises StorageError."""
        self.log.append([batch])
        return self._queue_all(decode_batches(batch))

    def append_fetched(self, data: bytes, leader_epoch: int) -> bool:
        """Append batches fetched from the leader of `leader_epoch`; returns whether they change the voters.

        Raises:
            ProtocolError: they do not continue the log, are damaged, or of a later epoch than the leader's; nothing
                was written.
            ApiError: KAFKA_STORAGE_ERROR, the disk is full; see `publish_unwritten`.
            StorageError: the disk failed.
        """
        batches: list[bytes] = []
        end_offset, last_epoch = self.log.log_end_offset, self.log.last_epoch
        for position, header in read_batches(data):  # an incomplete last batch is fetched again
            epoch = header.partition_leader_epoch
            if header.base_offset != end_offset or not last_epoch <= epoch <= leader_epoch:
                raise ProtocolError(
                    f"a batch of epoch {epoch} at offset {header.base_offset} came where {end_offset} of "
                    f"{last_epoch} to {leader_epoch} was due"
                )
            batches.append(data[position : position + header.size_bytes])
            end_offset, last_epoch = header.last_offset + 1, epoch
        try:
            decoded = list(decode_batches(b"".join(batches)))
        except ValueError as error:
            raise ProtocolError(f"what the leader sent is not metadata: {error}") from None
        try:
            self.log.append(batches)
        except ApiError:
            self._unwritten = decoded
            raise
        assert self.log.log_end_offset == end_offset, "the log ends where the leader's batches end"
        self.bytes_since_snapshot += sum(map(len, batches))
        return self._queue_all(decoded)

    def truncate_to(self, end_offset: int, high_watermark: int) -> bool:
        """Remove all records at and above `end_offset`, which diverge; returns whether that changes the voters.

        Raises:
            StorageError: committed records would be removed: this replica or the leader has lost durable records.
        """
        floor = max(high_watermark, self._kept_offset)
        if end_offset < floor:
            raise StorageError(
                self.directory, f"the leader asks for truncation to {end_offset}; {floor} is committed and read"
            )
        self.log.truncate_to(end_offset)
        while self._unpublished and self._unpublished[-1].last_offset >= end_offset:
            self._unpublished.pop()
        assert not self._unpublished or self._unpublished[-1].last_offset < self.log.log_end_offset, (
            "what was cut off is never published"
        )
        changed = self.history.truncate_to(end_offset)
        self._publisher.kraft_version = self.history.kraft_version
        return changed

    def diverges_at(self, found: Diverging) -> int:
        """The offset to truncate to, from the leader's epoch and its end offset in the leader's log."""
        epoch, end_offset = self.end_of_epoch(found.epoch)
        return min(end_offset, found.end_offset) if epoch == found.epoch else end_offset

    def publish(self, high_watermark: int) -> bool:
        """Pass committed records (below `high_watermark`, exclusive) to the publisher; returns whether those were all.

        One call passes on `RECORDS_PER_TURN` records, at most three times as many. If a longer batch has records of
        several topics or partitions, there are images with some of them and not yet the others (`first_part`).
        """
        end_offset = self.log.log_end_offset
        assert high_watermark <= end_offset, f"{high_watermark} is committed of a log that ends at {end_offset}"
        left = RECORDS_PER_TURN
        while self._unpublished and self._unpublished[0].last_offset < high_watermark:
            if left <= 0:
                return False
            left -= self._publish_some(high_watermark)
        return True

    def _publish_some(self, high_watermark: int) -> int:
        """Publish the next batches of one epoch, or a part of a long batch; returns the number of records."""
        last_offset, leader_epoch, records = self._unpublished.popleft()
        part, may_end = first_part(records, RECORDS_PER_TURN)
        if len(part) < len(records):
            self._unpublished.appendleft(UnpublishedBatch(last_offset, leader_epoch, records[len(part) :]))
            self._image_before_batch = self._image_of_batches
            self.published_offset = max(self.published_offset, part[-1][0] + 1)
            if may_end:
                self._publisher.committed(part, leader_epoch, is_part=True)
            else:
                self._publisher.replay_part(part)
            return len(part)
        together = list(part)
        while self._unpublished and self._unpublished[0].last_offset < high_watermark:
            following = self._unpublished[0]
            if following.leader_epoch != leader_epoch or len(together) + len(following.records) > RECORDS_PER_TURN:
                break
            self._unpublished.popleft()
            last_offset = following.last_offset
            together += following.records
        self.published_offset = max(self.published_offset, last_offset + 1)
        self._publisher.committed(together, leader_epoch)
        self._image_before_batch = None
        return len(together)

    @property
    def _image_of_batches(self) -> MetadataImage:
        """The newest image that ends with a batch, and so may be a snapshot."""
        return self._image_before_batch or self._publisher.image

    def publish_unwritten(self, high_watermark: int) -> None:
        """Publish committed records of the leader's last answer that could not be written for lack of space.

        They are fetched again until they are written, and published once, after all written records.
        """
        unwritten, self._unwritten = self._unwritten, []
        if self._unpublished:
            return
        for batch in unwritten:
            if batch.last_offset >= high_watermark:
                return
            fresh = [] if batch.control else [item for item in batch.records if item[0] >= self.published_offset]
            if fresh:
                self._publisher.committed(fresh, batch.leader_epoch)
                self.published_offset = batch.last_offset + 1

    # -- reading ----------------------------------------------------------------------------------------------------

    def check_fetch(self, fetch_offset: int, last_fetched_epoch: int) -> Diverging | SnapshotId | None:
        """The answer to a replica whose log ends at `fetch_offset` in `last_fetched_epoch`; None: send records."""
        start_offset = self.log.log_start_offset
        if fetch_offset == 0 and start_offset == 0:
            return None
        if self.snapshots:
            earliest = self.snapshots[0]
            at_start = fetch_offset == start_offset and start_offset > 0
            if (
                fetch_offset < start_offset
                or (at_start and last_fetched_epoch != self._epoch_at_start())
                or last_fetched_epoch < earliest.leader_epoch
            ):
                return self.snapshots[-1]
        epoch, end_offset = self.end_of_epoch(last_fetched_epoch)
        if epoch != last_fetched_epoch or end_offset < fetch_offset:
            return Diverging(epoch, end_offset)
        return None

    def _epoch_at_start(self) -> int:
        """The epoch of the last record before the log start offset, from its snapshot."""
        found = [known.leader_epoch for known in self.snapshots if known.end_offset == self.log.log_start_offset]
        return found[0] if found else -1

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(largest epoch up to `leader_epoch`, its end offset exclusive) of log and snapshot; (0, 0) if none."""
        epoch, end_offset = self.log.end_offset_for_epoch(leader_epoch)
        if epoch >= 0:
            return epoch, end_offset
        start_epoch = self._epoch_at_start()
        if 0 <= start_epoch <= leader_epoch:
            return start_epoch, self.log.log_start_offset
        return 0, 0

    def _read_newest(self) -> tuple[int, Sequence[Message]] | None:
        """The end offset and the records of the newest snapshot; None while no file descriptor is free."""
        newest = self.snapshots[-1]
        try:
            return newest.end_offset, read_snapshot(self._disk, self.directory / newest.file_name).records
        except OSError as error:
            if is_out_of_descriptors(error):
                return None
            raise

    def slices(self) -> Iterator[Sequence[tuple[int, Message]]]:
        """Yield the newest snapshot's records, then those of the log behind it up to its present end.

        `clean` removes nothing until the last slice is read, or the iterator closed.

        An empty slice means that no file can be opened at present.
        """
        self._readers += 1
        try:
            yield from self._slices()
        finally:
            self._readers -= 1

    def _slices(self) -> Iterator[Sequence[tuple[int, Message]]]:
        end_offset = self.log.log_end_offset
        from_offset = 0
        if self.snapshots:
            while (snapshot := self._read_newest()) is None:
                yield []
            from_offset, records = snapshot
            for start in range(0, len(records), RECORDS_PER_SLICE):
                yield [(from_offset - 1, record) for record in records[start : start + RECORDS_PER_SLICE]]
        collected: list[tuple[int, Message]] = []
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

    def read_snapshot_piece(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes]:
        """(size of a snapshot's file, up to `max_bytes` from `position` on). Raises OSError."""
        file = self._disk.open(self.directory / snapshot_id.file_name, read_only=True)
        try:
            size = file.size()
            return size, file.read_at(position, max_bytes) if 0 <= position < size else b""
        finally:
            file.close()

    # -- snapshots --------------------------------------------------------------------------------------------------

    def snapshot_writer(self, now_ms: int) -> tuple[SnapshotId, Callable[[], None]]:
        """Prepare a snapshot of the published state, on the loop: its id, and the blocking function that writes it."""
        image = self._image_of_batches
        snapshot_id = SnapshotId(image.offset + 1, image.leader_epoch)
        kraft_version, voters = self.history.at(snapshot_id.end_offset)
        assert snapshot_id.end_offset <= self.published_offset, "a snapshot has what is committed alone"
        assert not self.snapshots or snapshot_id >= self.snapshots[-1], f"{snapshot_id} after {self.snapshots[-1]}"
        self.bytes_since_snapshot = 0

        def write() -> None:
            data = encode_snapshot(
                image.records(),
                metadata_version=image.metadata_version,
                leader_epoch=image.leader_epoch,
                now_ms=now_ms,
                last_timestamp_ms=now_ms,
                kraft_version=kraft_version,
                voters=record_of(voters) if kraft_version > 0 else None,
            )
            write_snapshot(self._disk, self.directory, snapshot_id, data)

        return snapshot_id, write

    def snapshot_written(self) -> None:
        """Update the list of snapshots in the directory."""
        self.snapshots = snapshot_ids(self._disk, self.directory)

    def install(self, snapshot_id: SnapshotId, snapshot: Snapshot, high_watermark: int) -> None:
        """Replace the log and the state by a fetched snapshot, which is durable in the directory.

        Raises:
            StorageError: the snapshot is older than the committed records.
            OSError: there is no space or file descriptor for a new segment. The snapshot was removed again, and the
                log's records below its end offset are unchanged.
        """
        kept_offset = max(self._kept_offset, high_watermark)
        if snapshot_id.end_offset < kept_offset:
            raise StorageError(
                self.directory,
                f"the leader sent a snapshot of offset {snapshot_id.end_offset}; {kept_offset} was committed here",
            )
        try:
            self.log.restart_at(snapshot_id.end_offset)
        except OSError:
            self._disk.remove(self.directory / snapshot_id.file_name)  # the log does not reach this snapshot
            raise
        self.snapshot_written()
        for older in self.snapshots[:]:
            if older != snapshot_id:
                self._disk.remove(self.directory / older.file_name)
                self.snapshots.remove(older)
        self._load_snapshot(snapshot_id, snapshot)
        self.bytes_since_snapshot = 0

    def clean(self, now_ms: int) -> None:
        """Begin a new segment.

        Remove snapshots beyond the limits, oldest first, never the newest, and the segments before the oldest that
        remains. While `slices` are open nothing is removed until the next snapshot.
        """
        self.log.roll()
        if self._readers:
            return
        snapshots = self.snapshots
        sizes = {known: self._disk.size(self.directory / known.file_name) for known in snapshots}
        while len(snapshots) > 1:
            oldest = snapshots[0]
            age_ms = now_ms - self._disk.modified_ms(self.directory / oldest.file_name)
            too_large = self.log.size_bytes + sum(sizes.values()) > self._config.retention_bytes
            if oldest.end_offset > 0 and not too_large and age_ms <= self._config.retention_ms:
                break
            self._disk.remove(self.directory / oldest.file_name)
            del sizes[oldest], snapshots[0]
            self.log.delete_before(snapshots[0].end_offset)
        if snapshots and self.log.size_bytes + sum(sizes.values()) > self._config.retention_bytes:
            self.log.delete_before(snapshots[-1].end_offset)
        if snapshots:
            assert self.log.log_start_offset <= snapshots[-1].end_offset, "a snapshot covers what the log lacks"
            self.history.truncate_old_entries(snapshots[0].end_offset)

    def snapshot_due(self, ms_since_snapshot: int) -> bool:
        """Whether enough bytes or time have passed for a snapshot, and there are new records for it."""
        interval_ms = self._config.snapshot_interval_ms
        due = self.bytes_since_snapshot >= self._config.snapshot_bytes or 0 < interval_ms <= ms_since_snapshot
        newest = self.snapshots[-1].end_offset if self.snapshots else 0
        return due and self._image_of_batches.offset + 1 > newest

    def first_records(self, leader_id: int, granting: Collection[int]) -> list[Message]:
        """The records of an epoch's first batch: the leader, its granting voters and, once, the quorum's voters."""
        voters = [ChangeVoter(voter_id=voter.key.node_id) for voter in self.history.voters]
        # Version 1 has directory ids too, but Kafka 4.3 decodes this record as version 0, whatever its version field.
        change = LeaderChangeMessage(
            version=0,
            leader_id=leader_id,
            voters=voters,
            granting_voters=[voter for voter in voters if voter.voter_id in granting],
        )
        return [change, *self.first_quorum_records()]

    def first_quorum_records(self) -> list[Message]:
        """The records of the quorum's version and voters for a log without them; empty if the log has them.

        The first leader of a dynamic quorum appends them for replicas that start empty: until then only the files of
        `storage format` have them.
        """
        only_formatted = not self.snapshots or self.snapshots[-1].end_offset == 0
        if self.history.kraft_version == 0 or self.history.voters_offset >= 0 or not only_formatted:
            return []
        version = KRaftVersionRecord(version=0, k_raft_version=self.history.kraft_version)
        return [version, record_of(self.history.voters)]
