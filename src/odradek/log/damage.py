"""Reports of damaged batches of one log: each is logged once, and repaired from another replica if possible."""

from __future__ import annotations

from collections.abc import Callable

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.log_lines import get_logger
from odradek.common.topic_names import TopicPartition
from odradek.log.segment import Segment
from odradek.log.summary import SegmentSummary

_log = get_logger("log.damage")
REPAIR_FROM_REPLICA = "nothing: the batch is fetched from another replica"
REPAIR_MANUALLY = (
    "stop this node and restore the file from a copy; or, with other replicas, remove the partition's directory, so "
    "that it is fetched again; or delete the records up to beyond it"
)


class DamageReports:
    """The damaged batches of one log below the recovery point; a start truncates damage behind it.

    Attributes:
        on_damage: called with the segment and position of each damaged batch that is read; returns whether it will be
            repaired.
        repair_count: the number of repaired batches.
    """

    __slots__ = ("_reported", "_summary", "_topic_partition", "on_damage", "repair_count")

    def __init__(self, topic_partition: TopicPartition, summary: SegmentSummary) -> None:
        self._topic_partition = topic_partition
        self._summary = summary
        self._reported: set[tuple[int, int]] = set()
        self.on_damage: Callable[[Segment, int], bool] = _no_repair
        self.repair_count = 0

    def report(self, segment: Segment, position: int, offset: int) -> ApiError:
        """Request the repair of a damaged batch, and log each place once; returns the error for a reader of
        `offset`."""
        topic, partition_id = self._topic_partition
        text = f"the batch of offset {offset} of {topic}-{partition_id} is damaged at byte {position} of {segment.path}"
        is_repaired = self.on_damage(segment, position)
        if (segment.base_offset, position) not in self._reported:
            self._reported.add((segment.base_offset, position))
            _log.error(
                "a damaged batch is not served",
                topic=topic,
                partition=partition_id,
                offset=offset,
                file=segment.path,
                position=position,
                what_to_do=REPAIR_FROM_REPLICA if is_repaired else REPAIR_MANUALLY,
            )
        return ApiError(ErrorCode.CORRUPT_MESSAGE, text)

    def mark_repaired(self, segment: Segment, position: int) -> None:
        """Record a repair: later damage at the same place is reported again."""
        self.repair_count += 1
        self._reported.discard((segment.base_offset, position))
        self._summary.repaired()

    def clear_listener(self) -> None:
        """Stop requesting repairs."""
        self.on_damage = _no_repair


def _no_repair(segment: Segment, position: int) -> bool:
    return False
