"""Protobuf values in the frame of a schema registry, as the topic sink writes them, beside what other libraries do."""

from __future__ import annotations

import base64
import datetime
import decimal
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's own documentation gives it

from pyspark_odradek.data_source import OdradekDataSource
from pyspark_odradek.errors import OptionError
from pyspark_odradek.spark_api import arrow_schema
from pyspark_odradek.topic_sink.sink_options import parse_sink_options
from pyspark_odradek.values import registry as registries
from pyspark_odradek.values.decoding import decoder
from pyspark_odradek.values.framing import Framing
from tests.spark.queries import load
from tests.support.clients.confluent import create_topic
from tests.support.nodes.schema_registry import SchemaRegistry

pytest.importorskip("google.protobuf", reason='needs protobuf: pip install "odradek[protobuf]"')

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

from pyspark_odradek.values.frame import BehindFrame
from pyspark_odradek.values.protobuf_values import ProtobufValues, spark_schema

FIELD = descriptor_pb2.FieldDescriptorProto
ORDER = "shop.Order"


def add(message: Any, name: str, kind: str, *, many: bool = False, **more: Any) -> None:
    """A field, of a type as in a .proto file; one with a dot is that of a message, or of an enum with `enum=True`."""
    is_enum = more.pop("enum", False)
    if "." in kind:
        more["type_name"] = f".{kind}"
    number = FIELD.TYPE_ENUM if is_enum else getattr(FIELD, f"TYPE_{'MESSAGE' if '.' in kind else kind.upper()}")
    label = FIELD.LABEL_REPEATED if many else more.pop("label", FIELD.LABEL_OPTIONAL)
    message.field.add(name=name, number=len(message.field) + 1, type=number, label=label, **more)


def add_map(message: Any, name: str, key: str, value: str) -> None:
    entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
    entry.options.map_entry = True
    add(entry, "key", key)
    add(entry, "value", value)
    add(message, name, f"shop.{message.name}.{entry.name}", many=True)


def town_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="place/town.proto", package="place", syntax="proto3")
    add(file.message_type.add(name="Town"), "name", "string")
    return file


def shop_file(*, of_protoc: bool = True) -> Any:
    """A visit; and an order with a field of each kind, whose lines are messages within it.

    protoc puts the usual names in JSON into a descriptor set, and leaves them out of the code that it generates.
    """
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    known = [f"google/protobuf/{name}.proto" for name in ("timestamp", "wrappers")]
    file.dependency.extend([known[0], "place/town.proto", known[1]])
    for number, name in enumerate(["UNKNOWN", "PAID"]):
        (file.enum_type or [file.enum_type.add(name="State")])[0].value.add(name=name, number=number)
    add(file.message_type.add(name="Visit"), "page", "string")
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    add(line, "sku", "string")
    add(line, "count", "uint32")
    for kind in ("int32", "sint32", "int64", "sfixed64", "uint32", "fixed64", "float", "double", "bool", "bytes"):
        add(order, f"of_{kind}", kind, json_name=f"of{kind.capitalize()}" if of_protoc else None)
    add(order, "state", "shop.State", enum=True)
    add(order, "at", "google.protobuf.Timestamp")
    add(order, "note", "google.protobuf.StringValue")
    add(order, "large", "google.protobuf.UInt64Value")
    add(order, "town", "place.Town")
    add(order, "first", "shop.Order.Line")
    add(order, "lines", "shop.Order.Line", many=True)
    add(order, "tags", "string", many=True)
    add(order, "times", "google.protobuf.Timestamp", many=True)
    add_map(order, "prices", "string", "double")
    add_map(order, "towns", "int32", "place.Town")
    for name in ("card", "cash"):
        add(order, name, "int32", oneof_index=0)
    add(order, "by", "string", oneof_index=1, proto3_optional=True)
    order.oneof_decl.add(name="payment")
    order.oneof_decl.add(name="_by")
    return file


def descriptor_set(*files: Any) -> Any:
    found = descriptor_pb2.FileDescriptorSet()
    for needed in (timestamp_pb2, wrappers_pb2):
        needed.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.extend(files)
    return found


def text_of(found: Any) -> str:
    return base64.b64encode(found.SerializeToString()).decode()


def classes(*files: Any) -> Any:
    """The classes that protoc would generate, by their full names."""
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_set(*files).file:
        pool.Add(each)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


SHOP = (town_file(), shop_file())
SCHEMA = text_of(descriptor_set(*SHOP))
EVERY = spark_schema(SCHEMA, ORDER)
ROW: dict[str, Any] = {
    "of_int32": -(2**31),
    "of_sint32": 2**31 - 1,
    "of_int64": 2**63 - 1,
    "of_sfixed64": -(2**63),
    "of_uint32": 2**32 - 1,
    "of_fixed64": decimal.Decimal(2**64 - 1),
    "of_float": 0.5,
    "of_double": 1e300,
    "of_bool": True,
    "of_bytes": b"\xff\0",
    "state": "PAID",
    "at": datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, datetime.UTC),
    "note": "",
    "large": decimal.Decimal(7),
    "town": {"name": "größer"},
    "first": {"sku": "", "count": 0},
    "lines": [{"sku": "a", "count": 2}, {"sku": "", "count": 0}],
    "tags": ["x", ""],
    "times": [datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)],
    "prices": [("eur", 1.5)],
    "towns": [(-1, {"name": "Z"})],
    "card": None,
    "cash": 0,
    "by": "",
}
DEFAULTS: dict[str, Any] = dict.fromkeys(("at", "note", "large", "town", "first", "card", "cash", "by"))
DEFAULTS |= {name: [] for name in ("lines", "tags", "times", "prices", "towns")}
DEFAULTS |= {
    f"of_{kind}": 0 for kind in ("int32", "sint32", "int64", "sfixed64", "uint32", "fixed64", "float", "double")
}
DEFAULTS |= {"of_bool": False, "of_bytes": b"", "state": "UNKNOWN"}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    registries._KNOWN.clear()
    with SchemaRegistry() as made:
        yield made


def framing(registry: SchemaRegistry, columns: T.DataType = EVERY, **more: str) -> Framing:
    """The framing of the tasks, which get it from the driver."""
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", "valueFormat": "protobuf"}
    chosen = parse_sink_options(given | {"schemaRegistryUrl": registry.url} | more, streaming=False, overwrite=False)
    schema = T.StructType([T.StructField("value", columns)])
    chosen.columns(schema)
    found: Framing = pickle.loads(pickle.dumps(chosen.framing(schema)))
    return found


def encoded(made: Framing, columns: T.StructType, rows: list[Any]) -> list[Any]:
    (field,) = arrow_schema(T.StructType([T.StructField("value", columns)]))
    found: list[Any] = made.encode(pa.array(rows, field.type)).to_pylist()
    return found


def read(values: list[Any], schema: str = SCHEMA, message: str = ORDER) -> list[Any]:
    """The rows that the source reads from these values."""
    (field,) = arrow_schema(T.StructType([T.StructField("value", spark_schema(schema, message))]))
    decoder = ProtobufValues(schema, message, field.type)
    column, wrong = BehindFrame(decoder, decoder.place).decode(pa.array(values, pa.binary()))
    assert wrong == {}
    return list(column.to_pylist())


def test_written_messages_are_read_again_and_by_googles_library(registry: SchemaRegistry) -> None:
    made = framing(registry, valueSchema=SCHEMA, valueMessage=ORDER)
    values = encoded(made, EVERY, [ROW, None, dict.fromkeys(EVERY.names)])
    assert read(values) == [ROW, None, DEFAULTS]
    assert values[2] == b"\0\0\0\0\2" + b"\2\2", "nothing is set; the message has index 1 in its file"
    order = classes(*SHOP)(ORDER).FromString(values[0][7:])
    assert order.HasField("by") and order.HasField("note") and order.HasField("first"), "set to the default"
    assert order.WhichOneof("payment") == "cash"
    assert (order.at.seconds, order.at.nanos) == (-1, 999_999_000)


def test_a_file_and_its_imports_are_registered_once(registry: SchemaRegistry) -> None:
    """Each import under its name, before the file which refers to it; those that every registry knows are left out."""
    for _ in range(2):
        assert framing(registry, valueSchema=SCHEMA, valueMessage=ORDER).schema_id == 2
    town, order = "/subjects/place%2Ftown.proto", "/subjects/t-value"
    once = [town, town, f"{town}/versions", town, order, f"{order}/versions"]
    assert registry.asked == [*once, town, order]
    _, found = registry.answer("/subjects/t-value/versions/latest?format=serialized", None)
    assert found["references"] == [{"name": "place/town.proto", "subject": "place/town.proto", "version": 1}]
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(found["schema"]))
    assert [field.HasField("json_name") for field in file.message_type[1].field[:2]] == [False, False]


def test_the_newest_file_of_the_subject_is_written_with_its_imports(registry: SchemaRegistry) -> None:
    with pytest.raises(OptionError, match="has no subject t-value: give a descriptor set as the option valueSchema"):
        framing(registry)
    registry.register("elsewhere", text_of(town_file()), schemaType="PROTOBUF")
    where = {"name": "place/town.proto", "subject": "elsewhere", "version": 1}
    schema_id = registry.register("t-value", text_of(shop_file()), schemaType="PROTOBUF", references=[where])
    registry.asked.clear()
    made = framing(registry, valueMessage=ORDER)
    assert made.schema_id == schema_id and read(encoded(made, EVERY, [ROW])) == [ROW]
    latest, town = "/subjects/t-value/versions/latest", "/subjects/elsewhere/versions/1"
    assert registry.asked == [f"{latest}?format=serialized", f"{town}?format=serialized"]
    with pytest.raises(OptionError, match=r"set the option valueMessage: valueSchema has the messages shop\.Visit, "):
        framing(registry)


def test_a_registered_file_that_is_incomplete(registry: SchemaRegistry) -> None:
    where = {"name": "place/town.proto", "subject": "gone", "version": 3}
    for schema, references, says in (
        (text_of(shop_file()), [], "imports place/town.proto, to which it does not refer in the registry"),
        (text_of(shop_file()), [where], "the schema registry has no version 3 of gone, which a schema refers to"),
        (text_of(shop_file()), [{"name": "x"}], "has references without name, subject or version"),
        ('syntax = "proto3";', [], "the registry gives no descriptor of the newest schema of t-value"),
    ):
        registry.register("t-value", schema, schemaType="PROTOBUF", references=references)
        with pytest.raises(OptionError, match=says):
            framing(registry, valueMessage=ORDER)
    registry.register("t-value", {})
    with pytest.raises(OptionError, match="the newest schema of t-value in the registry is AVRO, and valueFormat is"):
        framing(registry)


@pytest.mark.parametrize(
    ("message", "place"), [("shop.Visit", b"\0"), (ORDER, b"\2\2"), ("shop.Order.Line", b"\4\2\0")]
)
def test_the_place_of_the_message_in_its_file(registry: SchemaRegistry, message: str, place: bytes) -> None:
    """The bytes are those of the serializer of confluent-kafka 2.16.1."""
    columns = T.StructType([spark_schema(SCHEMA, message).fields[0]])
    made = framing(registry, columns, valueSchema=SCHEMA, valueMessage=message)
    (value,) = encoded(made, columns, [dict.fromkeys(columns.names)])
    assert value == b"\0\0\0\0\2" + place


def column(name: str, kind: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind)])


LINE = T.StructType([T.StructField("sku", T.StringType()), T.StructField("count", T.LongType())])


@pytest.mark.parametrize(
    ("name", "kind", "value", "says"),
    [
        ("of_uint32", T.LongType(), 2**32, r"value.of_uint32 is 4294967296, and uint32 is 0 to 4294967295"),
        ("of_uint32", T.IntegerType(), -1, r"value.of_uint32 is -1, and uint32"),
        ("of_fixed64", T.DecimalType(38, 0), decimal.Decimal(2**64), "value.of_fixed64 is 18446744073709551616, and"),
        ("of_fixed64", T.LongType(), -1, "value.of_fixed64 is -1, and uint64 is 0 to 18446744073709551615"),
        ("large", T.LongType(), -1, "value.large is -1, and uint64"),
        ("at", T.TimestampType(), 253_402_300_800_000_000, "value.at is 253402300800000000 µs after 1970, and"),
        ("times", T.ArrayType(T.TimestampType()), [0, -(2**62)], r"value.times\[1\] is -4611686018427387904 µs"),
        ("state", T.StringType(), "paid", "value.state is 'paid', and shop.State has UNKNOWN, PAID"),
        ("state", T.StringType(), str(2**31), "value.state is '2147483648', and shop.State"),
        ("tags", T.ArrayType(T.StringType()), ["a", None], r"value.tags\[1\] is null, which neither lists nor maps"),
        ("prices", T.MapType(T.StringType(), T.DoubleType()), [("eur", None)], r"value.prices\['eur'\] is null"),
        ("lines", T.ArrayType(LINE), [{"sku": "", "count": 1}, {"count": -1}], r"value.lines\[1\].count is -1"),
    ],
)
def test_a_row_that_does_not_fit(registry: SchemaRegistry, name: str, kind: Any, value: Any, says: str) -> None:
    columns = column(name, kind)
    made = framing(registry, columns, valueSchema=SCHEMA, valueMessage=ORDER)
    with pytest.raises(
        OptionError, match=f"a row does not fit the schema of the values: row 2 of 3 of a batch: {says}"
    ):
        encoded(made, columns, [{name: None}, {name: value}, {name: None}])


def test_two_fields_of_one_oneof(registry: SchemaRegistry) -> None:
    columns = T.StructType([T.StructField(name, T.ShortType()) for name in ("card", "cash")])
    made = framing(registry, columns, valueSchema=SCHEMA, valueMessage=ORDER)
    with pytest.raises(
        OptionError, match="row 1 of 1 of a batch: value has card and cash, of which only one may be set"
    ):
        encoded(made, columns, [{"card": 0, "cash": 1}])


def test_a_state_is_a_name_or_a_number_also_of_a_later_schema(registry: SchemaRegistry) -> None:
    for kind, states in ((T.StringType(), ["PAID", "7", "-1"]), (T.IntegerType(), [1, 7, -1])):
        made = framing(registry, column("state", kind), valueSchema=SCHEMA, valueMessage=ORDER)
        found = read(encoded(made, column("state", kind), [{"state": state} for state in states]))
        assert [row["state"] for row in found] == ["PAID", "7", "-1"]


def test_required_fields_and_closed_enums_of_proto2(registry: SchemaRegistry) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="old")
    file.enum_type.add(name="Kind").value.add(name="ONE", number=1)
    message = file.message_type.add(name="Old")
    add(message, "id", "int32", label=FIELD.LABEL_REQUIRED)
    add(message, "kind", "old.Kind", enum=True)
    given = {"valueSchema": text_of(descriptor_set(file))}
    with pytest.raises(OptionError, match=r"value has no column id, which old\.Old requires"):
        framing(registry, column("kind", T.StringType()), **given)
    assert registry.asked == [], "nothing is registered"
    columns = T.StructType([T.StructField("id", T.IntegerType()), T.StructField("kind", T.StringType())])
    made = framing(registry, columns, **given)
    assert encoded(made, columns, [{"id": 5, "kind": "ONE"}]) == [b"\0\0\0\0\1\0\x08\5\x10\1"]
    for row, says in (
        ({"kind": "ONE"}, r"value has no id, which old\.Old requires"),
        ({"id": 1, "kind": "2"}, r"value\.kind is '2', and old\.Kind has ONE"),
    ):
        with pytest.raises(OptionError, match=f"row 1 of 1 of a batch: {says}"):
            encoded(made, columns, [row])


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (
            column("of_int32", T.LongType()),
            "value.of_int32 is bigint and int32 in the schema of the values, which does",
        ),
        (column("of_float", T.IntegerType()), "value.of_float is int and float in the schema"),
        (column("of_bytes", T.StringType()), "value.of_bytes is string and bytes in the schema"),
        (column("of_fixed64", T.DecimalType(20, 1)), r"value.of_fixed64 is decimal\(20,1\) and fixed64 in the schema"),
        (column("at", T.TimestampNTZType()), "value.at is timestamp_ntz and google.protobuf.Timestamp in the schema"),
        (column("note", T.LongType()), "value.note is bigint and string in the schema"),
        (column("town", T.StringType()), "value.town is string and place.Town in the schema"),
        (column("tags", T.StringType()), "value.tags is string and repeated string in the schema"),
        (column("lines", T.ArrayType(T.LongType())), r"value.lines\[\] is bigint and repeated shop.Order.Line in the"),
        (column("prices", T.MapType(T.LongType(), T.DoubleType())), "value.prices.key is bigint and string in"),
        (column("prices", T.ArrayType(T.DoubleType())), "value.prices is array<double> and a map in the schema"),
        (column("first", column("price", T.LongType())), "value.first.price is in no field of shop.Order.Line: select"),
        (T.StringType(), "column value is string: valueFormat=protobuf takes a struct"),
    ],
)
def test_columns_that_a_message_does_not_hold(registry: SchemaRegistry, columns: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        framing(registry, columns, valueSchema=SCHEMA, valueMessage=ORDER)
    assert registry.asked == [], "nothing is registered"


def test_confluents_library_reads_and_writes_the_same(registry: SchemaRegistry) -> None:
    """Its serializer finds the schemas that the sink registered, and the sink those of the serializer."""
    reason = 'needs the packages of confluent-kafka[protobuf]: pip install "confluent-kafka[protobuf]"'
    pytest.importorskip("authlib", reason=reason)
    pytest.importorskip("httpx2", reason=reason)
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient({"url": registry.url})
    make = classes(town_file(), shop_file(of_protoc=False))
    for number, message in enumerate((ORDER, "shop.Order.Line")):
        columns = spark_schema(SCHEMA, message)
        row = ROW if message == ORDER else {"sku": "a", "count": 2**32 - 1}
        topic = f"t{number}"
        given = {"topic": topic, "valueSchema": SCHEMA, "valueMessage": message}
        (value,) = encoded(framing(registry, columns, **given), columns, [row])
        context = SerializationContext(topic, MessageField.VALUE)
        theirs = ProtobufDeserializer(make(message), {}, client)(value, context)
        assert ProtobufSerializer(make(message), client)(theirs, context) == value
        other = ProtobufSerializer(make(message), client)(theirs, SerializationContext("u", MessageField.VALUE))
        assert read([other], message=message) == [row]
        assert framing(registry, columns, topic="u", valueMessage=message).schema_id == int.from_bytes(
            other[1:5], "big"
        )


def test_messages_written_under_spark_are_read_again(
    spark: Any, odradek: str, topic: str, registry: SchemaRegistry
) -> None:
    create_topic(odradek, topic)
    line = "named_struct('sku', STRING(id), 'count', id)"
    frame = spark.range(50).selectExpr(
        "STRING(id) key",
        f"IF(id = 7, NULL, named_struct('of_int64', id, 'at', timestamp_seconds(id), 'lines', array({line}))) value",
    )
    given = {"valueFormat": "protobuf", "schemaRegistryUrl": registry.url, "valueMessage": ORDER}
    writer = frame.write.format("odradek").options(topic=topic, valueSchema=SCHEMA, **given)
    writer.option("kafka.bootstrap.servers", odradek).mode("append").save()
    rows = load(spark, odradek, subscribe=topic, valueSchema=SCHEMA, **given)
    found = rows.selectExpr("INT(STRING(key)) k", "value.of_int64 n", "value.at at", "value.lines[0].count c").collect()
    assert sorted((row.k, row.n, row["at"] and row["at"].second, row.c) for row in found if row.k != 7) == [
        (n, n, n % 60, n) for n in range(50) if n != 7
    ]
    assert [row.n for row in found if row.k == 7] == [None], "a tombstone"


def source(registry: SchemaRegistry, **more: str) -> OdradekDataSource:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "valueFormat": "protobuf", "valueMessage": ORDER}
    return OdradekDataSource(given | {"schemaRegistryUrl": registry.url} | more)


def decoded(reader: Any, values: list[Any]) -> tuple[list[Any], dict[int, str]]:
    """(rows, errors by index) from the decoder of a task."""
    (field,) = arrow_schema(T.StructType([reader.spark_schema["value"]]))
    column, wrong = decoder(reader.options, field.type).decode(pa.array(values, pa.binary()))
    return list(column.to_pylist()), wrong


def test_columns_are_those_of_the_newest_file_and_its_imports(registry: SchemaRegistry) -> None:
    with pytest.raises(OptionError, match="the schema registry has no subject t-value: set schemaRegistrySubject"):
        source(registry).schema()
    made = framing(registry, valueSchema=SCHEMA, valueMessage=ORDER)
    found = source(registry).schema()
    assert found["value"].dataType == EVERY
    values = [*encoded(made, EVERY, [ROW]), b"no frame"]
    rows, wrong = decoded(source(registry).streamReader(found), values)
    assert rows == [ROW, None] and list(wrong) == [1]
    other = source(registry, subscribe="u", schemaRegistrySubject="t-value", valueMessage="shop.Order.Line").schema()
    assert other["value"].dataType == spark_schema(SCHEMA, "shop.Order.Line")


def test_a_query_keeps_its_columns_when_a_later_file_is_registered(registry: SchemaRegistry) -> None:
    made = framing(registry, valueSchema=SCHEMA, valueMessage=ORDER)
    values, columns = encoded(made, EVERY, [ROW]), source(registry).schema()
    later = shop_file()
    order = later.message_type[1]
    add(order, "later", "string")
    del order.field[0], order.nested_type[0].field[0]
    framing(
        registry,
        column("later", T.StringType()),
        valueSchema=text_of(descriptor_set(SHOP[0], later)),
        valueMessage=ORDER,
    )
    rows, wrong = decoded(source(registry).streamReader(columns), values)
    gone = {"first": {"sku": None, "count": 0}, "lines": [{"sku": None, "count": n} for n in (2, 0)]}
    assert (wrong, rows) == ({}, [ROW | {"of_int32": None} | gone])
    order.nested_type[0].field[0].type = FIELD.TYPE_STRING
    text = text_of(descriptor_set(SHOP[0], later))
    with pytest.raises(
        OptionError, match=r"value.first.count is bigint, and by now string in the schema of the values: "
    ):
        source(registry, valueSchema=text).streamReader(columns)
