"""Schemas of a registry that refer to others of it: Avro's types, `$ref` of JSON Schema; Protobuf has its own file."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's own documentation gives it

from pyspark_odradek.data_source import OdradekDataSource
from pyspark_odradek.errors import OptionError
from pyspark_odradek.spark_api import arrow_schema
from pyspark_odradek.topic_sink.sink_options import parse_sink_options
from pyspark_odradek.value_options import RegistryAddress
from pyspark_odradek.values import registry as registries
from pyspark_odradek.values.avro_references import whole
from pyspark_odradek.values.avro_values import spark_schema
from pyspark_odradek.values.decoding import decoder
from pyspark_odradek.values.framed_values import FramedValues
from pyspark_odradek.values.framing import Framing
from pyspark_odradek.values.registry import Registry
from tests.support.nodes.schema_registry import SchemaRegistry


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def many(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


TOWN = {"type": "enum", "name": "Town", "namespace": "place", "symbols": ["Prague", "Jena"]}
GEO = {"type": "fixed", "name": "Geo", "size": 2}
ADDRESS = record("place.Address", street="string", town="Town", before=many("place.Town"), geo=GEO)
PLAIN = record("shop.Plain", n="int")
ORDER = record("shop.Order", id="long", to="place.Address", **{"from": ["null", "place.Address"]})
ORDER["fields"] += record("", towns={"type": "map", "values": "place.Town"}, geo="place.Geo", plain="Plain")["fields"]
BACKWARDS = ORDER | {"fields": ORDER["fields"][::-1]}
HOME = {"street": "größer", "town": "Jena", "before": ["Prague", "Jena"], "geo": b"\0\1"}
ROW = {"id": 5, "to": HOME, "from": None, "towns": {"k": "Prague"}, "geo": b"\2\3", "plain": {"n": 7}}
OTHER = ROW | {"from": HOME | {"before": []}, "towns": {}}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    registries._KNOWN.clear()
    with SchemaRegistry() as made:
        yield made


NAMES = {"town": "place.Town", "address": "place.Address", "plain": "shop.Plain"}


def references(*subjects: str) -> list[dict[str, Any]]:
    return [{"name": NAMES.get(subject, subject), "subject": subject, "version": 1} for subject in subjects]


def with_parts(registry: SchemaRegistry, schema: dict[str, Any]) -> int:
    """Registered under t-value, with what it refers to; the address refers to the town itself."""
    registry.register("town", TOWN)
    registry.register("address", ADDRESS, references=references("town"))
    registry.register("plain", PLAIN)
    return registry.register("t-value", schema, references=references("address", "plain"))


def by_fastavro(schema: dict[str, Any]) -> Any:
    named: dict[str, Any] = {}
    for needed in (TOWN, ADDRESS, PLAIN):
        fastavro.parse_schema(needed, named_schemas=named)
    return fastavro.parse_schema(schema, named_schemas=named)


def encoded(schema: dict[str, Any], row: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, by_fastavro(schema), row)
    return data.getvalue()


def as_arrow(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"towns": list(row["towns"].items())}


def framing(registry: SchemaRegistry, columns: T.DataType, **more: str) -> Framing:
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", "valueFormat": "avro", "schemaRegistryUrl": registry.url}
    chosen = parse_sink_options(given | more, streaming=False, overwrite=False)
    made = chosen.framing(T.StructType([T.StructField("value", columns)]))
    assert made is not None
    return made


@pytest.mark.parametrize("schema", [ORDER, BACKWARDS], ids=["nested types first", "their parts first"])
def test_avro_is_read_with_the_types_that_its_schema_refers_to(
    registry: SchemaRegistry, schema: dict[str, Any]
) -> None:
    schema_id = with_parts(registry, schema)
    known = Registry(RegistryAddress((registry.url,)))
    newest = known.newest("t-value")
    columns = spark_schema(newest)
    (field,) = arrow_schema(T.StructType([T.StructField("value", columns)]))
    values = [b"\0" + schema_id.to_bytes(4, "big") + encoded(schema, row) for row in (ROW, OTHER)]
    column, wrong = FramedValues(known, newest, field.type).decode(pa.array(values))
    assert (wrong, column.to_pylist()) == ({}, [as_arrow(ROW), as_arrow(OTHER)])
    assert fastavro.parse_schema(json.loads(newest)), "each type is described once"


def test_avro_is_written_by_the_newest_schema_with_its_types(registry: SchemaRegistry) -> None:
    schema_id = with_parts(registry, ORDER)
    columns = spark_schema(Registry(RegistryAddress((registry.url,))).newest("t-value"))
    (field,) = arrow_schema(T.StructType([T.StructField("value", columns)]))
    (value,) = framing(registry, columns).encode(pa.array([as_arrow(OTHER)], field.type)).to_pylist()
    assert value == b"\0" + schema_id.to_bytes(4, "big") + encoded(ORDER, OTHER)


def test_a_schema_is_registered_with_its_references(registry: SchemaRegistry) -> None:
    schema_id = with_parts(registry, ORDER)
    columns = spark_schema(Registry(RegistryAddress((registry.url,))).newest("t-value"))
    given = {"valueSchema": json.dumps(ORDER), "schemaRegistryReferences": json.dumps(references("address", "plain"))}
    assert framing(registry, columns, **given).schema_id == schema_id, "the subject has it"
    other = framing(registry, columns, schemaRegistrySubject="u", **given)
    assert other.schema_id == schema_id, "schemas that are equal have one id in a registry"
    assert registry.asked[-2:] == ["/subjects/u", "/subjects/u/versions"]
    _, found = registry.answer("/subjects/u/versions/latest", None)
    assert found["references"] == references("address", "plain") and json.loads(found["schema"]) == ORDER


def test_columns_of_a_given_schema_that_names_types_of_the_registry(registry: SchemaRegistry) -> None:
    schema_id = with_parts(registry, ORDER)
    newer = {"type": "record", "name": "shop.Order", "fields": ORDER["fields"][:2]}
    given = {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t",
        "valueFormat": "avro",
        "schemaRegistryUrl": registry.url,
    }
    given |= {"valueSchema": json.dumps(newer), "schemaRegistryReferences": json.dumps(references("address"))}
    source = OdradekDataSource(given)
    columns = source.schema()
    reader: Any = source.streamReader(columns)
    (field,) = arrow_schema(T.StructType([columns["value"]]))
    value = b"\0" + schema_id.to_bytes(4, "big") + encoded(ORDER, ROW)
    column, wrong = decoder(reader.options, field.type).decode(pa.array([value]))
    assert (wrong, column.to_pylist()) == ({}, [{"id": 5, "to": HOME}])
    with pytest.raises(OptionError, match="schemaRegistryReferences: the schema registry has no version 1 of gone, "):
        OdradekDataSource(given | {"schemaRegistryReferences": json.dumps(references("gone"))}).schema()


def test_json_is_registered_with_what_its_schema_refers_to(registry: SchemaRegistry) -> None:
    registry.register("town", {"type": "string"}, schemaType="JSON")
    schema = {"type": "object", "properties": {"town": {"$ref": "town.json"}}}
    where = [{"name": "town.json", "subject": "town", "version": 1}]
    given = {"valueFormat": "json", "valueSchema": json.dumps(schema), "schemaRegistryReferences": json.dumps(where)}
    made = framing(registry, T.StringType(), **given)
    _, found = registry.answer("/subjects/t-value/versions/latest", None)
    assert (found["id"], found["references"], found["schemaType"]) == (made.schema_id, where, "JSON")
    assert framing(registry, T.StringType(), valueFormat="json").schema_id == made.schema_id, "the newest one"
    given["schemaRegistryReferences"] = json.dumps([where[0] | {"version": 2}])
    with pytest.raises(OptionError, match=r"refuses the schema of the values: no reference found for town\.json"):
        framing(registry, T.StringType(), **given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("{", r"schemaRegistryReferences is \[{.name.: .*as in the registry"),
        ("{}", r"schemaRegistryReferences is \["),
        ('[{"name": "a", "subject": "b"}]', r"schemaRegistryReferences is \["),
        ('[{"name": "a", "subject": "b", "version": true}]', r"schemaRegistryReferences is \["),
        (
            json.dumps(references("gone")),
            "schemaRegistryReferences: the schema registry has no version 1 of gone, which",
        ),
        (json.dumps(references("json")), "schemaRegistryReferences: version 1 of json in the registry is JSON, and"),
    ],
)
def test_references_that_cannot_be(registry: SchemaRegistry, given: str, says: str) -> None:
    registry.register("json", {}, schemaType="JSON")
    columns = T.StructType([T.StructField("n", T.IntegerType())])
    with pytest.raises(OptionError, match=says):
        framing(registry, columns, valueSchema=json.dumps(PLAIN), schemaRegistryReferences=given)
    assert not any("/versions" in path and "json" not in path and "gone" not in path for path in registry.asked)


def test_references_in_a_circle_end(registry: SchemaRegistry) -> None:
    """Version -1 is the newest one, which a schema of that subject may be itself."""
    circle = [{"name": "Plain", "subject": "t-value", "version": -1}]
    registry.register("t-value", PLAIN, references=circle)
    newest = Registry(RegistryAddress((registry.url,))).newest("t-value")
    assert spark_schema(newest).simpleString() == "struct<n:int>"


def test_a_type_keeps_its_namespace_and_hides_one_without() -> None:
    found = json.loads(whole(json.dumps(BACKWARDS), {"a": json.dumps(ADDRESS), "b": json.dumps(PLAIN)}))
    assert found["fields"][1]["type"] == GEO | {"namespace": "place"}
    here = record("near.Order", a=record("Plain", n="long"), b="Plain", c="Town")
    found = json.loads(whole(json.dumps(here), {"a": json.dumps([record("Plain", n="int"), record("Town")])}))
    assert [field["type"] for field in found["fields"]][1:] == ["near.Plain", record("Town") | {"namespace": ""}]


def test_invalid_schemas_are_left_for_the_parser_to_refuse() -> None:
    assert whole("{", {"a": json.dumps(PLAIN)}) == "{"
    assert whole('"int"', {}) == '"int"'
    strange = '{"type": "record", "fields": [{"name": "a"}, 7, {"name": "b", "type": "shop.Plain"}], "name": "s"}'
    assert json.loads(whole(strange, {"a": json.dumps([PLAIN, 5])}))["fields"][2]["type"]["name"] == "Plain"


def test_confluents_library_reads_and_writes_with_references(registry: SchemaRegistry) -> None:
    reason = 'needs the packages of confluent-kafka[avro]: pip install "confluent-kafka[avro]"'
    pytest.importorskip("authlib", reason=reason)
    pytest.importorskip("httpx2", reason=reason)
    from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    schema = ORDER | {
        "fields": [field for field in ORDER["fields"] if field["name"] != "geo"]
    }  # it finds no inner type
    row = {name: value for name, value in OTHER.items() if name != "geo"}
    with_parts(registry, schema)
    columns = spark_schema(Registry(RegistryAddress((registry.url,))).newest("t-value"))
    (field,) = arrow_schema(T.StructType([T.StructField("value", columns)]))
    (value,) = framing(registry, columns).encode(pa.array([as_arrow(row)], field.type)).to_pylist()
    client = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext("t", MessageField.VALUE)
    assert AvroDeserializer(client)(value, context) == row
    named = [SchemaReference(each["name"], each["subject"], 1) for each in references("address", "plain")]
    serializer = AvroSerializer(client, Schema(json.dumps(schema), "AVRO", named))
    assert serializer(row, context) == value
