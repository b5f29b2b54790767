"""A number has the digits that it was written with, whichever records are next to it and whichever way it is read."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.record.varint import zigzag
from pyspark_odradek.values.avro_values import AvroValues
from pyspark_odradek.values.json_values import JsonValues
from tests.spark.test_values import avro_decimal

WIDE = decimal.Context(prec=200, rounding=decimal.ROUND_HALF_UP)
BELOW_ONE, ABOVE_ONE = "0." + "9" * 40, "1." + "0" * 40 + "1"
MAP = pa.map_(pa.string(), pa.string())


@st.composite
def types_and_numbers(draw: st.DrawFn) -> tuple[int, int, list[decimal.Decimal]]:
    """(precision, scale, numbers that fit, nearly fit or do not at all)."""
    precision = draw(st.just(38) | st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    length = st.sampled_from([1, precision // 2 + 1, precision, precision, precision, precision + 1, 77])
    # The numbers are drawn by their length, since integers of a wide range are mostly small ones.
    digits = length.flatmap(lambda size: st.integers(10 ** (size - 1), 10**size - 1))
    moved = st.sampled_from([0, 0, 0, -3, -1, 1, scale])
    found = draw(st.lists(st.tuples(st.sampled_from([0, 1, -1]), digits, moved), min_size=1, max_size=8))
    return precision, scale, [WIDE.scaleb(decimal.Decimal(sign * number), by - scale) for sign, number, by in found]


def fitting(number: decimal.Decimal, precision: int, scale: int) -> decimal.Decimal | None:
    """The value that a column holds of it; None where it is too large."""
    found = WIDE.quantize(number, decimal.Decimal((0, (1,), -scale)))
    return found if found.copy_abs() < 10 ** (precision - scale) else None


@given(types_and_numbers(), st.sampled_from(["{}", '"{}"', "{:f}", "{:e}", "{:E}"]))
@settings(deadline=None, max_examples=100)
def test_decimals_in_json(drawn: tuple[int, int, list[decimal.Decimal]], form: str) -> None:
    """Arrow reads all where it can, and Python where a record beside is wrong or where the schema has a map."""
    precision, scale, numbers = drawn
    kind = pa.decimal128(precision, scale)
    rows = [b'{"v":%s}' % form.format(number).encode() for number in numbers]
    expected = [fitting(number, precision, scale) for number in numbers]
    alone = JsonValues(pa.struct([("v", kind)]))
    mapped = JsonValues(pa.struct([("v", kind), ("m", MAP)]))
    beside, _ = alone.decode(pa.array([*rows, b"{"], pa.binary()))
    by_python, _ = mapped.decode(pa.array(rows, pa.binary()))
    by_arrow = [alone.decode(pa.array([row], pa.binary()))[0][0].as_py() for row in rows]
    for found in (beside.to_pylist()[:-1], by_python.to_pylist(), by_arrow):
        assert [row and row["v"] for row in found] == expected


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False) | st.floats(width=32, allow_nan=False), min_size=1))
@settings(deadline=None, max_examples=40)
def test_floats_in_json(numbers: list[decimal.Decimal | float]) -> None:
    """The numbers include those halfway between two floats of 32 bits, and beside that."""
    texts = [str(decimal.Decimal(number)) for number in numbers if abs(number) < 1e38]  # type: ignore[operator]  # both kinds compare with a float
    for text in list(texts):
        single = np.float32(text)
        both = [decimal.Decimal(float(each)) for each in (single, np.nextafter(single, np.float32(0)))]
        halfway = WIDE.multiply(WIDE.add(*both), decimal.Decimal("0.5"))
        texts += [str(halfway), *(str(WIDE.multiply(halfway, decimal.Decimal(by))) for by in (BELOW_ONE, ABOVE_ONE))]
    rows = [b'{"x":%s,"y":%s,"p":1}' % (text.encode(), text.encode()) for text in texts]
    values = JsonValues(pa.struct([("x", pa.float64()), ("y", pa.float32()), ("p", pa.decimal128(5, 2))]))
    by_python = values.decode(pa.array([*rows, b"{"], pa.binary()))[0].to_pylist()[:-1]
    by_arrow = [values.decode(pa.array([row], pa.binary()))[0][0].as_py() for row in rows]
    assert by_python == by_arrow


def test_a_decimal_between_two_is_rounded_as_spark_does(spark: Any) -> None:
    """A column has no more digits than its type; a query that took its values apart by from_json has the same ones."""
    texts = ["0.125", "-0.125", "1.005", "2.675", "0.1349999999999999999999999999999999999", "99999999.995", "1e-9"]
    rows = [b'{"v":%s}' % text.encode() for text in texts]
    found, wrong = JsonValues(pa.struct([("v", pa.decimal128(10, 2))])).decode(pa.array(rows, pa.binary()))
    frame = spark.createDataFrame([(row.decode(),) for row in rows], "t STRING").coalesce(1)
    of_spark = [row[0] for row in frame.selectExpr("from_json(t, 'v DECIMAL(10, 2)').v").collect()]
    assert [row and row["v"] for row in found.to_pylist()] == of_spark
    assert list(wrong) == [5]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"12345678901234567.891", "value.v is 12345678901234567.891, not a decimal128(10, 2)"),
        (b"[0.5]", "value.v is [0.5], not a decimal128(10, 2)"),
        (b"NaN", "value.v is NaN, not a decimal128(10, 2)"),
        (b"1e999999999999999999999", "value.v is Infinity, not a decimal128(10, 2)"),
        (b'"1_0"', 'value.v is "1_0", not a decimal128(10, 2)'),
    ],
)
def test_a_decimal_that_does_not_fit_is_reported_with_all_digits(text: bytes, says: str) -> None:
    values = JsonValues(pa.struct([("v", pa.decimal128(10, 2))]))
    column, wrong = values.decode(pa.array([b'{"v":%s}' % text, b'{"v":1}'], pa.binary()))
    assert wrong == {0: f"not JSON of the schema: {says}"} and column[1].as_py() == {"v": 1}


@given(types_and_numbers())
@settings(deadline=None, max_examples=60)
def test_decimals_in_avro(drawn: tuple[int, int, list[decimal.Decimal]]) -> None:
    precision, scale, numbers = drawn
    values = AvroValues(avro_decimal(precision, scale), pa.struct([("v", pa.decimal128(precision, scale))]))
    stored = [int(WIDE.scaleb(number, scale)) for number in numbers]
    rows = [zigzag(64) + number.to_bytes(64, "big", signed=True) for number in stored]
    column, wrong = values.decode(pa.array(rows, pa.binary()))
    for number, row in enumerate(column.to_pylist()):
        fits = abs(stored[number]) < 10**precision
        assert (number in wrong) != fits
        assert (row and row["v"]) == (WIDE.scaleb(decimal.Decimal(stored[number]), -scale) if fits else None)
