"""What a mirror's leader asks the source's leader of a partition, and what it does with the answer.

Decides only. The batches are appended as a follower appends them (ADR 0018); what the source says of its leader, its
log's start and where histories part becomes the next step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
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
# After these the source's metadata says where to ask.
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


class Step(Enum):
    """What comes after an answer: the next fetch, the source's metadata, the ends of its log, or nothing for good."""

    GO_ON = auto()
    REFRESH = auto()
    LOCATE = auto()
    STOP = auto()


@dataclass(slots=True, eq=False)
class MirroredPartition:
    """A partition of a mirror that is led here.

    Attributes:
        topic_id, source_topic: of its topic at the source.
        source_leader, source_epoch: whom to ask; -1 where that is not known.
        source_end: the source's high watermark when it was last heard of.
        source_start: where the source's log started when it was last heard of.
        reason: why nothing comes.
        stopped: whether an administrator must act.
        is_paused: whether an administrator wants it so.
        is_outside: whether our log's end is not in the source's log; where that begins is asked for.
        whole_ms: when we last had all that the source had; at first, when we began.
        bytes: of the batches that came.
        skipped: offsets that the source had deleted before they came; not those below the mirror's first record.
        begins_at: the source's start, where that was above our end and the source has no epoch to compare ours with;
            -1 where that never was so.
        cut: what was done to it by its leader here as it was failed back.
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
    is_outside: bool = False
    whole_ms: int = 0
    bytes: int = 0
    skipped: int = 0
    begins_at: int = -1
    source_start: int = -1
    cut: Cut | None = None

    @property
    def source_key(self) -> tuple[str, int]:
        """The partition, by the name of its topic at the source."""
        return self.source_topic, self.partition.partition_id

    @property
    def is_ready(self) -> bool:
        """Whether it may be fetched: our epoch is not below that of any batch that may come."""
        partition = self.partition
        leads = partition.is_leader and partition.is_mirror
        is_kept = self.stopped or self.is_paused or self.is_outside
        return leads and not is_kept and self.source_leader >= 0 and self.source_epoch <= partition.leader_epoch

    def lacks_leader_for(self, duration_ms: int, now_ms: int) -> bool:
        """Whether no broker of the source was its leader, or answered, for so long. `now_ms` is of the wall clock."""
        is_sought = self.reason.why in (Why.MOVING, Why.UNREACHABLE)
        return is_sought and now_ms - self.reason.since_ms >= duration_ms

    @property
    def next_offset(self) -> int:
        """The offset to fetch from."""
        return max(self.partition.log.log_end_offset, self.begins_at)

    def ask(self) -> FetchPartition:
        """The fetch of what comes next."""
        log = self.partition.log
        fetched = UNDEFINED_EPOCH if log.log_end_offset <= self.begins_at else log.epochs.latest_epoch
        return FetchPartition(
            partition=self.partition.partition_id,
            current_leader_epoch=self.source_epoch,
            fetch_offset=self.next_offset,
            last_fetched_epoch=fetched,
            partition_max_bytes=PARTITION_MAX_BYTES,
        )

    def stop(self, why: Why, text: str, now_ms: int) -> Step:
        """Mirror nothing more until someone has decided."""
        self.stopped, self.reason = True, self.reason.followed_by(why, text, now_ms)
        return Step.STOP

    def wait(self, why: Why, text: str, now_ms: int) -> Step:
        """Ask the source's metadata where to go on."""
        self.source_leader, self.reason = -1, self.reason.followed_by(why, text, now_ms)
        return Step.REFRESH

    def paused(self) -> MirroredPartition:
        """The same while it is paused. What was asked before is not taken any more; a later start forgets why it had
        stopped."""
        return MirroredPartition(
            self.partition,
            self.topic_id,
            self.source_topic,
            source_leader=self.source_leader,
            source_epoch=self.source_epoch,
            source_end=self.source_end,
            is_paused=True,
            whole_ms=self.whole_ms,
            bytes=self.bytes,
            skipped=self.skipped,
            cut=self.cut,
        )

    def recreated(self, text: str, now_ms: int, *, is_paused: bool) -> MirroredPartition:
        """The same, stopped for good as the source has another topic of its name: whose end is not asked for either."""
        stopped = self.paused()
        stopped.is_paused, stopped.source_leader, stopped.reason = is_paused, -1, self.reason
        stopped.stop(Why.RECREATED, text, now_ms)
        return stopped

    def heard(self, source_end: int, now_ms: int) -> None:
        """The source's log ends there now."""
        self.source_end = source_end
        if self.partition.log.log_end_offset >= source_end:
            self.whole_ms = now_ms

    def locate(self, start: int, end: int, now_ms: int) -> None:
        """Our log's end is not in the source's log, [start, end): go on at its start where that has moved past us.

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

    def take(self, answer: PartitionData, asked_offset: int, now_ms: int) -> Step:
        """Append what was sent, and follow the source's marks.

        Args:
            asked_offset: the offset that was asked for.
            now_ms: wall clock.
        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER, CORRUPT_MESSAGE. StorageError.
        """
        if answer.error_code:
            return self._refused(answer.error_code, now_ms)
        parts_at = answer.diverging_epoch
        if parts_at.end_offset >= 0:
            return self.stop(
                Why.DIVERGED,
                f"the source's history is another one: its epoch {parts_at.epoch} ends at {parts_at.end_offset}, "
                f"ours is at {self.partition.log.log_end_offset}",
                now_ms,
            )
        log = self.partition.log
        if self.next_offset != asked_offset:
            return Step.GO_ON
        partition = self.partition
        if not partition.is_leader or partition.is_isolated or not partition.is_mirror:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} is no mirror that is led here")
        records = received(answer.records)
        if log.log_end_offset < asked_offset and (records or answer.high_watermark == asked_offset):
            if log.log_end_offset > 0 or self.source_end >= 0:  # else it begins where the source does
                self.skipped += asked_offset - log.log_end_offset
            self._skip_to(read_size(records)[0] if records else asked_offset, now_ms)
        if records:
            partition.append_mirrored(records, now_ms=now_ms)
            self.bytes += len(records)
        self.reason = NO_REASON
        self.heard(answer.high_watermark, now_ms)
        self.source_start = answer.log_start_offset
        self.follow_start()
        return Step.GO_ON

    def follow_start(self) -> None:
        """Delete what the source has deleted, as far as it is on all in-sync replicas. Raises StorageError."""
        log = self.partition.log
        # A leader of the source that crashed may not know any more what was deleted before.
        start = min(max(self.source_start, self.begins_at), log.high_watermark)
        if start > log.log_start_offset:
            log.advance_log_start(start)

    def _skip_to(self, offset: int, now_ms: int) -> None:
        """Let our log end there, as the source has deleted what comes before.

        An empty batch takes the last offset, as compaction leaves one behind. Followers get there as they do with any
        record, and the watermark with them: were the leader's log alone to begin there, the watermark would go back
        with the next leader. It has no leader epoch: what is known is neither that of what was deleted, nor, where
        nothing came yet, that of what comes next.
        """
        if self.partition.log.log_end_offset < offset:
            self.partition.append_mirrored(build_empty_batch(offset - 1), now_ms=now_ms)

    def _refused(self, error_code: int, now_ms: int) -> Step:
        if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return Step.LOCATE
        try:
            code = ErrorCode(error_code)
        except ValueError:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        if code in _MOVED:
            return self.wait(Why.MOVING, "the source's leader moves", now_ms)
        return self.wait(why_of_code(code), f"the source answers {code.name}", now_ms)
