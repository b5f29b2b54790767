"""A task's transaction as it is handed over, and the staged file that its rows are written again from.

The file has a frame for each record batch: the length of the topic's name, the partition, the length of the batch (big
endian, 2, 4 and 4 bytes), the name in UTF-8, and the batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.record.batch import BatchHeader, crc_is_valid
from pyspark_odradek.encode import EncodedBatch
from pyspark_odradek.errors import StagingError
from pyspark_odradek.offsets import TopicPartition
from pyspark_odradek.staging import StagedFile, Staging

_FRAME: Final = struct.Struct(">HiI")


class Prepared(NamedTuple):
    """A transaction that has all rows of a task, acknowledged, and is open.

    `topic` and `partition_id` are where the group of the transactional id's name has the evidence: the batch's number
    as an offset, in the same transaction. `place`, `path` and `size_bytes` are the staged file's.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topic: str
    partition_id: int
    place: str
    path: str
    size_bytes: int

    @property
    def evidence(self) -> str:
        """What the offset's metadata says, so that it is no other transaction's of this id."""
        return f"{self.producer_id} {self.producer_epoch}"

    def partitions(self) -> frozenset[TopicPartition]:
        """All that the rows go to, by a look at the whole file. Raises StagingError."""
        return frozenset(TopicPartition(batch.topic, batch.partition_id) for batch in self.batches())

    def batches(self) -> Iterator[EncodedBatch]:
        """The record batches as the task has written them, each checked. Raises StagingError."""
        done = 0
        with Staging(self.place).open(StagedFile(self.path, self.size_bytes)) as stream:
            while done < self.size_bytes:
                try:
                    batch, size = _read(stream)
                except (OSError, struct.error, UnicodeDecodeError) as error:
                    raise self._damaged(str(error)) from None
                if batch is None:
                    raise self._damaged("its bytes are not those that the task wrote")
                done += size
                yield batch

    def _damaged(self, why: str) -> StagingError:
        return StagingError(f"the rows of a task in {self.path} cannot be used: {why}")


def evidence_offsets(prepared: Prepared, batch_id: int) -> list[TxnOffsetCommitRequestTopic]:
    """What is committed with the rows, for the group of the transactional id's name."""
    offset = TxnOffsetCommitRequestPartition(
        partition_index=prepared.partition_id, committed_offset=batch_id, committed_metadata=prepared.evidence
    )
    return [TxnOffsetCommitRequestTopic(name=prepared.topic, partitions=[offset])]


def frame(batch: EncodedBatch) -> list[bytes]:
    """The frame of a batch."""
    topic = batch.topic.encode()
    return [_FRAME.pack(len(topic), batch.partition_id, len(batch.data)) + topic, batch.data]


def _read(stream: Any) -> tuple[EncodedBatch | None, int]:
    """(the next batch or None where its bytes are wrong, bytes taken)."""
    topic_bytes, partition_id, size = _FRAME.unpack(stream.read(_FRAME.size))
    topic = stream.read(topic_bytes).decode()
    data = stream.read(size)
    taken = _FRAME.size + topic_bytes + size
    if len(data) < size:
        return None, taken
    header = BatchHeader.read(data)
    if not crc_is_valid(data, header):
        return None, taken
    return EncodedBatch(topic, partition_id, header.record_count, data), taken
