"""The console parses the fields of its forms, or refuses them with a line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.admin.offset_reset import Position
from odradek.client.produce import partition_of_key
from odradek.console.browse import BrowseError, parse_partitions, parse_start
from odradek.console.forms import parse_move, parse_names, parse_partition, parse_position, parse_record
from odradek.console.snapshot import Snapshot
from odradek.protocol.messages.describe_cluster_response import DescribeClusterBroker
from odradek.protocol.messages.metadata_response import MetadataResponsePartition, MetadataResponseTopic

SNAPSHOT = Snapshot(
    1,
    0.0,
    0,
    brokers={broker: DescribeClusterBroker(broker_id=broker) for broker in (1, 2)},
    topics={"t": MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition(partition_index=0)])},
)


def test_fields_are_parsed() -> None:
    assert parse_partitions("") == parse_names(" , ") == []
    assert parse_names(" b, a,b ") == ["b", "a"]
    assert parse_partitions(" 2, 0,2 ") == [0, 2]
    assert parse_start("offset", " 17 ") == 17
    assert parse_start("time", "1970-01-01 00:00:01.5") == 1500
    assert parse_start("time", "1970-01-01T01:00:01+01:00") == 1000
    assert parse_start("end", "anything") == 0
    assert parse_position("latest", "x") == Position(edge="latest")
    assert parse_position("shift", "-100") == Position(shift=-100)
    assert parse_position("shift", "+5") == Position(shift=5)
    assert parse_position("offset", "5") == Position(offset=5)
    assert parse_position("time", "1970-01-01") == Position(timestamp_ms=0)
    assert parse_partition(" ") is None
    assert parse_partition("3") == 3
    assert parse_move(SNAPSHOT, " t ", "0", "2, 1") == (("t", 0), [2, 1])
    record = parse_record("k", "v", "a=1\n\n b = 2=3 ")
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("a", b"1"), ("b ", b" 2=3")))
    assert parse_record("", None, "").key is parse_record("", None, "").value is None


@pytest.mark.parametrize(
    ("read", "line"),
    [
        (lambda: parse_partitions("0;1"), "partitions are whole numbers"),
        (lambda: parse_start("offset", "-1"), "an offset is a whole number"),
        (lambda: parse_start("offset", "9" * 30), "an offset is a whole number"),
        (lambda: parse_start("time", "yesterday"), "a time is as 2026-01-31"),
        (lambda: parse_position("shift", "1.5"), "a number of records is a whole number"),
        (lambda: parse_partition("x"), "a partition is a whole number"),
        (lambda: parse_record("", "", "no header"), "a header is name=value"),
        (lambda: parse_move(SNAPSHOT, "t", "1", "1"), "there is no partition t-1"),
        (lambda: parse_move(SNAPSHOT, "t", "0", "1,3"), "brokers are as 1,2,3, each once, of 1, 2"),
        (lambda: parse_move(SNAPSHOT, "t", "0", "1,1"), "each once"),
        (lambda: parse_move(None, "t", "0", "1"), "there is no partition t-0"),
    ],
)
def test_a_field_that_cannot_be_parsed_gets_one_line(read: Callable[[], object], line: str) -> None:
    with pytest.raises(BrowseError, match=line):
        read()


def test_keys_are_spread_over_all_partitions() -> None:
    assert {partition_of_key(b"%d" % at, 6) for at in range(100)} == set(range(6))
    assert partition_of_key(b"", 1) == 0
