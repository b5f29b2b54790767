"""Counters of a node: plain ints, added to on the hot path, and shown in Prometheus' format when somebody asks.

Counting costs an addition. `families()` is called for each scrape and computes the rest from what the parts of the node
know of themselves; prometheus_client is imported only where a scrape is served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sample:
    """One value; `labels` are (name, value) pairs."""

    value: float
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Histogram:
    """How values are spread: (upper bound, how many are within it), the last bound being +Inf, and their sum."""

    buckets: tuple[tuple[str, int], ...]
    sum: float
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its samples; `kind` is "counter", "gauge", or "histogram", which has histograms instead."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...] = ()
    histograms: tuple[Histogram, ...] = ()

    @property
    def exposed_name(self) -> str:
        """The name in a scrape: prometheus_client appends `_total` to a counter's."""
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
class Metrics:
    """What the hot path counts, and who else has something to tell."""

    produced_bytes: int = 0
    produced_records: int = 0
    produced_batches: int = 0
    fetched_bytes: int = 0
    fetch_count: int = 0
    sources: list[Source] = field(default_factory=list)

    def produced(self, size_bytes: int, record_count: int) -> None:
        """One batch was appended."""
        self.produced_bytes += size_bytes
        self.produced_records += record_count
        self.produced_batches += 1

    def fetched(self, size_bytes: int) -> None:
        """One Fetch was answered."""
        self.fetched_bytes += size_bytes
        self.fetch_count += 1

    def add(self, *sources: Source) -> None:
        """Scrapes have the families of these, too."""
        self.sources += sources

    def families(self) -> list[Family]:
        """Everything, as of now."""
        own = [
            Family.counter("odradek_produced_bytes", "Bytes of batches appended by producers.", self.produced_bytes),
            Family.counter("odradek_produced_records", "Records appended by producers.", self.produced_records),
            Family.counter("odradek_produced_batches", "Record batches appended by producers.", self.produced_batches),
            Family.counter("odradek_fetched_bytes", "Bytes of record batches given to readers.", self.fetched_bytes),
            Family.counter("odradek_fetches", "Fetch requests answered.", self.fetch_count),
        ]
        return own + [family for source in self.sources for family in source()]
