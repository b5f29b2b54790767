"""Counters of a node: plain ints that the hot path increments, shown in Prometheus' format.

Counting costs an addition. `families()` is called at each scrape, and computes the other metrics from the parts of the
node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID


class Sample(NamedTuple):
    """One value; `labels` are (name, value) pairs."""

    value: float
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Histogram:
    """A distribution of values: (upper bound, how many are within it), the last bound being +Inf, and their sum."""

    buckets: tuple[tuple[str, int], ...]
    sum: float
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its samples.

    `kind` is "counter", "gauge", "untyped", or "histogram", which has histograms instead.
    """

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...] = ()
    histograms: tuple[Histogram, ...] = ()

    @property
    def exposed_name(self) -> str:
        """The name in a scrape: a counter's ends in `_total`."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @classmethod
    def counter(cls, name: str, text: str, value: float) -> Family:
        """A counter with one value."""
        return cls(name, "counter", text, (Sample(value),))

    @classmethod
    def gauge(cls, name: str, text: str, value: float) -> Family:
        """A gauge with one value."""
        return cls(name, "gauge", text, (Sample(value),))


Source = Callable[[], Iterable[Family]]


@dataclass(slots=True)
class Written:
    """The counters of produced records of a topic."""

    bytes: int = 0
    records: int = 0
    batches: int = 0


@dataclass(slots=True)
class Given:
    """The counters of fetched records of a topic, and of responses."""

    bytes: int = 0
    answers: int = 0


@dataclass(slots=True)
class Metrics:
    """The counters of the hot path, and the other sources of metrics.

    Attributes:
        topics: produced records, by topic.
        consumed, replicated: records fetched by consumers and followers, by the topic's name or id in the request.
        refused, unread: refused partitions of Produce requests, and partitions led here that a Fetch could not read, by
            the name of the topic.
        waiting_produces: Produce requests that wait for their acknowledgement.
        denials: by API key.
    """

    produced_bytes: int = 0
    produced_records: int = 0
    produced_batches: int = 0
    fetched_bytes: int = 0
    fetch_count: int = 0
    topics: dict[str, Written] = field(default_factory=dict)
    consumed: dict[str | UUID, Given] = field(default_factory=dict)
    replicated: dict[str | UUID, Given] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    refused_count: int = 0
    unread_count: int = 0
    replicated_bytes: int = 0
    waiting_produces: int = 0
    denials: dict[int, int] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)

    def produced(self, topic: str, size_bytes: int, record_count: int) -> None:
        """One batch was appended."""
        written = self.topics.get(topic)
        if written is None:
            written = self.topics[topic] = Written()
        written.bytes += size_bytes
        written.records += record_count
        written.batches += 1
        self.produced_bytes += size_bytes
        self.produced_records += record_count
        self.produced_batches += 1

    def fetched(self, size_bytes: int, *, is_follower: bool = False) -> None:
        """One Fetch was answered."""
        self.fetched_bytes += size_bytes
        self.fetch_count += 1
        if is_follower:
            self.replicated_bytes += size_bytes

    def produce_failed(self, topic: str) -> None:
        """Count a refused partition of a Produce request."""
        self.refused_count += 1
        self.refused[topic] = self.refused.get(topic, 0) + 1

    def fetch_failed(self, topic: str) -> None:
        """A partition of a topic could not be read."""
        self.unread_count += 1
        self.unread[topic] = self.unread.get(topic, 0) + 1

    def denied(self, api_key: int) -> None:
        """An operation was denied."""
        self.denials[api_key] = self.denials.get(api_key, 0) + 1

    def remove_topics(self, is_gone: Callable[[str | UUID], bool]) -> None:
        """Drop the counts of topics that are no more."""
        kept: tuple[dict[Any, Any], ...] = (self.topics, self.consumed, self.replicated, self.refused, self.unread)
        for counts in kept:
            for key in [key for key in counts if is_gone(key)]:
                del counts[key]

    def remove(self, keys: Iterable[str | UUID]) -> None:
        """Drop the counts of topics that were deleted, by their names and ids."""
        for key in keys:
            for counts in (self.consumed, self.replicated):
                counts.pop(key, None)
            if isinstance(key, str):
                for named in (self.topics, self.refused, self.unread):
                    named.pop(key, None)

    def add(self, *sources: Source) -> None:
        """Scrapes have the families of these, too."""
        self.sources += sources

    def families(self) -> list[Family]:
        """Everything, as of now."""
        return [family for part in self.parts() for family in part]

    def parts(self) -> Iterator[list[Family]]:
        """The same, source by source: of ten thousand partitions each takes milliseconds."""
        yield [
            Family.counter("odradek_produced_bytes", "Bytes of batches appended by producers.", self.produced_bytes),
            Family.counter("odradek_produced_records", "Records appended by producers.", self.produced_records),
            Family.counter("odradek_produced_batches", "Record batches appended by producers.", self.produced_batches),
            Family.counter("odradek_fetched_bytes", "Bytes of record batches given to readers.", self.fetched_bytes),
            Family.counter("odradek_fetches", "Fetch requests answered.", self.fetch_count),
            Family.counter(
                "odradek_replicated_bytes", "Bytes of record batches given to followers.", self.replicated_bytes
            ),
            Family.counter(
                "odradek_produce_failures", "Partitions in Produce requests that were refused.", self.refused_count
            ),
            Family.counter(
                "odradek_fetch_failures", "Partitions led here that a Fetch could not read.", self.unread_count
            ),
        ]
        for source in tuple(self.sources):
            yield list(source())
