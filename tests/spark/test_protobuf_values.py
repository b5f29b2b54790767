"""Values of Protocol Buffers decoded in the source, beside what the library's own JSON form says of the same bytes."""

from __future__ import annotations

import base64
import datetime
import decimal
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_odradek.errors import OptionError
from pyspark_odradek.options import parse_read_options
from tests.spark.queries import drain, load, load_stream
from tests.support.clients.confluent import create_topic, produce_all, read_committed

pytest.importorskip("google.protobuf", reason='needs protobuf: pip install "odradek[protobuf]"')

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

from pyspark_odradek.values.protobuf_values import ProtobufValues, descriptor_of, spark_schema

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "number": FIELD.TYPE_INT32,
    "id": FIELD.TYPE_INT64,
    "large": FIELD.TYPE_UINT64,
    "port": FIELD.TYPE_UINT32,
    "ratio": FIELD.TYPE_DOUBLE,
    "small": FIELD.TYPE_FLOAT,
    "good": FIELD.TYPE_BOOL,
    "name": FIELD.TYPE_STRING,
    "raw": FIELD.TYPE_BYTES,
}


def shop_file() -> Any:
    """The descriptors of a file with an order, its lines, a state, a time, a note that may be unset, and a map."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    state = file.enum_type.add(name="State")
    for number, name in enumerate(["UNKNOWN", "PAID"]):
        state.value.add(name=name, number=number)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    line.field.add(name="count", number=2, type=FIELD.TYPE_INT32, label=FIELD.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(SCALARS.items(), 1):
        order.field.add(name=name, number=number, type=kind, label=FIELD.LABEL_OPTIONAL)
    of = {"type": FIELD.TYPE_MESSAGE, "label": FIELD.LABEL_OPTIONAL}
    order.field.add(name="state", number=20, type=FIELD.TYPE_ENUM, type_name=".shop.State", label=FIELD.LABEL_OPTIONAL)
    order.field.add(name="at", number=21, type_name=".google.protobuf.Timestamp", **of)
    order.field.add(name="note", number=22, type_name=".google.protobuf.StringValue", **of)
    order.field.add(name="first", number=23, type_name=".shop.Line", **of)
    repeated = FIELD.LABEL_REPEATED
    order.field.add(name="lines", number=24, type=FIELD.TYPE_MESSAGE, type_name=".shop.Line", label=repeated)
    order.field.add(name="tags", number=25, type=FIELD.TYPE_STRING, label=repeated)
    entry = order.nested_type.add(name="PricesEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=FIELD.TYPE_DOUBLE, label=FIELD.LABEL_OPTIONAL)
    entries = ".shop.Order.PricesEntry"
    order.field.add(name="prices", number=26, type=FIELD.TYPE_MESSAGE, type_name=entries, label=repeated)
    order.oneof_decl.add(name="_by")
    order.field.add(
        name="by", number=27, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL, oneof_index=0, proto3_optional=True
    )
    return file


def shop_set() -> Any:
    files = descriptor_pb2.FileDescriptorSet()
    for needed in (timestamp_pb2, wrappers_pb2):
        needed.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(shop_file())
    return files


def make_order() -> Any:
    """The class that protoc would generate."""
    pool = descriptor_pool.DescriptorPool()
    for each in shop_set().file:
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


Order = make_order()
SCHEMA = base64.b64encode(shop_set().SerializeToString()).decode()


def values() -> ProtobufValues:
    found = spark_schema(SCHEMA, "shop.Order")
    return ProtobufValues(SCHEMA, "shop.Order", pa.struct(list(to_arrow_schema(found, timezone="UTC"))))


def full() -> Any:
    order = Order(number=-1, id=2**62, large=2**64 - 1, port=2**32 - 1, ratio=0.1, small=0.5, good=True, name="ä")
    order.raw, order.state, order.by = b"\x00\xff", 1, "me"
    order.at.seconds, order.at.nanos = -1, 999_999_999
    order.note.value, order.first.sku = "", "a"
    order.lines.add(sku="b", count=2)
    order.lines.add()
    order.tags.extend(["x", "y"])
    order.prices["eur"] = 1.5
    return order


def test_all_that_a_message_can_hold() -> None:
    unset = Order()
    column, wrong = values().decode(
        pa.array([full().SerializeToString(), None, unset.SerializeToString()], pa.binary())
    )
    assert wrong == {}
    whole, none, empty = column.to_pylist()
    assert none is None
    at = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, datetime.UTC)
    assert whole == {
        **{name: getattr(full(), name) for name in SCALARS},
        "large": decimal.Decimal(2**64 - 1),
        "state": "PAID",
        "at": at,
        "note": "",
        "first": {"sku": "a", "count": 0},
        "lines": [{"sku": "b", "count": 2}, {"sku": "", "count": 0}],
        "tags": ["x", "y"],
        "prices": [("eur", 1.5)],
        "by": "me",
    }
    assert [empty[name] for name in ("at", "note", "first", "by")] == [None] * 4, "these know that they are not set"
    assert (empty["id"], empty["name"], empty["state"], empty["lines"]) == (0, "", "UNKNOWN", [])


def test_a_state_that_the_descriptor_has_not_is_its_number() -> None:
    later = Order()
    later.state = 7
    column, _ = values().decode(pa.array([later.SerializeToString()]))
    assert column.to_pylist()[0]["state"] == "7"


def test_damage_is_reported_and_moves_no_other_row() -> None:
    """Cut and flipped bytes are reported or are another message; the rows around them stay what they were."""
    whole, dice = full().SerializeToString(), random.Random(5)
    good = values().decode(pa.array([whole]))[0][0]
    reported = 0
    for _ in range(300):
        damaged = bytearray(whole[: dice.randrange(1, len(whole) + 1)])
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        column, wrong = values().decode(pa.array([whole, bytes(damaged), whole], pa.binary()))
        assert column[0] == column[2] == good
        assert set(wrong) <= {1} and (column[1].is_valid or 1 in wrong)
        reported += len(wrong)
    assert reported > 100


def test_a_time_that_no_column_can_hold_is_a_bad_record() -> None:
    late = Order()
    late.at.seconds = 2**62
    column, wrong = values().decode(pa.array([late.SerializeToString(), full().SerializeToString()]))
    assert "not a shop.Order of Protobuf" in wrong.pop(0) and not wrong
    assert column.is_valid().to_pylist() == [False, True]


def test_a_class_and_a_file_give_the_same_descriptor(tmp_path: Path) -> None:
    (tmp_path / "shop.desc").write_bytes(shop_set().SerializeToString())
    schemas = [
        spark_schema(schema, "shop.Order") for schema in (str(tmp_path / "shop.desc"), SCHEMA, descriptor_of(Order))
    ]
    assert schemas[0] == schemas[1] == schemas[2]
    assert schemas[0]["prices"].dataType.simpleString() == "map<string,double>"


@pytest.mark.parametrize(
    ("schema", "message", "says"),
    [
        (SCHEMA, None, "set the option valueMessage: valueSchema has the messages shop.Line, shop.Order"),
        (SCHEMA, "shop.Orders", r"has no message shop\.Orders; it has shop\.Line, shop\.Order"),
        ("/nowhere/shop.desc!", None, "neither base64 nor a descriptor file that can be read: .*No such file"),
        ("AAAA", None, "not a whole descriptor set"),
        (base64.b64encode(shop_file().SerializeToString()).decode(), None, "not a whole descriptor set"),
    ],
)
def test_descriptors_that_cannot_be(schema: str, message: str | None, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        spark_schema(schema, message)


def test_a_message_within_itself_is_refused() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="tree.proto", syntax="proto3")
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=FIELD.TYPE_MESSAGE, type_name=".Node", label=FIELD.LABEL_OPTIONAL)
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    with pytest.raises(OptionError, match="the message Node is within itself"):
        spark_schema(base64.b64encode(files.SerializeToString()).decode(), None)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"valueFormat": "protobuf"}, "needs the option valueSchema: a descriptor set"),
        ({"valueFormat": "json", "valueMessage": "shop.Order"}, "valueMessage has an effect only with"),
        ({"valueMesage": "shop.Order"}, "did you mean 'valueMessage'"),
    ],
)
def test_options_that_contradict(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t"} | options, streaming=True)


def test_under_spark(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    """Columns from a descriptor file, and a record that does not decode in the dead-letter topic."""
    create_topic(odradek, topic)
    create_topic(odradek, f"{topic}-dead")
    produce_all(odradek, topic, [(None, Order(id=n, name=f"n{n}").SerializeToString()) for n in range(5)])
    produce_all(odradek, topic, [(b"poison", b"\xff\xff")])
    (tmp_path / "shop.desc").write_bytes(shop_set().SerializeToString())
    shape = {"subscribe": topic, "valueFormat": "protobuf", "valueMessage": "shop.Order"}
    shape["valueSchema"] = str(tmp_path / "shop.desc")
    assert isinstance(load(spark, odradek, **shape).schema["value"].dataType, StructType)
    with pytest.raises(Exception, match=rf"{topic}-0, offset 5: not a shop\.Order of Protobuf"):
        load(spark, odradek, **shape).count()
    drain(load_stream(spark, odradek, **shape, deadLetterTopic=f"{topic}-dead").selectExpr("value.*"), tmp_path)
    found = spark.read.parquet(str(tmp_path / "sink")).select("id", "name").orderBy("id").collect()
    assert [tuple(row) for row in found] == [(n, f"n{n}") for n in range(5)]
    assert [letter.key() for letter in read_committed(odradek, f"{topic}-dead")] == [b"poison"]
