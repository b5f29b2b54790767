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
from odradek.protocol.messages.fetch_request import FetchPartition
from odradek.protocol.records_field import received

if TYPE_CHECKING:
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
        source_leader, source_epoch: whom to ask; -1 where that is not known.
        source_end: the source's high watermark when it was last heard of.
        reason: why nothing comes; empty while it does.
        stopped: whether an administrator must act.
    """

    partition: Partition
    topic_id: UUID
    source_leader: int = -1
    source_epoch: int = -1
    source_end: int = -1
    reason: str = ""
    stopped: bool = field(default=False)

    @property
    def is_ready(self) -> bool:
        """Whether it may be fetched: our epoch is not below that of any batch that may come."""
        partition = self.partition
        leads = partition.is_leader and partition.is_mirror and not self.stopped
        return leads and self.source_leader >= 0 and self.source_epoch <= partition.leader_epoch

    def ask(self) -> FetchPartition:
        """The fetch of what comes next."""
        log = self.partition.log
        return FetchPartition(
            partition=self.partition.partition_id,
            current_leader_epoch=self.source_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.epochs.latest_epoch,
            partition_max_bytes=PARTITION_MAX_BYTES,
        )

    def stop(self, reason: str) -> Step:
        """Mirror nothing more until someone has decided."""
        self.stopped, self.reason = True, reason
        return Step.STOP

    def take(self, answer: PartitionData, asked_offset: int, now_ms: int) -> Step:
        """Append what was sent, and follow the source's marks.

        Args:
            asked_offset: where our log ended when it was asked for.
            now_ms: wall clock.
        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER, CORRUPT_MESSAGE. StorageError.
        """
        if answer.error_code:
            return self._refused(answer.error_code)
        parts_at = answer.diverging_epoch
        if parts_at.end_offset >= 0:
            return self.stop(
                f"the source's history is another one: its epoch {parts_at.epoch} ends at {parts_at.end_offset}, "
                f"ours is at {self.partition.log.log_end_offset}"
            )
        log = self.partition.log
        if log.log_end_offset != asked_offset:
            return Step.GO_ON
        partition = self.partition
        if not partition.is_leader or partition.cut_off or not partition.is_mirror:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} is no mirror that is led here")
        if records := received(answer.records):
            partition.append_mirrored(records, now_ms=now_ms)
        self.source_end, self.reason = answer.high_watermark, ""
        if answer.log_start_offset > log.log_start_offset:
            log.advance_log_start(min(answer.log_start_offset, log.high_watermark))
        return Step.GO_ON

    def _refused(self, error_code: int) -> Step:
        if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return Step.LOCATE
        self.source_leader = -1
        try:
            code = ErrorCode(error_code)
        except ValueError:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        self.reason = f"the source answers {code.name}"
        if code in _MOVED:
            self.reason = "the source's leader moves"
        return Step.REFRESH
