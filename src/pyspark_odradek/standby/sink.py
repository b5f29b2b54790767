"""The writer of a stream that shares its output with others."""

from __future__ import annotations

from pyspark_odradek.standby.batches import batch_span
from pyspark_odradek.standby.commit import LeasedCommit
from pyspark_odradek.topic_sink.exact_sink import ExactStreamWriter
from pyspark_odradek.topic_sink.transaction import TransactionalCommit


class LeasedStreamWriter(ExactStreamWriter):
    """`df.writeStream.format("odradek")` with the option `gate`: a batch is written by the group that has the lease."""

    def transaction(self, query_id: str, batch_id: int | None) -> TransactionalCommit:
        """The object that commits batches of a query."""
        options = self.options
        assert options.gate is not None and batch_id is not None, "a gate is for streams"
        span = batch_span(options.checkpoint, batch_id)
        timeout_ms = options.transaction_timeout_ms
        return LeasedCommit(self.cluster, options.gate, options.group_id, span, transaction_timeout_ms=timeout_ms)
