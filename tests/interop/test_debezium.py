"""`odradek capture --format debezium --schemas` beside Debezium's own connector, and under Debezium's transformation.

Both capture one table of many types. Then a stock worker of Kafka Connect unwraps our events into a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Message

from odradek.capture.capture import Capture, Options
from odradek.capture.database import Database
from odradek.capture.formats import DebeziumFormat
from tests.interop.brokers import start_broker
from tests.interop.connect_worker import Worker
from tests.interop.maven import debezium
from tests.interop.packages import MissingError
from tests.support.clients.confluent import admin, await_ends, read_all
from tests.support.nodes.apache_kafka import ApacheKafka, KafkaUnavailableError
from tests.support.nodes.node import Node
from tests.support.nodes.postgres import Postgres
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

# Names, types and values of columns.
COLUMNS = [
    ("truth", "boolean", "t"),
    ("small", "smallint", "-3"),
    ("large", "bigint", "9223372036854775807"),
    ("single", "real", "1.5"),
    ("double", "float8", "1e300"),
    ("nan", "float8", "NaN"),
    ("free", "numeric", "123.4500"),
    ("fixed", "numeric(10,2)", "1.10"),
    ("price", "money", "-1234.5"),
    ("padded", "char(4)", "ab"),
    ("limited", "varchar(10)", "é"),
    ("letters", "text", 'a"b\\c'),
    ("octets", "bytea", "\\x00ff"),
    ("day", "date", "2026-11-27"),
    ("hour", "time", "10:00:00.123456"),
    ("hour_ms", "time(3)", "10:00:00.123"),
    ("hour_zone", "timetz", "12:00:00.5+02"),
    ("at", "timestamp", "2026-11-27 10:00:00.123456"),
    ("at_ms", "timestamp(3)", "2026-11-27 10:00:00.123"),
    ("at_s", "timestamp(0)", "2026-11-27 10:00:00"),
    ("ever", "timestamp", "infinity"),
    ("never", "timestamp", "-infinity"),
    ("zoned", "timestamptz", "2026-11-27 10:00:00.25+01"),
    ("zoned_s", "timestamptz(0)", "2026-11-27 10:00:00+01"),
    ("zoned_ever", "timestamptz", "infinity"),
    ("document", "json", '{"a":  1}'),
    ("binary_document", "jsonb", '{"a":  1}'),
    ("unique_id", "uuid", "00000000-0000-0000-0000-000000000001"),
    ("markup", "xml", "<a/>"),
    ("span", "interval", "1 year 2 mons 3 days 04:05:06.78"),
    ("span_back", "interval", "-1 year -3 days -04:05:06"),
    ("span_none", "interval", "0"),
    ("flag", "bit", "1"),
    ("flags", "bit(12)", "000010000001"),
    ("some_flags", "bit varying(20)", "101"),
    ("no_flags", "bit varying", "000"),
    ("network", "inet", "10.0.0.1/8"),
    ("object", "oid", "42"),
    ("span_of_time", "tsrange", "[2026-01-01,2026-02-01)"),
    ("ints", "int[]", "{1,NULL,3}"),
    ("no_ints", "int[]", "{}"),
    ("texts", "text[]", '{a,"b c","d\\"e,f{}\\\\",NULL,"NULL",""}'),
    ("numbers", "numeric(10,2)[]", "{1.10,2.00}"),
    ("truths", "boolean[]", "{t,f}"),
    ("days", "date[]", "{2026-11-27}"),
    ("hours", "time[]", "{10:00:00.5}"),
    ("ats", "timestamp[]", "{2026-11-27 10:00:00.5}"),
    ("zoned_ats", "timestamptz[]", "{2026-11-27 10:00:00+01}"),
    ("ids", "uuid[]", "{00000000-0000-0000-0000-000000000001}"),
    ("doubles", "float8[]", "{1.5,NaN}"),
    ("octet_strings", "bytea[]", '{"\\\\x00ff"}'),
    ("documents", "jsonb[]", '{"{\\"a\\": 1}"}'),
    ("table_of_ints", "int[]", "{{1,2},{3,4}}"),
    ("whole", "public.whole", "7"),
]
JSON = "org.apache.kafka.connect.json.JsonConverter"
CONVERTERS = {
    **{f"{part}.converter": JSON for part in ("key", "value")},
    **{f"{part}.converter.schemas.enable": "true" for part in ("key", "value")},
}
# Fields that differ between two captures of one database: the time of reading, and the name of the connector.
OWN = {"version", "name"}
READ = {"ts_ms", "ts_us", "ts_ns"}
OF_A_SNAPSHOT = READ | {"lsn", "sequence", "txId"}


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with Postgres("wal_level=logical") as server:
        yield server


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Node | ApacheKafka]:
    with start_broker(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def worker(tmp_path: Path, broker: Node | ApacheKafka) -> Iterator[Worker]:
    try:
        running = Worker(tmp_path, broker.bootstrap, debezium())
    except (KafkaUnavailableError, MissingError) as error:
        pytest.skip(f"no Kafka Connect: {error}")
    yield running
    running.stop()


def records(bootstrap: str, topic: str) -> list[Message]:
    if topic not in admin(bootstrap).list_topics(timeout=PATIENCE_S).topics:
        return []
    await_ends(bootstrap, topic)
    return read_all(bootstrap, topic, isolation_level="read_committed")


def comparable(message: Message, prefix: str) -> tuple[Any, ...]:
    """Key, value and headers, without what is different in each capture."""

    def parsed(text: Any) -> Any:
        return None if text is None else json.loads(bytes(text).decode().replace(f'"{prefix}.', '"PREFIX.'))

    key, value = parsed(message.key()), parsed(message.value())
    given: Any = message.headers() or []
    headers = {name: parsed(text) for name, text in given if name.endswith("key")}
    if value is not None:
        source = value["payload"]["source"]
        left_out = OWN | (OF_A_SNAPSHOT if source["snapshot"] != "false" else set())
        value["payload"]["source"] = {name: field for name, field in source.items() if name not in left_out}
        assert set(value["payload"]) == {*READ, "before", "after", "source", "transaction", "op"}
        value["payload"] = {name: field for name, field in value["payload"].items() if name not in READ}
    return key, value, headers


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each scalar with its path, so that a failure shows only the differences."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from leaves(each, f"{path}.{name}")
    elif isinstance(value, list | tuple) and value:
        for number, each in enumerate(value):
            yield from leaves(each, f"{path}.{each['field'] if isinstance(each, dict) and 'field' in each else number}")
    else:
        yield path, repr(value)


def assert_unwrapped(worker: Worker, unwrapped: Path) -> None:
    """Debezium's transformation makes rows of our events."""
    sink = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "file": str(unwrapped),
        "topics": "ours.public.types",
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
        "transforms.unwrap.add.fields": "op,source.snapshot",
        **CONVERTERS,
    }
    eventually(lambda: worker.create("unwrap", sink), "the sink is made")
    eventually(lambda: unwrapped.exists() and len(unwrapped.read_text().splitlines()) >= 9, "rows are unwrapped")
    rows = [line.removeprefix("Struct{").split(",") for line in unwrapped.read_text().splitlines()]
    assert [(row[0], *row[-3:]) for row in rows] == [
        ("id=1", "__deleted=false", "__op=r", "__source_snapshot=first}"),
        ("id=2", "__deleted=false", "__op=r", "__source_snapshot=true}"),
        ("id=3", "__deleted=false", "__op=r", "__source_snapshot=last}"),
        ("id=1", "__deleted=false", "__op=u", "__source_snapshot=false}"),
        ("id=1", "__deleted=true", "__op=d", "__source_snapshot=false}"),
        ("id=10", "__deleted=false", "__op=c", "__source_snapshot=false}"),
        ("id=10", "__deleted=true", "__op=d", "__source_snapshot=false}"),
        ("id=4", "__deleted=false", "__op=c", "__source_snapshot=false}"),
        ("id=5", "__deleted=false", "__op=c", "__source_snapshot=false}"),
    ]


def test_events_are_those_of_debezium_and_its_transformation_reads_them(
    tmp_path: Path, broker: Node | ApacheKafka, postgres: Postgres, worker: Worker
) -> None:
    with ExitStack() as open_databases, psycopg.connect(postgres.url, autocommit=True) as database:
        database.execute("CREATE DOMAIN public.whole AS int")
        columns = ", ".join(f"{name} {kind}" for name, kind, _ in COLUMNS)
        database.execute(f"CREATE TABLE public.types (id int, part text, {columns}, PRIMARY KEY (id, part))")
        insert = f"INSERT INTO public.types VALUES (%s, 'a'{', %s' * len(COLUMNS)})"
        texts = [text for _, _, text in COLUMNS]
        for number in (1, 2, 3):
            database.execute(insert, [number, *(texts if number == 1 else [None] * len(texts))])
        eventually(worker.is_ready, "the worker answers")
        options = Options("ours", ("public.types",), topic_prefix="ours", partitions=1, compacted=False)
        connected = open_databases.enter_context(Database(postgres.url, "ours"))
        ours = Capture(
            connected,
            {"bootstrap.servers": broker.bootstrap},
            options,
            lambda keys: DebeziumFormat(keys, "ours", "postgres", schemas=True),
        )
        open_databases.callback(ours.close)
        config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(postgres.port),
            "database.dbname": "postgres",
            "database.user": "postgres",
            "database.password": "any",
            "topic.prefix": "theirs",
            "table.include.list": "public.types",
            "plugin.name": "pgoutput",
            "slot.name": "theirs",
            "decimal.handling.mode": "string",
            "interval.handling.mode": "string",
            "include.unknown.datatypes": "true",
            **CONVERTERS,
        }
        eventually(lambda: worker.create("theirs", config), "Debezium's connector is made")
        eventually(lambda: len(records(broker.bootstrap, "theirs.public.types")) == 3, "its snapshot is written")
        database.execute("UPDATE public.types SET small = 4 WHERE id = 1")
        with database.transaction():
            database.execute("UPDATE public.types SET id = 10, part = 'ü' WHERE id = 1")
            database.execute("DELETE FROM public.types WHERE id = 10")
        database.execute(insert, [4, *texts])
        ours.catch_up(connected.flushed_lsn())
        eventually(lambda: len(records(broker.bootstrap, "theirs.public.types")) == 10, "Debezium has written all")
        expected = [comparable(message, "theirs") for message in records(broker.bootstrap, "theirs.public.types")]
        found = [comparable(message, "ours") for message in records(broker.bootstrap, "ours.public.types")]
        for one, other in zip(found, expected, strict=True):
            assert set(leaves(one)) ^ set(leaves(other)) == set()
        database.execute("TRUNCATE public.types")  # which Debezium leaves out, and its transformation too
        database.execute(insert, [5, *texts])
        ours.catch_up(connected.flushed_lsn())
    assert_unwrapped(worker, tmp_path / "unwrapped.txt")
