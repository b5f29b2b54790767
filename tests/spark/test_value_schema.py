"""The option valueSchema: the types that it is parsed as, and one sentence for each invalid value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_odradek.errors import OptionError
from pyspark_odradek.values.value_schema import parse

PLAIN = [StringType(), LongType(), BinaryType(), TimestampType(), DecimalType(10, 2), DecimalType(38, 38)]
NAMES = st.lists(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,6}", fullmatch=True), min_size=1, max_size=4, unique=True)


def structs(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    def whole(names: list[str]) -> st.SearchStrategy[StructType]:
        kinds = st.lists(inner, min_size=len(names), max_size=len(names))
        return kinds.map(lambda found: StructType([StructField(*pair) for pair in zip(names, found, strict=True)]))

    return NAMES.flatmap(whole)


KINDS: st.SearchStrategy[DataType] = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: st.one_of(inner.map(ArrayType), inner.map(lambda v: MapType(StringType(), v)), structs(inner)),
    max_leaves=8,
)


@given(structs(KINDS))
def test_values_that_spark_writes_are_read_back(schema: StructType) -> None:
    assert parse(schema.simpleString()) == schema
    assert parse(schema.json()) == schema
    assert parse(schema.simpleString().removeprefix("struct<").removesuffix(">")) == schema


def test_columns_as_sql_has_them() -> None:
    text = (
        "id LONG, `an odd ``name``` string COMMENT 'it''s', at: Timestamp,\n tags ARRAY<INT>, price dec(9,2), n decimal"
    )
    found = parse(text)
    names = "id:bigint,an odd `name`:string,at:timestamp,tags:array<int>,price:decimal(9,2),n:decimal(10,0)"
    assert ",".join(f"{field.name}:{field.dataType.simpleString()}" for field in found) == names
    assert found["an odd `name`"].metadata == {"comment": "it's"}


@pytest.mark.parametrize(
    ("written", "comment"),
    [
        (r"'it\'s'", "it's"),
        (r"'a \\ and \n'", r"a \ and \n"),
        ('"say ""yes"", it\'\'s"', "say \"yes\", it''s"),
        ("''", ""),
        ("''''", "'"),
    ],
)
def test_the_text_of_a_comment(written: str, comment: str) -> None:
    assert parse(f"id LONG COMMENT {written}, n INT")["id"].metadata == {"comment": comment}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id NUMBERS", "value.id has the type NUMBERS, which is not read from JSON; BOOLEAN, "),
        ("in STRUCT<a: ARRAY<VARIANT>>", r"value.in.a\[\] has the type VARIANT"),
        ("name CHAR(3)", "value.name has the type CHAR"),
        ("id", "ends where the type of value.id is expected"),
        ("id LONG,", "ends where the name of a column is expected"),
        ("id LONG name STRING", "'name' stands where a comma or the end is expected"),
        ("id ARRAY<LONG", "ends where '>' is expected"),
        ("id LONG, id STRING", "value has id twice"),
        ("id LONG NOT NULL", "value.id is NOT NULL, but a record may lack it: remove NOT NULL"),
        ("m MAP<INT, STRING>", "the keys of value.m are int; in JSON they are STRING"),
        ("p DECIMAL(40, 2)", r"value.p is DECIMAL\(40, 2\)"),
        ("p DECIMAL(x)", "'x' stands where a number of value.p is expected"),
        ("$.id LONG", "is none of its signs; a name that has others is written in `backticks`"),
        ("id LONG COMMENT foo", "'foo' stands where a text in quotes is expected"),
        ("STRUCT<>", "'>' stands where the name of a column"),
        ("{", "not a schema in Spark's JSON"),
        ('{"type":"array"}', "not a schema in Spark's JSON"),
        (StructType([StructField("id", LongType(), nullable=False)]).json(), "value.id is NOT NULL"),
        (StructType([StructField("id", ArrayType(LongType(), False))]).json(), "value.id is to hold no null"),
        ("a " + "ARRAY<" * 60, "more than 50 deep"),
    ],
)
def test_impossible_schemas_are_refused(text: str, says: str) -> None:
    with pytest.raises(OptionError, match=says) as raised:
        parse(text)
    assert "\n" not in str(raised.value) and str(raised.value).startswith("valueSchema")
