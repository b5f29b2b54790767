"""Reads records for pages: start positions, searches, and limits."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from odradek.client.cluster import Cluster
from odradek.client.fetch import Fetched, fetch_records
from odradek.client.groups import EARLIEST, LATEST, list_offsets
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.numbers import INT32_MAX, INT64_MAX, parse_natural
from odradek.common.topic_names import TopicPartition
from odradek.console.texts import cell
from odradek.record.record import Header, Record

# The limit of one search, which then reports its position.
MAX_ROWS = 500
MAX_RECORDS, MAX_BYTES, MAX_S = 100_000, 64 << 20, 15.0
FETCH_BYTES = 1 << 20
# A batch that is larger when decompressed is not shown.
MAX_BATCH_BYTES = 32 << 20
# So many records from the end of each partition are searched through.
SEARCHED_FROM_END = 10_000
# The number of records after which the time limit is checked, and other tasks run.
STEP = 2_000
STARTS = ("end", "beginning", "time", "offset")


class BrowseError(OdradekError):
    """The requested records cannot be read; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class Search:
    """The texts that records must contain, case-insensitive; "" matches all."""

    key: str = ""
    value: str = ""
    header: str = ""

    def matches(self, record: Record) -> bool:
        """Whether a record has all of it."""
        return (
            _contains(self.key, record.key)
            and _contains(self.value, record.value)
            and (not self.header or any(self._in_header(header) for header in record.headers))
        )

    def _in_header(self, header: Header) -> bool:
        """`name` or `name=value` is in it."""
        name, value = header
        return _contains(self.header, name.encode() + b"=" + (value or b""))

    def __bool__(self) -> bool:
        return bool(self.key or self.value or self.header)


def _contains(wanted: str, data: bytes | None) -> bool:
    if not wanted:
        return True
    if data is None:
        return False
    needle = wanted.encode(errors="surrogatepass")
    return needle in data or needle.lower() in data.lower()


@dataclass(frozen=True, slots=True)
class Row:
    """A record in a table: the beginnings of its parts, and where the whole is."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str
    value: str
    headers: int
    size: int


@dataclass(slots=True)
class SearchResult:
    """The result of a search.

    Attributes:
        looked_at: the number of read records; ended: why it ended early, or "".
        next_offsets: the next offset of each partition.
    """

    rows: list[Row] = field(default_factory=list)
    looked_at: int = 0
    read_bytes: int = 0
    ended: str = ""
    notes: list[str] = field(default_factory=list)
    next_offsets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A window of a topic, with a filter.

    Attributes:
        partitions: the partitions; all if empty.
        start: one of STARTS; at: the time (ms) or the offset of that start.
        committed: omit records of transactions that are open or aborted.
    """

    topic: str
    partitions: Sequence[int] = ()
    start: str = "end"
    at: int = 0
    rows: int = 50
    search: Search = Search()
    committed: bool = True
    schema: str | None = None


def parse_start(start: str, text: str) -> int:
    """The time or the offset that a start needs; 0 for one that needs none. Raises BrowseError."""
    text = text.strip()
    if start == "offset":
        offset = parse_natural(text, INT64_MAX)
        if offset is None:
            raise BrowseError(f"an offset is a whole number, not {text[:40]!r}")
        return offset
    if start != "time":
        return 0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BrowseError(f"a time is as 2026-01-31 12:00:00, in UTC, not {text[:40]!r}") from None
    return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def parse_partitions(text: str) -> list[int]:
    """`0,2` → the partitions; nothing is all of them. Raises BrowseError."""
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        index = parse_natural(part, INT32_MAX)
        if index is None:
            raise BrowseError(f"partitions are whole numbers with commas between, not {part[:40]!r}")
        found.append(index)
    return sorted(set(found))


async def browse(cluster: Cluster, query: SearchQuery) -> SearchResult:
    """Read a window of a topic.

    Raises:
        BrowseError: a partition that the topic does not have.
        ApiError: an error of the brokers.
    """
    keys = await _partitions(cluster, query)
    first = await list_offsets(cluster, dict.fromkeys(keys, EARLIEST))
    last = await list_offsets(cluster, dict.fromkeys(keys, LATEST))
    starts = await _starts(cluster, query, keys, first, last)
    reading = _Reading(cluster, query)
    for key in keys:
        await reading.partition(key, starts[key], last[key])
    return reading.result()


async def begin_following(cluster: Cluster, query: SearchQuery) -> dict[int, int]:
    """The present end of each partition: a live tail begins there, whatever the form's start is."""
    ends = await list_offsets(cluster, dict.fromkeys(await _partitions(cluster, query), LATEST))
    return {index: offset for (_, index), offset in ends.items()}


async def follow(cluster: Cluster, query: SearchQuery, offsets: Mapping[int, int]) -> SearchResult:
    """The records from these offsets on, for a live tail. The newest first."""
    reading = _Reading(cluster, replace(query, start="end"))
    ends = await list_offsets(cluster, dict.fromkeys(((query.topic, index) for index in offsets), LATEST))
    for index, offset in offsets.items():
        # A browser that cannot keep up shows the newest records, not all of them.
        begin = max(offset, ends[query.topic, index] - MAX_ROWS)
        await reading.partition((query.topic, index), begin, ends[query.topic, index])
    return reading.result()


async def read_one(cluster: Cluster, topic: str, partition: int, offset: int, *, committed: bool = True) -> Record:
    """One whole record. Raises BrowseError if it is deleted."""
    fetched = await fetch_records(
        cluster, (topic, partition), offset, max_bytes=1, max_batch_bytes=MAX_BATCH_BYTES, committed=committed
    )
    for record in fetched.records:
        if record.offset == offset:
            return record
    for _, why in fetched.unreadable:
        raise BrowseError(f"{topic}-{partition}, offset {offset} cannot be read: {why}")
    raise BrowseError(f"{topic}-{partition} has no record with offset {offset}")


async def _partitions(cluster: Cluster, query: SearchQuery) -> list[TopicPartition]:
    known = sorted(partition.partition_index for partition in (await cluster.topic(query.topic)).partitions)
    for index in query.partitions:
        if index not in known:
            raise BrowseError(f"topic {query.topic} has no partition {index}; it has {len(known)}")
    return [(query.topic, index) for index in query.partitions or known]


async def _starts(
    cluster: Cluster,
    query: SearchQuery,
    keys: Sequence[TopicPartition],
    first: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if query.start == "time":
        at = await list_offsets(cluster, dict.fromkeys(keys, query.at))
        return {key: at[key] if at[key] >= 0 else last[key] for key in keys}
    if query.start == "offset":
        return {key: min(max(query.at, first[key]), last[key]) for key in keys}
    if query.start == "beginning":
        return dict(first)
    back = SEARCHED_FROM_END if query.search else query.rows
    return {key: max(first[key], last[key] - back) for key in keys}


class _Reading:
    """One search, within its bounds."""

    def __init__(self, cluster: Cluster, query: SearchQuery) -> None:
        self._cluster = cluster
        self._query = query
        self._limit = min(query.rows, MAX_ROWS)
        self._deadline_s = time.monotonic() + MAX_S
        self._rows: list[tuple[int, int, int, Row]] = []
        self._found = SearchResult()

    async def partition(self, key: TopicPartition, offset: int, end: int) -> None:
        """Read one partition from an offset up to its end, exclusive."""
        here = 0
        while offset < end and not self._is_over():
            fetched = await self._fetch(key, offset)
            if fetched is None:
                break
            here += await self._add_matches(key[1], fetched, end)
            if fetched.next_offset <= offset:
                break  # the remaining records are of an open transaction
            offset = fetched.next_offset
            if self._query.start != "end" and here >= self._limit:
                break
        self._found.next_offsets[key[1]] = offset

    def result(self) -> SearchResult:
        """All of it, in the order of time; the newest where the start is the end, else the first."""
        keep = heapq.nlargest if self._query.start == "end" else heapq.nsmallest
        self._found.rows = [row for *_, row in sorted(keep(self._limit, self._rows))]
        if self._query.start == "end":
            self._found.rows.reverse()
        return self._found

    async def _fetch(self, key: TopicPartition, offset: int) -> Fetched | None:
        try:
            fetched = await fetch_records(
                self._cluster,
                key,
                offset,
                max_bytes=FETCH_BYTES,
                max_batch_bytes=MAX_BATCH_BYTES,
                committed=self._query.committed,
            )
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._found.notes.append(f"partition {key[1]}: offset {offset} is gone meanwhile")
            return None
        self._found.read_bytes += fetched.read_bytes
        self._found.notes += [f"partition {key[1]}, offset {base}: {why}" for base, why in fetched.unreadable]
        return fetched

    async def _add_matches(self, partition: int, fetched: Fetched, end: int) -> int:
        taken = 0
        for count, record in enumerate(fetched.records):
            if record.offset >= end:
                break
            self._found.looked_at += 1
            if self._query.search.matches(record):
                row = _row(partition, record, self._query.schema)
                self._rows.append((record.timestamp_ms, partition, record.offset, row))
                taken += 1
            if count % STEP == STEP - 1:
                await asyncio.sleep(0)
        self._drop_surplus()
        return taken

    def _drop_surplus(self) -> None:
        """Drop rows that will not be shown, to limit memory."""
        if len(self._rows) > 4 * self._limit:
            keep = heapq.nlargest if self._query.start == "end" else heapq.nsmallest
            self._rows = keep(self._limit, self._rows)

    def _is_over(self) -> bool:
        found = self._found
        if found.looked_at >= MAX_RECORDS:
            found.ended = f"after {found.looked_at:,} records"
        elif found.read_bytes >= MAX_BYTES:
            found.ended = f"after {found.read_bytes >> 20} MiB"
        elif time.monotonic() >= self._deadline_s:
            found.ended = f"after {MAX_S:.0f} s"
        return bool(found.ended)


def _row(partition: int, record: Record, schema: str | None) -> Row:
    size = len(record.key or b"") + len(record.value or b"")
    return Row(
        partition,
        record.offset,
        record.timestamp_ms,
        cell(record.key),
        cell(record.value, schema),
        len(record.headers),
        size,
    )
