"""PostgreSQL's texts as Debezium's values."""

from __future__ import annotations

import datetime
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
        (1114, "infinity", 2**63 - 1),
        (1184, "2026-11-27 10:00:00.25+00", "2026-11-27T10:00:00.25Z"),
        (1184, "infinity", "infinity"),
        (1266, "10:00:00+00", "10:00:00Z"),
        (1700, "1.10", "1.10"),
        (3802, '{"a": 1}', '{"a": 1}'),
        (99_999, "{a,b}", "{a,b}"),
    ],
)
def test_a_value_of_each_type(oid: int, text: str, value: Any) -> None:
    assert type_of(oid).value(text) == value


@given(st.dates())
def test_days_are_those_of_the_calendar(date: datetime.date) -> None:
    assert type_of(1082).value(date.isoformat()) == (date - datetime.date(1970, 1, 1)).days


@pytest.mark.parametrize(("oid", "text"), [(16, "yes"), (17, "abc"), (1082, "27/11/2026"), (23, "x")])
def test_texts_of_another_session_are_refused(oid: int, text: str) -> None:
    with pytest.raises(ValueError):
        type_of(oid).value(text)


def test_a_type_without_a_row_is_a_string() -> None:
    assert type_of(1700) is STRING
