"""PostgreSQL's texts of values as Debezium's JSON values, with their Connect schemas.

Source: Debezium's documentation of its PostgreSQL connector, "Data type mappings", with `time.precision.mode=adaptive`,
`decimal.handling.mode=string`, `interval.handling.mode=string` and `binary.handling.mode=base64`. Types that the table
below lacks, arrays and enumerations among them, are strings with PostgreSQL's text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass

Json = bool | int | float | str | None
_US = 1_000_000
_LEAST_INT64, _GREATEST_INT64 = -(2**63), 2**63 - 1
_LEAST_INT32, _GREATEST_INT32 = -(2**31), 2**31 - 1
_TIMESTAMP = re.compile(
    r"(?P<year>\d{4,})-(?P<month>\d\d)-(?P<day>\d\d)(?: (?P<time>[\d:.]+)(?P<zone>[+-][\d:]+)?)?(?P<bc> BC)?"
)


@dataclass(frozen=True, slots=True)
class Type:
    """How values of a PostgreSQL type appear in JSON.

    Attributes:
        connect: the type of Kafka Connect's schema.
        semantic: the name of the schema, as Debezium has it; None for plain types.
        value: gives the JSON value of PostgreSQL's text. Raises ValueError for a text that is no such value.
    """

    connect: str
    semantic: str | None
    value: Callable[[str], Json]


def _boolean(text: str) -> bool:
    if text not in ("t", "f"):
        raise ValueError(f"{text!r} is no boolean")
    return text == "t"


def _float(text: str) -> Json:
    """JSON has no NaN and no infinity: Connect's JsonConverter writes them as strings."""
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
        raise ValueError(f"{text!r} is no date in ISO format; is DateStyle set?")
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
        return _LEAST_INT64 if text.startswith("-") else _GREATEST_INT64
    days, micros = _parts(text)
    return days * 86_400 * _US + micros


def _zoned_timestamp(text: str) -> str:
    """ISO 8601 in UTC, which is the time zone of the session."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None or found["bc"] or found["zone"] not in ("+00", "+00:00"):
        return text  # infinity, and years before 1: ISO 8601 has no text that all readers know
    return f"{found['year']}-{found['month']}-{found['day']}T{found['time']}Z"


def _zoned_time(text: str) -> str:
    return text.replace("+00", "Z") if text.endswith("+00") else text


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
    700: Type("float", None, _float),
    701: Type("double", None, _float),
    1082: Type("int32", "io.debezium.time.Date", _date),
    1083: Type("int64", "io.debezium.time.MicroTime", _micros),
    1114: Type("int64", "io.debezium.time.MicroTimestamp", _timestamp),
    1184: Type("string", "io.debezium.time.ZonedTimestamp", _zoned_timestamp),
    1266: Type("string", "io.debezium.time.ZonedTime", _zoned_time),
    2950: Type("string", "io.debezium.data.Uuid", str),
    3802: Type("string", "io.debezium.data.Json", str),  # jsonb
}


def type_of(oid: int) -> Type:
    return TYPES.get(oid, STRING)
