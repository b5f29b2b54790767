"""PostgreSQL's texts of values as Debezium's JSON values, with their Connect schemas.

Source: Debezium's documentation of its PostgreSQL connector, "Data type mappings", with `time.precision.mode=adaptive`,
`decimal.handling.mode=string`, `interval.handling.mode=string` and `binary.handling.mode=bytes`. Types that the table
below lacks, enumerations among them, are strings with PostgreSQL's text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

Json = bool | int | float | str | list[Any] | None
_US = 1_000_000
# Debezium's values of `infinity`, in microseconds.
_LEAST_US, _GREATEST_US = -9_223_372_036_832_400_000, 9_223_372_036_825_200_000
_LEAST_INT32, _GREATEST_INT32 = -(2**31), 2**31 - 1
_TIMESTAMP = re.compile(
    r"(?P<year>\d{4,})-(?P<month>\d\d)-(?P<day>\d\d)(?: (?P<time>[\d:.]+)(?P<zone>[+-][\d:]+)?)?(?P<bc> BC)?"
)


@dataclass(frozen=True, slots=True)
class Type:
    """The JSON form of values of a PostgreSQL type.

    Attributes:
        connect: the type of Kafka Connect's schema.
        semantic: the name of the schema, as Debezium has it; None for plain types.
        value: gives the JSON value of PostgreSQL's text. Raises ValueError for a text that is no such value.
        parameters: of the schema.
        items: the type of the elements of an array.
    """

    connect: str
    semantic: str | None
    value: Callable[[str], Json]
    parameters: Mapping[str, str] | None = None
    items: Type | None = None

    def schema(self, *, optional: bool) -> dict[str, Any]:
        """Kafka Connect's schema, as JsonConverter writes it."""
        found: dict[str, Any] = {"type": self.connect}
        if self.items is not None:
            found["items"] = self.items.schema(optional=True)
        found["optional"] = optional
        if self.semantic is not None:
            found |= {"name": self.semantic, "version": 1}
        if self.parameters is not None:
            found["parameters"] = dict(self.parameters)
        return found


def _boolean(text: str) -> bool:
    if text not in ("t", "f"):
        raise ValueError(f"{text!r} is not a boolean")
    return text == "t"


def _float(text: str) -> Json:
    """A float for JSON; NaN and the infinities are strings, as in Connect's JsonConverter."""
    return text if text in ("NaN", "Infinity", "-Infinity") else float(text)


def _bytes(text: str) -> str:
    if not text.startswith("\\x"):
        raise ValueError("a value of bytea is not in hex; is bytea_output set?")
    return base64.b64encode(bytes.fromhex(text[2:])).decode()


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar; year 0 is 1 BC.

    `datetime.date` ends at the years 1 and 9999, PostgreSQL's dates do not.
    """
    # Years that begin in March have the leap day at their end.
    march_year = year - (month <= 2)
    month_from_march = (month + 9) % 12
    day_of_year = (153 * month_from_march + 2) // 5 + day - 1
    leap_days = march_year // 4 - march_year // 100 + march_year // 400
    return march_year * 365 + leap_days + day_of_year - 719_468


def _parts(text: str) -> tuple[int, int]:
    """Days since 1970-01-01 and microseconds of the day, of a date or a timestamp in UTC."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a date in ISO format; is DateStyle set?")
    year = int(found["year"])
    days = days_from_civil(1 - year if found["bc"] else year, int(found["month"]), int(found["day"]))
    return days, _micros(found["time"] or "00:00:00")


def _micros(text: str) -> int:
    """Microseconds of the day; 24:00:00 is its end."""
    hours, minutes, seconds = text.split(":")
    whole, _, fraction = seconds.partition(".")
    return (int(hours) * 3600 + int(minutes) * 60 + int(whole)) * _US + int(fraction.ljust(6, "0"))


def _date(text: str) -> int:
    if text.endswith("infinity"):
        return _LEAST_INT32 if text.startswith("-") else _GREATEST_INT32
    return _parts(text)[0]


def _timestamp(text: str) -> int:
    if text.endswith("infinity"):
        return _LEAST_US if text.startswith("-") else _GREATEST_US
    days, micros = _parts(text)
    return days * 86_400 * _US + micros


def _millis(micros: Callable[[str], int], text: str) -> int:
    return micros(text) // 1000


def _zoned_timestamp(digits: int, text: str) -> str:
    """A timestamp as ISO 8601 in UTC, the session's time zone, with the fraction's digits of the column's type."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None or found["bc"] or found["zone"] not in ("+00", "+00:00"):
        return text  # infinity, and years before 1: ISO 8601 has no text that all readers know
    whole, _, fraction = found["time"].partition(".")
    time = f"{whole}.{fraction.ljust(digits, '0')}" if digits else whole
    return f"{found['year']}-{found['month']}-{found['day']}T{time}Z"


def _zoned_time(text: str) -> str:
    """A time in UTC; PostgreSQL's text has the offset of the writer."""
    found = _ZONED_TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a time with a time zone")
    hours, minutes, seconds = ((found[name] or "0") for name in ("hours", "minutes", "seconds"))
    offset_us = _micros(f"{hours}:{minutes}:{seconds}") * (-1 if found["sign"] == "-" else 1)
    micros = (_micros(found["time"]) - offset_us) % _DAY_US
    seconds_of_day, fraction = divmod(micros, _US)
    shown = f"{seconds_of_day // 3600:02}:{seconds_of_day // 60 % 60:02}:{seconds_of_day % 60:02}"
    return f"{shown}.{fraction:06}".rstrip("0") + "Z" if fraction else f"{shown}Z"


def _money(text: str) -> str:
    """An amount of money in the form of `lc_monetary = C`: `-$1,234.50`."""
    return text.replace("$", "").replace(",", "")


def _interval(text: str) -> str:
    """An interval as ISO 8601, from PostgreSQL's style: `1 year -2 mons +3 days -04:05:06.78`."""
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not an interval; is intervalstyle set?")
    years, months, days = (int(found[name] or 0) for name in ("years", "months", "days"))
    sign = "-" if found["sign"] == "-" else ""
    hours, minutes, seconds = (found["time"] or "0:0:0").split(":")
    whole, _, fraction = seconds.partition(".")
    clock = [f"{sign}{number}" if number else "0" for number in (int(hours), int(minutes))]
    second = f"{sign}{int(whole)}" + (f".{fraction}" if fraction else "")
    return f"P{years}Y{months}M{days}DT{clock[0]}H{clock[1]}M{'0' if second == '-0' else second}S"


def _bits(text: str) -> str:
    """The bits as a number in little-endian order, in base64."""
    number = int(text or "0", 2)
    return base64.b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little")).decode()


def _array(items: Type, text: str) -> Json:
    """The elements of `{1,NULL,"a b"}`. Those of an array of arrays are null, as Debezium has them."""
    return [None if element is None else items.value(element) for element in _elements(text)]


def _elements(text: str) -> Iterator[str | None]:
    if not text.endswith("}"):
        raise ValueError(f"{text!r} is not an array")
    # An array whose first index is not 1 begins with its bounds, as in `[0:1]={1,2}`.
    inside = text[text.index("{") + 1 : -1]
    position, depth = 0, 0
    while position < len(inside):
        found = _ELEMENT.match(inside, position)
        if found is None:
            raise ValueError(f"{text!r} is not an array")
        position = found.end()
        if (brace := found["brace"]) is not None:
            depth += 1 if brace == "{" else -1
            if brace == "{" and depth == 1:
                yield None
        elif depth == 0 and found["comma"] is None:
            quoted = found["quoted"]
            plain = found["plain"]
            yield re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted is not None else _plain(plain)


def _plain(text: str) -> str | None:
    return None if text == "NULL" else text


_DAY_US = 86_400 * _US
_ZONED_TIME = re.compile(
    r"(?P<time>[\d:.]+)(?P<sign>[+-])(?P<hours>\d\d)(?::(?P<minutes>\d\d))?(?::(?P<seconds>\d\d))?"
)
_INTERVAL = re.compile(
    r"(?:(?P<years>[+-]?\d+) years? ?)?(?:(?P<months>[+-]?\d+) mons? ?)?(?:(?P<days>[+-]?\d+) days? ?)?"
    r"(?:(?P<sign>[+-])?(?P<time>\d+:\d\d:\d\d(?:\.\d+)?))?"
)
_ELEMENT = re.compile(r'(?P<comma>,)|(?P<brace>[{}])|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^,{}"]+)', re.DOTALL)
STRING = Type("string", None, str)
# By the oid in pg_type, which is the same in every database.
TYPES = {
    16: Type("boolean", None, _boolean),
    17: Type("bytes", None, _bytes),
    20: Type("int64", None, int),
    21: Type("int16", None, int),
    23: Type("int32", None, int),
    26: Type("int64", None, int),  # oid
    114: Type("string", "io.debezium.data.Json", str),
    142: Type("string", "io.debezium.data.Xml", str),
    790: Type("string", None, _money),
    700: Type("float", None, _float),
    701: Type("double", None, _float),
    1082: Type("int32", "io.debezium.time.Date", _date),
    1083: Type("int64", "io.debezium.time.MicroTime", _micros),
    1114: Type("int64", "io.debezium.time.MicroTimestamp", _timestamp),
    1186: Type("string", "io.debezium.time.Interval", _interval),
    1266: Type("string", "io.debezium.time.ZonedTime", _zoned_time),
    2950: Type("string", "io.debezium.data.Uuid", str),
    3802: Type("string", "io.debezium.data.Json", str),  # jsonb
}
# By the oid of an array's type, that of its elements.
_ARRAYS = {
    143: 142, 199: 114, 791: 790, 1000: 16, 1001: 17, 1002: 18, 1003: 19, 1005: 21, 1007: 23, 1009: 25, 1014: 1042,
    1015: 1043, 1016: 20, 1021: 700, 1022: 701, 1028: 26, 1041: 869, 1115: 1114, 1182: 1082, 1183: 1083, 1185: 1184,
    1187: 1186, 1231: 1700, 1270: 1266, 2951: 2950, 3807: 3802,
}  # fmt: skip
_TIME, _TIMESTAMP_OID, _ZONED, _BIT, _VARBIT = 1083, 1114, 1184, 1560, 1562
_GREATEST_PRECISION = 6
_NO_LENGTH = 2**31 - 1


@cache
def type_of(oid: int, modifier: int = -1) -> Type:
    """The type of a column. `modifier` is `atttypmod`: the digits of a fraction of a second, or the number of bits."""
    if oid in _ARRAYS:
        items = type_of(_ARRAYS[oid], modifier)
        return Type("array", None, partial(_array, items), items=items)
    if oid in (_BIT, _VARBIT):
        if oid == _BIT and modifier == 1:
            return Type("boolean", None, "1".__eq__)
        length = str(modifier if modifier >= 0 else _NO_LENGTH)
        return Type("bytes", "io.debezium.data.Bits", _bits, {"length": length})
    digits = modifier if modifier >= 0 else _GREATEST_PRECISION
    if oid == _ZONED:
        return Type("string", "io.debezium.time.ZonedTimestamp", partial(_zoned_timestamp, digits))
    if oid == _TIME and digits <= 3:
        return Type("int32", "io.debezium.time.Time", partial(_millis, _micros))
    if oid == _TIMESTAMP_OID and digits <= 3:
        return Type("int64", "io.debezium.time.Timestamp", partial(_millis, _timestamp))
    return TYPES.get(oid, STRING)
