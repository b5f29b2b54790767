"""The lag of mirrors, and the reasons and times at which they stopped: for the metrics and `links describe`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from odradek.client.login import RefusedLoginError
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.metrics import Family, Sample

if TYPE_CHECKING:
    from odradek.link.mirroring import MirroredPartition

Labels = tuple[tuple[str, str], ...]


class Why(StrEnum):
    """Why a link, a topic or a partition is not mirrored; NOTHING if it is."""

    NOTHING = ""
    DIVERGED = "diverged"
    RECREATED = "recreated"
    UNAUTHORIZED = "unauthorized"
    UNREACHABLE = "unreachable"
    MOVING = "moving"
    REFUSED = "refused"
    FAILBACK = "failback"


_UNAUTHORIZED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    }
)


def why_of(error: Exception) -> Why:
    """The kind of an error of the source or of the network."""
    if isinstance(error, RefusedLoginError):
        return Why.UNAUTHORIZED
    if isinstance(error, ApiError):
        return why_of_code(error.code)
    return Why.UNREACHABLE if isinstance(error, OSError) else Why.REFUSED


def why_of_code(code: ErrorCode) -> Why:
    """The kind of an error code of the source."""
    if code in _UNAUTHORIZED:
        return Why.UNAUTHORIZED
    if code is ErrorCode.BROKER_NOT_AVAILABLE:
        return Why.UNREACHABLE
    return Why.RECREATED if code is ErrorCode.INCONSISTENT_TOPIC_ID else Why.REFUSED


@dataclass(frozen=True, slots=True)
class Reason:
    """
    Attributes:
        since_ms: its begin, in ms since 1970 UTC.
    """

    why: Why = Why.NOTHING
    text: str = ""
    since_ms: int = -1

    def followed_by(self, why: Why, text: str, now_ms: int) -> Reason:
        """The new reason; it keeps its begin if the kind is the same, even if the text differs."""
        return Reason(why, text, self.since_ms if why is self.why else now_ms)

    def shown(self) -> dict[str, Any]:
        return {"why": str(self.why), "reason": self.text, "since_ms": self.since_ms}


NO_REASON = Reason()


class Reasons:
    """The reasons of a link by name: "" is the link itself."""

    def __init__(self) -> None:
        self._by_name: dict[str, Reason] = {}

    def of(self, *names: str) -> Reason:
        """The first reason that one of these names has."""
        return next((self._by_name[name] for name in names if name in self._by_name), NO_REASON)

    def set(self, name: str, why: Why, text: str, now_ms: int) -> bool:
        """Store a reason; returns whether its text has changed."""
        old = self.of(name)
        if why is Why.NOTHING:
            self._by_name.pop(name, None)
        else:
            self._by_name[name] = old.followed_by(why, text, now_ms)
        return old.text != text


@dataclass(frozen=True, slots=True)
class Measure:
    """A partition of a mirror whose leader is this broker.

    Attributes:
        state: active, paused, stopped (until an administrator acts), waiting, or failback (it is to be cut).
        source_end: the source's last known high watermark; -1 if unknown.
        seconds: since the mirror last had all records of the source; 0 if it has them.
        bytes: of fetched batches, since this broker leads the partition.
        skipped: offsets that the source deleted before they were fetched, since then.
        cut: the cut of its log in a failback, and the failback file.
    """

    topic: str
    partition: int
    state: str
    reason: Reason
    end: int
    source_end: int
    seconds: float
    bytes: int
    skipped: int
    cut: Mapping[str, Any] | None = None

    @property
    def records(self) -> int | None:
        """The lag in offsets; None if unknown."""
        return None if self.source_end < 0 else max(0, self.source_end - self.end)

    def shown(self) -> dict[str, Any]:
        """The fields for `links describe`."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "state": self.state,
            "end": self.end,
            "source_end": None if self.source_end < 0 else self.source_end,
            "lag": self.records,
            "lag_seconds": round(self.seconds, 3),
            "bytes": self.bytes,
            "skipped": self.skipped,
            "cut": self.cut,
            **self.reason.shown(),
        }


def measure(mirrored: MirroredPartition, reasons: Reasons, now_ms: int) -> Measure:
    """The state of one partition."""
    partition = mirrored.partition
    reason = mirrored.reason if mirrored.reason.text else reasons.of(partition.topic, "")
    end = partition.log.log_end_offset
    has_all = mirrored.source_end >= 0 and end >= mirrored.source_end
    if partition.is_failing_back and not mirrored.stopped:
        state = "failback"
    elif mirrored.is_paused:
        state = "paused"
    elif mirrored.stopped:
        state = "stopped"
    else:
        state = "waiting" if reason.text else "active"
    is_whole = has_all and state in ("active", "paused")
    return Measure(
        partition.topic,
        partition.partition_id,
        state,
        reason,
        end,
        mirrored.source_end,
        0.0 if is_whole else max(0, now_ms - mirrored.caught_up_ms) / 1000,
        mirrored.bytes,
        mirrored.skipped,
        None if mirrored.cut is None else mirrored.cut.shown(partition.broker_id),
    )


@dataclass(frozen=True, slots=True)
class LinkMeasures:
    """One link on this broker.

    Attributes:
        reason: why the source is not reached from this broker.
        topics: the reasons of whole topics.
        beside: the reasons of offsets, ACLs and topic settings.
    """

    link: str
    reason: Reason
    topics: Mapping[str, Reason]
    beside: Mapping[str, Reason]
    partitions: list[Measure]

    def shown(self) -> dict[str, Any]:
        """The fields for `links describe`."""
        return {
            "link": self.link,
            **self.reason.shown(),
            "topics": {topic: reason.shown() for topic, reason in self.topics.items() if reason.text},
            "beside": {what: reason.shown() for what, reason in self.beside.items() if reason.text},
            "partitions": [each.shown() for each in self.partitions],
        }


def link_families(links: Iterable[LinkMeasures], now_ms: int) -> Iterator[Family]:
    """The metrics of the partitions that a broker mirrors."""
    measured = list(links)
    every = [(link, each) for link in measured for each in link.partitions]

    def labels(link: LinkMeasures, each: Measure) -> Labels:
        return ("link", link.link), ("topic", each.topic), ("partition", str(each.partition))

    def family(name: str, kind: str, text: str, value: Callable[[Measure], float | None]) -> Family:
        found = ((value(each), labels(link, each)) for link, each in every)
        return Family(name, kind, text, tuple(Sample(number, at) for number, at in found if number is not None))

    yield family(
        "odradek_link_lag_records",
        "gauge",
        "Offsets that a mirror led here is behind its source's high watermark.",
        lambda each: each.records,
    )
    yield family(
        "odradek_link_lag_seconds",
        "gauge",
        "How long ago a mirror led here had all that its source had; 0 where nothing is missing.",
        lambda each: each.seconds,
    )
    yield family(
        "odradek_link_bytes", "counter", "Bytes of batches that came over a link, compressed.", lambda each: each.bytes
    )
    yield family(
        "odradek_link_skipped_offsets",
        "counter",
        "Offsets that a source had deleted before a mirror led here fetched them.",
        lambda each: each.skipped,
    )
    yield Family(
        "odradek_link_state",
        "gauge",
        "1 for each partition of a mirror led here: its state (active, paused, stopped, waiting, failback) and reason.",
        tuple(
            Sample(1, (*labels(link, each), ("state", each.state), ("reason", str(each.reason.why))))
            for link, each in every
        ),
    )
    yield Family(
        "odradek_link_down_seconds",
        "gauge",
        "How long a link's source has not answered this broker, with the reason; 0 while it does.",
        tuple(
            Sample(
                max(0, now_ms - each.reason.since_ms) / 1000 if each.reason.text else 0,
                (("link", each.link), ("reason", str(each.reason.why))),
            )
            for each in measured
        ),
    )
