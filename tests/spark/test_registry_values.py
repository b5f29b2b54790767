"""Avro values of a schema registry: their frame, and schemas that change while a topic is in use."""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type

from odradek.record.varint import zigzag
from pyspark_odradek.data_source import OdradekDataSource
from pyspark_odradek.errors import ClusterError, OptionError
from pyspark_odradek.options import parse_read_options
from pyspark_odradek.value_options import RegistryAddress
from pyspark_odradek.values import registry as registries
from pyspark_odradek.values.avro_values import spark_schema
from pyspark_odradek.values.decoding import decoder
from pyspark_odradek.values.frame import WITHOUT_FRAME
from pyspark_odradek.values.framed_values import FramedValues
from pyspark_odradek.values.registry import Registry
from tests.spark.queries import load
from tests.support.clients.confluent import create_topic, produce_all
from tests.support.nodes.node import free_port
from tests.support.nodes.schema_registry import SchemaRegistry

FIRST = {
    "type": "record",
    "name": "Visit",
    "fields": [{"name": "page", "type": "string"}, {"name": "s", "type": "int"}],
}
SECOND = FIRST | {
    "fields": [
        {"name": "page", "type": "string"},
        {"name": "s", "type": "long"},
        {"name": "country", "type": ["null", "string"], "default": None},
        {"name": "shop", "type": "string", "default": "main"},
    ]
}

GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "valueFormat": "avro", "schemaRegistryUrl": "http://r:1"}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    registries._KNOWN.clear()
    with SchemaRegistry() as made:
        yield made


def encoded(schema: Any, value: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
    return data.getvalue()


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    """A value in the frame of Confluent's serializer."""
    return b"\0" + schema_id.to_bytes(4, "big") + encoded(schema, value)


def reading(registry: SchemaRegistry, reader: Any) -> FramedValues:
    wanted = to_arrow_type(spark_schema(json.dumps(reader)), timezone="UTC")
    return FramedValues(Registry(RegistryAddress((registry.url,))), json.dumps(reader), wanted)


def decoded(registry: SchemaRegistry, reader: Any, values: Sequence[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    column, wrong = reading(registry, reader).decode(pa.array(values, pa.binary()))
    return column.to_pylist(), wrong


def test_values_of_several_schemas_are_the_same_columns(registry: SchemaRegistry) -> None:
    first, second = registry.register("visits-value", FIRST), registry.register("visits-value", SECOND)
    values = [
        framed(first, FIRST, {"page": "/a", "s": 5}),
        None,
        framed(second, SECOND, {"page": "/b", "s": 2**40, "country": "AT", "shop": "x"}),
        framed(first, FIRST, {"page": "/c", "s": 7}),
    ]
    rows, wrong = decoded(registry, SECOND, values)
    assert wrong == {}
    assert rows == [
        {"page": "/a", "s": 5, "country": None, "shop": "main"},
        None,
        {"page": "/b", "s": 2**40, "country": "AT", "shop": "x"},
        {"page": "/c", "s": 7, "country": None, "shop": "main"},
    ]
    older, wrong = decoded(registry, FIRST, values)
    assert [row and row["page"] for row in older] == ["/a", None, None, "/c"]
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2"], "once for each in a process"
    assert wrong == {2: f"schema {second} of the registry: value.s was written as bigint and cannot be read as int"}


def test_a_value_without_a_known_schema_is_a_bad_record(registry: SchemaRegistry) -> None:
    known = registry.register("visits-value", FIRST)
    json_id = registry.register("other", "{}", schemaType="JSON")
    more = registry.register("other", FIRST | {"doc": "x"}, references=[{"name": "a", "subject": "a", "version": 1}])
    whole = framed(known, FIRST, {"page": "/a", "s": 5})
    values = [
        b"",
        b"\0\0\0\0",
        b"\1" + whole[1:],
        whole[:-1],
        whole,
        *(framed(n, FIRST, {"page": "", "s": 1}) for n in (99, json_id, more)),
    ]
    rows, wrong = decoded(registry, FIRST, values)
    assert rows == [None] * 4 + [{"page": "/a", "s": 5}] + [None] * 3
    assert [wrong[row] for row in range(3)] == [WITHOUT_FRAME] * 3
    assert wrong[3].startswith("not Avro of the schema")
    assert [wrong[row] for row in range(5, 8)] == [
        "the schema registry has no schema 99",
        f"schema {json_id} in the registry is JSON, and valueFormat is avro",
        "the schema registry has no version 1 of a, which a schema refers to",
    ]


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    """Fields are (name, type) or (name, type, default)."""
    made: list[dict[str, Any]] = []
    for field_name, kind, *default in fields:
        made.append({"name": field_name, "type": kind} | ({"default": default[0]} if default else {}))
    return {"type": "record", "name": name, "fields": made}


def pairs_as_maps(value: Any) -> Any:
    """Arrow gives a map as pairs."""
    if isinstance(value, dict):
        return {key: pairs_as_maps(each) for key, each in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return {key: pairs_as_maps(each) for key, each in value}
    return [pairs_as_maps(each) for each in value] if isinstance(value, list) else value


def many(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def named(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


POINT, POINT_3 = record(("x", "int"), name="P"), record(("z", "int", 9), ("x", "double"), name="P")
AT = {"type": "long", "logicalType": "timestamp-millis"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
EVOLUTIONS = {
    "a field more in the middle": (
        record(("a", "int"), ("b", "int")),
        record(("a", "int"), ("n", "int", 3), ("b", "int")),
        {"a": 1, "b": 2},
    ),
    "a field less": (record(("a", "string"), ("b", "int")), record(("b", "int")), {"a": "x", "b": 2}),
    "in another order": (record(("a", "int"), ("b", "int")), record(("b", "int"), ("a", "int")), {"a": 1, "b": 2}),
    "int to long": (record(("a", "int")), record(("a", "long")), {"a": 5}),
    "int to double": (record(("a", "int")), record(("a", "double")), {"a": 5}),
    "long to float": (record(("a", "long")), record(("a", "float")), {"a": 5}),
    "float to double": (record(("a", "float")), record(("a", "double")), {"a": 0.5}),
    "string to bytes": (record(("a", "string")), record(("a", "bytes")), {"a": "größer"}),
    "bytes to string": (record(("a", "bytes")), record(("a", "string")), {"a": "größer".encode()}),
    "may be null now": (record(("a", "int")), record(("a", ["null", "long"])), {"a": 5}),
    "a record within": (record(("p", POINT)), record(("p", POINT_3)), {"p": {"x": 4}}),
    "records in an array": (record(("p", many(POINT))), record(("p", many(POINT_3))), {"p": [{"x": 4}, {"x": 5}]}),
    "records in a map": (record(("p", named(POINT))), record(("p", named(POINT_3))), {"p": {"k": {"x": 4}}}),
    "a record or null": (record(("p", ["null", POINT])), record(("p", ["null", POINT_3])), {"p": None}),
    "defaults of each kind": (
        record(("a", "int")),
        record(
            ("a", "int"),
            ("f", "double", 1.5),
            ("s", "string", "ü"),
            ("b", "bytes", "\u00ff\u0001"),
            ("n", ["null", "int"], None),
            ("m", ["int", "null"], 7),
            ("l", {"type": "array", "items": "int"}, [1, 2]),
            ("d", {"type": "map", "values": "string"}, {"k": "v"}),
            ("p", POINT_3, {"x": 2.5}),
            ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        ),
        {"a": 1},
    ),
}


@pytest.mark.parametrize(("writer", "reader", "value"), EVOLUTIONS.values(), ids=EVOLUTIONS.keys())
def test_values_are_resolved_as_fastavro_does(
    registry: SchemaRegistry, writer: Any, reader: Any, value: dict[str, Any]
) -> None:
    (row,), wrong = decoded(registry, reader, [framed(registry.register("r", writer), writer, value)])
    written, wanted = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    expected: Any = fastavro.schemaless_reader(io.BytesIO(encoded(writer, value)), written, wanted)
    for name, each in expected.items():  # of defaults fastavro gives what the schema has in JSON
        if isinstance(row[name], bytes) and isinstance(each, str):
            expected[name] = each.encode("latin-1") if name == "b" else each.encode()
    if "p" in expected and expected["p"] == {"x": 2.5}:
        expected["p"] = {"z": 9, "x": 2.5}
    assert (wrong, pairs_as_maps(row)) == ({}, expected)


def test_a_renamed_field_is_found_by_its_alias_and_times_have_defaults(registry: SchemaRegistry) -> None:
    """The rows are not compared with fastavro's: it returns a default of a logical type as the stored number."""
    writer = record(("old", "int"), ("price", PRICE | {"precision": 8, "scale": 1}))
    reader = record(
        ("new", "int"),
        ("price", PRICE),
        ("at", AT, 1_500),
        ("tax", PRICE, "\u00c8"),
        ("d", named("bytes"), {"k": "\u00ff"}),
    )
    reader["fields"][0]["aliases"] = ["older", "old"]
    value = {"old": 3, "price": decimal.Decimal("12.5")}
    (row,), wrong = decoded(registry, reader, [framed(registry.register("r", writer), writer, value)])
    assert wrong == {}
    assert row == {
        "new": 3,
        "price": decimal.Decimal("12.50"),
        "at": datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=datetime.UTC),
        "tax": decimal.Decimal("-0.56"),
        "d": [("k", b"\xff")],
    }


@pytest.mark.parametrize(
    ("writer", "reader", "says"),
    [
        (record(("a", "int")), record(("b", "int")), "value.b is not in what was written, and has no default"),
        (record(("a", "long")), record(("a", "int")), "value.a was written as bigint and cannot be read as int"),
        (record(("a", "long")), record(("a", AT)), "value.a was written as bigint and cannot be read as timestamp"),
        (record(("a", "string")), record(("a", {"type": "array", "items": "int"})), "cannot be read as array<int>"),
        (record(("a", "int")), record(("a", "int"), ("b", "bytes", 7)), "the default of value.b is no binary"),
        (record(("a", ["int", "string"])), record(("a", "int")), "of a union only null and one other type"),
    ],
)
def test_schemas_that_do_not_go_together(registry: SchemaRegistry, writer: Any, reader: Any, says: str) -> None:
    schema_id = registry.register("r", writer)
    _, wrong = decoded(registry, reader, [b"\0" + schema_id.to_bytes(4, "big") + b"\2\2"])
    assert wrong[0].startswith(f"schema {schema_id} of the registry: ") and says in wrong[0]


def test_a_registry_that_is_away_is_asked_again(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.register("visits-value", FIRST)
    registry.failures = 2
    dead = f"http://127.0.0.1:{free_port()}"
    assert json.loads(Registry(RegistryAddress((dead, registry.url))).newest("visits-value")) == FIRST
    assert len(registry.asked) == 3
    monkeypatch.setattr(registries, "PATIENCE_S", 0)
    with pytest.raises(ClusterError, match=f"the schema registry at {dead} does not answer: .*refused"):
        Registry(RegistryAddress((dead,))).newest("visits-value")


def test_a_registry_that_refuses_is_one_sentence(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.register("a/b-value", FIRST)
    with pytest.raises(OptionError, match="the schema registry has no subject t-value: set schemaRegistrySubject"):
        Registry(RegistryAddress((registry.url,))).newest("t-value")
    registry.login = "reader:secret"
    with pytest.raises(ClusterError, match=r"answers 401 .*Check schemaRegistryUser and schemaRegistryPassword"):
        Registry(RegistryAddress((registry.url,))).newest("a/b-value")
    address = RegistryAddress((registry.url,), "reader", "secret")
    assert json.loads(Registry(address).newest("a/b-value")) == FIRST
    assert "secret" not in repr(address)
    monkeypatch.setattr(registry, "answer", lambda *_: (200, ["another service"]))
    with pytest.raises(ClusterError, match=r"what answers at .* is not a schema registry"):
        Registry(address).newest("a/b-value")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"valueFormat": "binary"}, "schemaRegistryUrl has an effect only with valueFormat=json or avro or protobuf"),
        ({"valueFormat": "json", "schemaRegistrySubject": "s"}, "has an effect only with valueFormat=avro or protobuf"),
        ({"valueFormat": "protobuf", "schemaRegistryUrl": ""}, "valueFormat=protobuf needs the option valueSchema"),
        (
            {"valueFormat": "protobuf", "valueSchema": "x", "schemaRegistryReferences": "[]"},
            "schemaRegistryReferences has an effect only with valueFormat=avro, schemaRegistryUrl and valueSchema",
        ),
        ({"schemaRegistryUrl": "registry:8081"}, "schemaRegistryUrl is http://host:port or https://host:port"),
        ({"schemaRegistryUrl": "http://h:x"}, "schemaRegistryUrl is http://host:port or https://host:port"),
        ({"schemaRegistryUrl": "http://u:p@h:1"}, "has a login: give schemaRegistryUser and schemaRegistryPassword"),
        ({"schemaRegistryUser": "u"}, "give schemaRegistryUser and schemaRegistryPassword, or neither"),
        ({"subscribe": "a,b"}, "give schemaRegistrySubject, or valueSchema"),
        ({"schemaRegistryUrl": "", "valueSchema": "{}", "schemaRegistrySubject": "s"}, "only with schemaRegistryUrl"),
    ],
)
def test_options_of_a_registry_that_contradict(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_read_options(GIVEN | options, streaming=True)


def test_json_is_read_behind_its_frame() -> None:
    options = parse_read_options(GIVEN | {"valueFormat": "json", "valueSchema": "id LONG"}, streaming=True)
    values = [b"\0\0\0\0\7" + text for text in (b'{"id":1}', b'{"id":"x"}', b"")] + [b'{"id":1}', None]
    column, wrong = decoder(options, pa.struct([("id", pa.int64())])).decode(pa.array(values, pa.binary()))
    assert column.to_pylist() == [{"id": 1}, None, None, None, None]
    assert sorted(wrong) == [1, 2, 3] and wrong[3] == WITHOUT_FRAME


def test_json_is_inferred_behind_its_frame(odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    produce_all(odradek, topic, [(None, value) for value in (b"\0\0\0\0\7" + b'{"id":1}', b"no frame")])
    given = {"kafka.bootstrap.servers": odradek, "subscribe": topic, "valueFormat": "json"}
    schema = OdradekDataSource(given | {"schemaRegistryUrl": "http://r:1"}).schema()
    assert schema["value"].dataType.simpleString() == "struct<id:bigint>"


def test_protobuf_is_read_behind_its_frame_and_the_place_of_its_message() -> None:
    """Confluent's serializer writes the path of nested messages; that of a file's first message has a short form."""
    kinds = pytest.importorskip("google.protobuf.descriptor_pb2")
    file = kinds.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    for holder in (file.message_type.add(name="Visit"), file.message_type.add(name="Order")):
        for name in ("Line", "Place"):
            within = holder.nested_type.add(name=name)
            within.field.add(name="id", number=1, type=kinds.FieldDescriptorProto.TYPE_INT32, label=1)
        holder.field.add(name="id", number=1, type=kinds.FieldDescriptorProto.TYPE_INT32, label=1)
    schema = base64.b64encode(kinds.FileDescriptorSet(file=[file]).SerializeToString()).decode()
    head, body = b"\0\0\0\0\7", b"\x08\x05"
    second, deep = zigzag(1) + zigzag(1), zigzag(2) + zigzag(1) + zigzag(1)
    values = [head + place + body for place in (b"\0", zigzag(1) + zigzag(0), second, deep)]
    values += [head, head + zigzag(2), head + zigzag(-1) + body, head + b"\xff" * 11, body]
    for message, rows in (("shop.Visit", [0, 1]), ("shop.Order", [2]), ("shop.Order.Place", [3])):
        given = {"valueFormat": "protobuf", "valueSchema": schema, "valueMessage": message}
        found = decoder(parse_read_options(GIVEN | given, streaming=True), pa.struct([("id", pa.int32())]))
        column, wrong = found.decode(pa.array(values, pa.binary()))
        assert column.to_pylist() == [{"id": 5} if row in rows else None for row in range(len(values))]
        assert sorted(wrong) == [row for row in range(len(values)) if row not in rows]
    assert wrong[2] == "message [1] of its .proto file, and the query's is [1, 1]"


def test_a_query_keeps_the_columns_that_it_began_with(registry: SchemaRegistry) -> None:
    """The driver requests the newest schema when it plans; values of later schemas are converted to it."""
    registry.register("t-value", FIRST)
    source = OdradekDataSource(GIVEN | {"schemaRegistryUrl": registry.url})
    schema = source.schema()
    assert schema["value"].dataType.simpleString() == "struct<page:string,s:int>"
    registry.register("t-value", SECOND)
    reader: Any = source.streamReader(schema)
    assert json.loads(reader.options.value_schema) == SECOND, "of the moment"
    assert reader.spark_schema == schema, "the columns are those of before"


def test_a_registry_under_spark(spark: Any, odradek: str, topic: str, registry: SchemaRegistry) -> None:
    first, second = registry.register(f"{topic}-value", FIRST), registry.register(f"{topic}-value", SECOND)
    create_topic(odradek, topic)
    visit = {"page": "/b", "s": 9, "country": "AT", "shop": "x"}
    values = [framed(first, FIRST, {"page": "/a", "s": 5}), framed(second, SECOND, visit), b"{}"]
    produce_all(odradek, topic, [(None, value) for value in values])
    given = {"subscribe": topic, "valueFormat": "avro", "schemaRegistryUrl": registry.url}
    rows = load(spark, odradek, **given, badRecords="null").select("value.*").orderBy("page").collect()
    assert [tuple(row) for row in rows] == [(None,) * 4, ("/a", 5, None, "main"), ("/b", 9, "AT", "x")]
    with pytest.raises(Exception, match=rf"{topic}-0, offset 2: not of a schema registry"):
        load(spark, odradek, **given).count()
