"""Values decoded in the source: JSON and Avro by a schema, and records that do not decode."""

from __future__ import annotations

import datetime
import decimal
import json
import struct
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from odradek.record.varint import zigzag
from pyspark_odradek.data_source import OdradekDataSource
from pyspark_odradek.errors import ClusterError, OptionError
from pyspark_odradek.options import parse_read_options
from pyspark_odradek.values.avro_values import AvroValues, spark_schema
from pyspark_odradek.values.json_values import JsonValues, infer
from tests.spark.queries import drain, load, load_stream
from tests.support.clients.confluent import create_topic, produce_all, read_all, read_committed
from tests.support.nodes.node import Node

WANTED = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.int32())),
        ("inner", pa.struct([("x", pa.float64())])),
    ]
)
GOOD = [
    (
        b'{"id":1,"name":"a","tags":[1,2],"inner":{"x":1},"other":5}',
        {"id": 1, "name": "a", "tags": [1, 2], "inner": {"x": 1.0}},
    ),
    (None, None),
    (b"{}", {}),
    (b'{ "id" : 2\n}', {"id": 2}),
    (b'{"price":"1.25","day":"2024-01-02"}', {"price": decimal.Decimal("1.25"), "day": datetime.date(2024, 1, 2)}),
    (b'{"price":1.5}', {"price": decimal.Decimal("1.50")}),
]
BAD = [
    (b'{"id":"x"}', 'value.id is "x", not a whole number'),
    (b'{"id":1.5}', "value.id is 1.5, not a whole number"),
    (b'{"inner":{"x":"y"}}', 'value.inner.x is "y", not a number'),
    (b'{"tags":["a"]}', r'value.tags\[0\] is "a", not a whole number'),
    (b'{"at":"soon"}', 'value.at is "soon", not a timestamp'),
    (b"", "Expecting value"),
    (b"{}{}", "Extra data"),
    (b'{}, "n": 5}\n{"n":1,"v":{}', "Extra data"),
    (b"null", "value is the literal null, not an object"),
    (b" null\n", "value is the literal null, not an object"),
    (b"[1]", r"value is \[1\], not an object"),
    (b"\xff", "not JSON"),
    (b'{"id":99999999999999999999}', "too large"),
]


def plain(row: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if row is None else {key: value for key, value in row.items() if value is not None}


def test_json_that_fits_is_read_whole() -> None:
    column, wrong = JsonValues(WANTED).decode(pa.array([value for value, _ in GOOD], pa.binary()))
    assert wrong == {}
    assert [plain(row) for row in column.to_pylist()] == [row for _, row in GOOD]


@pytest.mark.parametrize("text", ["2024-01-01T00:00:00Z", "2024-01-01T02:00:00+02:00", "2024-01-01 00:00:00"])
def test_times_in_json(text: str) -> None:
    column, wrong = JsonValues(WANTED).decode(pa.array([json.dumps({"at": text}).encode()], pa.binary()))
    assert wrong == {}
    assert column[0].as_py()["at"] == datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(("value", "says"), BAD, ids=range(len(BAD)))
def test_json_that_does_not_fit_is_reported_and_moves_no_other_row(value: bytes, says: str) -> None:
    rows = [b'{"id":%d}' % number for number in range(20)]
    rows[7:7] = [value]
    column, wrong = JsonValues(WANTED).decode(pa.array(rows, pa.binary()))
    assert list(wrong) == [7]
    with pytest.raises(ValueError, match=says):
        raise ValueError(wrong[7])
    ids = [row and row["id"] for row in column.to_pylist()]
    assert ids == [*range(7), None, *range(7, 20)]


KINDS = [pa.int32(), pa.float64(), pa.string(), pa.bool_(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()]
KINDS += [pa.decimal128(10, 2), pa.decimal128(20, 2), pa.decimal128(38, 2), pa.decimal128(38, 38), pa.decimal128(5, 0)]
KINDS += [pa.float32(), pa.list_(pa.int32()), pa.struct([("x", pa.int64())])]
ODD = (
    rb"""1 -1 1.0 1.5 1e3 01 2147483648 100000000 1.234 true null [] [1,null] ["1"] {} {"x":1} {"x":1,"x":2}
"x" "1" "" "2024-01-01" "20240101" "2024-01-01T00:00" "2024-01-01T00:00:00+01:00" "2024-01-01T00:00:00.1234567"
"12024-01-01" "\ud800" "~" 1234567890123456.78 123456789012345678901234567890123456.78 9223372036854775808 0.5 -0.5
0.125 "0.125" 1e99 1e400 1e999999999999999999999 0e999999999999999999999 1e-999999999999999999999 NaN "NaN" "Infinity"
1.00000005960464477540 3.4028235677973366e38 1e-45 "1_0" " 1" "+1" "1." [0,[1],2] 9007199791611905 ! -!""".replace(
        b"~", b"\xff"
    )
    .replace(b"!", b"9" * 400)
    .split()
)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_value_does_not_depend_on_its_neighbours(kind: Any) -> None:
    """Beside an invalid record, Python reads the values that Arrow reads elsewhere."""
    for value in ODD:
        text = b'{"v":%s,"more":"\xff"}' % value
        values = JsonValues(pa.struct([("v", kind)]))
        alone, wrong_alone = values.decode(pa.array([text], pa.binary()))
        beside, wrong_beside = values.decode(pa.array([text, b"{"], pa.binary()))
        assert 1 in wrong_beside
        assert (0 in wrong_alone) == (0 in wrong_beside), (value, wrong_alone, wrong_beside)
        assert alone.equals(beside.slice(0, 1)) or (str(alone) == str(beside.slice(0, 1)) and b"N" in value), value


@given(
    st.lists(st.sampled_from([b'{"id":1}', b"{", b"}", b"{}{}", b"", b"\n", b'{"n":3}', b'"', b"]", None]), max_size=30)
)
@settings(deadline=None)
def test_json_is_read_as_python_reads_each_row(rows: list[bytes | None]) -> None:
    wanted = pa.struct([("id", pa.int64())])
    column, wrong = JsonValues(wanted).decode(pa.array(rows, pa.binary()))
    for number, value in enumerate(rows):
        try:
            expected = None if value is None else json.loads(value)
            assert number not in wrong and (column[number].as_py() is None) == (expected is None)
        except ValueError:
            assert number in wrong and column[number].as_py() is None


def test_a_schema_is_inferred_from_what_there_is() -> None:
    samples = [b'{"id":1,"x":1,"in":{"a":null},"l":[]}', b'{"id":2,"x":1.5,"in":{"a":true},"l":["t"],"more":null}']
    text = "struct<id:bigint,x:double,in:struct<a:boolean>,l:array<string>,more:string>"
    assert infer(samples).simpleString() == text
    for bad, says in (
        ([], "no record yet"),
        ([b"x"], "not a JSON object"),
        ([b"[]"], "not an object"),
        ([b'{"a":1}', b'{"a":"t"}'], "value.a is bigint and string"),
    ):
        with pytest.raises(OptionError, match=says):
            infer(bad)


LINE = {"type": "record", "name": "L", "fields": [{"name": "n", "type": "int"}]}
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "ok", "type": "boolean"},
        {"name": "share", "type": "float"},
        {"name": "ratio", "type": "double"},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "again", "type": "Two"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}  # fmt: skip


def avro_value(number: int, note: str | None) -> bytes:
    """One record, written down by the rules of the specification."""

    def text(value: str) -> bytes:
        return zigzag(len(value.encode())) + value.encode()

    return b"".join(
        [
            zigzag(number),
            zigzag(0) if note is None else zigzag(1) + text(note),
            b"\x01",
            struct.pack("<f", 0.5),
            struct.pack("<d", 0.25),
            b"ab",
            b"cd",
            zigzag(1),
            zigzag(2) + zigzag(7) + zigzag(8) + zigzag(-1) + zigzag(1) + zigzag(9) + zigzag(0),
            zigzag(1) + text("k") + zigzag(-5) + zigzag(0),
            zigzag(19000),
            zigzag(1_700_000_000_123),
            zigzag(2) + (-12345).to_bytes(2, "big", signed=True),
        ]
    )


def avro_decimal(precision: int, scale: int, base: str = "bytes") -> str:
    """The schema of records with one decimal, v."""
    kind = {"type": base, "logicalType": "decimal", "precision": precision, "scale": scale}
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]})


def avro_columns() -> AvroValues:
    from pyspark.sql.pandas.types import to_arrow_type

    return AvroValues(json.dumps(AVRO), to_arrow_type(spark_schema(json.dumps(AVRO)), timezone="UTC"))


def test_avro() -> None:
    good = [avro_value(-3, None), None, avro_value(2**40, "größer")]
    column, wrong = avro_columns().decode(pa.array(good, pa.binary()))
    assert wrong == {}
    first, nothing, last = column.to_pylist()
    assert nothing is None
    assert (first["id"], first["note"], last["id"], last["note"]) == (-3, None, 2**40, "größer")
    rest = {key: value for key, value in first.items() if key not in ("id", "note")}
    assert rest == {
        "ok": True,
        "share": 0.5,
        "ratio": 0.25,
        "raw": b"ab",
        "again": b"cd",
        "state": "OLD",
        "lines": [{"n": 7}, {"n": 8}, {"n": 9}],
        "tags": [("k", -5)],
        "day": datetime.date(2022, 1, 8),
        "at": datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=datetime.UTC),
        "price": decimal.Decimal("-123.45"),
    }


def test_avro_that_is_damaged_is_reported_and_nothing_else_is_raised() -> None:
    whole = avro_value(5, "note")
    columns = avro_columns()
    cuts = [whole[:end] for end in range(len(whole))]
    _, wrong = columns.decode(pa.array([*cuts, whole + b"x", whole], pa.binary()))
    assert sorted(wrong) == list(range(len(whole) + 1))
    flips = [
        bytes([*whole[:at], whole[at] ^ bit, *whole[at + 1 :]]) for at in range(len(whole)) for bit in (1, 16, 128)
    ]
    columns.decode(pa.array(flips, pa.binary()))


def test_avro_that_is_wrong_in_a_batch_does_not_shift_the_others() -> None:
    """Values are read together: one that is too long or too short by what its neighbour has must not use it."""
    schema = '{"type":"record","name":"R","fields":[{"name":"v","type":"string"},{"name":"n","type":["null","int"]}]}'
    values = AvroValues(schema, pa.struct([("v", pa.string()), ("n", pa.int32())]))
    good = zigzag(3) + b"abc" + zigzag(1) + zigzag(7)
    bad = {
        "longer than its value": zigzag(12) + b"abc" + zigzag(0),
        "into the next value": zigzag(3 + 8 + len(good)) + b"abc",
        "two values": good + good,
        "empty": b"",
        "no such branch": zigzag(1) + b"a" + zigzag(2),
        "not UTF-8": zigzag(1) + b"\xff" + zigzag(0),
        "size below zero": zigzag(-5) + b"abcde" + zigzag(0),
    }
    for why, value in bad.items():
        column, wrong = values.decode(pa.array([good, None, value, good], pa.binary()))
        assert column.to_pylist() == [{"v": "abc", "n": 7}, None, None, {"v": "abc", "n": 7}], why
        assert list(wrong) == [2] and wrong[2].startswith("not Avro of the schema: "), why


def test_avro_of_the_right_length_in_all_and_not_in_each() -> None:
    kind = {"type": "fixed", "name": "F", "size": 8}
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]})
    column, wrong = AvroValues(schema, pa.struct([("v", pa.binary())])).decode(pa.array([b"x" * 16, b"", b"y" * 8]))
    assert column.to_pylist() == [None, None, {"v": b"y" * 8}]
    assert wrong[0].endswith("8 bytes are left over") and sorted(wrong) == [0, 1]


def test_avro_of_all_logical_types_and_names() -> None:
    def of(kind: str, logical: str, **more: object) -> dict[str, object]:
        return {"type": kind, "logicalType": logical, **more}

    types: dict[str, object] = {
        "day": of("int", "date"),
        "no_day": of("string", "date"),
        "at": of("long", "timestamp-micros"),
        "no_at": of("int", "timestamp-micros"),
        "local": of("long", "local-timestamp-millis"),
        "id": of("fixed", "uuid", name="Id", size=16),
        "ids": {"type": "array", "items": ["null", "Id"]},
        "text_id": of("string", "uuid"),
        "prices": {"type": "map", "values": of("bytes", "decimal", precision=4, scale=2)},
        "inner": {
            "type": "record",
            "name": "In",
            "namespace": "a.b",
            "fields": [{"name": "x", "type": ["null", "Id"]}],
        },
        "time": of("long", "time-micros"),
        "größe": "int",
    }
    schema = json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in types.items()]}
    )
    found = spark_schema(schema)
    assert found.simpleString() == (
        "struct<day:date,no_day:string,at:timestamp,no_at:int,local:timestamp_ntz,id:string,ids:array<string>,"
        "text_id:string,prices:map<string,decimal(4,2)>,inner:struct<x:string>,time:bigint,größe:int>"
    )
    raw = bytes(range(16))
    value = b"".join(
        [
            zigzag(1),
            zigzag(1) + b"a",
            zigzag(1_500_000),
            zigzag(3),
            zigzag(2_000),
            raw,
            zigzag(2) + zigzag(0) + zigzag(1) + raw + zigzag(0),
            zigzag(1) + b"b",
            zigzag(1) + zigzag(1) + b"k" + zigzag(2) + (150).to_bytes(2, "big") + zigzag(0),
            zigzag(1) + raw,
            zigzag(9),
            zigzag(4),
        ]
    )
    from pyspark.sql.pandas.types import to_arrow_type

    column, wrong = AvroValues(schema, to_arrow_type(found, timezone="UTC")).decode(pa.array([value], pa.binary()))
    assert wrong == {}
    name = str(uuid.UUID(bytes=raw))
    assert column.to_pylist() == [
        {
            "day": datetime.date(1970, 1, 2),
            "no_day": "a",
            "at": datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=datetime.UTC),
            "no_at": 3,
            "local": datetime.datetime(1970, 1, 1, 0, 0, 2),
            "id": name,
            "ids": [None, name],
            "text_id": "b",
            "prices": [("k", decimal.Decimal("1.50"))],
            "inner": {"x": name},
            "time": 9,
            "größe": 4,
        }
    ]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "is not valid JSON"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":"null"}}]}',
            "nothing bounds their number",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"fixed","name":"F","size":-1}}]}',
            "a fixed cannot have size -1",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"enum","name":"E","symbols":["a","a"]}}]}',
            "All symbols in an enum must be unique",
        ),
        ('"int"', "must be an Avro schema of a record"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":["int","string"]}]}',
            "only null and one other type",
        ),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"Nope"}]}', "'Nope' is not a known type"),
        ('{"type":"record","name":"R"}', "a record lacks 'fields'"),
        (avro_decimal(50, 2), "a decimal has precision 50 and scale 2, and Spark's have 1 to 38 digits"),
        (avro_decimal(5, 7), "a decimal has precision 5 and scale 7"),
    ],
)
def test_avro_schemas_that_cannot_be(schema: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        spark_schema(schema)


def test_a_logical_type_of_avro_over_a_type_that_it_has_not_means_nothing() -> None:
    """The specification of Avro says so."""
    assert spark_schema(avro_decimal(9, 2, base="int")).simpleString() == "struct<v:int>"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"valueFormat": "xml"}, "valueFormat is one of binary, json, avro"),
        ({"valueFormat": "avro"}, "needs the option valueSchema"),
        ({"valueFormat": "json", "badRecords": "drop"}, "badRecords is fail or null"),
        ({"valueFormat": "json", "badRecords": "null", "deadLetterTopic": "d"}, "not both"),
        ({"valueFormat": "json", "deadLetterTopic": "t"}, "'t' is read by this query: .* would come back for ever"),
        ({"valueSchema": "id LONG"}, "valueSchema has an effect only with valueFormat=json or avro"),
    ],
)
def test_options_that_contradict(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t"} | options, streaming=True)


def fill(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    rows: list[tuple[bytes | None, bytes | None]] = [
        (b"k%d" % n, b'{"id":%d,"name":"n%d"}' % (n, n)) for n in range(10)
    ]
    rows[4:4] = [(b"poison", b'{"id":"four"}'), (b"gone", None)]
    produce_all(bootstrap, topic, rows)


def test_json_under_spark(spark: Any, odradek: str, topic: str) -> None:
    fill(odradek, topic)
    given_schema = {"subscribe": topic, "valueFormat": "json", "valueSchema": "id LONG, name STRING"}
    frame = load(spark, odradek, **given_schema, badRecords="null")
    rows = frame.select("offset", "value.*").orderBy("offset").collect()
    assert [(row.id, row.name) for row in rows] == [
        *((n, f"n{n}") for n in range(4)),
        (None, None),
        (None, None),
        *((n, f"n{n}") for n in range(4, 10)),
    ]
    with pytest.raises(Exception, match=rf'{topic}-0, offset 4: not JSON of the schema: value\.id is "four"'):
        load(spark, odradek, **given_schema).count()
    with pytest.raises(Exception, match=r"value\.id is bigint and string"):
        load(spark, odradek, subscribe=topic, valueFormat="json")
    create_topic(odradek, f"{topic}-good")
    produce_all(odradek, f"{topic}-good", [(None, b'{"a":{"b":1.5}}')])
    inferred = load(spark, odradek, subscribe=f"{topic}-good", valueFormat="json", includeHeaders="true")
    assert isinstance(inferred.schema["value"].dataType, StructType)
    assert inferred.select("value.a.b").collect()[0].b == 1.5


def test_dead_letters(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    fill(odradek, topic)
    create_topic(odradek, f"{topic}-dead")
    stream = load_stream(
        spark,
        odradek,
        subscribe=topic,
        valueFormat="json",
        valueSchema="id LONG, name STRING",
        deadLetterTopic=f"{topic}-dead",
    )
    drain(stream.selectExpr("value.id", "offset"), tmp_path)
    rows = spark.read.parquet(str(tmp_path / "sink")).orderBy("offset").collect()
    assert [row.id for row in rows] == [0, 1, 2, 3, None, 4, 5, 6, 7, 8, 9], "a tombstone is a null, and no bad record"
    (letter,) = read_committed(odradek, f"{topic}-dead")
    assert (letter.key(), letter.value()) == (b"poison", b'{"id":"four"}')
    headers = dict(letter.headers() or [])
    assert headers["odradek.reason"] == b'not JSON of the schema: value.id is "four", not a whole number'
    assert (headers["odradek.topic"], headers["odradek.partition"], headers["odradek.offset"]) == (
        topic.encode(),
        b"0",
        b"4",
    )
    (poison,) = [record for record in read_all(odradek, topic) if record.key() == b"poison"]
    assert letter.timestamp() == poison.timestamp()


def test_a_dead_letter_topic_that_is_not_there(topic: str, tmp_path: Path) -> None:
    """Reported when the query starts, not by the first record that does not decode; a wrong name makes no topic."""
    with Node(tmp_path, {"auto.create.topics.enable": "true"}) as node:
        create_topic(node.bootstrap, topic)
        given = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": topic, "deadLetterTopic": "nowhere"}
        source = OdradekDataSource(given | {"valueFormat": "json", "valueSchema": "id LONG"})
        advice = "no such topic: nowhere. Create it, or correct the option deadLetterTopic"
        with pytest.raises(ClusterError, match=advice):
            source.reader(source.schema()).partitions()
        stream = source.streamReader(source.schema())
        begin: Any = {topic: {"0": 0}}
        with pytest.raises(ClusterError, match=advice):
            stream.partitions(begin, begin)
        create_topic(node.bootstrap, "nowhere")
        assert stream.partitions(begin, begin) == []


def test_an_inferred_schema_is_logged_as_it_can_be_given(
    odradek: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(odradek, topic)
    produce_all(odradek, topic, [(None, b'{"user-id":1,"in":{"a b":"x"}}')])
    given = {"kafka.bootstrap.servers": odradek, "subscribe": topic, "valueFormat": "json"}
    schema = OdradekDataSource(given).schema()
    (said,) = [record.getMessage() for record in caplog.records if "inferred" in record.getMessage()]
    logged = said.removeprefix("inferred valueSchema ").removesuffix("; give it as an option to keep it")
    assert OdradekDataSource(given | {"valueSchema": logged}).schema() == schema


def test_avro_under_spark(spark: Any, odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    produce_all(odradek, topic, [(None, avro_value(n, f"note {n}")) for n in range(5)])
    frame = load(spark, odradek, subscribe=topic, valueFormat="avro", valueSchema=json.dumps(AVRO))
    rows = frame.selectExpr("value.id", "value.note", "value.lines[2].n", "value.tags['k'] tag").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(n, f"note {n}", 9, -5) for n in range(5)]
