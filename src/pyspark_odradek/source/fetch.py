"""The work of a task: fetches one range of offsets and yields it as Arrow.

The next fetch is in flight while one is decoded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from odradek.common.backoff import Backoff
from odradek.common.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.protocol.records_field import received
from pyspark_odradek.client.cluster import (
    FIRST_BACKOFF_MS,
    GONE_PATIENCE_S,
    LAST_BACKOFF_MS,
    PASSING,
    ClientSettings,
    Cluster,
    NoTopicError,
    RetriableError,
    error_name,
    shared_cluster,
)
from pyspark_odradek.client.connection import Connection
from pyspark_odradek.client.offsets import OffsetRange, TopicPartition
from pyspark_odradek.errors import ClusterError, LostRange, report
from pyspark_odradek.options import EARLIEST, LATEST
from pyspark_odradek.record.decode import (
    AbortedTransaction,
    Batch,
    Decoder,
    RecordFormatError,
    VisibleBatches,
    locating_errors,
    whole_batches,
)


def read_range(
    settings: ClientSettings,
    wanted: OffsetRange,
    schema: Any,
    *,
    fail_on_data_loss: bool,
    timeout_ms: int | None = None,
) -> Iterator[Any]:
    """Yield the records of a range as Arrow batches, in order.

    After a lost connection or a change of leader, reading continues at its position, until there is no progress for
    `timeout_ms` (`kafkaConsumer.pollTimeoutMs`; `default.api.timeout.ms` for None).

    Raises:
        DataLossError: offsets of the range were deleted meanwhile (a warning without `fail_on_data_loss`).
        ClusterError: the range cannot be read in time, or the log is damaged there or has an old format.
    """
    patience_s = (timeout_ms or settings.default_api_timeout_ms) / 1000
    limit = "kafka.default.api.timeout.ms" if timeout_ms is None else "kafkaConsumer.pollTimeoutMs"
    reader = _RangeReader(shared_cluster(settings), wanted, schema, fail_on_data_loss, patience_s)
    deadline = time.monotonic() + patience_s
    backoff = Backoff(FIRST_BACKOFF_MS, LAST_BACKOFF_MS)
    gone_since: float | None = None
    while not reader.is_done:
        before = reader.position
        try:
            yield from reader.read_on(deadline)
        except (OSError, ProtocolError, RetriableError) as error:
            reader.cluster.reset()
            if isinstance(error, NoTopicError):
                reader.cluster.rotate_bootstrap()
            now = time.monotonic()
            if reader.position > before:
                deadline = now + patience_s
                backoff.reset()
            gone_since = (gone_since or now) if isinstance(error, NoTopicError) else None
            if gone_since is not None and now - gone_since >= GONE_PATIENCE_S:
                reader.lose_the_rest(str(error))
                return
            if now + backoff.pause_ms / 1000 > deadline:
                raise ClusterError(
                    f"{wanted.topic}-{wanted.partition_id} could not be read from offset {reader.position} to "
                    f"{wanted.end} in {patience_s:g} s ({limit}): {error}"
                ) from error
            time.sleep(backoff.next_ms() / 1000)


class _RangeReader:
    """The state of one task: `position` is the next offset that no fetch has brought."""

    def __init__(
        self, cluster: Cluster, wanted: OffsetRange, schema: Any, fail_on_data_loss: bool, patience_s: float
    ) -> None:
        self.cluster = cluster
        self.patience_s = patience_s
        self.wanted = wanted
        self.partition = TopicPartition(wanted.topic, wanted.partition_id)
        self.schema = schema
        self.fail_on_data_loss = fail_on_data_loss
        self.position = wanted.start

    @property
    def is_done(self) -> bool:
        return self.position >= self.wanted.end

    def read_on(self, deadline: float) -> Iterator[Any]:
        """Fetch and decode until the range is complete.

        Only errors of the network are retried, between two fetches: all rows of a fetch are yielded, or an error of the
        decoding ends the task.
        """
        settings = self.cluster.settings
        connection = self.cluster.leader(self.partition)
        topic_id = self.cluster.topic_ids.get(self.wanted.topic)  # None of a broker before Kafka 2.8
        if topic_id is not None and self.wanted.topic_id not in (None, topic_id):
            raise NoTopicError(f"the topic {self.wanted.topic} was deleted and recreated")
        self._send_fetch(connection, self.position)
        while True:
            with locating_errors(*self.partition, self.position):
                answer = self._answer(connection)
            if answer is None:
                if not self.is_done:
                    self._send_fetch(connection, self.position)
                    continue
                return
            fetched = memoryview(received(answer.records))
            with locating_errors(*self.partition, self.position):
                batches = list(whole_batches(fetched, check_crc=settings.check_crcs))
            if not batches and time.monotonic() > deadline:
                raise RetriableError(
                    f"no record came; the log's last stable offset is {answer.last_stable_offset}"
                    " (an open transaction holds records back)"
                )
            following = batches[-1].last_offset + 1 if batches else self.position
            if following < self.wanted.end:
                self._send_fetch(connection, following)
            with locating_errors(*self.partition, self.position):
                yield from self._decoded(fetched, batches, answer)
            self.position = max(self.position, following)
            if self.is_done:
                return
            if batches:
                deadline = time.monotonic() + self.patience_s

    def _decoded(self, fetched: memoryview, batches: list[Batch], answer: PartitionData) -> Iterator[Any]:
        aborted = [AbortedTransaction(t.producer_id, t.first_offset) for t in answer.aborted_transactions or ()]
        if self.cluster.settings.isolation_level == 0:
            aborted = []
        visible = VisibleBatches(aborted)
        shown = [batch for batch in batches if visible.shows(batch, fetched)]
        decoder = Decoder(self.schema, *self.partition, self.position, self.wanted.end)
        yield from decoder.decode(fetched, shown)

    def _send_fetch(self, connection: Connection, offset: int) -> None:
        settings = self.cluster.settings
        size = settings.max_partition_fetch_bytes
        name, topic_id = self.wanted.topic, self.wanted.topic_id
        ids = {} if topic_id is None or name not in self.cluster.topic_ids else {name: topic_id}
        self.cluster.send_fetch(connection, {self.partition: offset}, settings.fetch_max_wait_ms, size, ids)

    def _answer(self, connection: Connection) -> PartitionData | None:
        """The answer to the oldest fetch; None where the position was moved past lost records."""
        answer = connection.receive()
        assert isinstance(answer, FetchResponse)
        if answer.error_code != ErrorCode.NONE:
            raise RetriableError(f"fetch: {error_name(answer.error_code)}")
        parts = [part for topic in answer.responses for part in topic.partitions]
        if len(parts) != 1:
            raise ProtocolError(f"a fetch of one partition was answered with {len(parts)}")
        code = parts[0].error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._skip_lost()
            return None
        if code in PASSING:
            raise RetriableError(f"fetch: {error_name(code)}")
        if code == ErrorCode.CORRUPT_MESSAGE:
            raise RecordFormatError("the broker finds the batch there damaged (CORRUPT_MESSAGE)")
        if code != ErrorCode.NONE:
            raise ClusterError(f"{self.partition.topic}-{self.partition.partition_id}: fetch: {error_name(code)}")
        return parts[0]

    def _skip_lost(self) -> None:
        start = self.cluster.list_offsets({self.partition: EARLIEST}).get(self.partition, self.wanted.end)
        end = self.cluster.list_offsets({self.partition: LATEST}).get(self.partition, self.position)
        if start <= self.position < end:
            raise RetriableError("the offset is out of range on this replica")
        if start > self.position:
            self._lose(min(start, self.wanted.end), f"the log now starts at {start}")
        else:
            self._lose(self.wanted.end, f"the log now ends at {end}")

    def lose_the_rest(self, why: str) -> None:
        """Nothing of the range can be read any more. Raises DataLossError, or warns without `fail_on_data_loss`."""
        self._lose(self.wanted.end, why)

    def _lose(self, until: int, why: str) -> None:
        report([LostRange(*self.partition, self.position, until, why)], fail=self.fail_on_data_loss)
        self.position = until
