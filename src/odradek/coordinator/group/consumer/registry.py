"""All consumer groups of one shard; only `replay` adds and removes groups."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.coordinator.group.consumer.records import ConsumerGroupRecord, apply_record
from odradek.coordinator.group.consumer.state import ConsumerGroup
from odradek.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from odradek.statemachine.timeline import Timeline, TimelineDict


class ConsumerGroups:
    """Group id -> group."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._groups: TimelineDict[str, ConsumerGroup] = TimelineDict(timeline)

    def find(self, group_id: str) -> ConsumerGroup | None:
        """The group; None if there is none of this id, or a classic one."""
        return self._groups.get(group_id)

    def new(self, group_id: str) -> ConsumerGroup:
        """A group outside the registry: an operation decides with it, and its records create the real one."""
        return ConsumerGroup(group_id, self._timeline)

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups)

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Apply one record. A tombstone without a target changes nothing: compaction leaves such."""
        group = self._groups.get(record.group_id)
        if group is None:
            if record.value is None:
                return
            group = self._groups[record.group_id] = self.new(record.group_id)
        apply_record(group, record)
        if record.value is None and isinstance(record.key, ConsumerGroupMetadataKey):
            del self._groups[record.group_id]
