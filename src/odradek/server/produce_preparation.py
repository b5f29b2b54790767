"""Prepares batches off the event loop if their validation takes long, or if they are recompressed; says how long others
take on it.

The handler of Produce selects these batches, and appends them in order (`replica.preparation`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ApiError, ErrorCode, OdradekError, StorageError
from odradek.record.batch import HEADER_BYTES, BatchHeader
from odradek.record.recompression import recompress
from odradek.record.validation import ON_LOOP_RECORDS, admit

if TYPE_CHECKING:
    from odradek.replica.partition import Partition
    from odradek.server.context import RequestContext

# A batch that may be written, and its header.
Prepared = tuple[Any, BatchHeader]
# The work of one turn of the event loop, in records that are validated: about 10 ms. An append takes as long as 50 of
# them, a decompression as long as 300, a refusal as long as 10.
RECORDS_PER_TURN = 10_000
APPEND, DECOMPRESSION, CHECKSUMMED_BYTES, DECOMPRESSED_BYTES, REFUSAL = 50, 300, 512, 64, 10


def work_of(records: Any) -> int:
    """About how long the validation of a batch on the event loop and its append take, in records."""
    if records is None or len(records) < HEADER_BYTES:
        return REFUSAL
    header = BatchHeader.read(records)
    count = min(max(0, header.record_count), ON_LOOP_RECORDS)
    if header.compression:
        return APPEND + DECOMPRESSION + count + len(records) // DECOMPRESSED_BYTES
    return APPEND + count + len(records) // CHECKSUMMED_BYTES


def needs_recompression(partition: Partition, records: Any) -> bool:
    """Whether a batch is to be recompressed (compression.type)."""
    codec = partition.codec
    return codec is not None and len(records) >= HEADER_BYTES and BatchHeader.read(records).compression != codec


def _preparation(partition: Partition, records: Any, *, now_ms: int, api_version: int) -> Callable[[], Prepared]:
    """The work that checks a batch and recompresses it, by the partition's settings as they are now; it raises as
    `admit` and `recompress`."""
    rules, codec, level = partition.rules, partition.codec, partition.log.config.codec_level

    def prepare() -> Prepared:
        batch, header = admit(records, rules, now_ms=now_ms, api_version=api_version)
        if codec is None or header.compression == codec:
            return batch, header
        limit = rules.max_decompressed_bytes
        return recompress(
            batch, header, codec, level=level, max_output_bytes=limit, max_batch_bytes=rules.max_message_bytes
        )

    return prepare


def prepare_off_loop(
    context: RequestContext,
    partition: Partition,
    records: Any,
    write: Callable[[Any, BatchHeader], asyncio.Future[None] | None],
    refuse: Callable[[ApiError | StorageError], None],
) -> asyncio.Future[None]:
    """Prepare a batch off the event loop, and append or refuse it in order.

    Args:
        write: appends a prepared batch; returns the future of its acknowledgement, and raises as an append.
        refuse: called with the error of the batch, or of its append.
    Returns:
        A future that ends when the batch is acknowledged or refused.
    """
    broker = context.broker
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def in_turn(batch: Prepared | None, failure: OdradekError | None) -> None:
        wait = None
        try:
            if failure is not None:
                record_refused(partition, records, failure)
                raise failure
            assert batch is not None
            wait = write(*batch)
        except (ApiError, StorageError) as error:
            refuse(error)
        _end_with(ended, wait)

    work = _preparation(partition, records, now_ms=broker.clock.now_ms(), api_version=context.api_version)
    broker.replicas.preparations.run(partition, work, in_turn)
    return ended


def record_refused(partition: Partition, records: Any, error: OdradekError) -> None:
    """Record an invalid batch: if it was damaged in transit, the producer retries it. If the header is damaged too,
    later batches of the producer are refused once more than necessary."""
    if isinstance(error, ApiError) and error.code is ErrorCode.CORRUPT_MESSAGE and len(records) >= HEADER_BYTES:
        partition.log.producers.record_refused((BatchHeader.read(records),), error.code)


def _end_with(ended: asyncio.Future[None], wait: asyncio.Future[None] | None) -> None:
    """Complete a future with the result of a later one; at once if there is nothing to wait for."""
    if wait is None:
        if not ended.done():
            ended.set_result(None)
        return

    def pass_on(done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if ended.done():
            return
        if error is None:
            ended.set_result(None)
            return
        ended.set_exception(error)
        ended.exception()  # seen: its request may be gone, with its connection

    wait.add_done_callback(pass_on)
