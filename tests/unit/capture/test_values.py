"""PostgreSQL's texts as Debezium's values."""

from __future__ import annotations

import datetime
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.capture.values import STRING, days_from_civil, type_of

DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("oid", "text", "value"),
    [
        (16, "t", True),
        (16, "f", False),
        (17, "\\x00ff", "AP8="),
        (20, "-9223372036854775808", -(2**63)),
        (21, "7", 7),
        (25, "t", "t"),
        (700, "1.5", 1.5),
        (701, "NaN", "NaN"),
        (701, "-Infinity", "-Infinity"),
        (1082, "1970-01-02", 1),
        (1082, "infinity", 2**31 - 1),
        (1082, "-infinity", -(2**31)),
        (1082, "0001-12-31 BC", -719_163),
        (1083, "24:00:00", DAY_US),
        (1083, "00:00:00.5", 500_000),
        (1114, "1970-01-02 00:00:00.000001", DAY_US + 1),
        (1114, "10000-01-01 00:00:00", days_from_civil(10_000, 1, 1) * DAY_US),
        (1114, "infinity", 9_223_372_036_825_200_000),
        (1184, "2026-11-27 10:00:00.25+00", "2026-11-27T10:00:00.250000Z"),
        (1184, "infinity", "infinity"),
        (1266, "10:00:00+00", "10:00:00Z"),
        (1266, "00:30:00.25+01", "23:30:00.25Z"),
        (1266, "22:00:00-03:30", "01:30:00Z"),
        (790, "-$1,234.50", "-1234.50"),
        (1186, "00:00:00", "P0Y0M0DT0H0M0S"),
        (1186, "1 year 2 mons 3 days 04:05:06.78", "P1Y2M3DT4H5M6.78S"),
        (1186, "-1 years -2 mons +3 days -04:05:06", "P-1Y-2M3DT-4H-5M-6S"),
        (1560, "101", "BQ=="),
        (1562, "", ""),
        (1007, "{1,NULL,3}", [1, None, 3]),
        (1007, "{}", []),
        (1007, "[0:1]={1,2}", [1, 2]),
        (1007, "{{1,2},{3,4}}", [None, None]),
        (1009, '{a,"b c","d\\"e,{f}\\\\",NULL,"NULL",""}', ["a", "b c", 'd"e,{f}\\', None, "NULL", ""]),
        (1001, '{"\\\\x00ff"}', ["AP8="]),
        (1185, '{"2026-11-27 10:00:00+00"}', ["2026-11-27T10:00:00.000000Z"]),
        (1700, "1.10", "1.10"),
        (3802, '{"a": 1}', '{"a": 1}'),
        (99_999, "{a,b}", "{a,b}"),
    ],
)
def test_a_value_of_each_type(oid: int, text: str, value: Any) -> None:
    assert type_of(oid).value(text) == value


@pytest.mark.parametrize(
    ("oid", "modifier", "text", "connect", "value"),
    [
        (1083, 3, "10:00:00.123", "int32", 36_000_123),
        (1083, 4, "10:00:00.1234", "int64", 36_000_123_400),
        (1114, 0, "1970-01-01 00:00:01", "int64", 1000),
        (1114, 3, "-infinity", "int64", -9_223_372_036_832_400),
        (1184, 0, "2026-11-27 10:00:00+00", "string", "2026-11-27T10:00:00Z"),
        (1184, 3, "2026-11-27 10:00:00.5+00", "string", "2026-11-27T10:00:00.500Z"),
        (1560, 1, "1", "boolean", True),
        (1560, 1, "0", "boolean", False),
        (1560, 12, "000010000001", "bytes", "gQ=="),
        (1183, 3, "{10:00:00.123}", "array", [36_000_123]),
    ],
)
def test_the_modifier_of_a_type_decides(oid: int, modifier: int, text: str, connect: str, value: Any) -> None:
    found = type_of(oid, modifier)
    assert (found.connect, found.value(text)) == (connect, value)


@given(st.lists(st.none() | st.text(), max_size=4))
def test_texts_in_an_array_are_read_as_they_were(texts: list[str | None]) -> None:
    quoted = ['"' + re.sub(r'(["\\])', r"\\\1", text) + '"' if text is not None else "NULL" for text in texts]
    assert type_of(1009).value("{" + ",".join(quoted) + "}") == texts


@given(st.dates())
def test_days_are_those_of_the_calendar(date: datetime.date) -> None:
    assert type_of(1082).value(date.isoformat()) == (date - datetime.date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("oid", "text"),
    [(16, "yes"), (17, "abc"), (1082, "27/11/2026"), (23, "x"), (1007, "1"), (1186, "P1Y"), (1266, "10")],
)
def test_texts_of_another_session_are_refused(oid: int, text: str) -> None:
    with pytest.raises(ValueError):
        type_of(oid).value(text)


def test_a_type_without_a_row_is_a_string() -> None:
    assert type_of(1700) is STRING
