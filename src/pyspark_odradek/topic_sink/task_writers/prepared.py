"""A task's transaction as it is handed over, and the staged file that its rows are written again from.

The file has a frame for each record batch: a checksum, the length of the topic's name, the partition, the length of the
batch (big endian, 4, 2, 4 and 4 bytes), the name in UTF-8, and the batch. The checksum is CRC-32C, of all in the file
up to the end of the frame but checksums: so no frame is wrong in a byte, and none is missing, or at another place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import crc32c

from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.record.batch import BatchHeader
from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import StagingError
from pyspark_odradek.micro_batch.staging import StagedFile, Staging
from pyspark_odradek.record.encode import EncodedBatch

_CHECKSUM: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">HiI")


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
        """The metadata of the evidence, which distinguishes transactions of this id."""
        return f"{self.producer_id} {self.producer_epoch}"

    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions of the rows, by a scan of the whole file. Raises StagingError."""
        return frozenset(TopicPartition(batch.topic, batch.partition_id) for batch in self.batches())

    def batches(self) -> Iterator[EncodedBatch]:
        """The record batches as the task has written them, each checked. Raises StagingError."""
        return (batch for _, batch in self.frames())

    def frames(self) -> Iterator[tuple[int, EncodedBatch]]:
        """(bytes of the file up to its end, a record batch) in their order, each checked. Raises StagingError."""
        done = checksum = 0
        with Staging(self.place).open(StagedFile(self.path, self.size_bytes)) as stream:
            while done < self.size_bytes:
                try:
                    batch, size, checksum = _read(stream, self.size_bytes - done, checksum)
                except (OSError, ValueError) as error:
                    raise self._damaged(f"at byte {done} {error}") from None
                done += size
                yield done, batch

    def _damaged(self, why: str) -> StagingError:
        return StagingError(f"the rows of a task in {self.path} cannot be used: {why}")


def evidence_offsets(prepared: Prepared, batch_id: int, done: int | None = None) -> list[TxnOffsetCommitRequestTopic]:
    """The offsets to commit with the rows, for the group with the transactional id as its name.

    `done` is the position in the staged file, in bytes, if not all rows are written.
    """
    evidence = prepared.evidence if done is None else f"{prepared.evidence} {done}"
    offset = TxnOffsetCommitRequestPartition(
        partition_index=prepared.partition_id, committed_offset=batch_id, committed_metadata=evidence
    )
    return [TxnOffsetCommitRequestTopic(name=prepared.topic, partitions=[offset])]


def frame(batch: EncodedBatch, before: int) -> tuple[list[bytes], int]:
    """(the pieces of a batch's frame, its checksum); `before` is that of the frame before, 0 for the first."""
    topic = batch.topic.encode()
    head = _HEAD.pack(len(topic), batch.partition_id, len(batch.data)) + topic
    checksum = crc32c.crc32c(batch.data, crc32c.crc32c(head, before))
    return [_CHECKSUM.pack(checksum), head, batch.data], checksum


def _read(stream: Any, left: int, before: int) -> tuple[EncodedBatch, int, int]:
    """(the next batch, bytes taken, its checksum). Raises ValueError where its bytes are wrong."""
    start = stream.read(_CHECKSUM.size + _HEAD.size)
    if len(start) < _CHECKSUM.size + _HEAD.size:
        raise ValueError("it is shorter than what the task wrote")
    (checksum,) = _CHECKSUM.unpack_from(start)
    topic_bytes, partition_id, size = _HEAD.unpack_from(start, _CHECKSUM.size)
    taken = len(start) + topic_bytes + size
    rest = stream.read(topic_bytes + size) if taken <= left else b""
    if crc32c.crc32c(rest, crc32c.crc32c(start[_CHECKSUM.size :], before)) != checksum:
        raise ValueError("its bytes are not those that the task wrote (CRC-32C)")
    data = rest[topic_bytes:]
    batch = EncodedBatch(rest[:topic_bytes].decode(), partition_id, BatchHeader.read(data).record_count, data)
    return batch, taken, checksum
