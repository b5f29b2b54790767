"""Parses forms into requests. Pure: no I/O and no front end."""

from __future__ import annotations

import time

from odradek.admin.offset_reset import Position
from odradek.admin.topic_plans import NewTopic
from odradek.common.numbers import INT16_MAX, INT32_MAX, parse_natural
from odradek.common.topic_names import TopicPartition
from odradek.console.browse import BrowseError, parse_start
from odradek.console.snapshot import Snapshot
from odradek.record.record import Header, Record


def parse_position(to: str, text: str) -> Position:
    """The position in the form. Raises BrowseError."""
    if to in ("earliest", "latest"):
        return Position(edge=to)
    if to == "shift":
        sign, digits = (-1, text.strip()[1:]) if text.strip().startswith("-") else (1, text.strip().removeprefix("+"))
        count = parse_natural(digits, 1 << 62)
        if count is None:
            raise BrowseError(f"a number of records is a whole number, as -100, not {text[:40]!r}")
        return Position(shift=sign * count)
    at = parse_start(to, text)
    return Position(offset=at) if to == "offset" else Position(timestamp_ms=at)


def parse_move(snapshot: Snapshot | None, topic: str, partition: str, brokers: str) -> tuple[TopicPartition, list[int]]:
    """The moves in the form. Raises BrowseError for unknown topics and brokers."""
    index = parse_natural(partition.strip(), INT32_MAX)
    if index is None or snapshot is None or snapshot.partition((topic.strip(), index)) is None:
        raise BrowseError(f"there is no partition {topic.strip()[:100]}-{partition.strip()[:20]}")
    wanted = [parse_natural(part.strip(), INT32_MAX) for part in brokers.split(",")]
    there = snapshot.brokers
    found = [broker for broker in wanted if broker is not None and broker in there]
    if len(found) != len(wanted) or len(set(found)) != len(found):
        raise BrowseError(
            f"brokers are as 1,2,3, each once, of {', '.join(map(str, sorted(there)))}; not {brokers[:60]!r}"
        )
    return (topic.strip(), index), found


def parse_partition(text: str) -> int | None:
    """The partition, or None where the key decides. Raises BrowseError."""
    if not text.strip():
        return None
    index = parse_natural(text.strip(), INT32_MAX)
    if index is None:
        raise BrowseError(f"a partition is a whole number, not {text[:40]!r}")
    return index


def parse_count(text: str, what: str) -> int | None:
    """The number, or None for the brokers' default. Raises BrowseError."""
    if not text.strip():
        return None
    count = parse_natural(text.strip(), INT32_MAX)
    if not count:
        raise BrowseError(f"{what} are a whole number above 0, not {text[:40]!r}")
    return count


def parse_new_topic(name: str, partitions: str, replicas: str, settings: str) -> NewTopic:
    """The topic in the form; settings are key=value, one in each line. Raises BrowseError."""
    found: dict[str, str] = {}
    for line in filter(None, (each.strip() for each in settings.splitlines())):
        key, sign, value = line.partition("=")
        if not sign or not key.strip():
            raise BrowseError(f"a setting is key=value, not {line[:60]!r}")
        found[key.strip()] = value.strip()
    factor = parse_count(replicas, "replicas")
    if factor is not None and factor > INT16_MAX:
        raise BrowseError(f"replicas are at most {INT16_MAX:,}")
    return NewTopic(name.strip(), parse_count(partitions, "partitions"), factor, found)


def parse_names(text: str) -> list[str]:
    """Names with commas between them, each once; none is an empty list."""
    return list(dict.fromkeys(name for each in text.split(",") if (name := each.strip())))


def parse_record(key: str, value: str | None, headers: str) -> Record:
    """The record in the form; an empty key is null. Raises BrowseError."""
    found: list[Header] = []
    for line in filter(None, (each.strip() for each in headers.splitlines())):
        name, sign, text = line.partition("=")
        if not sign or not name:
            raise BrowseError(f"a header is name=value, not {line[:40]!r}")
        found.append((name, text.encode()))
    return Record(
        key.encode() if key else None,
        None if value is None else value.encode(),
        tuple(found),
        time.time_ns() // 1_000_000,
    )
