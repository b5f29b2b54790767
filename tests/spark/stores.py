"""The stores that exactly-once sinks write into, so that one test asks the same of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_odradek.micro_batch.task import Task
from pyspark_odradek.spark_api import arrow_schema
from pyspark_odradek.writers import stream_writer
from tests.support.clients.confluent import read_committed
from tests.support.nodes.postgres import Postgres

ROWS = StructType([StructField("id", LongType()), StructField("name", StringType())])


class Copies(Protocol):
    """A store to which a query writes numbered rows, with these options."""

    name: str
    options: dict[str, str]

    def rows(self, columns: str = "id, name") -> list[tuple[Any, ...]]:
        """The rows that a reader finds, sorted."""

    def leftovers(self) -> list[str]:
        """The files staged by tasks that are no part of it."""


class Store(Copies, Protocol):
    """A table in a store."""

    def by_another(self, number: int) -> None:
        """Another writer adds a row with this id."""


def writer(store: Store, schema: StructType = ROWS, **options: str) -> Any:
    """The stream writer of our format."""
    return stream_writer(store.options | options, schema, False)


def left(made: Any, task: Task, rows: list[tuple[Any, ...]]) -> Any:
    """The message of a task to the driver."""
    made.task = lambda: task
    schema = arrow_schema(made.schema)
    arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
    return made.write(iter([pa.record_batch(arrays, schema=schema)]))


def commit(made: Any, batch_id: int, numbers: range, query: str = "query") -> bool:
    """A batch of two tasks, as the driver commits it."""
    tasks = [Task(query, "run", batch_id, number, number) for number in range(2)]
    halves = (numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :])
    found = [left(made, task, [(n, f"n{n % 3}") for n in half]) for task, half in zip(tasks, halves, strict=True)]
    return bool(made.commit_once(tasks[0], found))


def commits_between(made: Any, store: Store) -> list[int]:
    """Let another writer commit behind each of the sink's first three looks at its table; gives the looks so far."""
    look = made.table
    looks: list[int] = []

    def table() -> Any:
        found = look()
        looks.append(len(looks) + 1)
        if len(looks) < 4:
            store.by_another(100 + len(looks))
        return found

    made.table = table
    return looks


def ids(store: Copies) -> list[int]:
    return [row[0] for row in store.rows("id")]


class TopicCopy:
    """A topic of two partitions, whose values are numbers; tasks stage in the checkpoint of tests.spark.copy_job."""

    name = "topic"

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.staging = folder / "checkpoint-topic" / "odradek-staging"
        # A driver that is held back may wait for as long as another one takes on a busy machine.
        patience = {"kafka.default.api.timeout.ms": "600000"}
        self.options = {"kafka.bootstrap.servers": bootstrap, "topic": topic} | patience

    def rows(self, columns: str = "id") -> list[tuple[Any, ...]]:
        messages = read_committed(self.bootstrap, self.topic, 2)
        return sorted((int(message.value() or b""),) for message in messages)

    def leftovers(self) -> list[str]:
        assert self.staging.is_dir(), "nothing was staged"
        return [str(path) for path in self.staging.rglob("*") if path.is_file()]


class TaskWritersCopy(TopicCopy):
    """The same, by tasks that write to the brokers."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        super().__init__(bootstrap, topic, folder)
        self.options |= {"exactlyOnceWriters": "tasks", "markerTopic": f"{topic}-markers"}


class DeltaStore:
    """A folder."""

    name = "delta"

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "table")
        self.options = {"sink": "delta", "path": self.path}

    def rows(self, columns: str = "id, name") -> list[tuple[Any, ...]]:
        from deltalake import DeltaTable

        return in_order(DeltaTable(self.path).to_pyarrow_table(), columns)

    def leftovers(self) -> list[str]:
        from deltalake import DeltaTable

        named = {Path(name.removeprefix("file://")).name for name in DeltaTable(self.path).file_uris()}
        return [path.name for path in Path(self.path).rglob("*.parquet") if path.name not in named]

    def by_another(self, number: int) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.path, pa.table({"id": [number], "name": ["x"]}), mode="append")


class IcebergStore:
    """A catalog in SQLite and its tables, in one folder."""

    name = "iceberg"

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("pyiceberg", reason='needs pyiceberg: pip install "odradek[iceberg]"')
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
        self.options = {"sink": "iceberg", "table": "shop.orders"}
        self.options |= {f"catalog.{name}": value for name, value in self.properties.items()}

    def table(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **self.properties).load_table("shop.orders")

    def rows(self, columns: str = "id, name") -> list[tuple[Any, ...]]:
        return in_order(self.table().scan().to_arrow(), columns)

    def leftovers(self) -> list[str]:
        table = self.table()
        named = {Path(name).name for name in table.inspect.all_files()["file_path"].to_pylist()}
        folder = Path(table.location().removeprefix("file://")) / "data"
        return [path.name for path in folder.rglob("*.parquet") if path.name not in named]

    def by_another(self, number: int) -> None:
        self.table().append(pa.table({"id": [number], "name": ["x"]}))


class PostgresStore:
    """A table in a server's database, with a table of markers of its own."""

    name = "postgres"

    def __init__(self, server: Postgres, table: str) -> None:
        self.server = server
        self.table = table
        self.options = {"sink": "postgres", "connection": server.url, "table": table, "createTable": "true"}
        self.options["markerTable"] = f"marks_{table}"

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.server.url) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def rows(self, columns: str = "id, name") -> list[tuple[Any, ...]]:
        return self.query(f"SELECT {columns} FROM {self.table} ORDER BY id")

    def leftovers(self) -> list[str]:
        return [name for (name,) in self.query(r"SELECT relname FROM pg_class WHERE relname LIKE 'odradek\_stage%'")]

    def by_another(self, number: int) -> None:
        self.query(f"INSERT INTO {self.table} (id, name) VALUES ({number}, 'x')")


def in_order(table: Any, columns: str) -> list[tuple[Any, ...]]:
    names = columns.split(", ")
    found = table.select(names).to_pylist()
    return sorted((tuple(row[name] for name in names) for row in found), key=lambda row: row[0])
