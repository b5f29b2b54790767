"""Committed offsets, as the log has them. Only `replay` changes them.

The offset of an open transaction is pending until the transaction's marker. If a partition has both kinds, the one
whose record is later in the log counts, so that compaction cannot change the result.

Source: Kafka OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from odradek.coordinator.group.records import OffsetRecord, TransactionEndRecord
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.record.batch import NO_PRODUCER_ID
from odradek.statemachine.timeline import Timeline, TimelineDict

OffsetKey = tuple[str, int]  # topic, partition id
PendingKey = tuple[str, str, int]  # group id, topic, partition id


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset to read, as committed. `expire_timestamp_ms` is -1 if the broker's retention applies."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: UUID
    record_offset: int


class OffsetStore:
    """Group id -> (topic, partition) -> committed offset; and the pending offsets of open transactions."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._groups: TimelineDict[str, TimelineDict[OffsetKey, CommittedOffset]] = TimelineDict(timeline)
        self._pending: TimelineDict[int, TimelineDict[PendingKey, CommittedOffset]] = TimelineDict(timeline)
        self._epochs: TimelineDict[int, int] = TimelineDict(timeline)
        # How many open transactions have a pending offset for each key: a fetch must not scan all producers.
        self._unstable: TimelineDict[PendingKey, int] = TimelineDict(timeline)

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups

    def group_ids(self) -> Iterator[str]:
        return iter(list(self._groups))

    def of_group(self, group_id: str) -> Mapping[OffsetKey, CommittedOffset]:
        """All committed offsets of a group; empty where there are none."""
        return self._groups.get(group_id, {})

    def get(self, group_id: str, topic: str, partition_id: int) -> CommittedOffset | None:
        offsets = self._groups.get(group_id)
        return None if offsets is None else offsets.get((topic, partition_id))

    def is_unstable(self, group_id: str, topic: str, partition_id: int) -> bool:
        """Whether an open transaction has a newer, pending offset."""
        return bool(self._unstable) and (group_id, topic, partition_id) in self._unstable

    def open_epoch(self, producer_id: int) -> int | None:
        """The epoch of a producer's transaction with pending offsets here; None if there is none."""
        return self._epochs.get(producer_id)

    def pending_of_group(self, group_id: str) -> list[OffsetKey]:
        """The partitions of a group with a pending offset."""
        return [(topic, partition_id) for group, topic, partition_id in self._unstable if group == group_id]

    def pending(self) -> Iterator[tuple[PendingKey, CommittedOffset]]:
        """All pending offsets; a key is repeated for each transaction."""
        for held in self._pending.values():
            yield from held.items()

    def __len__(self) -> int:
        return sum(len(offsets) for offsets in self._groups.values())

    def replay(self, record: OffsetRecord, record_offset: int) -> None:
        """Apply a commit or a removal."""
        group_id, topic, partition_id = record.key.group, record.key.topic, record.key.partition
        if record.value is None:
            self._remove(group_id, (topic, partition_id))
            if self.is_unstable(group_id, topic, partition_id):
                for producer_id in list(self._pending):
                    self._drop_pending(producer_id, (group_id, topic, partition_id))
            return
        committed = _from_value(record.value, record_offset)
        present = self.get(group_id, topic, partition_id)
        assert present is None or record_offset > present.record_offset, f"{record.key} at {record_offset}: {present}"
        if record.producer_id == NO_PRODUCER_ID:
            self._put(group_id, (topic, partition_id), committed)
            return
        key = (group_id, topic, partition_id)
        pending = self._pending.get(record.producer_id)
        if pending is None:
            pending = self._pending[record.producer_id] = TimelineDict(self._timeline)
        self._epochs[record.producer_id] = record.producer_epoch
        if key not in pending:
            self._unstable[key] = self._unstable.get(key, 0) + 1
        pending[key] = committed

    def replay_transaction_end(self, record: TransactionEndRecord) -> None:
        """Apply a marker: the pending offsets of the producer's transaction take effect or are dropped."""
        pending = self._pending.get(record.producer_id)
        epoch = self._epochs.get(record.producer_id, record.producer_epoch)
        assert record.producer_epoch >= epoch, f"a marker of {record.producer_epoch} ends a transaction of {epoch}"
        for key, committed in list(pending.items()) if pending is not None else ():
            self._drop_pending(record.producer_id, key)
            group_id, topic, partition_id = key
            present = self.get(group_id, topic, partition_id)
            if record.committed and (present is None or committed.record_offset > present.record_offset):
                self._put(group_id, (topic, partition_id), committed)
        assert record.producer_id not in self._pending, "nothing is held back once a transaction has ended"
        assert record.producer_id not in self._epochs, "no transaction is open once it has ended"

    def _put(self, group_id: str, key: OffsetKey, committed: CommittedOffset) -> None:
        offsets = self._groups.get(group_id)
        if offsets is None:
            offsets = self._groups[group_id] = TimelineDict(self._timeline)
        offsets[key] = committed

    def _remove(self, group_id: str, key: OffsetKey) -> None:
        offsets = self._groups.get(group_id)
        if offsets is not None and offsets.pop(key, None) is not None and not offsets:
            del self._groups[group_id]

    def _drop_pending(self, producer_id: int, key: PendingKey) -> None:
        pending = self._pending[producer_id]
        if pending.pop(key, None) is None:
            return
        if not pending:
            del self._pending[producer_id]
            del self._epochs[producer_id]
        assert self._unstable[key] > 0, f"{key} is held back by no transaction"
        holders = self._unstable[key] - 1
        if holders:
            self._unstable[key] = holders
        else:
            del self._unstable[key]


def _from_value(value: OffsetCommitValue, record_offset: int) -> CommittedOffset:
    return CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        expire_timestamp_ms=value.expire_timestamp,
        topic_id=value.topic_id,
        record_offset=record_offset,
    )
