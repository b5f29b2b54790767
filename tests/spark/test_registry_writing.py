"""Values in the frame of a schema registry, as the topic sink writes them."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's own documentation gives it

from pyspark_odradek.errors import ClusterError, OptionError
from pyspark_odradek.spark_api import arrow_schema
from pyspark_odradek.topic_sink.sink_options import SinkOptions, parse_sink_options
from pyspark_odradek.values import registry as registries
from pyspark_odradek.values.avro_writing import schema_of
from pyspark_odradek.values.framing import Framing
from pyspark_odradek.writers import batch_writer
from tests.spark.queries import load, load_stream, numbered
from tests.support.clients.confluent import create_topic, read_committed
from tests.support.nodes.schema_registry import SchemaRegistry

GIVEN = {"kafka.bootstrap.servers": "h:1", "topic": "t", "valueFormat": "avro", "schemaRegistryUrl": "http://r:1"}
VISIT = T.StructType([T.StructField("page", T.StringType()), T.StructField("s", T.IntegerType())])
FIELDS = [{"name": "page", "type": "string"}, {"name": "s", "type": "long"}]
SCHEMA = {"type": "record", "name": "Visit", "fields": FIELDS}
NOON = datetime.datetime(2026, 11, 27, 12, 0, 0, 250_000)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    registries._KNOWN.clear()
    with SchemaRegistry() as made:
        yield made


def options(registry: SchemaRegistry, **more: Any) -> SinkOptions:
    given = GIVEN | {"schemaRegistryUrl": registry.url}
    given |= {name: value if isinstance(value, str) else json.dumps(value) for name, value in more.items()}
    return parse_sink_options(given, streaming=False, overwrite=False)


def framing(registry: SchemaRegistry, columns: T.DataType = VISIT, **more: Any) -> Framing:
    """The framing of the tasks, which get it from the driver."""
    schema = T.StructType([T.StructField("Value", columns)])
    chosen = options(registry, **more)
    chosen.columns(schema)
    made = chosen.framing(schema)
    assert made is not None
    found: Framing = pickle.loads(pickle.dumps(made))
    return found


def newest(registry: SchemaRegistry) -> Any:
    """The newest schema of the subject t-value."""
    return json.loads(registry.answer("/subjects/t-value/versions/latest", None)[1]["schema"])


def encoded(made: Framing, columns: T.StructType, rows: list[Any]) -> list[Any]:
    (field,) = arrow_schema(T.StructType([T.StructField("value", columns)]))
    found: list[Any] = made.encode(pa.array(rows, field.type)).to_pylist()
    return found


def read(value: bytes, schema: Any) -> Any:
    """The row that fastavro reads behind the frame."""
    data = io.BytesIO(value[5:])
    row = fastavro.schemaless_reader(data, fastavro.parse_schema(schema), None)
    assert data.tell() == len(value) - 5
    return row


def test_the_newest_schema_of_the_subject_is_written(registry: SchemaRegistry) -> None:
    registry.register("other", {})
    schema_id = registry.register("t-value", SCHEMA)
    made = framing(registry)
    found = encoded(made, VISIT, [{"page": "/a", "s": 5}, None, {"page": "", "s": -1}])
    assert found[0][:5] == b"\0\0\0\0" + bytes([schema_id]) and found[1] is None
    assert [read(value, SCHEMA) for value in found if value] == [{"page": "/a", "s": 5}, {"page": "", "s": -1}]
    assert registry.asked == ["/subjects/t-value/versions/latest"]


def test_a_given_schema_is_registered_once(registry: SchemaRegistry) -> None:
    """A subject that has it is only asked, which needs no right to write."""
    newer = SCHEMA | {"doc": "newer"}
    for _ in range(2):
        assert framing(registry, valueSchema=SCHEMA, schemaRegistrySubject="a/b").schema_id == 1
    assert registry.asked == ["/subjects/a%2Fb", "/subjects/a%2Fb/versions", "/subjects/a%2Fb"]
    registry.register("a/b", newer)
    assert framing(registry, valueSchema=SCHEMA, schemaRegistrySubject="a/b").schema_id == 1, "not the newest"
    registry.refusal = "not compatible: page is gone"
    with pytest.raises(OptionError, match="refuses the schema of the values: not compatible: page is gone"):
        framing(registry, valueSchema=SCHEMA)
    registry.login = "writer:secret"
    with pytest.raises(ClusterError, match=r"answers 401 .*Check schemaRegistryUser"):
        framing(registry, valueSchema=SCHEMA)


EVERY = T.StructType(
    [
        T.StructField("yes", T.BooleanType()),
        T.StructField("b", T.ByteType(), False),
        T.StructField("h", T.ShortType()),
        T.StructField("i", T.IntegerType()),
        T.StructField("l", T.LongType(), False),
        T.StructField("f", T.FloatType()),
        T.StructField("d", T.DoubleType()),
        T.StructField("t", T.StringType()),
        T.StructField("raw", T.BinaryType()),
        T.StructField("day", T.DateType()),
        T.StructField("at", T.TimestampType()),
        T.StructField("local", T.TimestampNTZType()),
        T.StructField("price", T.DecimalType(20, 3)),
        T.StructField("list", T.ArrayType(T.StructType([T.StructField("item", VISIT)]))),
        T.StructField("map", T.MapType(T.StringType(), T.MapType(T.StringType(), T.LongType()))),
        T.StructField("item", T.StructType([T.StructField("item", T.ArrayType(VISIT, False))])),
    ]
)
ROW: dict[str, Any] = {
    "yes": True,
    "b": -128,
    "h": 32_767,
    "i": -(2**31),
    "l": 2**63 - 1,
    "f": 0.5,
    "d": 1e300,
    "t": "größer",
    "raw": b"\xff\0",
    "day": datetime.date(1969, 12, 31),
    "at": NOON.replace(tzinfo=datetime.UTC),
    "local": NOON,
    "price": decimal.Decimal("-12345678901234567.125"),
    "list": [{"item": {"page": "/a", "s": 1}}, None],
    "map": {"k": {"n": 7, "m": None}, "none": None},
    "item": {"item": [{"page": None, "s": 2}]},
}


def test_a_schema_is_made_of_columns_of_every_type(registry: SchemaRegistry) -> None:
    made = framing(registry, EVERY)
    written = newest(registry)
    row = ROW | {"map": [(name, each and list(each.items())) for name, each in ROW["map"].items()]}
    nulls = dict.fromkeys(EVERY.names) | {"b": 0, "l": 0}
    assert [read(value, written) for value in encoded(made, EVERY, [row, nulls])] == [ROW, nulls]
    assert registry.asked[-1] == "/subjects/t-value/versions"
    assert framing(registry, EVERY).schema_id == made.schema_id, "the next query finds it, and it fits"


def test_fields_without_a_column_have_their_default(registry: SchemaRegistry) -> None:
    more = [{"name": "shop", "type": "string", "default": "main"}, {"name": "n", "type": ["null", "long"]}]
    wider = SCHEMA | {"fields": [more[0], *FIELDS, more[1]]}
    registry.register("t-value", wider)
    (value,) = encoded(framing(registry), VISIT, [{"page": "/a", "s": 5}])
    assert read(value, wider) == {"page": "/a", "s": 5, "shop": "main", "n": None}


def of(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, **more}]}


def column(kind: T.DataType) -> T.StructType:
    return T.StructType([T.StructField("a", kind)])


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
UUID_16 = {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}


@pytest.mark.parametrize(
    ("columns", "schema", "says"),
    [
        (column(T.LongType()), of("int"), "value.a is bigint and int in the schema"),
        (column(T.IntegerType()), of("float"), "value.a is int and float in the schema"),
        (column(T.DoubleType()), of("float"), "value.a is double and float in the schema"),
        (column(T.StringType()), of("bytes"), "value.a is string and binary in the schema"),
        (column(T.StringType()), of(UUID_16), "value.a is string and string in the schema"),
        (column(T.DecimalType(7, 2)), of(DECIMAL), r"decimal\(7,2\) and decimal\(6,2\)"),
        (column(T.DecimalType(6, 3)), of(DECIMAL), r"decimal\(6,3\) and decimal\(6,2\)"),
        (column(T.TimestampNTZType()), of({"type": "long", "logicalType": "timestamp-micros"}), "timestamp_ntz"),
        (column(T.NullType()), of("int"), "value.a is void and int"),
        (column(T.MapType(T.IntegerType(), T.LongType())), of({"type": "map", "values": "long"}), "map<int,bigint>"),
        (column(T.ArrayType(T.LongType())), of({"type": "array", "items": "int"}), r"value.a\[\] is bigint"),
        (VISIT, of("int"), "value.page is in no field of the schema of the values: select it away"),
        (T.StructType([]), of("int"), "value has no column a, which the schema of the values has, without a default"),
        (VISIT, {"type": "string"}, "valueSchema must be an Avro schema of a record"),
        (VISIT, of({"type": "enum", "name": "e", "symbols": ["1"]}), "valueSchema: .*"),
    ],
)
def test_columns_that_a_schema_does_not_hold(registry: SchemaRegistry, columns: Any, schema: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        framing(registry, columns, valueSchema=schema)
    assert registry.asked == [], "nothing is registered"


@pytest.mark.parametrize(
    ("kind", "schema", "value", "says"),
    [
        (T.StringType(), "string", None, "field a"),
        (T.StringType(), {"type": "enum", "name": "e", "symbols": ["A"]}, "B", "B"),
        (T.BinaryType(), {"type": "fixed", "name": "f", "size": 2}, b"abc", "size: "),
        (T.LongType(), "long", None, "field a"),
    ],
)
def test_a_row_that_does_not_fit(registry: SchemaRegistry, kind: Any, schema: Any, value: Any, says: str) -> None:
    made = framing(registry, column(kind), valueSchema=of(schema))
    with pytest.raises(OptionError, match=f"a row does not fit the schema of the values: .*{says}"):
        encoded(made, column(kind), [{"a": value}])


def test_json_gets_the_frame_and_stays_as_it_is(registry: SchemaRegistry) -> None:
    schema = {"type": "object"}
    with pytest.raises(OptionError, match="has no subject t-value: give its JSON Schema as the option valueSchema"):
        framing(registry, T.StringType(), valueFormat="json")
    made = framing(registry, T.StringType(), valueFormat="json", valueSchema=schema)
    assert made.encode(pa.array(['{"ü": 1}', None])).to_pylist() == [b"\0\0\0\0\1" + '{"ü": 1}'.encode(), None]
    assert framing(registry, T.BinaryType(), valueFormat="json").encode(pa.array([b"1"])).to_pylist() == [
        b"\0\0\0\0\0011"
    ]
    assert newest(registry) == schema
    with pytest.raises(OptionError, match="the newest schema of t-value in the registry is JSON, and valueFormat is"):
        framing(registry)
    for wrong, says in (("{", "is not valid JSON"), ("1", "must be a JSON Schema")):
        with pytest.raises(OptionError, match=f"valueSchema {says}"):
            framing(registry, T.StringType(), valueFormat="json", valueSchema=wrong)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"valueFormat": "binary"}, "schemaRegistryUrl has an effect only with valueFormat=json or avro or protobuf"),
        ({"valueFormat": "csv"}, "valueFormat is one of binary, json, avro, protobuf, not 'csv'"),
        ({"schemaRegistryUrl": ""}, "valueFormat=avro of a sink needs schemaRegistryUrl: .* as with to_avro"),
        ({"valueMessage": "shop.Order"}, "valueMessage has an effect only with valueFormat=protobuf"),
        ({"schemaRegistryReferences": "[]"}, "schemaRegistryReferences has an effect only with valueSchema"),
        (
            {"valueFormat": "protobuf", "valueSchema": "x", "schemaRegistryReferences": "[]"},
            "References has an effect only with valueFormat=avro or json: those of Protobuf are the imports",
        ),
        ({"topic": ""}, "each row names its topic: give schemaRegistrySubject, or the option topic"),
        ({"schemaRegistryUser": "u"}, "give schemaRegistryUser and schemaRegistryPassword"),
    ],
)
def test_options_that_contradict(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_sink_options(GIVEN | given, streaming=True, overwrite=False)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"delivery": "at_least_once", "kafka.compression.type": "none of them"}, "compression"),
        ({"delivery": "exactly_once"}, "needs the option stagingLocation"),
    ],
)
def test_a_query_with_a_wrong_option_registers_nothing(
    registry: SchemaRegistry, wrong: dict[str, str], says: str
) -> None:
    given = GIVEN | {"schemaRegistryUrl": registry.url} | wrong
    with pytest.raises(OptionError, match=says):
        batch_writer(given, T.StructType([T.StructField("value", VISIT)]), False)
    assert registry.asked == []


def test_columns_of_another_type_than_the_format_takes(registry: SchemaRegistry) -> None:
    with pytest.raises(OptionError, match=r"column value is string: valueFormat=avro takes a struct"):
        framing(registry, T.StringType())
    with pytest.raises(OptionError, match=r"column value is struct<.*: valueFormat=json takes text"):
        framing(registry, VISIT, valueFormat="json")
    for name, kind, says in (("a b", T.LongType(), "has no name of a field"), ("a", T.VariantType(), "is variant")):
        with pytest.raises(OptionError, match=says):
            framing(registry, T.StructType([T.StructField(name, kind)]))


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_rows_written_under_spark_are_read_again(
    spark: Any, odradek: str, topic: str, registry: SchemaRegistry, tmp_path: Path, delivery: str
) -> None:
    create_topic(odradek, topic)
    frame = spark.range(500).selectExpr(
        "STRING(id) key", "IF(id = 7, NULL, named_struct('page', '/a', 'n', id, 'at', timestamp_seconds(id))) value"
    )
    given = {"topic": topic, "valueFormat": "avro", "schemaRegistryUrl": registry.url, "delivery": delivery}
    given |= {"kafka.bootstrap.servers": odradek}
    if delivery == "exactly_once":
        given["stagingLocation"] = str(tmp_path)
    frame.write.format("odradek").options(**given).mode("append").save()
    reading = {"subscribe": topic, "valueFormat": "avro", "schemaRegistryUrl": registry.url}
    rows = load(spark, odradek, **reading).selectExpr("INT(STRING(key)) k", "value.n n", "value.at at").collect()
    assert sorted((row.k, row.n, row["at"] and row["at"].second) for row in rows if row.k != 7) == [
        (n, n, n % 60) for n in range(500) if n != 7
    ]
    assert [row.n for row in rows if row.k == 7] == [None], "a tombstone"
    assert sum("/versions" in path and "latest" not in path for path in registry.asked) == 1, "registered once"


def test_a_stream_has_the_newest_schema_by_driver_and_tasks(
    spark: Any, odradek: str, topic: str, registry: SchemaRegistry, tmp_path: Path
) -> None:
    create_topic(odradek, topic)
    create_topic(odradek, f"{topic}-copy", 2)
    numbers = T.StructType([T.StructField("number", T.StringType())])
    nullable = schema_of(numbers)
    registry.register(f"{topic}-copy-value", nullable)
    for number in range(2):
        numbered(odradek, topic, range(number * 50, number * 50 + 50))
        stream = load_stream(spark, odradek, subscribe=topic).selectExpr("struct(STRING(value) AS number) AS value")
        given = {"topic": f"{topic}-copy", "valueFormat": "avro", "schemaRegistryUrl": registry.url}
        given |= {"markerTopic": f"{topic}-markers", "exactlyOnceWriters": ("driver", "tasks")[number]}
        writer = stream.writeStream.format("odradek").options(**given).option("kafka.bootstrap.servers", odradek)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(400)
        registry.register(f"{topic}-copy-value", nullable.replace("value", "Number"))
    values = [message.value() or b"" for message in read_committed(odradek, f"{topic}-copy", 2)]
    # The frame is followed by the branch of the union and the length of the text.
    assert sorted((value[4], int(value[7:])) for value in values) == [(1 + n // 50, n) for n in range(100)]
