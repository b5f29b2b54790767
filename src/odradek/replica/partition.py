"""One partition on this broker: its log, its leadership, its in-sync replicas, and the requests that wait for offsets.

Between the Produce handler and the log, a partition checks leadership and min.insync.replicas, appends, advances the
high watermark and completes waiting requests. All methods run to completion on the broker's loop. Log offsets are read
once per call: a consumer must never see bytes beyond the high watermark that it got (KAFKA-9835).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode
from odradek.log.config import NEVER
from odradek.log.follower_append import append_as_follower
from odradek.log.log import MutableBatch
from odradek.log.producer_state import NOT_REQUIRED, Verification
from odradek.log.search import aborted_transactions
from odradek.metadata.model import NO_LEADER
from odradek.record.batch import BatchHeader, total_bytes
from odradek.replica.followers import warn_too_few_in_sync
from odradek.replica.in_sync import InSync, IsrCounts
from odradek.replica.isr import effective_min_in_sync, high_watermark
from odradek.replica.partition_read import PartitionRead
from odradek.replica.promotion import end_mirror
from odradek.replica.throttle import NOT_THROTTLED, Throttled
from odradek.replica.unreplicated import UnreplicatedBatches
from odradek.replica.waiters import DataWait, OffsetWaiters

if TYPE_CHECKING:
    from odradek.common.ports import Buffer
    from odradek.log.append_info import AppendInfo
    from odradek.log.log import Log
    from odradek.record.validation import BatchRules

CONSUMER = -1
READ_COMMITTED = 1


@dataclass(slots=True, eq=False, repr=False)
class Partition:
    """A replica of one partition, leader or follower.

    Attributes:
        request_flush: called when flush.messages requires a flush of the log; `flushed` follows.
        request_isr: called when the controller must be asked for `in_sync.pending`; `handle_alter_partition` follows.
        monotonic_ms: the clock that measures how long followers lag.
        isr_counts: the broker's counters of ISR shrinks and expansions.
        is_isr_eligible: whether a broker (id, epoch) is registered, unfenced and not stopping; -1: any epoch.
        is_isolated: another broker may lead by now, see `isolation`.
        is_mirror: its records come from another cluster, with that one's leader epochs (ADR 0018).
        first_own_epoch: of a topic that was a mirror, under which it ended to be one (ADR 0020); else 0.
        own_from: transactions that began under earlier leader epochs are of its source; -1 is `first_own_epoch`.
        is_failing_back: it may have records that its source has not, and is truncated before any comes (ADR 0021).
        repair: the repair of damaged batches that runs; readers of these wait for it.
        replicated_waits, durable_waits, data_waits: the waits for acknowledgements, flushes and data.
    """

    topic: str
    partition_id: int
    topic_id: UUID
    log: Log
    _: KW_ONLY
    broker_id: int
    request_flush: Callable[[Partition], None] = lambda partition: None
    request_isr: Callable[[Partition], None] = lambda partition: None
    monotonic_ms: Callable[[], int] = lambda: 0
    isr_counts: InitVar[IsrCounts | None] = None
    is_isr_eligible: Callable[[int, int], bool] = lambda broker_id, broker_epoch: True
    leader_id: int = field(default=NO_LEADER, init=False)
    leader_epoch: int = field(default=-1, init=False)
    partition_epoch: int = field(default=-1, init=False)
    leader_epoch_start_offset: int = field(default=0, init=False)
    isr: tuple[int, ...] = field(default=(), init=False)
    assigned_replicas: tuple[int, ...] = field(default=(), init=False)
    in_sync: InSync = field(init=False)
    unreplicated: UnreplicatedBatches = field(default_factory=UnreplicatedBatches, init=False)
    replicated_waits: OffsetWaiters = field(default_factory=OffsetWaiters, init=False)
    durable_waits: OffsetWaiters = field(default_factory=OffsetWaiters, init=False)
    data_waits: dict[DataWait, None] = field(default_factory=dict, init=False)
    closed: bool = field(default=False, init=False)
    is_isolated: bool = field(default=False, init=False)
    is_mirror: bool = field(default=False, init=False)
    first_own_epoch: int = field(default=0, init=False)
    own_from: int = field(default=-1, init=False)
    is_failing_back: bool = field(default=False, init=False)
    repair: asyncio.Future[None] | None = field(default=None, init=False)
    throttled: Throttled = field(default=NOT_THROTTLED, init=False)
    warned_epoch: int = field(default=-1, init=False)
    # The topic's settings.
    rules: BatchRules = field(init=False)
    codec: int | None = field(init=False)
    min_in_sync_replicas: int = field(init=False)
    _flush_messages: int = field(init=False)

    def __post_init__(self, isr_counts: IsrCounts | None) -> None:
        self.in_sync = InSync(self.broker_id, isr_counts)
        self._apply_config()

    @property
    def name(self) -> str:
        """The name in Kafka's form, `topic-0`, which is also the directory's name."""
        return f"{self.topic}-{self.partition_id}"

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.broker_id and not self.closed

    def config_changed(self) -> None:
        """Apply the log's new settings."""
        self._apply_config()
        if self.is_leader:
            self.advance_high_watermark()

    def _apply_config(self) -> None:
        config = self.log.config
        self.rules, self.codec = config.batch_rules(), config.codec
        self.min_in_sync_replicas, self._flush_messages = config.min_insync_replicas, config.flush_messages

    def switch_log(self, log: Log) -> None:
        """Replace the log by the one in another log directory, which has the same records and offsets."""
        self.log = log
        self.durable_waits.advance_to(log.recovery_point)

    def close(self) -> None:
        """End all waits: the partition has left this broker, as it was deleted or moved, or its disk failed."""
        self.closed = True
        self.end_waits(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is no longer here"))

    def check_leader(self, current_leader_epoch: int = -1) -> None:
        """Check that this broker leads the partition in the client's leader epoch.

        Args:
            current_leader_epoch: the leader epoch that the client knows; -1 skips the check of epochs (KIP-320).
        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER; FENCED_LEADER_EPOCH where the client's epoch is older,
                UNKNOWN_LEADER_EPOCH where it is newer.
        """
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.broker_id} does not lead {self.name}")

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Check as `check_leader` does, for readers that a follower may serve too (KIP-392)."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"{self.name} is at leader epoch {self.leader_epoch}")
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self.name} is only at leader epoch {self.leader_epoch}")
        if self.closed:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is no longer here")

    def follows(self, leader_epoch: int) -> bool:
        """Whether this replica follows a leader of that epoch."""
        follows = self.leader_id not in (self.broker_id, NO_LEADER) and not self.closed
        return follows and self.leader_epoch == leader_epoch

    @property
    def is_being_repaired(self) -> bool:
        return self.repair is not None

    def wait_repaired(self) -> asyncio.Future[None] | None:
        """A future that ends with the repair, whether it succeeds or not; None where none runs."""
        return None if self.repair is None else asyncio.shield(self.repair)

    # Writing

    def append_as_leader(
        self,
        batches: Sequence[MutableBatch | bytes],
        headers: Sequence[BatchHeader],
        *,
        required_acks: int,
        now_ms: int,
        verification: Verification | None = NOT_REQUIRED,
    ) -> AppendInfo:
        """Append validated batches, and advance the high watermark where no follower must acknowledge them.

        Args:
            batches, headers, verification: as `log.Log.append_as_leader` takes them.
            required_acks: -1 asks for min.insync.replicas before anything is written.
            now_ms: wall clock.
        Returns:
            The assigned offsets. With acks=-1 the caller answers once `wait_replicated(last_offset + 1)` ends.
        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, and the errors of `Log.append_as_leader`.
            StorageError: the log's directory must go offline.
        """
        before = self.log.log_end_offset
        try:
            self._check_writable(required_acks, now_ms)
            info = self.log.append_as_leader(
                batches, headers, leader_epoch=self.leader_epoch, now_ms=now_ms, verification=verification
            )
        except ApiError as error:
            self.log.producers.record_refused(headers, error.code)
            raise
        end = self.log.log_end_offset
        if end > before:
            self._after_append(end, total_bytes(headers))
        return info

    def append_mirrored(self, records: Buffer, *, now_ms: int) -> None:
        """Append batches from a mirror's source, with their offsets and epochs; raises as `append_as_follower`."""
        before = self.log.log_end_offset
        append_as_follower(self.log, records, now_ms=now_ms, leader_epoch=self.leader_epoch)
        if self.log.log_end_offset > before:
            self._after_append(self.log.log_end_offset, len(records))

    def append_control(self, batch: bytes, *, now_ms: int) -> None:
        """Append a control batch of the leader's own, even to a read-only log; raises as `Log.append_as_leader`."""
        header = BatchHeader.read(batch)
        self.log.append_as_leader([batch], [header], leader_epoch=self.leader_epoch, now_ms=now_ms)
        self._after_append(self.log.log_end_offset, header.size_bytes)

    def _check_writable(self, required_acks: int, now_ms: int) -> None:
        if not self.is_leader or self.is_isolated:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.broker_id} does not lead {self.name}")
        if self.is_mirror:
            if not 0 < self.first_own_epoch <= self.leader_epoch:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"{self.topic} is a mirror of another cluster's: it is read-only"
                )
            end_mirror(self, now_ms)  # the disk was full when it was to end
        if required_acks == -1 and len(self.isr) < self.min_in_sync_replicas and self.too_few_in_sync():
            warn_too_few_in_sync(self, ErrorCode.NOT_ENOUGH_REPLICAS)
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.name} has {len(self.isr)} in-sync replicas, min.insync.replicas is {self.min_in_sync_replicas}",
            )

    def wait_replicated(self, end_offset: int) -> asyncio.Future[None] | None:
        """A future that completes when all in-sync replicas have the records below `end_offset`; None if they have.

        The future fails with ApiError(NOT_LEADER_OR_FOLLOWER) where the leadership ends first.
        """
        if self.log.high_watermark >= end_offset:
            return None
        return self.replicated_waits.wait(end_offset)

    def wait_durable(self, end_offset: int) -> asyncio.Future[None] | None:
        """A future of the flush that flush.messages requires before the acknowledgement; None where none is required.

        The future fails with ApiError(NOT_LEADER_OR_FOLLOWER) where the partition leaves this broker first.
        """
        if not self.flush_is_due or self.log.recovery_point >= end_offset:
            return None
        self.request_flush(self)
        return self.durable_waits.wait(end_offset)

    @property
    def flush_is_due(self) -> bool:
        """Whether flush.messages records or more are not durable; later ones are acknowledged after a flush only."""
        return self._flush_messages < NEVER and self.log.unflushed_count >= self._flush_messages

    def flushed(self) -> None:
        """Complete the waits for a flush, which has advanced the log's recovery point."""
        self.durable_waits.advance_to(self.log.recovery_point)
        if self.is_leader:
            self.advance_high_watermark()

    def too_few_in_sync(self) -> bool:
        """Whether the in-sync set is smaller than min.insync.replicas, or than all replicas where these are fewer."""
        return len(self.isr) < effective_min_in_sync(self.min_in_sync_replicas, len(self.assigned_replicas))

    def offsets_are_known(self) -> bool:
        """Whether the high watermark has reached this leader epoch's start; until then it may lag (KIP-207)."""
        return self.log.high_watermark >= self.leader_epoch_start_offset

    def _after_append(self, end_offset: int, size_bytes: int) -> None:
        alone = self.isr == (self.broker_id,) and self.in_sync.pending is None
        alone = alone and (self.min_in_sync_replicas <= 1 or not self.too_few_in_sync())
        if alone and not self.unreplicated and not self.flush_is_due:
            # Most appends to a partition of one replica: there is nothing to compute.
            self.set_high_watermark(end_offset, size_bytes)
        else:
            self.unreplicated.add(end_offset, size_bytes)
            self.advance_high_watermark()
        for wait in tuple(self.data_waits):
            if wait.replica:
                wait.bytes_available(size_bytes)

    def advance_high_watermark(self) -> None:
        """Advance the high watermark to the lowest end of all replicas in the ISR or in a requested change of it."""
        old = self.log.high_watermark
        own_end = self.log.log_end_offset
        if self.flush_is_due:
            own_end = self.log.recovery_point  # flush.messages: what is not durable here counts for nothing
            self.request_flush(self)
        new = high_watermark(
            current=old,
            leader_id=self.broker_id,
            leader_end_offset=own_end,
            followers=self.in_sync.followers,
            isr=self.isr,
            maximal_isr=self.in_sync.maximal_isr,
            min_in_sync_replicas=effective_min_in_sync(self.min_in_sync_replicas, len(self.assigned_replicas)),
        )
        if new > old:
            assert new <= own_end and self.in_sync.have_all_below(new), "the watermark passes no in-sync replica's end"
            self.set_high_watermark(new, max(1, self.unreplicated.pop_below(new)))

    def set_high_watermark(self, offset: int, gained_bytes: int) -> None:
        """Set the high watermark and wake the requests that wait for it; `gained_bytes` are new to consumers."""
        stable_before = self.log.last_stable_offset if self.data_waits else 0
        self.log.update_high_watermark(offset)
        if len(self.replicated_waits):
            self.replicated_waits.advance_to(offset)
        if self.data_waits:
            stable = self.log.last_stable_offset > stable_before
            for wait in tuple(self.data_waits):
                if wait.replica:
                    if wait.wakes_on_high_watermark:
                        wait.wake()
                elif stable or not wait.committed_only:
                    wait.bytes_available(gained_bytes)

    def end_waits(self, error: ApiError) -> None:
        """Fail the waits for acknowledgements and flushes with `error`, and wake the readers."""
        self.replicated_waits.fail(error)
        self.durable_waits.fail(error)
        self.wake_readers()

    def wake_readers(self) -> None:
        """Wake all waiting readers, so that they check the partition's leadership again."""
        for wait in tuple(self.data_waits):
            wait.wake()

    # Reading

    def read(
        self,
        fetch_offset: int,
        *,
        max_bytes: int,
        at_least_one: bool,
        replica_id: int = CONSUMER,
        isolation_level: int = 0,
        last_fetched_epoch: int = -1,
    ) -> PartitionRead:
        """Whole batches from `fetch_offset` (inclusive) to the end that the reader may see.

        Args:
            max_bytes: the limit of this partition in this response.
            at_least_one: the first batch is returned even where it is larger than `max_bytes` (KIP-74).
            replica_id: a follower reads to the log's end, CONSUMER to the high watermark.
            isolation_level: READ_COMMITTED reads to the last stable offset, and gets the aborted transactions.
            last_fetched_epoch: leader epoch of the reader's last record; -1 skips the check for divergence (KIP-595).
        Raises:
            ApiError: OFFSET_OUT_OF_RANGE; OFFSET_NOT_AVAILABLE where a follower's log ends before it (KIP-392).
        Concurrency: the log's offsets are read once, before the bytes.
        """
        log = self.log
        start, end, watermark = log.log_start_offset, log.log_end_offset, log.high_watermark
        stable = log.last_stable_offset
        read = PartitionRead(watermark, stable, start)
        read.diverging = self.diverges(fetch_offset, last_fetched_epoch)
        if read.diverging is not None:
            return read
        if not start <= fetch_offset <= end:
            raise self._out_of_range(fetch_offset, start, end, replica_id)
        upper = end if replica_id >= 0 else stable if isolation_level == READ_COMMITTED else watermark
        if fetch_offset < upper:
            result = log.read(fetch_offset, max_bytes=max_bytes, upper_offset=upper, at_least_one=at_least_one)
            read.chunks, read.size_bytes = result.chunks, result.size_bytes
        if isolation_level == READ_COMMITTED and replica_id < 0:
            read.aborted_transactions = list(aborted_transactions(log, fetch_offset, upper)) if read.size_bytes else []
        return read

    def _out_of_range(self, fetch_offset: int, start: int, end: int, replica_id: int) -> ApiError:
        if fetch_offset > end and replica_id < 0 and not self.is_leader:
            # The leader may have the offset: with this error the consumer retries and does not reset its position.
            return ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{self.name} has come to {end} only, and follows")
        return ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name} holds offsets {start} to {end - 1}, not {fetch_offset}"
        )

    def diverges(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) at which the reader's log diverges from this one; None where it does not (KIP-595).

        Args:
            last_fetched_epoch: leader epoch of the reader's last record; -1 skips the check.
        Raises:
            ApiError: OFFSET_OUT_OF_RANGE, where this log has no epoch as old as that one.
        """
        if last_fetched_epoch < 0:
            return None
        epoch, end = self.log.end_offset_for_epoch(last_fetched_epoch)
        if end < 0:
            latest = self.log.epochs.latest_epoch
            if self.is_failing_back and latest >= 0:
                # A leader that was cut notes no epoch of its own: what comes after its last one goes there, too.
                return latest, self.log.log_end_offset
            if self.is_failing_back:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name} was cut to nothing")
            if self.is_mirror and fetch_offset == self.log.log_end_offset:
                # A mirror's leader notes no epoch of its own: a log that began where the source does may know none yet.
                return None
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name} knows nothing of leader epoch {last_fetched_epoch}"
            )
        return (epoch, end) if epoch < last_fetched_epoch or end < fetch_offset else None

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(largest epoch not above the asked one, its end offset exclusive); (-1, -1) where there is none (KIP-279).

        A leader of the only replica, or of a mirror, does not note its epoch before its first record. Clients know such
        epochs from ListOffsets and Metadata: they end at the end of the log.
        """
        if leader_epoch == self.leader_epoch:
            return leader_epoch, self.log.log_end_offset
        latest = self.log.epochs.latest_epoch
        if 0 <= leader_epoch < self.leader_epoch and leader_epoch > latest:
            return leader_epoch if latest < 0 else latest, self.log.log_end_offset
        return self.log.end_offset_for_epoch(leader_epoch)
