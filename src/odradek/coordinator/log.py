"""The `MachineLog` of a coordinator: a partition of its topic, appended to in one leader epoch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Sequence
from typing import Generic, TypeVar

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.ports import Clock, is_out_of_descriptors
from odradek.coordinator.batches import RecordCodec, decode_batches, encode_batches
from odradek.log.producer_state import BY_COORDINATOR
from odradek.record.batch import BatchHeader, crc_is_valid
from odradek.record.reader import read_batches
from odradek.replica.partition import Partition

# Replay of this much takes a few milliseconds; then other tasks run.
LOAD_SLICE_BYTES = 64 * 1024
ALL_IN_SYNC = -1


RecordT = TypeVar("RecordT")


def all_whole(data: bytes) -> bool:
    """Whether every batch is intact."""
    return all(crc_is_valid(data[start : start + header.size_bytes], header) for start, header in read_batches(data))


class PartitionMachineLog(Generic[RecordT]):
    """A `MachineLog` of a codec's records over a `Partition` that this broker leads."""

    def __init__(
        self,
        partition: Partition,
        leader_epoch: int,
        clock: Clock,
        codec: RecordCodec[RecordT],
        *,
        max_batch_bytes: int,
        on_storage_error: Callable[[StorageError], None],
    ) -> None:
        """
        Args:
            codec: encodes the records.
            leader_epoch: of the leadership; an append in another epoch is refused.
            max_batch_bytes: max.message.bytes of the topic.
            on_storage_error: takes the log's directory offline: a leader that cannot write must not stay leader, or its
                groups would have no working coordinator.
        """
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._clock = clock
        self._codec = codec
        self._max_batch_bytes = max_batch_bytes
        self._on_storage_error = on_storage_error

    @property
    def end_offset(self) -> int:
        end_offset: int = self._partition.log.log_end_offset
        return end_offset

    @property
    def committed_offset(self) -> int:
        watermark: int = self._partition.log.high_watermark
        return min(watermark, self.end_offset)

    def prepare(self, records: Sequence[RecordT], *, atomic: bool) -> Generator[None, None, list[bytes]]:
        """Raises ApiError: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE."""
        now_ms = self._clock.now_ms()
        return encode_batches(self._codec, records, atomic=atomic, max_batch_bytes=self._max_batch_bytes, now_ms=now_ms)

    def append(self, groups: Sequence[list[bytes]]) -> int:
        """Raises ApiError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS. Raises StorageError."""
        if self._partition.leader_epoch != self._leader_epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self._partition.name} has a new leader epoch")
        batches = [bytearray(batch) for group in groups for batch in group]
        headers = [BatchHeader.read(batch) for batch in batches]
        expected_end = self.end_offset + sum(header.last_offset - header.base_offset + 1 for header in headers)
        now_ms = self._clock.now_ms()
        try:
            self._partition.append_as_leader(
                batches, headers, required_acks=ALL_IN_SYNC, now_ms=now_ms, verification=BY_COORDINATOR
            )
        except StorageError as error:
            self._on_storage_error(error)
            raise
        assert self.end_offset == expected_end, f"the log ends at {self.end_offset}, not {expected_end}"
        return expected_end

    async def wait_committed(self, end_offset: int) -> None:
        """Raises ApiError(NOT_LEADER_OR_FOLLOWER) if the leadership ends first."""
        future = self._partition.wait_replicated(end_offset)
        if future is not None:
            await future

    async def read_all(self) -> AsyncIterator[Sequence[tuple[int, RecordT]]]:
        """Yield all records of the log in slices; an empty slice means that it cannot be read at present.

        This happens if no file can be opened, or if a batch is damaged. A damaged batch is repaired from another
        replica, or read again if only the read was damaged. An error here would leave groups without a coordinator
        while this broker leads.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER, the leadership ended while a batch was damaged. StorageError.
        """
        log = self._partition.log
        offset, end_offset = log.log_start_offset, log.log_end_offset
        while offset < end_offset:
            data = await self._read(offset, end_offset)
            if data is None:
                yield []
                continue
            records, next_offset = decode_batches(self._codec, data)
            if next_offset <= offset:
                break  # compaction left no record behind this offset
            # The first batch may begin below `offset`.
            yield [each for each in records if each[0] >= offset]
            offset = next_offset

    async def _read(self, offset: int, end_offset: int) -> bytes | None:
        """Whole batches from `offset` on; None if they cannot be read at present. Raises as `read_all`."""
        log = self._partition.log  # a new object with the same records after a move to another directory
        if log.is_detached:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self._partition.name} is no longer here")
        try:
            read = log.read(offset, max_bytes=LOAD_SLICE_BYTES, upper_offset=end_offset, at_least_one=True)
            data = b"".join(chunk.read() for chunk in read.chunks)
            if all_whole(data):
                return data
        except ApiError as error:
            if error.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            if (repair := self._partition.wait_repaired()) is not None:
                await repair
        except (StorageError, OSError) as error:
            if is_out_of_descriptors(error) or is_out_of_descriptors(error.__cause__):
                return None
            failed = error if isinstance(error, StorageError) else StorageError(log.log_dir, str(error))
            self._on_storage_error(failed)
            raise failed from error
        # A batch is damaged. During this leadership it is read again, or repaired from another replica.
        if self._partition.leader_epoch != self._leader_epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self._partition.name} has a new leader epoch")
        return None
