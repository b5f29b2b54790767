"""The state of one partition of a mirror: its fetch from the source's leader, and the handling of the response.

Pure. Batches are appended as a follower appends them (ADR 0018). The response also has the source's leader, its log
start offset and the offset of a divergence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode
from odradek.link.measures import NO_REASON, Reason, Why, why_of_code
from odradek.log.epoch_cache import UNDEFINED_EPOCH
from odradek.protocol.messages.fetch_request import FetchPartition
from odradek.protocol.records_field import received
from odradek.record.batch import read_size
from odradek.record.builder import build_empty_batch

if TYPE_CHECKING:
    from odradek.link.failback import Cut
    from odradek.protocol.messages.fetch_response import PartitionData
    from odradek.replica.partition import Partition

PARTITION_MAX_BYTES = 1024 * 1024
# After these errors the source's metadata is refreshed.
_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


@dataclass(slots=True, eq=False)
class MirroredPartition:
    """A partition of a mirror whose leader is this broker.

    Attributes:
        topic_id, source_topic: the id and the name of its topic at the source.
        source_leader, source_epoch: the leader at the source and its epoch; -1 if unknown.
        source_end: the last known high watermark of the source.
        source_start: the last known log start offset of the source.
        reason: why no records are fetched.
        stopped: whether an administrator must act.
        is_paused: whether an administrator has paused it.
        is_out_of_range: whether the log end offset here is not in the source's log; its offsets are requested then.
        caught_up_ms: when the mirror last had all records of the source; initially the time of the start.
        bytes: of the fetched batches.
        skipped: offsets that the source deleted before they were fetched, except those below the mirror's first record.
        begins_at: the source's log start offset, if it was above the log end here: the source then has no epoch to
            compare; -1 if this never happened.
        cut: the cut of its log in a failback.
    """

    partition: Partition
    topic_id: UUID
    source_topic: str
    source_leader: int = -1
    source_epoch: int = -1
    source_end: int = -1
    reason: Reason = NO_REASON
    stopped: bool = field(default=False)
    is_paused: bool = False
    is_out_of_range: bool = False
    caught_up_ms: int = 0
    bytes: int = 0
    skipped: int = 0
    begins_at: int = -1
    source_start: int = -1
    cut: Cut | None = None

    @property
    def source_key(self) -> tuple[str, int]:
        """The topic's name at the source, and the partition."""
        return self.source_topic, self.partition.partition_id

    @property
    def is_ready(self) -> bool:
        """Whether it may be fetched: the leader epoch here is not below that of any batch of the source."""
        partition = self.partition
        leads = partition.is_leader and partition.is_mirror
        is_kept = self.is_idle or self.is_out_of_range
        return leads and not is_kept and self.source_leader >= 0 and self.source_epoch <= partition.leader_epoch

    @property
    def is_idle(self) -> bool:
        """Whether an administrator has paused it or must act, so that its source's end offset comes by no fetch."""
        return self.is_paused or self.stopped

    def lacks_leader_for(self, duration_ms: int, now_ms: int) -> bool:
        """Whether the source had no leader, or none that responded, for `duration_ms`. `now_ms` is the wall clock."""
        is_sought = self.reason.why in (Why.MOVING, Why.UNREACHABLE)
        return is_sought and now_ms - self.reason.since_ms >= duration_ms

    @property
    def next_offset(self) -> int:
        """The offset to fetch from."""
        return max(self.partition.log.log_end_offset, self.begins_at)

    def fetch_partition(self) -> FetchPartition:
        """The partition's part of the next Fetch request."""
        log = self.partition.log
        fetched = UNDEFINED_EPOCH if log.log_end_offset <= self.begins_at else log.epochs.latest_epoch
        return FetchPartition(
            partition=self.partition.partition_id,
            current_leader_epoch=self.source_epoch,
            fetch_offset=self.next_offset,
            last_fetched_epoch=fetched,
            partition_max_bytes=PARTITION_MAX_BYTES,
        )

    def stop(self, why: Why, text: str, now_ms: int) -> None:
        """Stop mirroring until an administrator acts."""
        self.stopped, self.reason = True, self.reason.followed_by(why, text, now_ms)

    def wait(self, why: Why, text: str, now_ms: int) -> None:
        """Refresh the source's metadata before the next fetch."""
        self.source_leader, self.reason = -1, self.reason.followed_by(why, text, now_ms)

    def paused(self) -> MirroredPartition:
        """A paused copy. Responses to earlier fetches are ignored, and the reason is reset."""
        return MirroredPartition(
            self.partition,
            self.topic_id,
            self.source_topic,
            source_leader=self.source_leader,
            source_epoch=self.source_epoch,
            source_end=self.source_end,
            is_paused=True,
            caught_up_ms=self.caught_up_ms,
            bytes=self.bytes,
            skipped=self.skipped,
            cut=self.cut,
        )

    def recreated(self, text: str, now_ms: int, *, is_paused: bool) -> MirroredPartition:
        """A stopped copy: the source has recreated the topic, and its end offset is not requested either."""
        stopped = self.paused()
        stopped.is_paused, stopped.source_leader, stopped.reason = is_paused, -1, self.reason
        stopped.stop(Why.RECREATED, text, now_ms)
        return stopped

    def update_source_end(self, source_end: int, now_ms: int) -> None:
        """Record the end offset of the source's log."""
        self.source_end = source_end
        if self.partition.log.log_end_offset >= source_end:
            self.caught_up_ms = now_ms

    def locate(self, start: int, end: int, now_ms: int) -> None:
        """Handle a log end offset outside the source's log [start, end): continue at `start` if it is above it.

        Args:
            now_ms: wall clock.
        """
        own_end = self.partition.log.log_end_offset
        if own_end <= start != self.begins_at:
            self.begins_at = start
            return
        text = f"the source's log is from {start} to {end}, ours ends at {own_end}"
        if own_end > end:
            self.wait(Why.DIVERGED, f"{text}: the source has lost records", now_ms)
        else:
            self.wait(Why.REFUSED, text, now_ms)

    def process_partition_data(self, answer: PartitionData, asked_offset: int, now_ms: int) -> bool:
        """Append the records, and follow the source's log start offset and high watermark.

        Args:
            asked_offset: the fetch offset of the request.
            now_ms: wall clock.
        Returns:
            Whether the source has no such offset: call `locate` with the offsets of its log.
        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER, CORRUPT_MESSAGE. StorageError.
        """
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return True
        if answer.error_code:
            self._refused(answer.error_code, now_ms)
            return False
        parts_at = answer.diverging_epoch
        if parts_at.end_offset >= 0:
            self.stop(
                Why.DIVERGED,
                f"the source's history is another one: its epoch {parts_at.epoch} ends at {parts_at.end_offset}, "
                f"ours is at {self.partition.log.log_end_offset}",
                now_ms,
            )
            return False
        partition, log = self.partition, self.partition.log
        if self.next_offset != asked_offset:
            return False
        if not partition.is_leader or partition.is_isolated or not partition.is_mirror:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} is not a mirror that is led here")
        records = received(answer.records)
        if log.log_end_offset < asked_offset and (records or answer.high_watermark == asked_offset):
            if log.log_end_offset > 0 or self.source_end >= 0:  # else it begins where the source does
                self.skipped += asked_offset - log.log_end_offset
            self._skip_to(read_size(records)[0] if records else asked_offset, now_ms)
        if records:
            partition.append_mirrored(records, now_ms=now_ms)
            self.bytes += len(records)
        self.reason = NO_REASON
        self.update_source_end(answer.high_watermark, now_ms)
        self.source_start = answer.log_start_offset
        self.follow_start()
        return False

    def follow_start(self) -> None:
        """Delete what the source has deleted, as far as it is on all in-sync replicas. Raises StorageError."""
        log = self.partition.log
        # A leader of the source that crashed may not know any more what was deleted before.
        start = min(max(self.source_start, self.begins_at), log.high_watermark)
        if start > log.log_start_offset:
            log.advance_log_start(start)

    def _skip_to(self, offset: int, now_ms: int) -> None:
        """Advance our log to that end, as the source has deleted the records before.

        An empty batch takes the last offset, as compaction leaves one behind. Followers get there as they do with any
        record, and the watermark with them: were the leader's log alone to begin there, the watermark would go back
        with the next leader. It has no leader epoch: the one of the deleted records is unknown, and so is, if no
        record was fetched yet, that of the next ones.
        """
        if self.partition.log.log_end_offset < offset:
            self.partition.append_mirrored(build_empty_batch(offset - 1), now_ms=now_ms)

    def _refused(self, error_code: int, now_ms: int) -> None:
        try:
            code = ErrorCode(error_code)
        except ValueError:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        if code in _MOVED:
            self.wait(Why.MOVING, "the source's leader moves", now_ms)
        else:
            self.wait(why_of_code(code), f"the source answers {code.name}", now_ms)
