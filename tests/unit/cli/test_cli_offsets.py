"""The options of `groups reset` and `configs alter` are parsed, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.admin.offset_reset import Position, ResetPlan
from odradek.cli.configs import parse_config_list
from odradek.cli.errors import CliError
from odradek.cli.offsets import export_plan, parse_datetime, parse_duration_ms, parse_topic, requested_position

NOTHING: dict[str, Any] = {
    "earliest": False,
    "latest": False,
    "current": False,
    "offset": None,
    "datetime_text": None,
    "duration": None,
    "shift": None,
    "file": None,
}


@pytest.mark.parametrize(
    ("given", "position"),
    [
        ({"earliest": True}, Position(edge="earliest")),
        ({"latest": True}, Position(edge="latest")),
        ({"current": True}, Position(edge="current")),
        ({"offset": 0}, Position(offset=0)),
        ({"shift": -3}, Position(shift=-3)),
        ({"datetime_text": "1970-01-01T00:00:01.500"}, Position(timestamp_ms=1500)),
    ],
)
def test_one_position(given: dict[str, Any], position: Position) -> None:
    assert requested_position(**NOTHING | given) == position


@pytest.mark.parametrize("given", [{}, {"earliest": True, "latest": True}, {"offset": 0, "shift": 0}])
def test_exactly_one_position_is_required(given: dict[str, Any]) -> None:
    with pytest.raises(CliError, match="say where to, once"):
        requested_position(**NOTHING | given)


def test_topics_with_partitions() -> None:
    assert parse_topic("orders") == ("orders", [])
    assert parse_topic("orders:0,12") == ("orders", [0, 12])
    assert parse_topic("orders:x") == ("orders:x", [])


def test_datetimes() -> None:
    assert parse_datetime("2026-01-31T12:00:00.000") == parse_datetime("2026-01-31T12:00:00Z")
    assert parse_datetime("2026-01-31T12:00:00+02:00") == parse_datetime("2026-01-31T10:00:00")
    with pytest.raises(CliError, match="--to-datetime tomorrow"):
        parse_datetime("tomorrow")


@pytest.mark.parametrize(
    ("text", "ms"),
    [("P1D", 86_400_000), ("PT1H", 3_600_000), ("P1DT1M", 86_460_000), ("PT0.5S", 500), ("pt2m", 120_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1D", "P1H", "PT1D", "P-1D", "PT1H30"])
def test_malformed_durations_are_refused(text: str) -> None:
    with pytest.raises(CliError, match="--by-duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize("count", [1, 2])
def test_a_plan_that_was_exported_is_read(count: int, tmp_path: Path) -> None:
    plans = [ResetPlan(f"g{n}", {("t,opic", 0): (None, 5), ("u", 3): (1, 6 + n)}) for n in range(count)]
    path = tmp_path / "plan.csv"
    path.write_text(export_plan(plans))
    listed = requested_position(**NOTHING | {"file": path}).listed
    groups = [""] if count == 1 else ["g0", "g1"]
    assert listed == {group: {("t,opic", 0): 5, ("u", 3): 6 + n} for n, group in enumerate(groups)}


@pytest.mark.parametrize("text", ["t,0\n", "t,zero,1\n", "a,b,c,d,e\n"])
def test_an_invalid_plan_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(text)
    with pytest.raises(CliError, match="line 1 is not topic,partition,offset"):
        requested_position(**NOTHING | {"file": path})
    with pytest.raises(CliError, match="No such file"):
        requested_position(**NOTHING | {"file": tmp_path / "missing"})


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=1", {"a": "1"}),
        ("a=1,b.c=2", {"a": "1", "b.c": "2"}),
        ("a=[x,y],b=2", {"a": "x,y", "b": "2"}),
        ("a=,b= 2 ", {"a": "", "b": "2"}),
        ("a=http://x?y=z", {"a": "http://x?y=z"}),
        ("a=[]", {"a": ""}),
    ],
)
def test_settings_in_one_option(text: str, settings: dict[str, str]) -> None:
    assert parse_config_list(text) == settings


@pytest.mark.parametrize("text", ["a", "=1", "a=1,b", "a=x,y"])
def test_malformed_settings_are_refused(text: str) -> None:
    with pytest.raises(CliError, match="--add-config"):
        parse_config_list(text)


def test_datetimes_before_1970_are_the_beginning() -> None:
    assert requested_position(**NOTHING | {"duration": "P100000D"}) == Position(timestamp_ms=0)
    assert requested_position(**NOTHING | {"datetime_text": "1960-01-01T00:00:00"}) == Position(timestamp_ms=0)
