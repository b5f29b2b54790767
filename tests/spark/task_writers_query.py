"""One query whose tasks write to the brokers, and a driver that dies in a step of its commit, without Spark."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from pyspark_odradek.client.cluster import TRANSACTION, RetriableError, check
from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.micro_batch.staging import Staging
from pyspark_odradek.micro_batch.task import Task
from pyspark_odradek.record.encode import BatchFormat, RowEncoder
from pyspark_odradek.topic_sink.marker_topic import MarkerTopic
from pyspark_odradek.topic_sink.task_writers.decided import DecidedCommit
from pyspark_odradek.topic_sink.task_writers.prepared import Prepared
from pyspark_odradek.topic_sink.task_writers.writing import (
    KnownBatchError,
    StagedRows,
    TaskTransaction,
    transactional_id,
)
from pyspark_odradek.topic_sink.transaction import Work
from tests.spark.test_transaction import DiesError, _clusters, cluster, discard_sessions
from tests.support.clients.confluent import create_topic, read_committed

PARTITIONS = 2
SIZE = 20  # rows of a batch, of ten keys, five for each of its two tasks
SLOW = pytest.mark.slow
BOTH = ["odradek", pytest.param("kafka", marks=SLOW)]
_ids = itertools.count()


class Driver(DecidedCommit):
    """One that dies before or after one of its steps, or does something else first, once."""

    step, after = "", False

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("step", "after", "instead") or name != self.step:
            return found

        def planned(*args: Any, **named: Any) -> Any:
            if named.get("committed") is False:  # a commit that starts again takes back what it had begun
                return found(*args, **named)
            self.step = ""
            answer = found(*args, **named) if self.after else None
            self.instead()
            return answer if self.after else found(*args, **named)

        return planned

    def instead(self) -> None:
        raise DiesError


class Query:
    """One query on a topic of two partitions, with its markers and its staged files."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.bootstrap, self.topic, self.folder = bootstrap, topic, folder
        self.markers: str | None = f"{topic}-markers"
        self.id = f"tasks-{topic}-{next(_ids)}"
        self.timeout_ms = 600_000  # longer than any test waits
        create_topic(bootstrap, topic, PARTITIONS)
        self.at = cluster(bootstrap)

    def task(self, batch_id: int, run: str, number: int, attempt: int = 0) -> Prepared:
        """One of the two tasks of a batch: it has five of the ten keys, and leaves its transaction open."""
        written = self.writing(batch_id, run, number, attempt)
        return written[0].prepare(*written[1:])

    def writing(
        self, batch_id: int, run: str, number: int, attempt: int = 0
    ) -> tuple[TaskTransaction, Task, StagedRows, Prepared]:
        """The same, before it begins to write."""
        numbers = [n for n in range(batch_id * SIZE, (batch_id + 1) * SIZE) if n % 10 // 5 == number]
        keys, values = ([b"%d" % n for n in each] for each in ([n % 10 for n in numbers], numbers))
        rows = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
        encoder = RowEncoder(self.topic, lambda _: PARTITIONS, BatchFormat(batch_bytes=100))
        task = Task(self.id, run, batch_id, number, attempt)
        staged = StagedRows(Staging(str(self.folder)), f"{run}/{batch_id}", f"{number}-{attempt}")
        staged.add(encoder.encode(rows, time.time_ns() // 1_000_000))
        id_ = transactional_id("odradek-sink.", task, attempt)
        prepared = staged.finish(id_)
        assert prepared is not None
        return self.transaction(TaskTransaction, id_), task, staged, prepared

    def transaction(self, kind: type[TaskTransaction], id_: str) -> TaskTransaction:
        return kind(self.at, id_, f"odradek-sink.{self.id}", transaction_timeout_ms=self.timeout_ms)

    def tasks(self, batch_id: int, run: str) -> list[Prepared]:
        return [self.task(batch_id, run, number) for number in range(2)]

    def driver(self, step: str = "", *, after: bool = False) -> Driver:
        """A new one, which knows only what the cluster knows."""
        discard_sessions()
        at = cluster(self.bootstrap)
        markers = None if self.markers is None else MarkerTopic(at, self.markers)
        made = Driver(at, f"odradek-sink.{self.id}", marker_topic=markers, transaction_timeout_ms=self.timeout_ms)
        made.step, made.after = step, after
        return made

    def batch(self, batch_id: int, run: str, tasks: Sequence[Prepared]) -> Work:
        partitions = frozenset(TopicPartition(self.topic, number) for number in range(PARTITIONS))
        return Work(batch_id, run, partitions, list, "", tuple(tasks))

    def run(self, batch_id: int, run: str, driver: DecidedCommit | None = None) -> bool:
        """A whole batch; False where it had been decided before."""
        tasks: list[Prepared] = []
        is_known = False
        try:
            tasks += self.tasks(batch_id, run)
        except KnownBatchError:
            is_known = True
        driver = driver or self.driver()
        written = driver.commit(self.batch(batch_id, run, tasks)._replace(is_known=is_known))
        if not written:
            driver.abandon(tasks, batch_id)
        return written

    def terminate(self, tasks: Sequence[Prepared]) -> None:
        """End the transactions of these tasks, as brokers do after the transaction timeout."""
        for task in tasks:
            self.at.retrying("the end of a transaction", partial(self._terminate, task))

    def _terminate(self, task: Prepared) -> None:
        request = InitProducerIdRequest(transactional_id=task.transactional_id, transaction_timeout_ms=60_000)
        connection = self.at.coordinator(task.transactional_id, TRANSACTION)
        answer = connection.request(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
        if answer.error_code == 51:
            raise RetriableError("CONCURRENT_TRANSACTIONS")
        check(answer.error_code, "InitProducerId")

    def check(self, batches: int) -> None:
        """Check that each row is there once, and that those of a key are in their order."""
        found: dict[bytes, list[int]] = {}
        for message in read_committed(self.bootstrap, self.topic, PARTITIONS):
            found.setdefault(message.key() or b"", []).append(int(message.value() or b""))
        assert found == {b"%d" % key: list(range(key, batches * SIZE, 10)) for key in range(10)}


def close_all() -> None:
    discard_sessions()
    while _clusters:
        _clusters.pop().close()


def on_each_cluster(bootstrap: str, topic: str, tmp_path: Path) -> Iterator[Query]:
    """A fixture: a query on one cluster after the other."""
    yield Query(bootstrap, topic, tmp_path)
    close_all()


def on_ours(odradek: str, topic: str, tmp_path: Path) -> Iterator[Query]:
    """A fixture: a query on our cluster."""
    yield Query(odradek, topic, tmp_path)
    close_all()


def dies(query: Query, batch_id: int, run: str, step: str, *, after: bool) -> list[Prepared]:
    """A run dies in a step of its commit; returns what its tasks had prepared."""
    tasks = query.tasks(batch_id, run)
    with pytest.raises(DiesError):
        query.driver(step, after=after).commit(query.batch(batch_id, run, tasks))
    return tasks
