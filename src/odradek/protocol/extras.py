"""Odradek's additions to Kafka's messages: tagged fields (KIP-482), which other peers skip.

A response has such a field only if the request has the same field, so that no other client gets one. The tags are far
above those of Kafka, which count from 0. See
docs/adr/0007-group-timelines.md.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from odradek.protocol.declare import Message

# DescribeGroups from version 5 on, request (empty) and response (UTF-8 JSON: a list with one object for each group that
# something is known of).
GROUP_TIMELINES_TAG = 0x6F6452
GROUP_TIMELINES_VERSION = 5


# BrokerHeartbeat, request: the ids of the log directories that are full, 16 bytes each; none without the field.
FULL_LOG_DIRS_TAG = 0x6F6453


def full_log_dirs_field(directories: Sequence[UUID]) -> tuple[int, bytes]:
    """The field of a heartbeat."""
    return FULL_LOG_DIRS_TAG, b"".join(directory.bytes for directory in directories)


def read_full_log_dirs(request: Message) -> frozenset[UUID]:
    """The full log directories of a broker; an incomplete last id is ignored."""
    found = next((data for tag, data in request.unknown_tagged_fields if tag == FULL_LOG_DIRS_TAG), b"")
    return frozenset(UUID(bytes=bytes(found[start : start + 16])) for start in range(0, len(found) - 15, 16))


# The machine that a broker runs on, in UTF-8: of BrokerRegistration (request), of RegisterBrokerRecord, and of a broker
# in the response of a DescribeCluster whose request has the field, empty. See docs/adr/0016-broker-host.md.
BROKER_HOST_TAG = 0x6F6455


def broker_host_fields(host: str | None) -> tuple[tuple[int, bytes], ...]:
    """The fields with a broker's machine; none if it is unknown."""
    return () if host is None else ((BROKER_HOST_TAG, host.encode()),)


def read_broker_host(message: Message) -> str | None:
    """The machine in a message; None if there is none, or it is not UTF-8."""
    found = next((data for tag, data in message.unknown_tagged_fields if tag == BROKER_HOST_TAG), b"")
    try:
        return bytes(found).decode() or None
    except UnicodeDecodeError:
        return None


def asks_for_hosts(request: Message) -> bool:
    """Whether a DescribeCluster request includes the machines of the brokers."""
    return any(tag == BROKER_HOST_TAG for tag, _ in request.unknown_tagged_fields)


# DescribeCluster, of a broker, request (empty) and response (UTF-8 JSON: a list with one object for each link, as the
# broker that answers knows it). See docs/links.md.
LINKS_TAG = 0x6F6456


def links_field(links: Sequence[dict[str, Any]] | None = None) -> tuple[int, bytes]:
    """The field of the request, or of the response if there are `links`."""
    return LINKS_TAG, b"" if links is None else json.dumps(links).encode()


def asks_for_links(request: Message) -> bool:
    """Whether a DescribeCluster request includes the state of links."""
    return any(tag == LINKS_TAG for tag, _ in request.unknown_tagged_fields)


def read_links(response: Message) -> list[dict[str, Any]]:
    """The state of links in a response; empty if there is none, or it is invalid."""
    found = next((bytes(data) for tag, data in response.unknown_tagged_fields if tag == LINKS_TAG), b"[]")
    try:
        links = json.loads(found)
    except ValueError:
        return []
    return [each for each in links if isinstance(each, dict)] if isinstance(links, list) else []


def asks_for_timelines(request: Message) -> bool:
    """Whether a DescribeGroups request includes timelines."""
    return any(tag == GROUP_TIMELINES_TAG for tag, _ in request.unknown_tagged_fields)


def timelines_field(timelines: Sequence[dict[str, Any]] | None = None) -> tuple[int, bytes]:
    """The field of the request, or of the response if there are `timelines`."""
    return GROUP_TIMELINES_TAG, b"" if timelines is None else json.dumps(timelines).encode()


def read_timelines(response: Message) -> list[dict[str, Any]] | None:
    """The timelines in a response; None if there are none, or they are invalid."""
    for tag, data in response.unknown_tagged_fields:
        if tag == GROUP_TIMELINES_TAG:
            try:
                found = json.loads(data)
            except ValueError:
                return None
            return found if isinstance(found, list) else None
    return None


# ListOffsets from version 6 on, of a partition, request: offsets; response: the time of the first record from each of
# them on, in ms since 1970 UTC. Both are numbers of eight bytes. See docs/metrics.md.
OFFSET_TIMES_TAG = 0x6F6454
# The limit of one request; further offsets get no times.
OFFSET_TIMES_LIMIT = 1000
NO_RECORD_TIME = -1
UNKNOWN_TIME = -2


def offset_times_field(numbers: Sequence[int]) -> tuple[int, bytes]:
    """The field of a request (offsets), or of a response (times)."""
    return OFFSET_TIMES_TAG, struct.pack(f">{len(numbers)}q", *numbers)


def read_offset_times(partition: Message) -> tuple[int, ...]:
    """The numbers of the field; bytes that are not a whole number are left out."""
    for tag, data in partition.unknown_tagged_fields:
        if tag == OFFSET_TIMES_TAG:
            count = len(data) // 8
            return struct.unpack_from(f">{count}q", data)
    return ()
