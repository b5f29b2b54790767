"""Streaming queries as metrics: lag, rates, duration of batches and size of state, in Prometheus' text format.

    metrics = publish(spark, "127.0.0.1:9405")      # or session("name", metrics="127.0.0.1:9405")

A listener of the session hears of every query's batches, and the page is made when it is asked for. Names and meaning
of the metrics are in `METRICS`, which the docs print. It runs in the driver's own process, and ends with it.
"""

from __future__ import annotations

import json
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import OptionError
from pyspark_odradek.progress import Progress, read_progress

# name -> (kind, what it is, labels beside `query`)
METRICS: dict[str, tuple[type[Any], str, tuple[str, ...]]] = {
    "odradek_query_running": (Gauge, "1 while the query runs.", ()),
    "odradek_query_failures": (Counter, "Runs that ended with an error.", ()),
    "odradek_query_batches": (Counter, "Batches that are done.", ()),
    "odradek_query_batch_id": (Gauge, "The number of the newest batch.", ()),
    "odradek_query_batch_seconds": (Histogram, "How long a batch took, planning and commit included.", ()),
    "odradek_query_rows": (Counter, "Rows that were read.", ()),
    "odradek_query_input_rows_per_second": (Gauge, "Rows that came in, over the time since the last batch.", ()),
    "odradek_query_processed_rows_per_second": (Gauge, "Rows of the newest batch, over its time.", ()),
    "odradek_query_lag_offsets": (Gauge, "Offsets that wait to be read.", ("topic", "partition")),
    "odradek_query_state_rows": (Gauge, "Rows that a stateful operator keeps.", ("operator",)),
    "odradek_query_state_bytes": (Gauge, "Memory that a stateful operator's state takes.", ("operator",)),
    "odradek_query_watermark_seconds": (Gauge, "The watermark, seconds since 1970 UTC.", ()),
}
BUCKETS_S = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


class QueryMetrics(StreamingQueryListener):
    """Keeps the numbers of all queries of a session. Spark calls it from a thread of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._metrics: dict[str, Any] = {}
        for name, (kind, text, labels) in METRICS.items():
            more: dict[str, Any] = {"buckets": BUCKETS_S} if kind is Histogram else {}
            self._metrics[name] = kind(name, text, ("query", *labels), registry=self.registry, **more)
        self._names: dict[str, str] = {}
        self._partitions: dict[str, set[TopicPartition]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """A query runs, and has done nothing yet."""
        name = self._names[str(event.id)] = event.name or str(event.id)
        self.started(name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch is done."""
        self.update(read_progress(json.loads(event.progress.json)))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """There is nothing to read: the rates of the last batch hold no more."""
        name = self._names.get(str(event.id), str(event.id))
        self._of(name, "input_rows_per_second").set(0)
        self._of(name, "processed_rows_per_second").set(0)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """A query has ended; its last numbers stay."""
        self.ended(self._names.get(str(event.id), str(event.id)), failed=event.exception is not None)

    def started(self, name: str) -> None:
        """Count a query that runs, and has done nothing yet."""
        self._of(name, "running").set(1)
        self._of(name, "failures").inc(0)

    def ended(self, name: str, *, failed: bool) -> None:
        """Count the end of a query's run."""
        self._of(name, "running").set(0)
        self._of(name, "failures").inc(int(failed))

    def update(self, progress: Progress) -> None:
        """Count one report."""
        name = progress.query
        self._of(name, "batches").inc()
        self._of(name, "batch_id").set(progress.batch_id)
        self._of(name, "batch_seconds").observe(progress.batch_ms / 1000)
        self._of(name, "rows").inc(progress.rows)
        self._of(name, "input_rows_per_second").set(progress.input_rows_per_s)
        self._of(name, "processed_rows_per_second").set(progress.processed_rows_per_s)
        if progress.watermark_s is not None:
            self._of(name, "watermark_seconds").set(progress.watermark_s)
        for state in progress.states:
            self._of(name, "state_rows", state.operator).set(state.rows)
            self._of(name, "state_bytes", state.operator).set(state.memory_bytes)
        for partition, lag in progress.lags.items():
            self._of(name, "lag_offsets", partition.topic, str(partition.partition_id)).set(lag)
        for gone in self._partitions.get(name, set()) - progress.lags.keys():
            self._metrics["odradek_query_lag_offsets"].remove(name, gone.topic, str(gone.partition_id))
        self._partitions[name] = set(progress.lags)

    def _of(self, query: str, metric: str, *labels: str) -> Any:
        return self._metrics[f"odradek_query_{metric}"].labels(query, *labels)


class MetricsPage:
    """The page at `http://host:port/metrics` and the listener behind it, until `close`.

    Without a session there is no listener, and the creator of the page feeds its `metrics`.
    """

    def __init__(self, spark: SparkSession | None, address: str) -> None:
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            raise OptionError(f"metrics: {address!r} is not host:port")
        self.spark = spark
        self.metrics = QueryMetrics()
        registry = self.metrics.registry
        try:
            self._server, self._thread = start_http_server(int(port), host.strip("[]") or "127.0.0.1", registry)
        except OSError as error:
            raise OptionError(f"metrics: {address} cannot be served: {error}") from None
        self.port: int = self._server.server_port
        if spark is not None:
            spark.streams.addListener(self.metrics)

    def close(self) -> None:
        """Serve no more, and listen no more where the session still runs."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if self.spark is not None and self.spark.sparkContext._jsc is not None:
            self.spark.streams.removeListener(self.metrics)


_PAGES: dict[str, MetricsPage] = {}


def publish(spark: SparkSession, address: str) -> MetricsPage:
    """Serve the metrics of a session's queries; a second call with the same address gives the same page.

    Args:
        address: host:port to listen on; port 0 takes a free one, which `MetricsPage.port` has.
    Raises:
        OptionError: it is not an address, or the address is in use.
    """
    page = _PAGES.get(address)
    if page is not None and page.spark is not spark:
        page.close()
        page = None
    if page is None:
        page = _PAGES[address] = MetricsPage(spark, address)
    return page
