"""Decodes JSON values to a column of structs, with a reason for each value that does not match.

Arrow's reader parses all values of a batch at once. If it fails, the batch is halved until the invalid records are
isolated, so that a few of them cost little; Python parses those, and has the reason.

Each value is parsed inside an object of ours with its row number, so that a value that is not exactly one object cannot
move the rows after it.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import json
import math
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from pyspark_odradek.errors import OptionError

_NUMBER, _VALUE = "n", "v"
FEW = 256  # rows that Python reads about as fast as Arrow finds the wrong ones among them

# Python's own context rounds to 28 digits; a decimal has 38 at most, before its point or behind it. One halfway between
# two goes to the one farther from zero, as with Spark's from_json.
_DECIMALS = decimal.Context(prec=2 * 38, rounding=decimal.ROUND_HALF_UP)
_UNITS = [decimal.Decimal((0, (1,), -scale)) for scale in range(39)]
_DECIMAL_TEXT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")  # Python takes "1_0" and " 1" as well
_DOUBLE = struct.Struct("<d")
_BEYOND_SINGLE, _HALFWAY = (1 << 29) - 1, 1 << 28  # of the bits of a double, those that a float of 32 bits has not
_LEAST_NORMAL_SINGLE = 2.0**-126  # below it floats of 32 bits have fewer bits
# As many digits as there are; an exponent that is out of all bounds makes an infinity or zero, as with floats.
_EXACT = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])
_read_exactly = json.JSONDecoder(parse_float=_EXACT.create_decimal).decode


class JsonValues:
    """Decodes values by a schema.

    Args:
        wanted: the struct of Arrow that each value becomes. Fields that a value has not are null, others are ignored.
    """

    def __init__(self, wanted: Any) -> None:
        self.wanted = wanted
        self._is_known_to_arrow = not _holds(wanted, pa.types.is_binary)  # Arrow would not decode its base64
        # Types that Python's floats would round a second time; others are read as floats, which is faster.
        is_exact = _holds(wanted, lambda each: pa.types.is_decimal(each) or pa.types.is_float32(each))
        self._read: Callable[[str], Any] = _read_exactly if is_exact else json.loads
        schema = pa.schema([(_NUMBER, pa.int64()), (_VALUE, _safe(wanted))])
        self._parsing = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def decode(self, values: Any) -> tuple[Any, dict[int, str]]:
        """Decode values; returns (an array of structs, reasons by row of invalid values, which are null like nulls)."""
        wrong: dict[int, str] = {}
        pieces = self._decode(values, 0, wrong)
        return pa.chunked_array(pieces, self.wanted).combine_chunks(), wrong

    def _decode(self, values: Any, first: int, wrong: dict[int, str]) -> list[Any]:
        if len(values) == 0:
            return []
        found = self._at_once(values) if self._is_known_to_arrow else None
        if found is not None:
            return [found]
        if not self._is_known_to_arrow or len(values) <= FEW:
            return [self._by_python(values.to_pylist(), first, wrong)]
        half = len(values) // 2
        return [
            *self._decode(values.slice(0, half), first, wrong),
            *self._decode(values.slice(half), first + half, wrong),
        ]

    def _by_python(self, values: list[bytes | None], first: int, wrong: dict[int, str]) -> Any:
        rows = [self._row(value, first + number, wrong) for number, value in enumerate(values)]
        try:
            return pa.array(rows, self.wanted)
        except (ValueError, OverflowError, pa.ArrowException):  # a number that its type cannot hold
            return pa.array([self._fitting(row, first + number, wrong) for number, row in enumerate(rows)], self.wanted)

    def _row(self, value: bytes | None, number: int, wrong: dict[int, str]) -> Any:
        if value is None:
            return None
        try:
            text = value.decode("utf-8", "surrogateescape")  # bytes that are not a text hurt only where they are wanted
            read = self._read(text)
            if read is None:
                raise ValueError("value is the literal null, not an object")  # no tombstone, which has no bytes
            return to_python(read, self.wanted, "value")
        except (ValueError, RecursionError, OverflowError) as error:
            wrong[number] = _reported(error)
            return None

    def _fitting(self, row: Any, number: int, wrong: dict[int, str]) -> Any:
        try:
            pa.array([row], self.wanted)
        except (ValueError, OverflowError, pa.ArrowException) as error:
            wrong[number] = _reported(error)
            return None
        return row

    def _at_once(self, values: Any) -> Any | None:
        """All values, or None where Arrow refuses one of them or would have to guess."""
        numbers = pa.array(np.arange(len(values)))
        lines = pc.binary_join_element_wise(
            b'{"n":',
            numbers.cast(pa.string()).cast(pa.binary()),
            b',"v":',
            values.fill_null(b"null"),
            b"}\n",
            b"",
        )
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), b"")[0].as_buffer()
        reading = pajson.ReadOptions(use_threads=False, block_size=joined.size + 1)
        try:
            table = pajson.read_json(pa.BufferReader(joined), reading, self._parsing)
        except pa.ArrowNotImplementedError:  # a type of the schema that Arrow reads from no JSON, such as a map
            self._is_known_to_arrow = False
            return None
        except pa.ArrowException:
            return None
        if table.num_rows != len(values) or not table.column(_NUMBER).combine_chunks().equals(numbers):
            return None
        found = table.column(_VALUE).combine_chunks()
        if found.null_count != values.null_count:  # the literal null
            return None
        try:
            # The reader lets pass texts that are not UTF-8, and decimals with too many digits.
            found.validate(full=True)
            return found if found.type == self.wanted else found.cast(self.wanted)
        except pa.ArrowInvalid:
            return None


def _reported(error: Exception) -> str:
    return f"not JSON of the schema: {str(error)[:300]}"


def _safe(wanted: Any) -> Any:
    """The type with wider decimals where Arrow's reader would turn numbers that are too large into others.

    It multiplies a number that has no more digits than the precision by at most 10 to the scale, modulo 2 to the bits
    of the type, and takes any product for right that is no less than the number. That needs a precision and a scale of
    more than 38 together, and cannot be where 256 bits hold 76 digits.
    """
    types = pa.types
    if types.is_struct(wanted):
        return pa.struct([field.with_type(_safe(field.type)) for field in wanted])
    if types.is_list(wanted):
        return pa.list_(wanted.value_field.with_type(_safe(wanted.value_type)))
    if types.is_decimal128(wanted) and wanted.precision + wanted.scale > 38:
        return pa.decimal256(76, wanted.scale)
    return wanted


def _holds(wanted: Any, is_one: Callable[[Any], bool]) -> bool:
    """Whether a type is, or contains, one for which `is_one` is true."""
    types = pa.types
    if types.is_struct(wanted):
        return any(_holds(field.type, is_one) for field in wanted)
    if types.is_map(wanted):
        return _holds(wanted.item_type, is_one)
    return is_one(wanted) or (types.is_list(wanted) and _holds(wanted.value_type, is_one))


def to_python(value: Any, wanted: Any, where: str) -> Any:
    """A value of JSON as Arrow's constructor takes it for a type. Raises ValueError, with where it does not fit."""
    if value is None:
        return None
    types = pa.types
    if types.is_struct(wanted):
        _expect(value, dict, "an object", where)
        return {f.name: to_python(value.get(f.name), f.type, f"{where}.{f.name}") for f in wanted}
    if types.is_list(wanted):
        _expect(value, list, "an array", where)
        return [to_python(each, wanted.value_type, f"{where}[{n}]") for n, each in enumerate(value)]
    if types.is_map(wanted):
        _expect(value, dict, "an object", where)
        return [(key, to_python(each, wanted.item_type, f"{where}.{key}")) for key, each in value.items()]
    return _scalar(value, wanted, where)


def _scalar(value: Any, wanted: Any, where: str) -> Any:
    """A value of a type that has no fields and no items."""
    types = pa.types
    if types.is_boolean(wanted):
        return _expect(value, bool, "true or false", where)
    if types.is_integer(wanted):
        return _expect_number(value, int, "a whole number", where)
    if types.is_floating(wanted):
        number = _expect_number(value, int | float | decimal.Decimal, "a number", where)
        return _single(number) if types.is_float32(wanted) else _double(number)
    if types.is_string(wanted):
        return _expect(value, str, "a string", where)
    try:
        return _from_text(value, wanted)
    except (ValueError, TypeError, ArithmeticError, binascii.Error):
        raise ValueError(f"{where} is {_shown(value)}, not a {wanted}") from None


def _expect_number(value: Any, kind: Any, what: str, where: str) -> Any:
    # Python's bool is an int, and JSON's true is not a number.
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ValueError(f"{where} is {_shown(value)}, not {what}")
    return value


def _from_text(value: Any, wanted: Any) -> Any:
    types = pa.types
    if types.is_timestamp(wanted):
        moment = datetime.datetime.fromisoformat(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return moment if wanted.tz is not None else moment.astimezone(datetime.UTC).replace(tzinfo=None)
    if types.is_date(wanted):
        if type(value) is int:  # days since 1970, as Arrow reads it
            return value
        return datetime.date.fromisoformat(value)
    if types.is_decimal(wanted):
        return _decimal(value, wanted.precision, wanted.scale)
    if types.is_binary(wanted):
        return base64.b64decode(value, validate=True)
    raise ValueError(f"{wanted} has no form in JSON")


def _decimal(value: Any, precision: int, scale: int) -> decimal.Decimal:
    """A number, or a text that is one, with `scale` digits behind its point and at most `precision` in all.

    Raises:
        ValueError: it is not a number, or has more digits before its point.
        ArithmeticError: it has more digits than any decimal, or is infinite.
    """
    if not isinstance(value, decimal.Decimal):
        is_number = type(value) is int or (isinstance(value, str) and _DECIMAL_TEXT.fullmatch(value) is not None)
        if not is_number:  # floats are NaN and the infinities here
            raise ValueError("no number")
        value = _EXACT.create_decimal(value)
    found = _DECIMALS.quantize(value, _UNITS[scale])
    if found and found.adjusted() >= precision - scale:
        raise ValueError("too large")
    return found


def _double(value: float | decimal.Decimal) -> float:
    try:
        return float(value)
    except OverflowError:  # of a whole number alone: what has a point or exponent becomes infinite, also in Arrow
        return math.inf if value > 0 else -math.inf


def _single(value: float | decimal.Decimal) -> float:
    """A number whose nearest float of 32 bits is the one that is nearest to `value`.

    That of the nearest double is another one where this lies halfway between two of them, and `value` beside it.
    """
    near = _double(value)
    is_halfway = int.from_bytes(_DOUBLE.pack(near)[:4], "little") & _BEYOND_SINGLE == _HALFWAY
    if isinstance(value, float) or not (is_halfway or abs(near) < _LEAST_NORMAL_SINGLE):
        return near
    found: float = pa.scalar(str(value)).cast(pa.float32()).as_py()
    return found


def _expect(value: Any, kind: type, words: str, where: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{where} is {_shown(value)}, not {words}")
    return value


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, decimal.Decimal) else json.dumps(value, default=float)
    return text if len(text) <= 40 else text[:37] + "..."


def infer(samples: list[bytes]) -> StructType:
    """The schema that fits all samples: whole numbers are LONG, other numbers DOUBLE, texts STRING.

    Raises:
        OptionError: there is no sample, one is no JSON object, or two contradict each other.
    """
    found: DataType = NullType()
    for sample in samples:
        try:
            value = json.loads(sample)
            if not isinstance(value, dict):
                raise ValueError(f"it is {_shown(value)}, not an object")
        except ValueError as error:
            raise OptionError(
                f"the schema cannot be inferred: a value is not a JSON object ({error}); {_GIVE}"
            ) from None
        found = _merged(found, _type_of(value), "value")
    if not isinstance(found, StructType):
        raise OptionError(f"the schema cannot be inferred, as there is no record yet; {_GIVE}")
    whole = _settled(found)
    assert isinstance(whole, StructType)
    return whole


_GIVE = "give the option valueSchema, such as 'id LONG, name STRING'"


def _type_of(value: Any) -> DataType:
    if value is None:
        return NullType()
    if isinstance(value, bool):
        return BooleanType()
    if isinstance(value, int):
        return LongType()
    if isinstance(value, float):
        return DoubleType()
    if isinstance(value, str):
        return StringType()
    if isinstance(value, list):
        element: DataType = NullType()
        for each in value:
            element = _merged(element, _type_of(each), "an array")
        return ArrayType(element)
    return StructType([StructField(name, _type_of(each)) for name, each in value.items()])


def _merged(one: DataType, other: DataType, where: str) -> DataType:
    if isinstance(one, NullType) or one == other:
        return other
    if isinstance(other, NullType):
        return one
    if isinstance(one, StructType) and isinstance(other, StructType):
        return _merged_structs(one, other, where)
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_merged(one.elementType, other.elementType, where))
    if {type(one), type(other)} == {LongType, DoubleType}:
        return DoubleType()
    kinds = f"{one.simpleString()} and {other.simpleString()}"
    raise OptionError(f"the schema cannot be inferred: {where} is {kinds} in different records; {_GIVE}")


def _merged_structs(one: StructType, other: StructType, where: str) -> StructType:
    types = {field.name: field.dataType for field in one}
    for field in other:
        types[field.name] = _merged(types.get(field.name, NullType()), field.dataType, f"{where}.{field.name}")
    return StructType([StructField(name, type_) for name, type_ in types.items()])


def _settled(type_: DataType) -> DataType:
    """The type with STRING for columns that are null in every sample."""
    if isinstance(type_, NullType):
        return StringType()
    if isinstance(type_, ArrayType):
        return ArrayType(_settled(type_.elementType))
    if isinstance(type_, StructType):
        return StructType([StructField(field.name, _settled(field.dataType)) for field in type_])
    return type_
